//! The bytes of a request that are built at each send: entries of URL lists, and requests with variables or cookies.

use crate::plan::Template;
use webdyno_model::workload::body::Body;

/// The bytes of a request that is built for each sending.
#[derive(Debug, Default)]
pub(crate) struct RequestMessage {
    /// Whether they are sent instead of the target's own.
    pub(crate) is_own: bool,
    /// The head, and a body that is not shared.
    pub(crate) head: Vec<u8>,
    /// A body that is shared, else empty.
    pub(crate) body: Body,
}

impl RequestMessage {
    /// Empties it: the template's bytes are sent.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.is_own {
            self.is_own = false;
            self.head.clear();
            if !self.body.is_empty() {
                self.body = Body::default();
            }
        }
    }

    /// An empty head, to be filled; its memory is used again.
    #[inline]
    pub(crate) fn begin(&mut self) -> &mut Vec<u8> {
        self.clear();
        self.is_own = true;
        &mut self.head
    }

    /// The length on the wire of a request to this target.
    #[inline]
    pub(crate) fn length_bytes(&self, template: &Template) -> usize {
        match self.is_own {
            true => self.head.len() + self.body.bytes().len(),
            false => template.length_bytes(),
        }
    }

    /// The unsent bytes after this many sent ones; empty at the end.
    #[inline]
    pub(crate) fn unsent<'a>(&'a self, template: &'a Template, written_bytes: usize) -> &'a [u8] {
        match (self.is_own, self.head.get(written_bytes..)) {
            (false, _) => template.unsent(written_bytes),
            (true, Some(left)) if !left.is_empty() => left,
            (true, _) => self.body.bytes().get(written_bytes - self.head.len()..).unwrap_or_default(),
        }
    }
}

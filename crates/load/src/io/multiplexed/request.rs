//! A request of the engine, which is one of HTTP/1.1, as the header block of HTTP/2 or HTTP/3: RFC 9113, section 8.3.1; RFC
//! 9114, section 4.3.1.
//!
//! The engine sends the same bytes again and again: their block is kept, and valid as long as the table of the codec
//! does not change, which it only does while fields are new.

use super::fields::{FieldEncoder, Indexing};
use crate::io::network_io::SocketError;

/// Requests of a connection whose blocks are kept.
const KEPT_MAX: usize = 8;
/// Longer heads are encoded each time.
const KEPT_BYTES_MAX: usize = 2048;

/// What was encoded.
#[derive(Debug, Default)]
struct Kept {
    /// The head as the engine gave it.
    head: Vec<u8>,
    block: Vec<u8>,
    version: u64,
    facts: RequestFacts,
}

/// What the connection needs to know of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RequestFacts {
    /// Bytes of the head, blank line included.
    pub(crate) head_bytes: usize,
    /// Bytes of the body that follows.
    pub(crate) body_bytes: u64,
    pub(crate) is_head_request: bool,
    /// It is a call of gRPC.
    pub(crate) is_grpc: bool,
}

/// Encodes the requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct RequestEncoder<E> {
    encoder: E,
    kept: Vec<Kept>,
    next: usize,
    block: Vec<u8>,
    name: Vec<u8>,
}

impl<E: FieldEncoder> RequestEncoder<E> {
    /// Its codec.
    pub(crate) fn encoder_mut(&mut self) -> &mut E {
        &mut self.encoder
    }

    /// The block of the request at the start of `bytes`. An error when its head is not complete, or none.
    pub(crate) fn encode(
        &mut self,
        bytes: &[u8],
        secure: bool,
    ) -> Result<(&[u8], RequestFacts), SocketError> {
        let version = self.encoder.version();
        let known =
            self.kept.iter().position(|kept| kept.version == version && bytes.starts_with(&kept.head));
        if let Some(index) = known {
            let kept = &self.kept[index];
            return Ok((&kept.block, kept.facts));
        }
        self.block.clear();
        self.encoder.begin(&mut self.block);
        let facts = self.encode_head(bytes, secure).ok_or(SocketError::Protocol)?;
        // One that changed the table is encoded once more, when the table is as it will stay.
        if self.encoder.version() == version && facts.head_bytes <= KEPT_BYTES_MAX {
            if self.kept.len() < KEPT_MAX {
                self.kept.push(Kept::default());
            }
            let index = self.next % self.kept.len();
            self.next = index + 1;
            let kept = &mut self.kept[index];
            kept.head.clear();
            kept.head.extend_from_slice(&bytes[..facts.head_bytes]);
            kept.block.clone_from(&self.block);
            (kept.version, kept.facts) = (version, facts);
        }
        Ok((&self.block, facts))
    }

    fn encode_head(&mut self, bytes: &[u8], secure: bool) -> Option<RequestFacts> {
        let head_bytes = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
        let (first, fields) = bytes[..head_bytes - 2].split_at(memchr::memchr(b'\n', bytes)? + 1);
        let mut words = first.trim_ascii_end().splitn(3, |&byte| byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let host = lines(fields).find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        let (encoder, block) = (&mut self.encoder, &mut self.block);
        encoder.field(b":method", method, Indexing::Yes, block);
        encoder.field(b":scheme", if secure { b"https" } else { b"http" }, Indexing::Yes, block);
        if let Some((_, host)) = host {
            encoder.field(b":authority", host, Indexing::Yes, block);
        }
        encoder.field(b":path", target, Indexing::No, block);
        let (mut body_bytes, mut is_grpc) = (0, false);
        for (name, value) in lines(fields) {
            self.name.clear();
            self.name.extend(name.iter().map(u8::to_ascii_lowercase));
            if is_of_the_connection(&self.name, value) {
                continue;
            }
            if self.name == b"content-length" {
                body_bytes = std::str::from_utf8(value).ok()?.parse().ok()?;
            }
            is_grpc |= self.name == b"content-type" && value.starts_with(b"application/grpc");
            encoder.field(&self.name, value, indexing(&self.name), block);
        }
        Some(RequestFacts { head_bytes, body_bytes, is_head_request: method == b"HEAD", is_grpc })
    }
}

/// The fields of a head.
fn lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let line = |line: &'_ [u8]| -> Option<(usize, usize)> {
        let colon = memchr::memchr(b':', line)?;
        Some((colon, line.len()))
    };
    fields.split(|&byte| byte == b'\n').filter_map(move |text| {
        let (colon, _) = line(text)?;
        Some((&text[..colon], text[colon + 1..].trim_ascii()))
    })
}

/// Fields that speak of one HTTP/1.1 connection, or that became a pseudo header: section 8.2.2.
fn is_of_the_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"host" | b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
        | b"http2-settings" => true,
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"authorization" | b"proxy-authorization" => Indexing::Never,
        b"cookie" | b"content-length" | b"if-none-match" | b"if-modified-since" | b"referer" => Indexing::No,
        _ => Indexing::Yes,
    }
}

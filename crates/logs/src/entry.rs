//! A line of an access log as its fields: what every format comes to.

use crate::number::position;
use crate::timestamp::Stamp;

/// The fields of one line; all are parts of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Entry<'a> {
    /// Address or host name of the client, as logged; empty where the format has none.
    pub client: &'a [u8],
    /// When: Apache's the beginning of the request, nginx's its end.
    pub time: Option<Stamp>,
    /// Name of the site, of formats that have it; else empty.
    pub host: &'a [u8],
    /// `GET`; empty where no request was understood by the server either.
    pub method: &'a [u8],
    /// Without query; empty where no request was understood by the server either.
    pub path: &'a [u8],
    /// Behind the `?`, as logged.
    pub query: &'a [u8],
    /// Final status; 0 is not known.
    pub status: u16,
    /// Bytes of the response, with or without its header, as the format has it.
    pub bytes: Option<u64>,
    /// How long the server took, microseconds.
    pub service_time_us: Option<u64>,
    /// `User-Agent`; empty where the format has none.
    pub agent: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes a request line apart: `GET /path?query HTTP/1.1`. What is none leaves method and path empty.
    #[inline]
    pub fn set_request(&mut self, line: &'a [u8]) {
        let Some(blank) = position(&line[..line.len().min(24)], b' ') else { return };
        let (method, rest) = (&line[..blank], &line[blank + 1..]);
        let target = match rest.len().checked_sub(9) {
            Some(end) if rest[end..].starts_with(b" HTTP/") => &rest[..end],
            _ => match memchr::memrchr(b' ', rest) {
                Some(end) if rest[end..].starts_with(b" HTTP/") => &rest[..end],
                _ => rest,
            },
        };
        if method.first().is_some_and(u8::is_ascii_uppercase) && !target.is_empty() {
            self.method = method;
            self.set_target(target);
        }
    }

    /// Takes a target apart: path and query; of an absolute URL without scheme and host.
    #[inline]
    pub fn set_target(&mut self, target: &'a [u8]) {
        let target = if target[0] == b'/' { target } else { path_of_absolute(target) };
        match memchr::memchr(b'?', target) {
            Some(mark) => (self.path, self.query) = (&target[..mark], &target[mark + 1..]),
            None => self.path = target,
        }
    }
}

/// `http://host/path` as a proxy is asked for it; anything else as it is. Always a part of the line, as all fields are.
fn path_of_absolute(target: &[u8]) -> &[u8] {
    let Some(mark) = memchr::memmem::find(target, b"://") else { return target };
    let behind = &target[mark + 3..];
    memchr::memchr(b'/', behind).map_or(&target[mark + 1..mark + 2], |slash| &behind[slash..])
}

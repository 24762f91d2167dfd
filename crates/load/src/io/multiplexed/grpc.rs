//! A unary call of gRPC on a lane of HTTP/2: its response is held until the trailers say how it ended, and given to the engine whole, with
//! that as its status. <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
//!
//! A call that ended with `grpc-status: 0` has the status of HTTP, 200. Any other is 900 and its number: nothing of HTTP.

/// From here on a status is one of gRPC.
pub(crate) const STATUS_BASE: u16 = 900;
/// The names of the statuses: <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
/// The status of a call whose response has none, or none that is known.
const UNKNOWN: u16 = 2;
/// Longest message that is received; as long as a body that is kept.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// What is kept of the memory for messages.
const BYTES_KEPT: usize = 64 * 1024;
/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The name of a status that the engine has counted, if it is one of gRPC.
pub(crate) fn status_name(status: u16) -> Option<&'static str> {
    NAMES.get(usize::from(status.checked_sub(STATUS_BASE)?)).copied()
}

/// The value of `grpc-status`.
pub(crate) fn read_status(value: &[u8]) -> u16 {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.filter(|number| usize::from(*number) < NAMES.len()).unwrap_or(UNKNOWN)
}

/// A call in progress; by default none.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) is_active: bool,
    /// The head, as the engine would read it of another request.
    pub(crate) head: Vec<u8>,
    body: Vec<u8>,
}

impl Call {
    /// Makes it ready for the next request.
    pub(crate) fn begin(&mut self, is_active: bool) {
        self.is_active = is_active;
        self.head.clear();
        self.body.clear();
        self.body.shrink_to(BYTES_KEPT);
    }

    /// Adds a piece of the body. False when that is longer than anybody would send.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        self.body.extend_from_slice(bytes);
        self.body.len() <= MESSAGE_BYTES_MAX
    }

    /// The call has ended: writes what the engine reads of it. False when its message is none.
    pub(crate) fn finish(&mut self, trailer: Option<u16>, into: &mut Vec<u8>) -> bool {
        let Some(fields_at) = memchr::memchr(b'\n', &self.head).map(|at| at + 1) else { return false };
        let (first, fields) = self.head.split_at(fields_at);
        let is_grpc_answer = first.starts_with(b"HTTP/1.1 200");
        let own = lines(fields).find(|(name, _)| name == b"grpc-status").map(|(_, value)| read_status(value));
        let status = trailer.or(own).unwrap_or(UNKNOWN);
        let is_message = match self.body.first_chunk::<PREFIX_BYTES>() {
            Some([0 | 1, a, b, c, d]) => {
                u32::from_be_bytes([*a, *b, *c, *d]) as usize == self.body.len() - PREFIX_BYTES
            }
            _ => false,
        };
        match (is_grpc_answer, status) {
            // What stands in front of the server answered.
            (false, _) => into.extend_from_slice(first),
            (true, 0) if !is_message => return false,
            (true, 0) => into.extend_from_slice(first),
            (true, status) => {
                into.extend_from_slice(format!("HTTP/1.1 {} \r\n", STATUS_BASE + status).as_bytes());
            }
        }
        for (name, value) in lines(fields) {
            if name != b"transfer-encoding" && name != b"content-length" {
                into.extend_from_slice(name);
                into.extend_from_slice(b": ");
                into.extend_from_slice(value);
                into.extend_from_slice(b"\r\n");
            }
        }
        into.extend_from_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
        into.extend_from_slice(&self.body);
        true
    }

    /// Memory that it holds.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.head.capacity() + self.body.capacity()
    }
}

/// The fields of a head that this layer has written, name and value each.
fn lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = fields.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter_map(|line| {
        let colon = memchr::memmem::find(line, b": ")?;
        Some((&line[..colon], &line[colon + 2..]))
    })
}

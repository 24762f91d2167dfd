//! A small FastCGI client: one request, answered on a connection of its own.
//!
//! Facts: the FastCGI specification 1.0 (<https://fastcgi-archives.github.io/FastCGI_Specification.html>), sections 3 to 5:
//! records of a header of eight bytes and a content, name-value pairs with lengths of one or four bytes. Written by hand:
//! the clients on crates.io that are kept up need an async runtime, or block without a bound.

use crate::visibility::process_view;
use crate::visibility::process_view::Stream;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Of the complaints of a program so much is kept.
const STDERR_BYTES_MAX: usize = 4 << 10;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;
const REQUEST_ID: u16 = 1;
const HEADER_BYTES: usize = 8;

/// What came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status of the CGI header; 200 where there is none.
    pub status: u16,
    /// What follows the header.
    pub body: Vec<u8>,
    /// What the program complained about.
    pub stderr: Vec<u8>,
}

/// The bytes of a request with these parameters and no body.
pub fn request(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut pairs = vec![];
    for (name, value) in parameters {
        for length in [name.len(), value.len()] {
            match u8::try_from(length) {
                Ok(short @ 0..=127) => pairs.push(short),
                _ => pairs.extend((u32::try_from(length).unwrap_or(0) | 1 << 31).to_be_bytes()),
            }
        }
        pairs.extend(name.as_bytes());
        pairs.extend(value.as_bytes());
    }
    // No flags: the connection ends with the answer.
    let mut bytes = record(BEGIN_REQUEST, &[0, RESPONDER, 0, 0, 0, 0, 0, 0]);
    for part in pairs.chunks(usize::from(u16::MAX)) {
        bytes.extend(record(PARAMS, part));
    }
    bytes.extend(record(PARAMS, &[]));
    bytes.extend(record(STDIN, &[]));
    bytes
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [high, low] = u16::try_from(content.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = vec![VERSION, kind, id_high, id_low, high, low, 0, 0];
    bytes.extend(content);
    bytes
}

/// Puts an answer together from all that was received. `None` when the end of the request is not in it yet; an error when
/// it is no FastCGI.
pub fn parse(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let (mut output, mut stderr) = (vec![], vec![]);
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_at_checked(HEADER_BYTES) {
        let (kind, length) = (header[1], usize::from(u16::from_be_bytes([header[4], header[5]])));
        if header[0] != VERSION {
            return Err(io::Error::new(ErrorKind::InvalidData, "the answer is no FastCGI"));
        }
        let Some((content, behind)) = behind.split_at_checked(length) else { return Ok(None) };
        match kind {
            STDOUT => output.extend(content),
            STDERR if stderr.len() < STDERR_BYTES_MAX => stderr.extend(content),
            END_REQUEST => return Ok(Some(answer(&output, stderr))),
            _ => {}
        }
        rest = behind.get(usize::from(header[6])..).unwrap_or_default();
    }
    Ok(None)
}

/// Divides the header of CGI (RFC 3875, section 6) from the body.
fn answer(output: &[u8], stderr: Vec<u8>) -> Answer {
    let end = |blank: &[u8]| {
        let at = output.windows(blank.len()).position(|window| window == blank)?;
        Some((at, at + blank.len()))
    };
    let (head, body) = match end(b"\r\n\r\n").or_else(|| end(b"\n\n")) {
        Some((head, body)) => (&output[..head], &output[body..]),
        None => (&[][..], output),
    };
    let head = String::from_utf8_lossy(head);
    let status = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_status = name.trim().eq_ignore_ascii_case("status");
        is_status.then(|| value.split_ascii_whitespace().next()?.parse().ok()).flatten()
    });
    Answer { status: status.unwrap_or(200), body: body.to_vec(), stderr }
}

/// A request that was sent and whose answer is being waited for.
#[derive(Debug)]
pub struct Request {
    stream: Stream,
    begun: Instant,
    received: Vec<u8>,
}

impl Request {
    /// Sends a request on a fresh connection.
    pub fn send(mut stream: Stream, parameters: &[(&str, &str)]) -> io::Result<Self> {
        // Far below what a socket's buffer takes at once.
        stream.write_all(&request(parameters))?;
        Ok(Self { stream, begun: Instant::now(), received: vec![] })
    }

    /// For how long the answer has been waited for.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits for the answer until `deadline`, and looks at least once; `None` when it has not come yet. A connection that
    /// ends before is an error of the kind `UnexpectedEof`.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<Option<Answer>> {
        let mut buffer = [0; 16 << 10];
        loop {
            if !self.stream.wait(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(None);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend(buffer.get(..count).unwrap_or_default()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(answer) = parse(&self.received)? {
                return Ok(Some(answer));
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                let why = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
    }
}

/// Waits until an answer, or a part of one, has come for any of these requests, at most that long.
pub fn wait_for_any<'a>(requests: impl Iterator<Item = &'a Request>, timeout: Duration) -> io::Result<()> {
    process_view::wait_for_any(requests.map(|request| &request.stream), timeout).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer as php-fpm gives it, padded to eight bytes.
    fn answered(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![];
        for (kind, content) in parts {
            let mut record = record(*kind, content);
            let padding = content.len().next_multiple_of(8) - content.len();
            record[6] = padding as u8;
            record.extend(vec![0; padding]);
            bytes.extend(record);
        }
        bytes
    }

    #[test]
    fn an_answer_is_put_together() {
        let head = b"Status: 404 Not Found\r\nContent-type: text/html\r\n\r\n";
        let bytes = answered(&[
            (STDERR, b"Primary script unknown"),
            (STDOUT, head),
            (STDOUT, b"File "),
            (STDOUT, b"not found."),
            (STDOUT, b""),
            (END_REQUEST, &[0; 8]),
        ]);
        let expected = Answer {
            status: 404,
            body: b"File not found.".to_vec(),
            stderr: b"Primary script unknown".to_vec(),
        };
        assert_eq!(parse(&bytes).unwrap(), Some(expected));
        for cut in 0..bytes.len() - 8 {
            assert_eq!(parse(&bytes[..cut]).unwrap(), None, "{cut} bytes");
        }
        assert!(parse(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }

    #[test]
    fn without_a_status_all_is_well() {
        for (output, body) in [(&b"X: y\n\nbody"[..], &b"body"[..]), (b"body", b"body"), (b"", b"")] {
            let found = answer(output, vec![]);
            assert_eq!((found.status, found.body.as_slice()), (200, body));
        }
    }

    #[test]
    fn parameters_have_short_and_long_lengths() {
        let long = "x".repeat(200);
        let bytes = request(&[("A", "b"), ("LONG", &long)]);
        let pairs = [&[1, 1][..], b"Ab", &[4, 0x80, 0, 0, 200], b"LONG", long.as_bytes()].concat();
        let expected = [
            record(BEGIN_REQUEST, &[0, 1, 0, 0, 0, 0, 0, 0]),
            record(PARAMS, &pairs),
            record(PARAMS, &[]),
            record(STDIN, &[]),
        ];
        assert_eq!(bytes, expected.concat());
    }

    proptest! {
        // Whatever a program writes: an answer, nothing yet, or an error.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..12) {
            let _ = parse(&bytes);
            let _ = parse(&[record(kind, &bytes), bytes].concat());
        }
    }
}

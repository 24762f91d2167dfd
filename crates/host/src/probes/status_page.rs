//! Gets a status page over plain HTTP from where a service listens: a port or a unix socket, in its own network and among
//! its own files.
//!
//! Facts: RFC 9112. The request says HTTP/1.0, so that the answer ends with the connection and is never chunked.

use crate::visibility::process_view::{Root, Stream, connect};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use webdyno_model::service::Endpoint;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The most header lines.
const HEADERS_MAX: usize = 64;

/// Gets the page of an endpoint, whose name is the host to ask for. Status and body; an error when nothing comes in time.
pub fn get(
    pid: u32,
    root: &Root,
    page: &Endpoint,
    query: &str,
    timeout: Duration,
) -> io::Result<(u16, String)> {
    let deadline = Instant::now() + timeout;
    let mut stream = connect(pid, root, &page.address, timeout)?;
    let request = format!(
        "GET {}{query} HTTP/1.0\r\nHost: {}\r\nUser-Agent: webdyno/{}\r\nConnection: close\r\n\r\n",
        page.path.as_deref().unwrap_or("/"),
        page.name,
        env!("CARGO_PKG_VERSION"),
    );
    stream.write_all(request.as_bytes())?;
    let answer = receive(&mut stream, deadline)?;
    parse(&answer).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the answer is no HTTP"))
}

fn receive(stream: &mut Stream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut answer = vec![];
    let mut buffer = [0; 16 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !stream.wait(left)? {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => {
                answer.extend(buffer.get(..count).unwrap_or_default());
                if is_whole(&answer) {
                    return Ok(answer);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidData, format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")))
}

/// Whether as much has come as the answer announced. The connection may stay open after that: Apache closes it only when
/// the request is in its log, and where logs are slow that takes as long as what is to be found out.
pub(crate) fn is_whole(answer: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = head.parse(answer) else { return false };
    let announced = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let bytes =
        announced.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
    bytes.is_some_and(|bytes| answer.len() - length >= bytes)
}

/// Status and body of an answer; `None` when it is not one.
fn parse(answer: &[u8]) -> Option<(u16, String)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else { return None };
    Some((head.code?, String::from_utf8_lossy(answer.get(length..)?).into_owned()))
}

/// Why a page did not come, in words that stay while it does not.
pub fn why(page: &Endpoint, got: &io::Result<(u16, String)>) -> String {
    let path = page.path.as_deref().unwrap_or("/");
    match got {
        Ok((status, _)) => format!("the status page {path} answers {status}"),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            format!("the status page {path} does not answer in time")
        }
        Err(error) => {
            let object = format!("the status page {path} at {}", page.address);
            webdyno_model::error::io_error("get", object, error).message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_was_announced_is_not_waited_beyond() {
        for (answer, whole) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nbody", false),
            ("HTTP/1.1 200 OK\r\n\r\nbody", false),
            ("HTTP/1.1 200 OK\r\nContent-Len", false),
        ] {
            assert_eq!(is_whole(answer.as_bytes()), whole, "{answer}");
        }
    }

    #[test]
    fn a_page_is_got_from_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let page = Endpoint {
            name: "example.org".into(),
            address: format!("unix:{}", path.display()),
            path: Some("/status".into()),
        };
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 500];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nActive").unwrap();
            (String::from_utf8_lossy(&request[..count]).into_owned(), listener)
        });
        let pid = std::process::id();
        let got = get(pid, &Root::ours(), &page, "?auto", Duration::from_secs(10)).unwrap();
        assert_eq!(got, (200, "Active".into()));
        let (request, _listener) = server.join().unwrap();
        assert!(request.starts_with("GET /status?auto HTTP/1.0\r\nHost: example.org\r\n"), "{request}");
        // Nobody accepts now.
        let silent = get(pid, &Root::ours(), &page, "", Duration::from_millis(50));
        assert_eq!(why(&page, &silent), "the status page /status does not answer in time");
        assert_eq!(why(&page, &Ok((403, String::new()))), "the status page /status answers 403");
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
            parse(&[b"HTTP/1.0 200 OK\r\n", bytes.as_slice()].concat());
        }
    }
}

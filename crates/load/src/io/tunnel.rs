//! The tunnel through a proxy of HTTP: CONNECT, and what the proxy says to it. RFC 9110, section 9.3.6, and RFC 9112,
//! sections 3.2.3 and 4.
//!
//! What stands behind the head of the proxy's answer is the server's, and is left in the socket: a head is peeked at, and
//! taken up to its end.

use crate::io::network_io::SocketError;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::fmt;
use std::sync::Arc;

/// Longest answer to CONNECT, interim ones included.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// What is peeked at once.
const PEEK_BYTES: usize = 1024;
/// As far as it is told from other protocols.
const PROTOCOL: &[u8] = b"HTTP/1.";

/// The proxy made no tunnel: its status, `None` where it closed or did not answer in HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelError(pub(crate) Option<u16>);

impl fmt::Display for TunnelError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(to, "answers {status}"),
            None => to.write_str("closes, or does not answer in HTTP"),
        }
    }
}

impl std::error::Error for TunnelError {}

impl From<TunnelError> for SocketError {
    fn from(error: TunnelError) -> Self {
        Self::Proxy(error.0)
    }
}

/// A tunnel that is being made.
#[derive(Debug)]
pub(crate) struct Tunnel {
    request: Arc<[u8]>,
    sent: usize,
    head: Vec<u8>,
    /// Bytes of interim answers.
    skipped: usize,
}

impl Tunnel {
    /// By this request.
    pub(crate) fn new(request: Arc<[u8]>) -> Self {
        Self { request, sent: 0, head: vec![], skipped: 0 }
    }

    /// Goes on as far as the socket lets it: `AGAIN` until the tunnel stands.
    pub(crate) fn advance(&mut self, socket: &OwnedFd) -> Result<(), SocketError> {
        while self.sent < self.request.len() {
            match rustix::net::send(socket, &self.request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut peeked = [0; PEEK_BYTES];
        loop {
            let count = match rustix::net::recv(socket, &mut peeked, RecvFlags::PEEK) {
                Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(SocketError::Proxy(None)),
                Ok((_, count)) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let (used, stands) = self.receive(&peeked[..count])?;
            rustix::net::recv(socket, &mut peeked[..used], RecvFlags::empty())?;
            if stands {
                return Ok(());
            }
        }
    }

    /// Takes bytes of the proxy: how many of them are its own, and whether the tunnel stands with them.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(usize, bool), TunnelError> {
        let mut used = 0;
        for &byte in bytes {
            self.head.push(byte);
            used += 1;
            let known = self.head.len().min(PROTOCOL.len());
            if self.head[..known] != PROTOCOL[..known] || self.skipped + self.head.len() > HEAD_BYTES_MAX {
                return Err(TunnelError(None));
            }
            if self.head.ends_with(b"\n\r\n") || self.head.ends_with(b"\n\n") {
                match status(&self.head).ok_or(TunnelError(None))? {
                    // The length of a successful answer says nothing: what follows is the tunnel.
                    200..=299 => return Ok((used, true)),
                    100 | 102..=199 => {
                        self.skipped += self.head.len();
                        self.head.clear();
                    }
                    other => return Err(TunnelError(Some(other))),
                }
            }
        }
        Ok((used, false))
    }
}

/// The status of a head that begins with [`PROTOCOL`].
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.get(PROTOCOL.len()..)?;
    let (version, rest) = rest.split_first()?;
    let digits = rest.strip_prefix(b" ")?.get(..3)?;
    let ends = matches!(rest.get(4), Some(b' ' | b'\r' | b'\n'));
    let is_whole = ends && version.is_ascii_digit() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_whole)?.parse().ok().filter(|status| *status >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are cut, the same comes out: what was used of them, and whether the tunnel stands.
    fn check(text: &str, expected: Result<Option<usize>, Option<u16>>) {
        let text = text.replace('\n', "\r\n");
        for piece in [1, 2, 7, 4096] {
            let (mut tunnel, mut used) = (Tunnel::new(Arc::from(&b""[..])), 0);
            let mut found = Ok(None);
            for bytes in text.as_bytes().chunks(piece) {
                match tunnel.receive(bytes) {
                    Ok((count, stands)) => {
                        used += count;
                        if stands {
                            found = Ok(Some(used));
                            break;
                        }
                    }
                    Err(TunnelError(status)) => {
                        found = Err(status);
                        break;
                    }
                }
            }
            assert_eq!(found, expected, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn the_answer_to_connect_ends_with_its_head() {
        let good = "HTTP/1.1 200 Connection established\nProxy-Agent: x\nContent-Length: 5\n\n";
        let length = good.replace('\n', "\r\n").len();
        check(good, Ok(Some(length)));
        check(&format!("{good}PRI * HTTP/2.0"), Ok(Some(length)));
        check("HTTP/1.0 299\n\n", Ok(Some(16)));
        check("HTTP/1.1 100 Continue\n\nHTTP/1.1 103 x\nA: b\n\nHTTP/1.1 200 OK\n\n", Ok(Some(25 + 24 + 19)));
        check("HTTP/1.1 200 OK\nA: b\n", Ok(None));
    }

    #[test]
    fn a_refusal_is_named_and_garbage_ends_at_once() {
        for (text, status) in [
            ("HTTP/1.1 407 Proxy Authentication Required\nContent-Length: 100\n\n", Some(407)),
            ("HTTP/1.0 502 Bad Gateway\n\n<html>", Some(502)),
            ("HTTP/1.1 101 Switching Protocols\n\n", Some(101)),
            ("HTTP/1.1 301 Moved\nLocation: /\n\n", Some(301)),
            ("SSH-2.0-OpenSSH_9.2\n", None),
            ("HTTP/2 200\n\n", None),
            ("HTTP/1.1 2000 OK\n\n", None),
            ("HTTP/1.1 \n\n", None),
            ("HTTP/1.1 099 x\n\n", None),
        ] {
            check(text, Err(status));
        }
        check(&format!("HTTP/1.1 200 OK\n{}", "A: b\n".repeat(4000)), Err(None));
        check(&"HTTP/1.1 100 Continue\n\n".repeat(1000), Err(None));
    }
}

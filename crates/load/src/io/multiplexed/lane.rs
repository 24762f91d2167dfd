//! A lane: the place of one stream at a time on a connection, and its response as the engine reads it.

use super::grpc::Call;
use super::response::BodyFraming;
use crate::io::network_io::SocketError;

/// What a lane keeps of the memory for its responses.
const INBOX_BYTES_KEPT: usize = 64 * 1024;

/// A lane; by default one that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Names it to the engine.
    pub(crate) token: u64,
    pub(crate) taken: bool,
    /// What came of its response and was not read yet, from `at` on.
    inbox: Vec<u8>,
    at: usize,
    /// How the body ends, once the head has come.
    pub(crate) framing: Option<BodyFraming>,
    /// The peer has ended the stream, and the response is whole.
    pub(crate) ended: bool,
    /// The stream failed; `Ok` is the close of its connection.
    pub(crate) failed: Option<Result<(), SocketError>>,
    pub(crate) is_head_request: bool,
    /// Bytes of the request's body that were not sent yet.
    pub(crate) body_left: u64,
    /// What the peer lets us send of it.
    pub(crate) send_window: i64,
    /// What we let the peer send.
    pub(crate) receive_window: i64,
    /// The call that it carries, if it is one of gRPC.
    pub(crate) call: Call,
    /// It waits until it may send: for a stream, a window, or room.
    pub(crate) waits: bool,
    /// The engine will be told of it.
    pub(crate) touched: bool,
}

impl Lane {
    /// Makes it ready for the next request.
    pub(crate) fn begin(&mut self, is_head_request: bool, send_window: i64, receive_window: i64) {
        self.inbox.clear();
        self.inbox.shrink_to(INBOX_BYTES_KEPT);
        if self.call.is_active {
            self.call.begin(false);
        }
        (self.at, self.framing, self.ended, self.failed) = (0, None, false, None);
        (self.is_head_request, self.body_left) = (is_head_request, 0);
        (self.send_window, self.receive_window) = (send_window, receive_window);
    }

    /// Where a head is appended.
    pub(crate) fn inbox(&mut self) -> &mut Vec<u8> {
        if self.call.is_active { &mut self.call.head } else { &mut self.inbox }
    }

    /// Adds a piece of the body. False when that is more than was announced.
    #[inline]
    pub(crate) fn add_body(&mut self, bytes: &[u8]) -> bool {
        match &mut self.framing {
            Some(BodyFraming::Fixed(left)) => {
                let Some(rest) = left.checked_sub(bytes.len() as u64) else { return false };
                *left = rest;
                if self.call.is_active {
                    return self.call.add(bytes);
                }
                self.inbox.extend_from_slice(bytes);
            }
            Some(BodyFraming::Chunked) if self.call.is_active => return self.call.add(bytes),
            Some(BodyFraming::Chunked) if !bytes.is_empty() => {
                self.add_chunk_head(bytes.len());
                self.inbox.extend_from_slice(bytes);
                self.inbox.extend_from_slice(b"\r\n");
            }
            Some(BodyFraming::Chunked) => {}
            None => return false,
        }
        true
    }

    fn add_chunk_head(&mut self, length: usize) {
        let digits = length.max(1).ilog2() / 4;
        for place in (0..=digits).rev() {
            self.inbox.push(b"0123456789abcdef"[(length >> (4 * place)) & 0xf]);
        }
        self.inbox.extend_from_slice(b"\r\n");
    }

    /// The peer has ended the stream, a call of gRPC with this status in its trailers. False when the response is not whole.
    pub(crate) fn end(&mut self, grpc_status: Option<u16>) -> bool {
        match self.framing {
            Some(BodyFraming::Fixed(0) | BodyFraming::Chunked) if self.call.is_active => {
                if !self.call.finish(grpc_status, &mut self.inbox) {
                    return false;
                }
            }
            Some(BodyFraming::Fixed(0)) => {}
            Some(BodyFraming::Chunked) => self.inbox.extend_from_slice(b"0\r\n\r\n"),
            _ => return false,
        }
        self.ended = true;
        true
    }

    /// Bytes that may be read. The last one of a response is held back until its stream has ended: else the engine would
    /// take it as whole before the peer says so, and what is wrong with its end would belong to no request.
    #[inline]
    pub(crate) fn readable_bytes(&self) -> usize {
        let held = self.framing == Some(BodyFraming::Fixed(0)) && !self.ended;
        (self.inbox.len() - self.at).saturating_sub(usize::from(held))
    }

    /// Whether a read gives anything.
    pub(crate) fn is_readable(&self) -> bool {
        self.failed.is_some() || self.readable_bytes() > 0
    }

    /// Reads into `buffer`, or drops up to `room` bytes without one. `AGAIN` when nothing is there.
    #[inline]
    pub(crate) fn read(&mut self, buffer: Option<&mut [u8]>, room: usize) -> Result<usize, SocketError> {
        let count = self.readable_bytes().min(room);
        if count == 0 {
            return self.failed.unwrap_or(Err(SocketError::AGAIN)).map(|()| 0);
        }
        if let Some(buffer) = buffer {
            buffer[..count].copy_from_slice(&self.inbox[self.at..self.at + count]);
        }
        self.at += count;
        if self.at == self.inbox.len() {
            self.inbox.clear();
            self.at = 0;
        }
        Ok(count)
    }

    /// Memory that it holds.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.inbox.capacity() + self.call.memory_bytes()
    }
}

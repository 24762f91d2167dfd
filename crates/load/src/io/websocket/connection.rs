//! One connection of WebSocket, as a pure state machine: bytes of the peer in, bytes for the peer out. RFC 6455.
//!
//! To its user it carries HTTP/1.1, one message for each request: the request's method (`TEXT` or `BINARY`) says what its body is
//! sent as, and the next message of the server is the body of a response with status 200. What comes while none is waited for
//! belongs to no request and is dropped.

use super::frames::{self, CONTROL_BYTES_MAX, FrameHead, HEAD_BYTES_MAX, close, opcode};
use crate::io::network_io::SocketError;
use crate::random::SplitMix;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::io::Errno;
use sha1::{Digest, Sha1};

/// What the server proves with that it has understood: section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest answer to the upgrade.
const UPGRADE_BYTES_MAX: usize = 32 * 1024;
/// Longest message that is received; as long as a body that is kept.
pub(super) const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// What is kept of the memory for messages.
const BYTES_KEPT: usize = 64 * 1024;
/// Most bytes that wait to be sent: messages wait then, and answers to pings end the connection.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Upgrading,
    Open,
    /// The server has said that it closes; `Ok` for whoever reads.
    Closed,
    Failed(SocketError),
}

/// A connection, from the request for the upgrade on.
#[derive(Debug)]
pub(super) struct Connection {
    state: State,
    /// What the server must say to our key.
    accept: String,
    random: SplitMix,
    out: Vec<u8>,
    out_at: usize,
    /// The answer to the upgrade, or the head of a frame, as far as it has come.
    head: Vec<u8>,
    /// Bytes of interim answers.
    skipped: usize,
    /// The frame whose payload comes.
    frame: Option<FrameHead>,
    /// The payload of a control frame.
    control: Vec<u8>,
    /// The message so far, and what it is.
    message: Vec<u8>,
    kind: Option<u8>,
    /// A message is waited for.
    awaits: bool,
    /// The response, from `at` on.
    inbox: Vec<u8>,
    at: usize,
    /// Of the message that is being sent: what is left, how much there was, and its mask.
    body_left: u64,
    body_bytes: u64,
    mask: [u8; 4],
}

impl Connection {
    /// One that asks with this request, up to its key.
    pub(super) fn new(request: &[u8], mut random: SplitMix) -> Self {
        let nonce = [random.next().to_be_bytes(), random.next().to_be_bytes()].concat();
        let key = STANDARD.encode(nonce);
        let digest = Sha1::new().chain_update(&key).chain_update(GUID).finalize();
        Self {
            state: State::Upgrading,
            accept: STANDARD.encode(digest),
            random,
            out: [request, key.as_bytes(), b"\r\n\r\n"].concat(),
            out_at: 0,
            head: vec![],
            skipped: 0,
            frame: None,
            control: vec![],
            message: vec![],
            kind: None,
            awaits: false,
            inbox: vec![],
            at: 0,
            body_left: 0,
            body_bytes: 0,
            mask: [0; 4],
        }
    }

    pub(super) fn is_upgrading(&self) -> bool {
        self.state == State::Upgrading
    }

    /// Whether nothing more can be sent on it.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Closed | State::Failed(_))
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<SocketError> {
        match self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Bytes for the peer.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.out[self.out_at..]
    }

    /// So many of them were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.out_at += count;
        if self.out_at == self.out.len() {
            self.out.clear();
            self.out_at = 0;
        }
    }

    /// Begins the closing handshake.
    pub(super) fn close(&mut self) {
        if self.state == State::Open {
            self.control_frame(opcode::CLOSE, &close::NORMAL.to_be_bytes());
            self.state = State::Closed;
        }
    }

    /// The peer has ended the connection below, or it broke.
    pub(super) fn hang_up(&mut self, end: Result<(), SocketError>) {
        self.state = match (self.state, end) {
            (State::Failed(error), _) | (_, Err(error)) => State::Failed(error),
            (State::Upgrading, Ok(())) => State::Failed(SocketError::Upgrade(None)),
            (_, Ok(())) => State::Closed,
        };
    }

    /// Takes bytes of a request: a whole head, or more of its body. `AGAIN` while they cannot be sent.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<usize, SocketError> {
        match self.state {
            State::Upgrading => return Err(SocketError::AGAIN),
            State::Open => {}
            State::Closed => return Err(Errno::PIPE.into()),
            State::Failed(error) => return Err(error),
        }
        if self.unsent().len() >= OUT_BYTES_MAX {
            return Err(SocketError::AGAIN);
        }
        let mut taken = 0;
        if self.body_left == 0 {
            let head = RequestHead::read(bytes).ok_or(SocketError::Protocol)?;
            (self.body_left, self.body_bytes) = (head.body_bytes, head.body_bytes);
            self.mask = (self.random.next() as u32).to_be_bytes();
            frames::write_head(&mut self.out, head.opcode, head.body_bytes, self.mask);
            self.awaits = true;
            taken = head.length_bytes;
        }
        let room = OUT_BYTES_MAX.saturating_sub(self.unsent().len()) as u64;
        let count = (bytes.len() - taken).min(self.body_left.min(room) as usize);
        let at = self.body_bytes - self.body_left;
        frames::write_masked(&mut self.out, &bytes[taken..taken + count], self.mask, at);
        self.body_left -= count as u64;
        Ok(taken + count)
    }

    /// Reads of the response. `AGAIN` when nothing is there; 0 is the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let count = (self.inbox.len() - self.at).min(buffer.len());
        if count == 0 {
            return match self.state {
                State::Closed => Ok(0),
                State::Failed(error) => Err(error),
                State::Upgrading | State::Open => Err(SocketError::AGAIN),
            };
        }
        buffer[..count].copy_from_slice(&self.inbox[self.at..self.at + count]);
        self.at += count;
        if self.at == self.inbox.len() {
            self.inbox.clear();
            self.inbox.shrink_to(BYTES_KEPT);
            self.at = 0;
        }
        Ok(count)
    }

    /// Takes bytes of the peer.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && matches!(self.state, State::Upgrading | State::Open) {
            let done = match (self.state, self.frame) {
                (State::Upgrading, _) => self.upgrade(bytes),
                (_, None) => self.frame_head(bytes),
                (_, Some(frame)) => self.payload(frame, bytes),
            };
            match done {
                Ok(used) => bytes = &bytes[used..],
                Err(code) => {
                    self.control_frame(opcode::CLOSE, &code.to_be_bytes());
                    self.state = State::Failed(SocketError::Protocol);
                }
            }
        }
    }

    /// The answer to the upgrade: section 4.1. What it lacks fails the connection.
    fn upgrade(&mut self, bytes: &[u8]) -> Result<usize, u16> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(UPGRADE_BYTES_MAX - before)]);
        let from = before.saturating_sub(3);
        let Some(end) = memchr::memmem::find(&self.head[from..], b"\r\n\r\n").map(|at| from + at + 4) else {
            if self.head.len() + self.skipped >= UPGRADE_BYTES_MAX
                || !self.head.starts_with(&b"HTTP/1."[..self.head.len().min(7)])
            {
                self.state = State::Failed(SocketError::Upgrade(None));
            }
            return Ok(self.head.len() - before);
        };
        let used = end - before;
        match answer(&self.head[..end], &self.accept) {
            Ok(()) => self.state = State::Open,
            // An interim answer: the real one follows.
            Err(Some(100 | 102..=199)) if self.skipped < UPGRADE_BYTES_MAX => self.skipped += end,
            Err(Some(100 | 102..=199)) => self.state = State::Failed(SocketError::Upgrade(None)),
            Err(status) => self.state = State::Failed(SocketError::Upgrade(status)),
        }
        self.head.clear();
        Ok(used)
    }

    fn frame_head(&mut self, bytes: &[u8]) -> Result<usize, u16> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX - before)]);
        let Some((frame, length)) = FrameHead::read(&self.head).map_err(|()| close::PROTOCOL)? else {
            return Ok(self.head.len() - before);
        };
        self.head.clear();
        match (frame.opcode, self.kind) {
            (opcode::TEXT | opcode::BINARY, None) => self.kind = Some(frame.opcode),
            (opcode::CONTINUATION, Some(_)) | (opcode::CLOSE.., _) => {}
            _ => return Err(close::PROTOCOL),
        }
        if frame.opcode < opcode::CLOSE
            && self.message.len() as u64 + frame.length.min(1 << 40) > MESSAGE_BYTES_MAX
        {
            return Err(close::TOO_BIG);
        }
        self.frame = Some(frame);
        if frame.length == 0 {
            self.end_frame(frame)?;
        }
        Ok(length - before)
    }

    fn payload(&mut self, frame: FrameHead, bytes: &[u8]) -> Result<usize, u16> {
        let count = bytes.len().min(usize::try_from(frame.length).unwrap_or(usize::MAX));
        let is_control = frame.opcode >= opcode::CLOSE;
        let into = if is_control { &mut self.control } else { &mut self.message };
        into.extend_from_slice(&bytes[..count]);
        let left = FrameHead { length: frame.length - count as u64, ..frame };
        self.frame = Some(left);
        if left.length == 0 {
            self.end_frame(left)?;
        }
        Ok(count)
    }

    fn end_frame(&mut self, frame: FrameHead) -> Result<(), u16> {
        self.frame = None;
        if frame.opcode >= opcode::CLOSE {
            let payload = std::mem::take(&mut self.control);
            match frame.opcode {
                opcode::PING if self.unsent().len() >= OUT_BYTES_MAX => return Err(close::PROTOCOL),
                opcode::PING => self.control_frame(opcode::PONG, &payload),
                opcode::CLOSE => {
                    // The code is given back: section 5.5.1.
                    self.control_frame(opcode::CLOSE, payload.get(..2).unwrap_or_default());
                    self.state = State::Closed;
                }
                _ => {}
            }
            self.control = payload;
            self.control.clear();
            return Ok(());
        }
        if frame.ends {
            let is_text = self.kind.take() == Some(opcode::TEXT);
            if is_text && std::str::from_utf8(&self.message).is_err() {
                return Err(close::NOT_UTF8);
            }
            if std::mem::take(&mut self.awaits) {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", self.message.len());
                self.inbox.extend_from_slice(head.as_bytes());
                self.inbox.append(&mut self.message);
            }
            self.message.clear();
            self.message.shrink_to(BYTES_KEPT);
        }
        Ok(())
    }

    fn control_frame(&mut self, opcode: u8, payload: &[u8]) {
        let payload = &payload[..payload.len().min(CONTROL_BYTES_MAX as usize)];
        // Between frames alone: a message that is not sent whole is never continued.
        if self.body_left == 0 {
            let mask = (self.random.next() as u32).to_be_bytes();
            frames::write_head(&mut self.out, opcode, payload.len() as u64, mask);
            frames::write_masked(&mut self.out, payload, mask, 0);
        }
    }

    /// Memory that it holds for the peer.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.out.capacity() + self.head.capacity() + self.message.capacity() + self.inbox.capacity()
    }
}

/// The head of a request, as far as it says what is sent.
struct RequestHead {
    length_bytes: usize,
    body_bytes: u64,
    opcode: u8,
}

impl RequestHead {
    fn read(bytes: &[u8]) -> Option<Self> {
        let length_bytes = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
        let name = b"\r\nContent-Length: ";
        let at = memchr::memmem::find(&bytes[..length_bytes], name).map(|at| at + name.len());
        let digits = at.map_or(&b"0"[..], |at| {
            let rest = &bytes[at..length_bytes];
            &rest[..rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())]
        });
        let body_bytes = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let opcode = if bytes.starts_with(b"BINARY ") { opcode::BINARY } else { opcode::TEXT };
        Some(Self { length_bytes, body_bytes, opcode })
    }
}

/// Whether a head grants the upgrade: else its status, where it is that of another answer.
fn answer(head: &[u8], accept: &str) -> Result<(), Option<u16>> {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut response = httparse::Response::new(&mut fields);
    let status = match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => response.code.ok_or(None)?,
        _ => return Err(None),
    };
    if status != 101 {
        return Err(Some(status));
    }
    let has = |name: &str, wanted: &str| {
        let mut values = response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        values.any(|field| {
            let text = std::str::from_utf8(field.value).unwrap_or_default();
            text.split(',').any(|one| one.trim().eq_ignore_ascii_case(wanted))
        })
    };
    let key = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("sec-websocket-accept");
    let accepts =
        response.headers.iter().find(key).is_some_and(|field| field.value.trim_ascii() == accept.as_bytes());
    // No extension was offered: one that is there is none that we could speak.
    let extends =
        response.headers.iter().any(|field| field.name.eq_ignore_ascii_case("sec-websocket-extensions"));
    (has("upgrade", "websocket") && has("connection", "upgrade") && accepts && !extends)
        .then_some(())
        .ok_or(None)
}

//! WebSocket over a blocking stream, as the probe uses it.

use super::connection::Connection;
use crate::io::network_io::SocketError;
use crate::random::SplitMix;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

/// What is read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// What the server did instead; wrapped in the errors of [`WebSocketStream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebSocketError {
    /// It does not change to WebSocket: its status, `None` for what is no such answer.
    Upgrade(Option<u16>),
    /// It breaks the rules.
    Rules,
}

impl fmt::Display for WebSocketError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upgrade(Some(status)) => {
                write!(to, "refuses the upgrade to WebSocket with status {status}")
            }
            Self::Upgrade(None) => {
                to.write_str("does not answer the upgrade to WebSocket as RFC 6455 wants it")
            }
            Self::Rules => to.write_str("breaks the rules of WebSocket"),
        }
    }
}

impl std::error::Error for WebSocketError {}

/// A connection with one message under way.
pub(crate) struct WebSocketStream<S> {
    stream: S,
    connection: Connection,
    buffer: Vec<u8>,
}

impl<S: Read + Write> WebSocketStream<S> {
    /// Over a stream that nothing was sent on, with the request for the upgrade.
    pub(crate) fn new(stream: S, upgrade: &[u8], seed: u64) -> Self {
        let connection = Connection::new(upgrade, SplitMix::new(seed));
        Self { stream, connection, buffer: vec![0; BUFFER_BYTES] }
    }

    /// What it stands on.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Receives once; the caller looks at its clock and goes on.
    fn pump(&mut self) -> io::Error {
        let done = self.flush().and_then(|()| self.stream.read(&mut self.buffer));
        match done {
            Err(error) => return error,
            Ok(0) => self.connection.hang_up(Ok(())),
            Ok(count) => self.connection.receive(&self.buffer[..count]),
        }
        self.flush().err().unwrap_or_else(|| ErrorKind::Interrupted.into())
    }
}

fn io_error(error: SocketError) -> io::Error {
    match error {
        SocketError::Os(errno) => errno.into(),
        SocketError::Upgrade(status) => io::Error::other(WebSocketError::Upgrade(status)),
        _ => io::Error::other(WebSocketError::Rules),
    }
}

impl<S: Read + Write> Read for WebSocketStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.connection.read(buffer) {
            Err(SocketError::AGAIN) => Err(self.pump()),
            done => done.map_err(io_error),
        }
    }
}

impl<S: Read + Write> Write for WebSocketStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.connection.send(bytes) {
            Err(SocketError::AGAIN) => Err(self.pump()),
            done => {
                let count = done.map_err(io_error)?;
                self.flush()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let count = self.connection.unsent().len();
        self.stream.write_all(self.connection.unsent())?;
        self.connection.sent(count);
        self.stream.flush()
    }
}

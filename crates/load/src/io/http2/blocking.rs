//! HTTP/2 over a blocking stream, one request after the other, as the probe uses it: to its caller it carries HTTP/1.1,
//! as the engine's slots do.

use super::connection::Connection;
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::network_io::SocketError;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

/// What is read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Why the peer does not speak HTTP/2; wrapped in the errors of [`Http2Stream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http2Error {
    /// It answers in HTTP/1.
    Http1,
    /// It breaks the rules.
    Rules,
}

impl fmt::Display for Http2Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Http1 => "HTTP/1",
            Self::Rules => "the rules of HTTP/2",
        })
    }
}

impl std::error::Error for Http2Error {}

/// A connection with one lane.
pub(crate) struct Http2Stream<S> {
    stream: S,
    connection: Connection,
    lane: u32,
    buffer: Vec<u8>,
}

impl<S: Read + Write> Http2Stream<S> {
    /// Over a stream that nothing was sent on.
    pub(crate) fn new(stream: S, secure: bool) -> Self {
        let mut connection = Connection::new(secure);
        let lane = connection.attach(0);
        Self { stream, connection, lane, buffer: vec![0; BUFFER_BYTES] }
    }

    /// What it stands on.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Most streams at once that the server allows, once it has said so.
    pub(crate) fn streams_max(&self) -> Option<u32> {
        self.connection.streams_max()
    }

    /// Receives once.
    fn pump(&mut self) -> io::Result<()> {
        self.flush()?;
        let count = self.stream.read(&mut self.buffer)?;
        match count {
            0 => self.connection.hang_up(Ok(())),
            count => self.connection.receive(&self.buffer[..count]),
        }
        if self.connection.fault().is_some() {
            let _ = self.flush();
            let why = if self.connection.answered_http1() { Http2Error::Http1 } else { Http2Error::Rules };
            return Err(io::Error::other(why));
        }
        self.flush()
    }
}

fn io_error(error: SocketError) -> io::Error {
    match error {
        SocketError::Os(errno) => errno.into(),
        SocketError::Refused | SocketError::StreamReset => ErrorKind::ConnectionReset.into(),
        _ => io::Error::other(Http2Error::Rules),
    }
}

impl<S: Read + Write> Read for Http2Stream<S> {
    /// `Interrupted` when what came was no part of the response: the caller looks at its clock and reads again.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        match self.connection.read(self.lane, Some(buffer), room) {
            Err(SocketError::AGAIN) => {
                self.pump()?;
                Err(ErrorKind::Interrupted.into())
            }
            done => done.map_err(io_error),
        }
    }
}

impl<S: Read + Write> Write for Http2Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.connection.send(self.lane, bytes) {
            Err(SocketError::AGAIN) => {
                self.pump()?;
                Err(ErrorKind::Interrupted.into())
            }
            done => {
                let count = done.map_err(io_error)?;
                self.flush()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let unsent = self.connection.unsent();
        let count = unsent.len();
        self.stream.write_all(unsent)?;
        self.connection.sent(count);
        self.stream.flush()
    }
}

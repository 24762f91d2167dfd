//! HTTP/3 over a blocking socket, one request after the other, as the probe uses it: to its caller it carries HTTP/1.1, as the
//! engine's slots do.

use super::connection::{Connection, Context};
use crate::io::multiplexed::multiplex::Multiplex;
use crate::io::network_io::SocketError;
use crate::io::{sockets, tls};
use quinn_proto::ConnectionError;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No datagram is longer.
const BUFFER_BYTES: usize = 64 * 1024;
/// A socket does not wait for less.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Why the peer does not speak HTTP/3; wrapped in the errors of [`Http3Stream`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Http3Error {
    /// Nobody answered.
    NoAnswer,
    /// It breaks the rules, or ended the connection with an error; as QUIC tells it.
    Ended(String),
}

impl fmt::Display for Http3Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => to.write_str("no answer over QUIC"),
            Self::Ended(why) => to.write_str(why),
        }
    }
}

impl std::error::Error for Http3Error {}

/// A connection with one lane.
pub(crate) struct Http3Stream {
    socket: UdpSocket,
    connection: Connection,
    lane: u32,
    buffer: Vec<u8>,
    begun: Instant,
    until: Instant,
    was_answered: bool,
}

impl Http3Stream {
    /// A connection to an address, from one of our own if one is given, that is established by `until`. An error of rustls is
    /// wrapped in the returned error.
    pub(crate) fn connect(
        (address, source): (&SocketAddr, Option<IpAddr>),
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
        until: Instant,
    ) -> io::Result<Self> {
        let socket = UdpSocket::from(sockets::udp(address, source)?);
        socket.set_nonblocking(false)?;
        let context = Context::new(config).map_err(|error| io::Error::other(error.message))?;
        let mut connection = Connection::new(&context, &name.to_str(), 0).map_err(io_error)?;
        let lane = connection.attach(0);
        let begun = Instant::now();
        let buffer = vec![0; BUFFER_BYTES];
        let mut stream = Self { socket, connection, lane, buffer, begun, until, was_answered: false };
        let _ = tls::take_refusal();
        while !stream.connection.is_established().map_err(|_| stream.end())? {
            stream.pump()?;
        }
        Ok(stream)
    }

    /// Lets it wait until then.
    pub(crate) fn set_deadline(&mut self, until: Instant) {
        self.until = until;
    }

    /// Streams that the server allows beyond those that were used, up to a bound; `None` once the connection is over. No request
    /// is sent after this.
    pub(crate) fn take_streams(&mut self, most: u32) -> Option<u32> {
        self.connection.take_streams(most)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Receives once, or lets time pass.
    fn pump(&mut self) -> io::Result<()> {
        self.flush()?;
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let silent = io::Error::other(Http3Error::NoAnswer);
            return Err(if self.was_answered { ErrorKind::TimedOut.into() } else { silent });
        }
        let due_ns = self.connection.due_ns().unwrap_or(u64::MAX);
        let wait = left.min(Duration::from_nanos(due_ns.saturating_sub(self.now_ns())));
        self.socket.set_read_timeout(Some(wait.max(WAIT_MIN)))?;
        let received = self.socket.recv(&mut self.buffer);
        self.connection.tick(self.now_ns());
        match received {
            Ok(count) => {
                self.was_answered = true;
                self.connection.receive(&self.buffer[..count]);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        self.flush()?;
        if self.connection.is_faulty() { Err(self.end()) } else { Ok(()) }
    }

    /// Why the connection is over.
    fn end(&self) -> io::Error {
        if let Some(refusal) = tls::take_refusal() {
            return io::Error::other(refusal);
        }
        let ended = |why: String| io::Error::other(Http3Error::Ended(why));
        let alert = |code: u64| u8::try_from(code.checked_sub(0x100)?).ok().map(AlertDescription::from);
        match (self.connection.lost(), self.connection.fault()) {
            (Some(ConnectionError::TimedOut), _) => io::Error::other(Http3Error::NoAnswer),
            (Some(ConnectionError::ConnectionClosed(close)), _) => match alert(close.error_code.into()) {
                Some(alert) => io::Error::other(rustls::Error::AlertReceived(alert)),
                None => ended(format!("closes the QUIC connection: {close}")),
            },
            (Some(ConnectionError::TransportError(error)), _) if alert(error.code.into()).is_some() => {
                io::Error::other(rustls::Error::General(error.reason.clone()))
            }
            (Some(lost), _) => ended(format!("ends the QUIC connection: {lost}")),
            (None, Some(fault)) => ended(format!("breaks the rules of HTTP/3: {fault:?}")),
            (None, None) => ended("ends the QUIC connection".into()),
        }
    }
}

fn io_error(error: SocketError) -> io::Error {
    match error {
        SocketError::Os(errno) => errno.into(),
        SocketError::Refused | SocketError::StreamReset => ErrorKind::ConnectionReset.into(),
        _ => io::Error::other(Http3Error::Ended("breaks the rules of HTTP/3".into())),
    }
}

impl Read for Http3Stream {
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

impl Write for Http3Stream {
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
        self.connection.tick(self.now_ns());
        self.connection.prepare();
        while !self.connection.unsent().is_empty() {
            match self.socket.send(self.connection.unsent()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                sent => sent?,
            };
            self.connection.sent(0);
        }
        Ok(())
    }
}

impl Drop for Http3Stream {
    /// The server is told that nothing more comes; else it would wait for it.
    fn drop(&mut self) {
        self.connection.close();
        let _ = self.flush();
    }
}

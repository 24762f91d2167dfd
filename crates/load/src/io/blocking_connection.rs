//! A blocking connection with a timeout, as the probe uses it: TCP or a unix socket, with or without TLS.

use crate::io::tunnel::{Tunnel, TunnelError};
use rustix::fd::OwnedFd;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) enum BlockingConnection {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, BlockingConnection>>),
}

impl BlockingConnection {
    /// Lets each call that follows wait for so long.
    pub(crate) fn set_timeouts(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_write_timeout(Some(time)).and(stream.set_read_timeout(Some(time)))
            }
            Self::Unix(stream) => {
                stream.set_write_timeout(Some(time)).and(stream.set_read_timeout(Some(time)))
            }
            Self::Tls(stream) => stream.sock.set_timeouts(time),
        }
    }

    /// The protocol that the server has chosen in the TLS handshake (ALPN).
    pub(crate) fn chosen_protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.conn.alpn_protocol(),
            _ => None,
        }
    }

    /// The connection once a proxy has made the tunnel that is asked for with these bytes, by then. What the proxy says
    /// instead is a [`TunnelError`] wrapped in the returned error.
    pub(crate) fn with_tunnel(mut self, request: Option<&Arc<[u8]>>, until: Instant) -> io::Result<Self> {
        let Some(request) = request else { return Ok(self) };
        let mut tunnel = Tunnel::new(request.clone());
        self.write_all(request)?;
        let mut stands = false;
        while !stands {
            let left = until.saturating_duration_since(Instant::now());
            self.set_timeouts(Some(left).filter(|left| !left.is_zero()).ok_or(ErrorKind::TimedOut)?)?;
            // What follows the head is the server's: it is read byte by byte.
            let mut byte = [0];
            let received = match self.read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(TunnelError(None)),
                Ok(0) => Err(TunnelError(None)),
                read => read.map(|_| tunnel.receive(&byte))?,
            };
            stands = received.map_err(io::Error::other)?.1;
        }
        Ok(self)
    }

    /// The connection after the TLS handshake, if the server uses TLS. An error of rustls is wrapped in the returned
    /// error.
    pub(crate) fn with_tls(
        self,
        config: Option<&Arc<ClientConfig>>,
        name: Option<&ServerName<'static>>,
    ) -> io::Result<Self> {
        let (Some(config), Some(name)) = (config, name) else { return Ok(self) };
        let connection = ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, self);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }
}

impl Read for BlockingConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for BlockingConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Drop for BlockingConnection {
    /// Sends close_notify.
    fn drop(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.conn.complete_io(&mut stream.sock);
        }
    }
}

/// Opening connections, within a time.
pub(crate) mod connect {
    use super::{BlockingConnection, OwnedFd};
    use crate::io::sockets;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::net::sockopt::socket_error;
    use std::io;
    use std::net::{IpAddr, SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// A connection to an address, from one of our own if one is given.
    pub(crate) fn tcp(
        address: &SocketAddr,
        source: Option<IpAddr>,
        timeout: Duration,
    ) -> io::Result<BlockingConnection> {
        let socket = sockets::tcp(address, source)?;
        wait_connected(&socket, timeout)?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(BlockingConnection::Tcp(stream))
    }

    /// A connection to a unix socket. `AGAIN` when its queue is full.
    pub(crate) fn unix(path: &Path) -> Result<BlockingConnection, Errno> {
        let stream = UnixStream::from(sockets::unix(path)?);
        stream.set_nonblocking(false).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(BlockingConnection::Unix(stream))
    }

    /// connect(2): a socket becomes writable when its connection is settled; its error says how.
    fn wait_connected(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos() as _ };
            match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&left)) {
                Ok(0) => return Err(Errno::TIMEDOUT.into()),
                Ok(_) => return Ok(socket_error(socket)??),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

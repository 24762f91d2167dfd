//! The interface between the engine and the operating system: a clock and sockets. The engine is written against this
//! trait; production uses `kernel` (epoll or io_uring), tests use a simulation.

use crate::io::origin::Origin;
use crate::io::tcp_info::TcpReading;
use rustix::io::Errno;

/// A readiness event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// What the engine gave to [`NetworkIo::connect`].
    pub(crate) token: u64,
    /// Bytes, an error or the peer's close may be read.
    pub(crate) readable: bool,
    /// The peer closed, or the connection broke: a read gives all that is left, then the end.
    pub(crate) hangup: bool,
}

/// Why a call on a socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketError {
    /// The error number of the kernel.
    Os(Errno),
    /// The name of the server did not resolve.
    Dns,
    /// TLS: the handshake, the certificate or a record.
    Tls,
    /// The connection ended without close_notify: it may have been cut off.
    Truncated,
    /// The peer broke the rules of HTTP/2.
    Protocol,
    /// The proxy made no tunnel: its status, `None` where it closed or did not answer in HTTP/1.
    Proxy(Option<u16>),
    /// The server did not change to WebSocket: its status, `None` for what is no such answer.
    Upgrade(Option<u16>),
    /// The peer has not processed the request and never will: it may be sent again (RFC 9113, section 8.7).
    Refused,
    /// The peer broke the stream of the request off, and keeps its connection: it may have processed it.
    StreamReset,
}

/// How far the TLS handshake of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// There is none, or the connection is not established yet.
    None,
    /// It has begun.
    InProgress {
        /// When the connection could carry it: its first bytes were made, and sent, from then on.
        started_ns: u64,
    },
    Done {
        /// When the connection could carry it: its first bytes were made, and sent, from then on.
        started_ns: u64,
        /// When the connection could carry the first request.
        ended_ns: u64,
        /// Whether an earlier session was resumed.
        resumed: bool,
    },
}

impl SocketError {
    /// The call would block.
    pub(crate) const AGAIN: Self = Self::Os(Errno::AGAIN);
    /// Interrupted by a signal; the call may be repeated at once.
    pub(crate) const INTERRUPTED: Self = Self::Os(Errno::INTR);
}

impl From<Errno> for SocketError {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

/// Clock and sockets of one engine thread. Sockets are named by the engine's slot numbers. All calls are
/// non-blocking except [`NetworkIo::wait`]; readiness is reported once per edge, as epoll(7) defines it.
pub(crate) trait NetworkIo {
    /// Whether what is sent is gathered, and written when the engine waits.
    const GATHERS: bool = false;
    /// Nanoseconds since the load began.
    fn now_ns(&self) -> u64;
    /// CPU time of this thread in nanoseconds.
    fn cpu_ns(&self) -> u64;
    /// When the thread woke that handles what the last [`NetworkIo::wait`] gave; `now_ns` is the time after it.
    fn woke_ns(&self, now_ns: u64) -> u64 {
        now_ns
    }
    /// Whose the slots are that connect next: those of different owners share no connection.
    fn set_owner(&mut self, _owner: u32) {}
    /// Begins a connection; whether it succeeds shows with the first `send`. What has to happen before it can carry
    /// a request (the lookup of a name, the handshake of TLS) goes on with every `send`, which is `AGAIN` until then.
    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> Result<(), SocketError>;
    /// Whether the first request on the connection of a slot was that of the slot: where several share one, it is
    /// counted once.
    fn opens_connection(&self, _slot: u32) -> bool {
        true
    }
    /// Whether closing a slot ends a connection that was counted; `established` is what the slot knows of it.
    fn ends_connection(&self, _slot: u32, established: bool) -> bool {
        established
    }
    /// Whether the server's name is still being resolved for a connection.
    fn is_resolving(&self, slot: u32) -> bool;
    /// How far the TLS handshake of a connection is.
    fn handshake(&self, slot: u32) -> Handshake;
    /// Sends what the kernel takes. The caller passes uncounted bytes again.
    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError>;
    /// Receives what is there; 0 is the end.
    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError>;
    /// Drops up to `buffer.len()` bytes that are there without copying them; 0 is the end.
    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError>;
    /// Whether the kernel timestamps what comes on this socket.
    fn has_rx_timestamps(&self, slot: u32) -> bool;
    /// When the kernel received the last bytes that a read of a timestamped socket gave, never after `read_ns`, which
    /// is now. `None` when it has no timestamp, or none that can be believed for a request that was sent at `sent_ns`.
    fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64>;
    /// What TCP knows of the connection; `None` where it is no TCP or the kernel does not report it.
    fn tcp_info(&self, slot: u32) -> Option<TcpReading>;
    /// Whether the peer has ended the connection, as far as what was received says: asked when a response is complete.
    /// The end that only the kernel knows of comes as [`Ready::hangup`].
    fn has_ended(&mut self, _slot: u32) -> bool {
        false
    }
    /// No further request comes on a connection, which stays open until the peer closes it or `close` is called.
    fn finish(&mut self, _slot: u32) {}
    /// Closes the socket.
    fn close(&mut self, slot: u32);
    /// Sleeps until something happens, or until the time given (at once if it is past). Precise waits end within
    /// microseconds of it, others within a millisecond. Returns how many things happened.
    fn wait(&mut self, until_ns: u64, precise: bool) -> usize;
    /// Whether more may have happened by then than the last [`NetworkIo::wait`] gave: the next ones give it.
    fn has_more(&self) -> bool {
        false
    }
    /// One of the things that happened.
    fn ready(&self, index: usize) -> Ready;
}

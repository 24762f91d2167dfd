//! The production implementation of [`NetworkIo`]: Linux sockets, and epoll or io_uring to tell which are ready, by
//! edges. epoll(7), timerfd_create(2), tcp(7), udp(7).
//!
//! A socket is registered once, for everything, so a request on a kept connection costs one send, one recv and a share
//! of one wait. Precise waits use a timerfd, whose high-resolution timer has neither the millisecond of
//! epoll_wait nor a thread's timer slack; it is edge-triggered too and so never needs to be read.

mod connecting;
mod readiness;
#[cfg(test)]
mod tests;
mod tls;
mod uring;

pub(crate) use uring::unavailable as uring_unavailable;

use crate::io::clock::{monotonic_ns, nanoseconds, timespec};
use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::{Endpoint, Origin, TcpEndpoint};
use crate::io::resolver::{LookupRequest, Resolver};
use crate::io::rx_timestamps::RxTimestamps;
use crate::io::tcp_info;
use crate::io::tcp_info::TcpReading;
use crate::io::tls::for_thread;
use crate::io::tunnel::Tunnel;

use readiness::Readiness;
use rustix::event::epoll::{Event, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime, timerfd_create,
    timerfd_settime,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tls::{TlsInput, TlsStream};
use uring::Uring;
use webdyno_model::transport::{Io, Transport};

/// Events taken with one call. More would let the first ones grow stale before the last are handled.
const EVENTS_MAX: usize = 128;
/// Token of what only ends a sleep: the timer and the stop signal.
const WAKE_TOKEN: u64 = u64::MAX;
/// How often a unix socket is tried whose server's queue was full.
const UNIX_RETRY_NS: u64 = 1_000_000;

/// The kernel resources that a thread needs before it can run.
pub(crate) struct EventLoop {
    readiness: Readiness,
    timer: OwnedFd,
    timestamps: RxTimestamps,
    // Held so that it stays registered.
    _waker: OwnedFd,
    /// Resolves names, where each connection is to have its own lookup. With the descriptor that signals its results.
    resolver: Option<(Resolver, OwnedFd)>,
}

/// Sockets and clock of one thread.
pub(crate) struct KernelIo {
    kernel: EventLoop,
    sockets: Vec<Option<OwnedFd>>,
    events: Vec<Event>,
    events_count: usize,
    /// Whether whoever connects a slot sends next, and so learns whether there is room.
    sends_at_once: bool,
    /// Sockets are of UDP, for QUIC, which has TLS in it.
    sends_datagrams: bool,
    origin_ns: u64,
    armed_ns: u64,
    /// What TLS needs; without it there is none.
    tls: Option<TlsContext>,
    /// By slot; without TLS and tunnels it has none.
    sessions: Vec<Option<TlsState>>,
    sources: Vec<IpAddr>,
    next_source: usize,
    /// Slots whose socket is still to come, or will never come.
    delayed: BTreeMap<u32, Delayed>,
    /// Of these, the slots and tokens that wait for room in the queue of the server's unix socket, the first one first;
    /// some may have been closed since.
    queue: VecDeque<(u32, u64)>,
    /// Readiness that the kernel does not report: for the next wait, and of the last one.
    pending_events: Vec<Ready>,
    synthetic_events: Vec<Ready>,
}

/// What TLS needs besides its sessions.
struct TlsContext {
    config: Arc<ClientConfig>,
    input: TlsInput,
}

/// TLS of one connection.
enum TlsState {
    /// To be made, for the server of this name, by the first `send`: making a session takes ten times as long as a
    /// connection within one machine does, and is no part of that.
    Due {
        name: ServerName<'static>,
        token: u64,
    },
    Open(Box<TlsStream>),
    /// A proxy makes the tunnel first, through which TLS with the server of this name is spoken, or none.
    Tunnel {
        tunnel: Box<Tunnel>,
        name: Option<ServerName<'static>>,
        token: u64,
    },
}

/// A connection without a socket.
struct Delayed {
    token: u64,
    reason: DelayReason,
}

enum DelayReason {
    /// Its name is being resolved.
    Resolving,
    /// The queue of the server's unix socket was full.
    BacklogFull(PathBuf),
    Failed(SocketError),
}

impl EventLoop {
    /// An event loop whose sleep ends when `waker` becomes readable, with a resolver when connections look up names.
    pub(crate) fn new(
        waker: OwnedFd,
        origins: &[Origin],
        timestamps: RxTimestamps,
        io: Io,
    ) -> std::io::Result<Self> {
        let mut readiness = match io {
            Io::Epoll => Readiness::epoll()?,
            Io::Uring => Readiness::Uring(Box::new(Uring::new()?)),
        };
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        readiness.add_wake(&timer, false)?;
        // A stop of the load must not be missed.
        readiness.add_wake(&waker, true)?;
        let each = |origin: &Origin| {
            matches!(&origin.endpoint, Endpoint::Tcp(TcpEndpoint { resolve_each: true, .. }))
        };
        let resolver = match origins.iter().any(each) {
            true => Some(Resolver::start()?),
            false => None,
        };
        if let Some((_, signal)) = &resolver {
            // As the timer, it only ends a sleep and is never read.
            readiness.add_wake(signal, false)?;
        }
        Ok(Self { readiness, timer, timestamps, _waker: waker, resolver })
    }
}

impl KernelIo {
    /// For this many slots.
    pub(crate) fn new(
        mut kernel: EventLoop,
        tls: Option<&Arc<ClientConfig>>,
        transport: &Transport,
        slots: usize,
    ) -> Self {
        let events = kernel.readiness.begin(slots);
        let tls = tls.filter(|_| transport.http3_streams.is_none()).map(|config| {
            let config = for_thread(config, &transport.tls);
            TlsContext { config, input: TlsInput::new() }
        });
        let sessions = if tls.is_some() || transport.proxy.is_some() { slots } else { 0 };
        Self {
            kernel,
            sockets: (0..slots).map(|_| None).collect(),
            events,
            events_count: 0,
            sends_at_once: transport.multiplexed_streams().is_none(),
            sends_datagrams: transport.http3_streams.is_some(),
            origin_ns: 0,
            armed_ns: 0,
            tls,
            sessions: (0..sessions).map(|_| None).collect(),
            sources: transport.source_ips.clone(),
            next_source: 0,
            delayed: BTreeMap::new(),
            queue: VecDeque::new(),
            pending_events: vec![],
            synthetic_events: vec![],
        }
    }

    /// Sets the moment at which the load begins, on the monotonic clock.
    pub(crate) fn set_start(&mut self, origin_ns: u64) {
        self.origin_ns = origin_ns;
    }

    /// The socket of a slot, or the error that prevents one.
    #[inline]
    fn socket(&self, slot: u32) -> Result<&OwnedFd, SocketError> {
        self.sockets[slot as usize].as_ref().ok_or_else(|| self.missing_socket_error(slot))
    }

    #[cold]
    fn missing_socket_error(&self, slot: u32) -> SocketError {
        match self.delayed.get(&slot).map(|delayed| &delayed.reason) {
            Some(DelayReason::Resolving | DelayReason::BacklogFull(_)) => SocketError::AGAIN,
            Some(DelayReason::Failed(error)) => *error,
            None => Errno::BADF.into(),
        }
    }

    /// Whether a slot speaks TLS.
    #[inline]
    fn uses_tls(&self, slot: u32) -> bool {
        self.sessions.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Calls a slot's TLS, and queues the readiness that it has to report again.
    fn with_tls<T>(
        &mut self,
        slot: u32,
        call: impl FnOnce(&mut TlsStream, &OwnedFd, &mut TlsInput, &dyn Fn() -> u64) -> Result<T, SocketError>,
    ) -> Result<T, SocketError> {
        let origin_ns = self.origin_ns;
        let now_ns = move || monotonic_ns().saturating_sub(origin_ns);
        let none = self.missing_socket_error(slot);
        let session = self.sessions[slot as usize].as_mut();
        let (Some(TlsState::Open(session)), Some(tls)) = (session, self.tls.as_mut()) else {
            return Err(none);
        };
        let Some(socket) = self.sockets[slot as usize].as_ref() else { return Err(none) };
        let input = &mut tls.input;
        (input.timestamped, input.timestamp_ns) = (self.kernel.timestamps.has_rx_timestamps(slot), None);
        input.out_of_order = *self.kernel.timestamps.out_of_order(slot);
        let done = call(session, socket, input, &now_ns);
        // A read without a timestamp replaces the earlier one, too.
        if let Some(timestamp_ns) = input.timestamp_ns {
            self.kernel.timestamps.record(slot, timestamp_ns);
            *self.kernel.timestamps.out_of_order(slot) = input.out_of_order;
        }
        if let Some(hangup) = session.take_unreported_readiness() {
            self.pending_events.push(Ready { token: session.token, readable: true, hangup });
        }
        done
    }

    /// Goes on with the tunnel of a slot; when it stands, what is to be sent through it is sent.
    #[cold]
    fn send_in_tunnel(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let none = self.missing_socket_error(slot);
        let state = &mut self.sessions[slot as usize];
        let (Some(TlsState::Tunnel { tunnel, name, token }), Some(socket)) =
            (&mut *state, &self.sockets[slot as usize])
        else {
            return Err(none);
        };
        tunnel.advance(socket)?;
        // What the server sent behind the proxy's head came with the same edge.
        self.pending_events.push(Ready { token: *token, readable: true, hangup: false });
        *state = name.take().map(|name| TlsState::Due { name, token: *token });
        self.send(slot, bytes)
    }

    /// Sends on a connection with TLS; the first call on a socket makes its session.
    fn send_tls(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        if let Some(TlsState::Tunnel { .. }) = &self.sessions[slot as usize] {
            return self.send_in_tunnel(slot, bytes);
        }
        // The handshake time begins here, and not when its first bytes are made.
        let called_ns = if self.handshake(slot) == Handshake::None { self.now_ns() } else { 0 };
        if let Some(due @ TlsState::Due { .. }) = &mut self.sessions[slot as usize]
            && let (Some(tls), true) = (&self.tls, self.sockets[slot as usize].is_some())
            && let TlsState::Due { name, token } = due
        {
            *due = TlsState::Open(Box::new(TlsStream::new(&tls.config, name, *token)?));
        }
        self.with_tls(slot, |session, socket, input, now_ns| {
            session.send(socket, input, bytes, called_ns, now_ns)
        })
    }

    /// Receives on a socket without TLS.
    #[inline]
    fn receive(&mut self, slot: u32, buffer: &mut [u8], flags: RecvFlags) -> Result<usize, SocketError> {
        if self.kernel.timestamps.has_rx_timestamps(slot)
            && let Some(socket) = &self.sockets[slot as usize]
        {
            return Ok(self.kernel.timestamps.recv(slot, socket, buffer, flags)?);
        }
        Ok(rustix::net::recv(self.socket(slot)?, buffer, flags)?.1)
    }

    fn arm(&mut self, until_ns: u64) {
        if self.armed_ns == until_ns {
            return;
        }
        let at = Itimerspec { it_interval: timespec(0), it_value: timespec(self.origin_ns + until_ns) };
        // A timer of our own cannot be refused; if it were, the coarse timeout still ends the sleep.
        if timerfd_settime(&self.kernel.timer, TimerfdTimerFlags::ABSTIME, &at).is_ok() {
            self.armed_ns = until_ns;
        }
    }
}

impl NetworkIo for KernelIo {
    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.origin_ns)
    }

    fn cpu_ns(&self) -> u64 {
        nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
    }

    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> Result<(), SocketError> {
        let name = origin.server_name.as_ref().filter(|_| self.tls.is_some()).cloned();
        let state = match (&origin.tunnel, name) {
            (Some(tunnel), name) => {
                Some(TlsState::Tunnel { tunnel: Box::new(Tunnel::new(tunnel.clone())), name, token })
            }
            (None, Some(name)) => Some(TlsState::Due { name, token }),
            (None, None) => None,
        };
        if state.is_some() {
            self.sessions[slot as usize] = state;
        }
        match &origin.endpoint {
            Endpoint::Tcp(tcp) if !tcp.resolve_each => self.connect_to(slot, token, &tcp.address()),
            Endpoint::Tcp(tcp) => {
                let (host, port, preferred) = (tcp.host.clone(), tcp.port, tcp.address());
                if let Some((resolver, _)) = &mut self.kernel.resolver {
                    resolver.submit(LookupRequest { slot, token, host, port, preferred });
                }
                self.delayed.insert(slot, Delayed { token, reason: DelayReason::Resolving });
                Ok(())
            }
            Endpoint::Unix(path) => self.connect_unix(slot, token, path),
        }
    }

    fn is_resolving(&self, slot: u32) -> bool {
        matches!(self.delayed.get(&slot), Some(Delayed { reason: DelayReason::Resolving, .. }))
    }

    fn handshake(&self, slot: u32) -> Handshake {
        match self.sessions.get(slot as usize) {
            Some(Some(TlsState::Open(session))) => session.handshake(),
            _ => Handshake::None,
        }
    }

    #[inline]
    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        if self.uses_tls(slot) {
            return self.send_tls(slot, bytes);
        }
        let sent = rustix::net::send(self.socket(slot)?, bytes, SendFlags::NOSIGNAL);
        if sent == Err(Errno::AGAIN) || sent.is_ok_and(|count| count < bytes.len()) {
            self.kernel.readiness.await_room(slot);
        }
        Ok(sent?)
    }

    #[inline]
    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        if self.uses_tls(slot) {
            let room = buffer.len();
            return self.with_tls(slot, |session, socket, input, _| {
                session.receive(socket, input, Some(buffer), room)
            });
        }
        self.receive(slot, buffer, RecvFlags::empty())
    }

    /// MSG_TRUNC on a TCP stream: the kernel drops the bytes and copies nothing, tcp(7); on a unix socket it copies
    /// them.
    #[inline]
    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        if self.uses_tls(slot) {
            let room = buffer.len();
            return self
                .with_tls(slot, |session, socket, input, _| session.receive(socket, input, None, room));
        }
        self.receive(slot, buffer, RecvFlags::TRUNC)
    }

    #[inline]
    fn has_rx_timestamps(&self, slot: u32) -> bool {
        self.kernel.timestamps.has_rx_timestamps(slot)
    }

    fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64> {
        let (sent_ns, read_ns) = (self.origin_ns + sent_ns, self.origin_ns + read_ns);
        let received_ns = self.kernel.timestamps.received_ns(slot, sent_ns, read_ns)?;
        Some(received_ns.saturating_sub(self.origin_ns))
    }

    fn tcp_info(&self, slot: u32) -> Option<TcpReading> {
        tcp_info::read(self.socket(slot).ok()?)
    }

    fn has_ended(&mut self, slot: u32) -> bool {
        let check_end = |session: &mut TlsStream, _: &OwnedFd, input: &mut TlsInput, _: &dyn Fn() -> u64| {
            Ok(session.has_ended(input))
        };
        self.uses_tls(slot) && self.with_tls(slot, check_end).unwrap_or(true)
    }

    fn close(&mut self, slot: u32) {
        if self.uses_tls(slot) {
            // The peer is sent close_notify; its reply is not awaited.
            let _ = self.with_tls(slot, |session, socket, input, _| {
                session.close(socket, input);
                Ok(())
            });
            self.sessions[slot as usize] = None;
        }
        if let Some(socket) = self.sockets[slot as usize].take() {
            self.kernel.readiness.close(slot, socket);
        }
        self.kernel.timestamps.end(slot);
        if let Some(Delayed { token, reason: DelayReason::Resolving }) = self.delayed.remove(&slot)
            && let Some((resolver, _)) = &self.kernel.resolver
        {
            resolver.cancel(token);
        }
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        let left_ns = until_ns.saturating_sub(self.now_ns());
        if precise && left_ns > 0 {
            self.arm(until_ns);
        }
        let left_ns = match () {
            () if !self.pending_events.is_empty() => 0,
            () if !self.queue.is_empty() => left_ns.min(UNIX_RETRY_NS),
            () => left_ns,
        };
        self.events_count = self.kernel.readiness.wait(left_ns, &mut self.events);
        self.synthetic_events.clear();
        if !self.pending_events.is_empty() {
            std::mem::swap(&mut self.pending_events, &mut self.synthetic_events);
        }
        if !self.delayed.is_empty() || !self.queue.is_empty() {
            self.resume_delayed();
        }
        self.events_count + self.synthetic_events.len()
    }

    fn has_more(&self) -> bool {
        self.kernel.readiness.has_more(self.events_count) || !self.pending_events.is_empty()
    }

    #[inline]
    fn ready(&self, index: usize) -> Ready {
        if index >= self.events_count {
            return self.synthetic_events[index - self.events_count];
        }
        self.kernel.readiness.ready(index, &self.events)
    }
}

/// What the kernel tells of a socket.
#[inline]
fn ready_from(token: u64, flags: EventFlags) -> Ready {
    // A read ends at urgent data (tcp(7)) and is then short without having drained the socket. No server sends any
    // in HTTP: such a connection is read to its end and not kept.
    let hangup = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR | EventFlags::PRI);
    Ready { token, readable: hangup || flags.contains(EventFlags::IN), hangup }
}

//! WebSocket below the engine: a [`NetworkIo`] over another one. RFC 6455.
//!
//! As with HTTP/2 the engine goes on to see slots that each carry one request of HTTP/1.1 at a time: its body is a message, and
//! the response's body is the message that comes next. The upgrade belongs to the connection, as a TLS handshake does. Slots to
//! other servers pass through.

pub(crate) mod blocking;
mod connection;
mod frames;
#[cfg(test)]
mod tests;

use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::Origin;
use crate::io::tcp_info::TcpReading;
use crate::random::SplitMix;
use connection::Connection;

/// What is read of a connection at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads of a connection before others have their turn.
const TURNS_MAX: usize = 16;
/// The stream of random numbers for keys and masks.
const STREAM: u64 = 0x7765_6273_6f63_6b74;

/// What the layer knows of a slot.
struct Socket {
    token: u64,
    connection: Connection,
    /// The last read left something in the socket, as far as is known.
    has_more: bool,
    /// When the upgrade began and when it was granted.
    started_ns: Option<u64>,
    ended_ns: Option<u64>,
}

/// WebSocket over the connections of `N`.
pub(crate) struct WebSocketIo<N> {
    inner: N,
    sockets: Vec<Option<Box<Socket>>>,
    seed: u64,
    opened: u64,
    buffer: Vec<u8>,
    /// Events of `inner` in the last wait, ours behind them, and those of the next wait.
    inner_count: usize,
    events: Vec<Ready>,
    pending: Vec<Ready>,
}

impl<N: NetworkIo> WebSocketIo<N> {
    /// For this many slots. Keys and masks are drawn by `seed`.
    pub(crate) fn new(inner: N, seed: u64, slots: usize) -> Self {
        Self {
            inner,
            sockets: (0..slots).map(|_| None).collect(),
            seed,
            opened: 0,
            buffer: vec![1; BUFFER_BYTES],
            inner_count: 0,
            events: Vec::with_capacity(slots),
            pending: Vec::with_capacity(slots),
        }
    }

    /// What it stands on.
    pub(crate) fn inner_mut(&mut self) -> &mut N {
        &mut self.inner
    }

    /// Writes what is to be written.
    fn flush(&mut self, slot: u32) -> Result<(), SocketError> {
        let Some(socket) = self.sockets[slot as usize].as_deref_mut() else { return Ok(()) };
        while !socket.connection.unsent().is_empty() {
            match self.inner.send(slot, socket.connection.unsent()) {
                Ok(count) => socket.connection.sent(count),
                Err(SocketError::INTERRUPTED) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads until nothing is there, or something is that the engine can read.
    fn pump(&mut self, slot: u32) -> Result<(), SocketError> {
        let Some(socket) = self.sockets[slot as usize].as_deref_mut() else { return Ok(()) };
        let end = match self.inner.recv(slot, &mut self.buffer) {
            Ok(0) => Ok(()),
            Ok(count) => {
                socket.has_more = count == self.buffer.len();
                socket.connection.receive(&self.buffer[..count]);
                // Answers to what came; where they do not fit, they go with the next event.
                return match self.flush(slot) {
                    Err(SocketError::AGAIN) | Ok(()) => Ok(()),
                    Err(error) => Err(error),
                };
            }
            Err(SocketError::INTERRUPTED) => return Ok(()),
            Err(SocketError::AGAIN) => return Err(SocketError::AGAIN),
            Err(error) => Err(error),
        };
        socket.connection.hang_up(end);
        Ok(())
    }

    /// Goes on with the upgrade: `AGAIN` until it is granted.
    fn upgrade(&mut self, slot: u32) -> Result<(), SocketError> {
        self.flush(slot)?;
        let now_ns = self.inner.now_ns();
        if let Some(socket) = self.sockets[slot as usize].as_deref_mut() {
            socket.started_ns.get_or_insert(now_ns);
        }
        while self.sockets[slot as usize].as_deref().is_some_and(|socket| socket.connection.is_upgrading()) {
            self.pump(slot)?;
        }
        let now_ns = self.inner.now_ns();
        let Some(socket) = self.sockets[slot as usize].as_deref_mut() else { return Ok(()) };
        socket.ended_ns = Some(now_ns);
        if socket.has_more {
            self.pending.push(Ready { token: socket.token, readable: true, hangup: false });
        }
        socket.connection.failure().map_or(Ok(()), Err)
    }
}

impl<N: NetworkIo> NetworkIo for WebSocketIo<N> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn cpu_ns(&self) -> u64 {
        self.inner.cpu_ns()
    }

    fn woke_ns(&self, now_ns: u64) -> u64 {
        self.inner.woke_ns(now_ns)
    }

    fn set_owner(&mut self, owner: u32) {
        self.inner.set_owner(owner);
    }

    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> Result<(), SocketError> {
        self.inner.connect(slot, token, origin)?;
        if let Some(upgrade) = &origin.websocket {
            let random = SplitMix::stream(self.seed, STREAM, self.opened);
            self.opened += 1;
            let connection = Connection::new(upgrade, random);
            let socket = Socket { token, connection, has_more: false, started_ns: None, ended_ns: None };
            self.sockets[slot as usize] = Some(Box::new(socket));
        }
        Ok(())
    }

    fn is_resolving(&self, slot: u32) -> bool {
        self.inner.is_resolving(slot)
    }

    /// That of TLS, up to the end of the upgrade; without TLS an upgrade under way, as it is the server's answer that is
    /// waited for then.
    fn handshake(&self, slot: u32) -> Handshake {
        let below = self.inner.handshake(slot);
        let Some(socket) = self.sockets[slot as usize].as_deref() else { return below };
        match (below, socket.started_ns, socket.ended_ns) {
            (Handshake::Done { started_ns, resumed, .. }, _, Some(ended_ns)) => {
                Handshake::Done { started_ns, ended_ns, resumed }
            }
            (Handshake::None, Some(started_ns), None) => Handshake::InProgress { started_ns },
            _ => below,
        }
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let Some(socket) = self.sockets[slot as usize].as_deref() else {
            return self.inner.send(slot, bytes);
        };
        if socket.connection.is_upgrading() {
            self.upgrade(slot)?;
        }
        let mut taken = 0;
        loop {
            let Some(socket) = self.sockets[slot as usize].as_deref_mut() else { return Ok(taken) };
            match socket.connection.send(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(SocketError::AGAIN) if taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
            match self.flush(slot) {
                Ok(()) if taken < bytes.len() => {}
                Ok(()) | Err(SocketError::AGAIN) => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        for turn in 0..=TURNS_MAX {
            let Some(socket) = self.sockets[slot as usize].as_deref_mut() else {
                return self.inner.recv(slot, buffer);
            };
            let done = socket.connection.read(buffer);
            let waits = done == Err(SocketError::AGAIN);
            if waits && turn < TURNS_MAX {
                self.pump(slot)?;
                continue;
            }
            // A short read says to the engine that nothing is left; and after so many turns others have theirs.
            if waits || socket.has_more {
                self.pending.push(Ready { token: socket.token, readable: true, hangup: false });
            }
            return done;
        }
        Err(SocketError::AGAIN)
    }

    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        match self.sockets[slot as usize] {
            None => self.inner.discard(slot, buffer),
            Some(_) => self.recv(slot, buffer),
        }
    }

    fn has_rx_timestamps(&self, slot: u32) -> bool {
        self.inner.has_rx_timestamps(slot)
    }

    fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64> {
        self.inner.received_ns(slot, sent_ns, read_ns)
    }

    fn tcp_info(&self, slot: u32) -> Option<TcpReading> {
        self.inner.tcp_info(slot)
    }

    fn has_ended(&mut self, slot: u32) -> bool {
        let ended =
            self.sockets[slot as usize].as_deref().is_some_and(|socket| socket.connection.has_ended());
        ended || self.inner.has_ended(slot)
    }

    fn finish(&mut self, slot: u32) {
        if let Some(socket) = self.sockets[slot as usize].as_deref_mut() {
            socket.connection.close();
            // The close of the connection tells the peer, too.
            let _ = self.flush(slot);
        }
    }

    fn close(&mut self, slot: u32) {
        self.finish(slot);
        self.sockets[slot as usize] = None;
        self.inner.close(slot);
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        self.events.clear();
        std::mem::swap(&mut self.events, &mut self.pending);
        let until_ns = if self.events.is_empty() { until_ns } else { 0 };
        self.inner_count = self.inner.wait(until_ns, precise);
        for index in 0..self.inner_count {
            let ready = self.inner.ready(index);
            let slot = ready.token as u32;
            let known = self.sockets.get(slot as usize).and_then(Option::as_deref);
            let has_more = known.is_some_and(|socket| {
                socket.token == ready.token
                    && socket.ended_ns.is_some()
                    && !socket.connection.unsent().is_empty()
            });
            // Room for what could not be written before: the engine has long given it away.
            if has_more
                && let Err(error) = self.flush(slot)
                && error != SocketError::AGAIN
                && let Some(socket) = self.sockets[slot as usize].as_deref_mut()
            {
                socket.connection.hang_up(Err(error));
                self.events.push(Ready { token: socket.token, readable: true, hangup: false });
            }
        }
        self.inner_count + self.events.len()
    }

    fn has_more(&self) -> bool {
        self.inner.has_more()
    }

    fn ready(&self, index: usize) -> Ready {
        match index.checked_sub(self.inner_count) {
            None => self.inner.ready(index),
            Some(own) => self.events[own],
        }
    }
}

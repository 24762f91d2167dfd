//! HTTP/2 below the engine: a [`NetworkIo`] over another one. RFC 9113.
//!
//! The engine goes on to see slots that each carry one request of HTTP/1.1 at a time; here each is a *lane* of a
//! connection that several slots share, and its request a stream. So content checks, captures, redirects, timeouts and
//! figures are the same for both protocols, and what is different is in this folder alone.
//!
//! What is sent in one pass of the event loop is gathered and written once for each connection, at the latest when the
//! engine waits again: [`NetworkIo::wait`]. It hands the engine the events of one connection at a time, so that what a
//! response leads to is written before the next connection is read: the wait is at most one pass over the streams of one
//! connection, or one batch of starts. The engine counts it as its own delay ([`NetworkIo::GATHERS`]).

pub(crate) mod blocking;
pub(crate) mod connection;
mod frames;
pub(crate) mod grpc;
mod hpack;
mod lane;
mod link;
mod request;
mod response;
#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;

use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::io::origin::Origin;
use crate::io::tcp_info::TcpReading;
use link::{Group, GroupKey, Link, LinkState};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};

/// What is read of a connection at once.
const BUFFER_BYTES: usize = 128 * 1024;
/// So much is not held back until the engine waits.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// No slot, or no connection.
const NONE: u32 = u32::MAX;

/// How slots share connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Http2Limits {
    /// Most connections to a server, for each visitor if there are any.
    pub(crate) connections_max: u32,
    /// Most lanes of a connection.
    pub(crate) streams_max: u32,
}

/// Where a slot of the engine is.
#[derive(Debug, Clone, Copy)]
struct Slot {
    link: u32,
    lane: u32,
    /// Reads of the connection before its request was begun.
    reads: u64,
}

/// HTTP/2 over the connections of `N`.
pub(crate) struct Http2Io<N> {
    inner: N,
    limits: Http2Limits,
    slots: Vec<Slot>,
    /// Connections, by their slots of `inner`.
    links: Vec<Option<Box<Link>>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    groups: HashMap<GroupKey, Group>,
    owner: u32,
    buffer: Vec<u8>,
    /// Connections with something to be written.
    dirty: Vec<u32>,
    /// Connections with more to be read.
    unread: VecDeque<u32>,
    /// Events of the last wait, and of the next one.
    events: Vec<Ready>,
    pending: Vec<Ready>,
    /// Events of `inner` that are not handled yet.
    inner_next: usize,
    inner_count: usize,
    /// Whether `inner` has waited since a connection with more to be read had its turn.
    waited: bool,
    woke_ns: u64,
}

impl<N: NetworkIo> Http2Io<N> {
    /// For this many slots.
    pub(crate) fn new(inner: N, limits: Http2Limits, slots: usize) -> Self {
        Self {
            inner,
            limits,
            slots: vec![Slot { link: NONE, lane: 0, reads: 0 }; slots],
            links: (0..slots).map(|_| None).collect(),
            generations: vec![0; slots],
            free: (0..slots as u32).rev().collect(),
            groups: HashMap::new(),
            owner: 0,
            buffer: vec![1; BUFFER_BYTES],
            dirty: Vec::with_capacity(slots),
            unread: VecDeque::with_capacity(slots),
            events: Vec::with_capacity(slots),
            pending: Vec::with_capacity(slots),
            inner_next: 0,
            inner_count: 0,
            waited: false,
            woke_ns: 0,
        }
    }

    /// What it stands on.
    pub(crate) fn inner_mut(&mut self) -> &mut N {
        &mut self.inner
    }

    /// The connection of a slot.
    #[inline]
    fn link(&self, slot: u32) -> Option<&Link> {
        self.links.get(self.slots[slot as usize].link as usize)?.as_deref()
    }

    /// A connection to this server with room for one more lane: a new one until there are as many as are allowed, then
    /// each in turn.
    fn link_for(&mut self, origin: &Origin) -> Result<u32, SocketError> {
        let key = GroupKey { owner: self.owner, origin: std::ptr::from_ref(origin) as usize };
        let group = self.groups.entry(key).or_default();
        if group.links.len() >= self.limits.connections_max as usize
            && let Some(known) = group.next_with_room(&self.links, self.limits.streams_max)
        {
            return Ok(known);
        }
        let number = self.free.pop().ok_or(SocketError::Os(Errno::MFILE))?;
        let token = u64::from(self.generations[number as usize]) << 32 | u64::from(number);
        if let Err(error) = self.inner.connect(number, token, origin) {
            self.inner.close(number);
            self.free.push(number);
            return Err(error);
        }
        group.links.push(number);
        self.links[number as usize] = Some(Box::new(Link::new(key, origin.server_name.is_some())));
        Ok(number)
    }

    /// No further slot joins a connection.
    fn ungroup(&mut self, number: u32) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if std::mem::take(&mut link.is_grouped)
            && let Some(group) = self.groups.get_mut(&link.key)
        {
            group.links.retain(|known| *known != number);
            if group.links.is_empty() {
                self.groups.remove(&link.key);
            }
        }
    }

    /// Sends the preface, which shows whether the connection is established. One slot does so for all.
    fn establish(&mut self, number: u32, token: u64) -> Result<(), SocketError> {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        if link.connection.tokens().next() != Some(token) {
            return Err(SocketError::AGAIN);
        }
        let end = match self.inner.send(number, link.connection.unsent()) {
            Ok(count) => {
                link.connection.sent(count);
                link.state = LinkState::Open;
                // What came with the edge that led here is reported once.
                self.unread.push_back(number);
                Ok(())
            }
            Err(SocketError::AGAIN | SocketError::INTERRUPTED) => return Err(SocketError::AGAIN),
            Err(error) => {
                link.state = LinkState::Failed(error);
                Err(error)
            }
        };
        let others = link.connection.tokens().filter(|other| *other != token);
        self.pending.extend(others.map(|token| Ready { token, readable: false, hangup: false }));
        if end.is_err() {
            self.ungroup(number);
        }
        end
    }

    /// Notes that a connection has something to be written.
    #[inline]
    fn mark_dirty(&mut self, number: u32) {
        if let Some(link) = self.links[number as usize].as_deref_mut()
            && !link.is_dirty
            && !link.connection.unsent().is_empty()
        {
            link.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// Writes all that was gathered.
    fn flush(&mut self) {
        while let Some(number) = self.dirty.pop() {
            if let Some(link) = self.links[number as usize].as_deref_mut() {
                link.is_dirty = false;
                self.flush_link(number);
            }
        }
    }

    fn flush_link(&mut self, number: u32) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        while link.state == LinkState::Open && !link.connection.unsent().is_empty() && !link.send_failed {
            let offered = link.connection.unsent();
            let length = offered.len();
            match self.inner.send(number, offered) {
                Ok(count) => {
                    link.connection.sent(count);
                    if count < length {
                        break;
                    }
                }
                Err(SocketError::INTERRUPTED) => {}
                Err(SocketError::AGAIN) => break,
                Err(_) => {
                    // What the peer sent before it closed decides.
                    link.send_failed = true;
                    self.unread.push_back(number);
                }
            }
        }
        let pending = &mut self.pending;
        link.connection
            .take_touched(|token, readable, hangup| pending.push(Ready { token, readable, hangup }));
    }

    /// An event of a connection.
    fn on_ready(&mut self, ready: Ready) {
        let number = ready.token as u32;
        let is_current = self
            .generations
            .get(number as usize)
            .is_some_and(|&generation| u64::from(generation) == ready.token >> 32);
        let Some(link) =
            self.links.get_mut(number as usize).and_then(Option::as_deref_mut).filter(|_| is_current)
        else {
            return;
        };
        link.hangup |= ready.hangup;
        match link.state {
            LinkState::Connecting => {
                let first = link.connection.tokens().next();
                self.events.extend(first.map(|token| Ready { token, readable: false, hangup: false }));
            }
            LinkState::Open => {
                self.flush_link(number);
                if ready.readable {
                    self.read(number);
                }
            }
            LinkState::Failed(_) | LinkState::Ended => {}
        }
    }

    /// Reads a connection once.
    fn read(&mut self, number: u32) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if link.state != LinkState::Open {
            return;
        }
        let end = match self.inner.recv(number, &mut self.buffer) {
            Ok(0) => Some(Ok(())),
            Ok(count) => {
                link.reads += 1;
                link.connection.receive(&self.buffer[..count]);
                // A short read says that nothing is left, unless the close is to be read too.
                if count == self.buffer.len() || link.hangup || link.send_failed {
                    self.unread.push_back(number);
                }
                link.connection.fault().map(|_| Err(SocketError::Protocol))
            }
            Err(SocketError::AGAIN) => link.send_failed.then_some(Err(Errno::CONNRESET.into())),
            Err(SocketError::INTERRUPTED) => {
                self.unread.push_back(number);
                None
            }
            Err(error) => Some(Err(error)),
        };
        if link.connection.fault().is_some() {
            // The peer is told why.
            self.flush_link(number);
        }
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if let Some(end) = end {
            link.connection.hang_up(end);
            link.state = LinkState::Ended;
        }
        let events = &mut self.events;
        link.connection
            .take_touched(|token, readable, hangup| events.push(Ready { token, readable, hangup }));
        if link.connection.is_draining() {
            self.ungroup(number);
        }
        self.mark_dirty(number);
    }

    /// Takes what happens next, until the engine has something to do or nothing is left without waiting again.
    fn take_events(&mut self, until_ns: u64, precise: bool) {
        while self.events.is_empty() {
            if self.inner_next < self.inner_count {
                self.inner_next += 1;
                self.on_ready(self.inner.ready(self.inner_next - 1));
            } else if !std::mem::replace(&mut self.waited, true) {
                let until_ns = if self.unread.is_empty() { until_ns } else { 0 };
                self.inner_count = self.inner.wait(until_ns, precise);
                self.inner_next = 0;
                self.woke_ns = self.inner.now_ns();
            } else {
                self.waited = false;
                match self.unread.pop_front() {
                    Some(number) => self.read(number),
                    None => return,
                }
            }
        }
    }
}

impl<N: NetworkIo> NetworkIo for Http2Io<N> {
    const GATHERS: bool = true;

    #[inline]
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn cpu_ns(&self) -> u64 {
        self.inner.cpu_ns()
    }

    fn woke_ns(&self, _: u64) -> u64 {
        self.woke_ns
    }

    fn set_owner(&mut self, owner: u32) {
        self.owner = owner;
    }

    fn connect(&mut self, slot: u32, token: u64, origin: &Origin) -> Result<(), SocketError> {
        let number = self.link_for(origin)?;
        if let Some(link) = self.links[number as usize].as_deref_mut() {
            link.slots += 1;
            let lane = link.connection.attach(token);
            self.slots[slot as usize] = Slot { link: number, lane, reads: link.reads };
        }
        Ok(())
    }

    fn opens_connection(&self, slot: u32) -> bool {
        self.link(slot).is_some_and(|link| link.opener == Some(slot))
    }

    fn ends_connection(&self, slot: u32, _: bool) -> bool {
        self.link(slot).is_some_and(|link| link.slots == 1 && link.opener.is_some())
    }

    fn is_resolving(&self, slot: u32) -> bool {
        self.inner.is_resolving(self.slots[slot as usize].link)
    }

    /// A slot that waits for its turn on an established connection is past the handshake that others made.
    fn handshake(&self, slot: u32) -> Handshake {
        match self.link(slot) {
            Some(link)
                if link.state == LinkState::Connecting || link.opener.is_none_or(|opener| opener == slot) =>
            {
                self.inner.handshake(self.slots[slot as usize].link)
            }
            _ => Handshake::InProgress { started_ns: 0 },
        }
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, SocketError> {
        let Slot { link: number, lane, .. } = self.slots[slot as usize];
        let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_deref_mut) else {
            return Err(Errno::BADF.into());
        };
        match link.state {
            LinkState::Connecting => {
                let token = link.connection.token(lane);
                self.establish(number, token)?;
            }
            LinkState::Failed(error) => return Err(error),
            LinkState::Open | LinkState::Ended => {}
        }
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        let reads = link.reads;
        let done = link.connection.send(lane, bytes);
        if done.is_ok() {
            link.opener.get_or_insert(slot);
            self.slots[slot as usize].reads = reads;
        }
        let gathered = link.connection.unsent().len();
        match gathered {
            0 => {}
            GATHERED_BYTES_MAX.. => self.flush_link(number),
            _ => self.mark_dirty(number),
        }
        done
    }

    #[inline]
    fn recv(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let Slot { link, lane, .. } = self.slots[slot as usize];
        let link = self.links.get_mut(link as usize).and_then(Option::as_deref_mut);
        let room = buffer.len();
        link.map_or(Err(Errno::BADF.into()), |link| link.connection.read(lane, Some(buffer), room))
    }

    fn discard(&mut self, slot: u32, buffer: &mut [u8]) -> Result<usize, SocketError> {
        let Slot { link, lane, .. } = self.slots[slot as usize];
        let link = self.links.get_mut(link as usize).and_then(Option::as_deref_mut);
        link.map_or(Err(Errno::BADF.into()), |link| link.connection.read(lane, None, buffer.len()))
    }

    fn has_rx_timestamps(&self, slot: u32) -> bool {
        self.link(slot).is_some() && self.inner.has_rx_timestamps(self.slots[slot as usize].link)
    }

    /// That of the last read of the connection: it gave the bytes of all its streams that are handled now.
    fn received_ns(&mut self, slot: u32, sent_ns: u64, read_ns: u64) -> Option<u64> {
        self.link(slot)?;
        self.inner.received_ns(self.slots[slot as usize].link, sent_ns, read_ns)
    }

    fn tcp_info(&self, slot: u32) -> Option<TcpReading> {
        self.link(slot)?;
        self.inner.tcp_info(self.slots[slot as usize].link)
    }

    fn has_ended(&mut self, slot: u32) -> bool {
        self.link(slot).is_none_or(|link| link.connection.is_draining())
    }

    fn close(&mut self, slot: u32) {
        let Slot { link: number, lane, reads } =
            std::mem::replace(&mut self.slots[slot as usize], Slot { link: NONE, lane: 0, reads: 0 });
        let Some(link) = self.links.get_mut(number as usize).and_then(Option::as_deref_mut) else { return };
        // Nothing has come since the request that is given up was sent: the peer may be gone, and who comes next does not
        // join those that wait for it.
        let is_stalled = link.connection.is_active(lane) && link.reads == reads;
        link.connection.detach(lane);
        link.slots -= 1;
        if link.opener == Some(slot) {
            link.opener = Some(NONE);
        }
        if link.slots > 0 {
            if link.state == LinkState::Connecting {
                // It may have been the one that was to go on with the handshake.
                let next = link.connection.tokens().next();
                self.pending.extend(next.map(|token| Ready { token, readable: false, hangup: false }));
            }
            if is_stalled || link.state == LinkState::Connecting {
                self.ungroup(number);
            }
            return self.mark_dirty(number);
        }
        link.connection.close();
        self.flush_link(number);
        self.ungroup(number);
        self.inner.close(number);
        self.links[number as usize] = None;
        self.generations[number as usize] = self.generations[number as usize].wrapping_add(1) & 0x7fff_ffff;
        self.free.push(number);
    }

    fn wait(&mut self, until_ns: u64, precise: bool) -> usize {
        self.flush();
        self.events.clear();
        std::mem::swap(&mut self.events, &mut self.pending);
        self.take_events(until_ns, precise);
        self.events.len()
    }

    #[inline]
    fn ready(&self, index: usize) -> Ready {
        self.events[index]
    }
}

//! Protocols of streams below the engine: a [`NetworkIo`] over another one, for HTTP/2 and HTTP/3.
//!
//! The engine goes on to see slots that each carry one request of HTTP/1.1 at a time; here each is a *lane* of a
//! connection that several slots share, and its request a stream. So content checks, captures, redirects, timeouts and
//! figures are the same for all protocols. What differs is behind [`Multiplex`].
//!
//! What is sent in one pass of the event loop is gathered and written once for each connection, at the latest when the
//! engine waits again: [`NetworkIo::wait`]. It hands the engine the events of one connection at a time, so that what a
//! response leads to is written before the next connection is read: the wait is at most one pass over the streams of one
//! connection, or one batch of starts. The engine counts it as its own delay ([`NetworkIo::GATHERS`]).

mod engine_side;
pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod lane;
pub(crate) mod lanes;
mod link;
pub(crate) mod multiplex;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(test)]
mod tests;
mod timers;

use crate::io::network_io::{NetworkIo, Ready, SocketError};
use crate::io::origin::Origin;
use link::{Group, GroupKey, Link, LinkState};
use multiplex::Multiplex;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use timers::Timers;

/// What is read of a connection at once.
const BUFFER_BYTES: usize = 128 * 1024;
/// So much is not held back until the engine waits.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Datagrams of one connection that are read before another has its turn.
const DATAGRAMS_MAX: usize = 64;
/// No slot, or no connection.
const NONE: u32 = u32::MAX;

/// How slots share connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimits {
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

/// Connections of `C` over those of `N`.
pub(crate) struct MultiplexedIo<N, C: Multiplex> {
    inner: N,
    context: C::Context,
    limits: StreamLimits,
    slots: Vec<Slot>,
    /// Connections, by their slots of `inner`.
    links: Vec<Option<Box<Link<C>>>>,
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
    timers: Timers,
}

impl<N: NetworkIo, C: Multiplex> MultiplexedIo<N, C> {
    /// For this many slots.
    pub(crate) fn new(inner: N, context: C::Context, limits: StreamLimits, slots: usize) -> Self {
        Self {
            inner,
            context,
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
            timers: Timers::default(),
        }
    }

    /// What it stands on.
    pub(crate) fn inner_mut(&mut self) -> &mut N {
        &mut self.inner
    }

    /// The connection of a slot.
    #[inline]
    fn link(&self, slot: u32) -> Option<&Link<C>> {
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
        let begun = self.inner.connect(number, token, origin);
        let begun = begun.and_then(|()| C::open(&mut self.context, origin, self.inner.now_ns()));
        let connection = begun.inspect_err(|_| {
            self.inner.close(number);
            self.free.push(number);
        })?;
        group.links.push(number);
        self.links[number as usize] = Some(Box::new(Link::new(key, connection)));
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

    /// Sends what comes first, which shows whether the connection is established. One slot does so for all.
    fn establish(&mut self, number: u32, token: u64) -> Result<(), SocketError> {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        if link.connection.tokens().next() != Some(token) {
            return Err(SocketError::AGAIN);
        }
        let end = match self.greet(number) {
            Ok(true) => Ok(()),
            Ok(false) | Err(SocketError::AGAIN | SocketError::INTERRUPTED) => return Err(SocketError::AGAIN),
            Err(error) => Err(error),
        };
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        if let Err(error) = end {
            self.give_up_connecting(number, error);
            return end;
        }
        link.state = LinkState::Open;
        let others = link.connection.tokens().filter(|other| *other != token);
        self.pending.extend(others.map(|token| Ready { token, readable: false, hangup: false }));
        // What came with the edge that led here is reported once.
        self.mark_unread(number);
        end
    }

    /// A connection could not be established: all slots on it are told, and no other joins them.
    fn give_up_connecting(&mut self, number: u32, error: SocketError) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if link.state == LinkState::Connecting {
            link.state = LinkState::Failed(error);
            let all = link.connection.tokens();
            self.pending.extend(all.map(|token| Ready { token, readable: false, hangup: false }));
            self.ungroup(number);
        }
    }

    /// Sends what a connection sends first. Whether it can carry requests then.
    fn greet(&mut self, number: u32) -> Result<bool, SocketError> {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return Err(Errno::BADF.into()) };
        if C::DATAGRAMS {
            if self.inner.is_resolving(number) {
                return Ok(false);
            }
            self.flush_link(number);
            let Some(link) = self.links[number as usize].as_deref() else { return Err(Errno::BADF.into()) };
            return match link.state {
                LinkState::Failed(error) => Err(error),
                _ => link.connection.is_established(),
            };
        }
        let count = self.inner.send(number, link.connection.unsent())?;
        link.connection.sent(count);
        link.connection.is_established()
    }

    /// Notes that a connection has something to be written.
    #[inline]
    fn mark_dirty(&mut self, number: u32) {
        if let Some(link) = self.links[number as usize].as_deref_mut()
            && !link.is_dirty
            && link.connection.gathered_bytes() > 0
        {
            link.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// Notes that a connection has more to be read.
    fn mark_unread(&mut self, number: u32) {
        if let Some(link) = self.links[number as usize].as_deref_mut()
            && !std::mem::replace(&mut link.is_unread, true)
        {
            self.unread.push_back(number);
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
        if C::DATAGRAMS {
            link.connection.tick(self.inner.now_ns());
            link.connection.prepare();
        }
        let sends = link.state == LinkState::Open || (C::DATAGRAMS && link.state == LinkState::Connecting);
        let mut failed = None;
        while sends && !link.connection.unsent().is_empty() && !link.send_failed {
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
                // What the peer sent before it closed decides.
                Err(error) => (link.send_failed, failed) = (true, Some(error)),
            }
        }
        let (pending, is_connecting) = (&mut self.pending, link.state == LinkState::Connecting);
        link.connection
            .take_touched(|token, readable, hangup| pending.push(Ready { token, readable, hangup }));
        match failed {
            Some(error) if is_connecting => self.give_up_connecting(number, error),
            Some(_) => self.mark_unread(number),
            None => {}
        }
        self.arm(number);
    }

    /// Sets the timer of a connection anew.
    #[inline]
    fn arm(&mut self, number: u32) {
        if C::DATAGRAMS
            && let Some(link) = self.links[number as usize].as_deref_mut()
        {
            link.timer_ns = self.timers.arm(number, link.connection.due_ns(), link.timer_ns);
            let links = &self.links;
            self.timers.tidy(links.len(), |number| links[number as usize].as_ref().map(|link| link.timer_ns));
        }
    }

    /// Lets the connections go on whose timer has fired.
    fn fire_timers(&mut self) {
        while let Some((at_ns, number)) = self.timers.pop(self.woke_ns) {
            let Some(link) = self.links[number as usize].as_deref_mut() else { continue };
            if link.timer_ns != at_ns {
                continue;
            }
            link.timer_ns = u64::MAX;
            match link.state {
                LinkState::Connecting => self.go_on_connecting(number),
                LinkState::Open => {
                    self.flush_link(number);
                    self.end_if_faulty(number);
                }
                LinkState::Failed(_) | LinkState::Ended => {}
            }
        }
    }

    /// What a connection does that is not established goes on with a `send` of its first slot.
    fn go_on_connecting(&mut self, number: u32) {
        if let Some(link) = self.links[number as usize].as_deref() {
            let first = link.connection.tokens().next();
            self.events.extend(first.map(|token| Ready { token, readable: false, hangup: false }));
        }
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
            LinkState::Connecting => match C::DATAGRAMS && ready.readable {
                true => self.read_datagrams(number),
                false => self.go_on_connecting(number),
            },
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
        if C::DATAGRAMS {
            return self.read_datagrams(number);
        }
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
                    self.mark_unread(number);
                }
                None
            }
            Err(SocketError::AGAIN) => link.send_failed.then_some(Err(Errno::CONNRESET.into())),
            Err(SocketError::INTERRUPTED) => {
                self.mark_unread(number);
                None
            }
            Err(error) => Some(Err(error)),
        };
        self.after_read(number, end);
    }

    /// Reads what datagrams there are, up to a bound. An error is that of one that was sent: nobody is there any more.
    fn read_datagrams(&mut self, number: u32) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if !matches!(link.state, LinkState::Open | LinkState::Connecting) {
            return;
        }
        link.connection.tick(self.inner.now_ns());
        let (mut end, mut has_more) = (None, true);
        for _ in 0..DATAGRAMS_MAX {
            match self.inner.recv(number, &mut self.buffer) {
                Ok(count) => {
                    link.reads += 1;
                    link.connection.receive(&self.buffer[..count]);
                }
                Err(SocketError::INTERRUPTED) => {}
                Err(error) => {
                    end = match error {
                        SocketError::AGAIN => link.send_failed.then_some(Err(Errno::CONNRESET.into())),
                        error => Some(Err(error)),
                    };
                    has_more = false;
                    break;
                }
            }
        }
        let state = link.state;
        if has_more {
            self.mark_unread(number);
        }
        match (state, end) {
            (LinkState::Connecting, Some(Err(error))) => self.give_up_connecting(number, error),
            (LinkState::Connecting, _) => self.go_on_connecting(number),
            _ => self.after_read(number, end),
        }
        self.arm(number);
    }

    /// Tells the slots what a read gave, and that the connection has ended if it has.
    fn after_read(&mut self, number: u32, end: Option<Result<(), SocketError>>) {
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        if link.connection.is_faulty() {
            // The peer is told why.
            self.flush_link(number);
        }
        let Some(link) = self.links[number as usize].as_deref_mut() else { return };
        let end = end.or_else(|| link.connection.is_faulty().then_some(Err(SocketError::Protocol)));
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

    /// A connection may have ended by its timer.
    fn end_if_faulty(&mut self, number: u32) {
        if self.links[number as usize].as_deref().is_some_and(|link| link.connection.is_draining()) {
            self.after_read(number, None);
        }
    }

    /// Takes what happens next, until the engine has something to do or nothing is left without waiting again.
    fn take_events(&mut self, until_ns: u64, precise: bool) {
        while self.events.is_empty() {
            if !self.pending.is_empty() {
                std::mem::swap(&mut self.events, &mut self.pending);
            } else if self.inner_next < self.inner_count {
                self.inner_next += 1;
                self.on_ready(self.inner.ready(self.inner_next - 1));
            } else if !std::mem::replace(&mut self.waited, true) {
                let until_ns = if self.unread.is_empty() { until_ns } else { 0 };
                self.inner_count = self.inner.wait(until_ns.min(self.timers.first_ns()), precise);
                self.inner_next = 0;
                self.woke_ns = self.inner.now_ns();
                if C::DATAGRAMS {
                    self.fire_timers();
                }
            } else {
                self.waited = false;
                match self.unread.pop_front() {
                    Some(number) => {
                        if let Some(link) = self.links[number as usize].as_deref_mut() {
                            link.is_unread = false;
                        }
                        self.read(number);
                    }
                    None => return,
                }
            }
        }
    }
}

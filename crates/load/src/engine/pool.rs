//! The connection pool: acquire, keep idle, open, park, close.

use super::conn::{Phase, Request, token};
use super::{Arrivals, Engine};
use crate::io::network_io::NetworkIo;
use crate::results::failure::Failure;
use crate::results::recorder::Report;

/// How long a connection that has done its work waits for the server to close first. The side that closes first
/// keeps the port in TIME_WAIT for a minute, and the server has one port for all clients; we have 28,000 for all.
const PARK_NS: u64 = 100_000_000;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Whether one more request could be in flight at once.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.open < self.open_max || self.idle_count > 0
    }

    /// Tells open arrival whether there is room, after something changed.
    #[inline]
    pub(super) fn update_room(&mut self, since_ns: u64) {
        let room = self.has_room();
        if let Arrivals::Open(starts) = &mut self.arrivals {
            starts.set_room(room, since_ns);
        }
        if self.has_visits() {
            self.update_room_for_visits(room, since_ns);
        }
    }

    /// Acquires an idle connection to this origin, the one used last: it is the least likely to be closed soon.
    pub(super) fn acquire_idle(&mut self, origin: usize) -> Option<u32> {
        while let Some(kept) = self.idle[origin].pop_back() {
            if let Some(slot) = self.slot_of(kept, Phase::Idle) {
                self.idle_count -= 1;
                return Some(slot);
            }
        }
        None
    }

    /// The slot of a token, if it is still in that use and phase.
    pub(super) fn slot_of(&self, kept: u64, phase: Phase) -> Option<u32> {
        let slot = kept as u32;
        let conn = self.conns.get(slot as usize)?;
        (token(slot, conn.generation) == kept && conn.phase == phase).then_some(slot)
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep_idle(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        conn.phase = Phase::Idle;
        self.idle_count += 1;
        let origin = conn.origin;
        let kept = token(slot, conn.generation);
        match self.has_visits() {
            true => self.keep_visitor_connection(slot),
            false => self.idle[origin].push_back(kept),
        }
        self.update_room(self.wake_ns);
    }

    /// Opens a connection for a request.
    pub(super) fn open(&mut self, request: Request) {
        let origin = self.targets.get(request.template).origin;
        if self.open >= self.open_max {
            self.close_one_idle();
        }
        if self.free.is_empty() {
            self.unpark(u64::MAX);
        }
        // There is a slot for every connection allowed and every one parked, so one is free here.
        let Some(slot) = self.free.pop() else { return };
        self.open += 1;
        if self.has_visits() {
            self.visitor_connection_opened(request, origin);
        }
        self.conns[slot as usize].renew(origin);
        self.prepare_slot(slot, request);
        self.deadlines.add(slot, request.deadline_ns);
        self.connect(slot);
    }

    /// Begins the connection of a slot that has its request, and sends at once if it is established at once, as it
    /// is within one machine: that saves a round through the event loop.
    pub(super) fn connect(&mut self, slot: u32) {
        let started_ns = self.update_clock();
        if self.load_end.is_some() {
            return;
        }
        let conn = &mut self.conns[slot as usize];
        conn.started_ns = started_ns;
        conn.connect_delay_ns = started_ns.saturating_sub(conn.request.sendable_ns);
        let origin = &self.plan.origins[conn.origin];
        if self.plan.script.is_some() {
            self.io.set_owner(conn.request.user);
        }
        match self.io.connect(slot, token(slot, conn.generation), origin) {
            Ok(()) => {
                let now_ns = self.update_clock();
                if self.load_end.is_none() {
                    self.transmit(slot, now_ns);
                }
            }
            Err(error) => self.fail(slot, Failure::from_connect(error), started_ns),
        }
    }

    /// Closes the connection of a slot and frees it.
    pub(super) fn close(&mut self, slot: u32) {
        if self.has_visits() {
            self.visitor_connection_closed(slot);
        }
        self.disconnect(slot);
        let phase = std::mem::replace(&mut self.conns[slot as usize].phase, Phase::Free);
        self.idle_count -= u32::from(phase == Phase::Idle);
        self.free.push(slot);
        self.open -= 1;
        self.update_room(self.wake_ns);
    }

    /// Closes the socket of a slot; the slot stays in use.
    pub(super) fn disconnect(&mut self, slot: u32) {
        self.sample_closed(slot);
        let conn = &mut self.conns[slot as usize];
        if self.io.ends_connection(slot, std::mem::take(&mut conn.established)) {
            self.recorder.connection_closed();
        }
        self.io.close(slot);
        conn.content = None;
        conn.generation = conn.generation.wrapping_add(1);
    }

    /// Parks a finished connection until the server closes it; one that the server has closed is closed.
    pub(super) fn park(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        if conn.hangup || self.parked_max == 0 {
            return self.close(slot);
        }
        if self.has_visits() {
            self.visitor_connection_closed(slot);
        }
        let conn = &mut self.conns[slot as usize];
        conn.phase = Phase::Parked;
        self.io.finish(slot);
        let conn = &mut self.conns[slot as usize];
        let parked = token(slot, conn.generation);
        if std::mem::take(&mut conn.established) {
            self.recorder.connection_closed();
        }
        self.open -= 1;
        if self.parked.len() >= self.parked_max
            && let Some((oldest, _)) = self.parked.pop_front()
        {
            self.close_parked(oldest);
        }
        self.parked.push_back((parked, self.now_ns + PARK_NS));
        self.update_room(self.wake_ns);
    }

    /// Closes the parked connections whose wait ends by then.
    pub(super) fn unpark(&mut self, until_ns: u64) {
        while let Some(&(parked, at_ns)) = self.parked.front()
            && at_ns <= until_ns
        {
            self.parked.pop_front();
            self.close_parked(parked);
        }
    }

    /// Closes a parked connection, if it is still that one.
    pub(super) fn close_parked(&mut self, parked: u64) {
        if let Some(slot) = self.slot_of(parked, Phase::Parked) {
            self.disconnect(slot);
            self.conns[slot as usize].phase = Phase::Free;
            self.free.push(slot);
        }
    }

    /// The server closed a kept connection between requests: normal.
    pub(super) fn close_idle_by_peer(&mut self, slot: u32) {
        self.count_quiet_close(slot);
        self.close(slot);
    }

    /// Counts a close between requests, once for all slots that share the connection.
    pub(super) fn count_quiet_close(&mut self, slot: u32) {
        let ends = self.io.ends_connection(slot, true);
        self.recorder.report.connections.quiet_closes += u64::from(ends);
    }

    /// In closed arrival each user keeps a connection to each server at most: those of users who left are closed.
    pub(super) fn close_surplus_idle(&mut self) {
        let Arrivals::Closed(users) = &self.arrivals else { return };
        let kept_max = users.engaged().saturating_mul(self.plan.origins.len() as u32);
        while self.open > kept_max && self.idle_count > 0 {
            self.close_one_idle();
        }
    }

    /// Makes room for a connection to another origin.
    fn close_one_idle(&mut self) {
        if self.has_visits() {
            return self.close_longest_idle();
        }
        for origin in 0..self.idle.len() {
            while let Some(kept) = self.idle[origin].pop_front() {
                if let Some(slot) = self.slot_of(kept, Phase::Idle) {
                    return self.close(slot);
                }
            }
        }
    }
}

//! The life of a request: started, sent, answered, failed.

use super::conn::{Conn, Phase, Request, token};
use super::{Arrivals, BUFFER_BYTES, Engine, START_BATCH};
use crate::answer::{AtClose, Fed};
use crate::failure::Failure;
use crate::prepare::Plan;
use crate::recorder::{Report, Times, microseconds};
use crate::world::{Broke, Ready, World};
use rustix::io::Errno;
use webdyno_model::workload::Expectation;

/// Bodies with this much left are dropped in the kernel instead of being copied.
const DISCARD_BYTES_MIN: u64 = 8 * 1024;
/// When a large body is expected, only so much is read at first: the head, and little of the body.
const FIRST_READ_BYTES: usize = 2048;
/// Reads of one connection before others have their turn.
const READS_MAX: usize = 16;

impl<W: World, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, W, X> {
    /// Starts what is due, up to a batch.
    pub(super) fn start_due(&mut self) {
        for _ in 0..START_BATCH {
            if self.over.is_some() || !self.start_one() {
                return;
            }
        }
    }

    /// Within a batch of events: in open arrival, a start that is due now does not wait for the end of the batch.
    #[inline]
    pub(super) fn start_overdue(&mut self) {
        if let Arrivals::Open(starts) = &self.arrivals
            && (starts.waiting() > 0 || starts.next_due_ns().is_some_and(|due_ns| due_ns <= self.now_ns))
        {
            self.start_due();
        }
    }

    /// Counts the starts that fall before `until_ns`.
    pub(super) fn fall_due(&mut self, until_ns: u64) {
        if let Arrivals::Open(starts) = &mut self.arrivals {
            while let Some(intended_ns) = starts.fall_due(until_ns) {
                self.recorder.start(intended_ns);
            }
        }
    }

    /// Starts the next request if one is due and possible.
    fn start_one(&mut self) -> bool {
        self.fall_due(self.now_ns + 1);
        let room = self.has_room();
        let now_ns = self.now_ns;
        match &mut self.arrivals {
            Arrivals::Open(starts) => {
                if !room {
                    return false;
                }
                let Some((intended_ns, could_ns)) = starts.take() else {
                    return false;
                };
                let request = self.request(0, intended_ns, could_ns, now_ns);
                self.begin(request);
                self.note_room(self.wake_ns);
            }
            Arrivals::Closed(users) => {
                let Some(turn) = users.next(now_ns) else {
                    return false;
                };
                if !self.claim() {
                    return false;
                }
                self.recorder.start(turn.intended_ns);
                let request = self.request(turn.user, turn.intended_ns, turn.intended_ns, turn.intended_ns);
                self.begin(request);
            }
        }
        true
    }

    fn claim(&mut self) -> bool {
        self.budget.as_mut().is_none_or(super::Budget::claim)
    }

    /// The next request in turn. Its timeout runs from `taken_ns`.
    fn request(&mut self, user: u32, intended_ns: u64, could_ns: u64, taken_ns: u64) -> Request {
        let template = self.turn % self.plan.templates.len();
        self.turn = template + 1;
        Request {
            user,
            template,
            intended_ns,
            could_ns,
            deadline_ns: taken_ns.saturating_add(self.plan.timeout_ns),
            retried: false,
        }
    }

    /// Sends a request on a kept connection, or on a new one.
    fn begin(&mut self, request: Request) {
        let origin = self.plan.templates[request.template].origin;
        match self.take_idle(origin) {
            None => self.open(request),
            Some(slot) => {
                self.put_on(slot, request);
                self.stamp();
                if self.over.is_none() {
                    self.transmit(slot, request.could_ns);
                }
            }
        }
    }

    fn put_on(&mut self, slot: u32, request: Request) {
        let conn = &mut self.conns[slot as usize];
        conn.assign(request);
        conn.phase = Phase::Sending;
        conn.late_ns = 0;
        self.deadlines.add(slot, request.deadline_ns);
    }

    /// Something happened on a connection.
    pub(super) fn on_ready(&mut self, ready: Ready) {
        let slot = ready.token as u32;
        let Some(conn) = self.conns.get_mut(slot as usize) else {
            return;
        };
        if token(slot, conn.generation) != ready.token {
            return;
        }
        conn.hangup |= ready.hangup;
        match conn.phase {
            // One that waits for its next turn has it at the end of this round, and not twice.
            Phase::Receiving if ready.readable && !conn.waits_for_turn => self.receive(slot),
            Phase::Connecting | Phase::Sending => {
                self.stamp();
                if self.over.is_none() {
                    self.transmit(slot, self.wake_ns);
                }
                // An edge is told once: what came with it must be read now, unless the connection was replaced.
                if ready.readable && self.is_same_and_established(slot, ready.token) {
                    self.receive(slot);
                }
            }
            Phase::Idle if ready.readable => self.on_idle(slot),
            Phase::Parked if ready.hangup => self.close_parked(ready.token),
            _ => {}
        }
    }

    fn is_same_and_established(&self, slot: u32, ready: u64) -> bool {
        let conn = &self.conns[slot as usize];
        let under_way = matches!(conn.phase, Phase::Sending | Phase::Receiving);
        token(slot, conn.generation) == ready && under_way && self.over.is_none()
    }

    /// A kept connection speaks between requests: it closes, perhaps after a last word such as a 408.
    fn on_idle(&mut self, slot: u32) {
        match self.world.recv(slot, &mut self.buffer) {
            Err(Broke::AGAIN | Broke::INTERRUPTED) if !self.conns[slot as usize].hangup => {}
            _ => self.quiet_close(slot),
        }
    }

    /// Sends what is left of a request. `could_ns` is the moment since when it could have been sent.
    pub(super) fn transmit(&mut self, slot: u32, could_ns: u64) {
        let conn = &mut self.conns[slot as usize];
        let template = &self.plan.templates[conn.request.template];
        let left = template.bytes.get(conn.written_bytes..).unwrap_or_default();
        match self.world.send(slot, left) {
            Ok(count) => {
                self.recorder.report.bytes_sent += count as u64;
                if conn.written_bytes == 0 {
                    self.note_sent(slot, could_ns);
                }
                let conn = &mut self.conns[slot as usize];
                conn.written_bytes += count;
                conn.phase = match conn.written_bytes < template.bytes.len() {
                    true => Phase::Sending,
                    false => Phase::Receiving,
                };
            }
            Err(Broke::AGAIN | Broke::INTERRUPTED) => {}
            Err(broke) if conn.established => {
                // The server may have answered before it closed: what there is to read decides.
                conn.send_failed = true;
                conn.hangup = true;
                conn.phase = Phase::Receiving;
                if matches!(broke, Broke::Os(Errno::PIPE | Errno::CONNRESET)) {
                    self.receive(slot);
                } else {
                    self.broken(slot, Failure::of_transfer(broke));
                }
            }
            Err(broke) => self.fail(slot, Failure::of_connect(broke), self.now_ns),
        }
    }

    /// The first bytes of a request are on their way; on a new connection that proves that it is established.
    fn note_sent(&mut self, slot: u32, could_ns: u64) {
        let now_ns = self.now_ns;
        let conn = &mut self.conns[slot as usize];
        conn.sent_ns = now_ns;
        if !conn.established {
            conn.established = true;
            self.recorder.opened(conn.begun_ns, now_ns);
            if let Arrivals::Closed(users) = &mut self.arrivals {
                users.connected(conn.request.user);
            }
        }
        self.recorder.report.connections.reused += u64::from(conn.carried > 0);
        if !conn.request.retried {
            let delay_us = microseconds(could_ns, conn.late_ns.saturating_add(now_ns));
            self.recorder.report.client_delay.record(delay_us);
        }
    }

    /// Reads the connections that had more to read than their turn allowed.
    pub(super) fn read_again(&mut self) {
        for index in (0..self.again.len()).rev() {
            let again = self.again.swap_remove(index);
            let conn = &mut self.conns[again as u32 as usize];
            if token(again as u32, conn.generation) == again {
                conn.waits_for_turn = false;
            }
            if self.over.is_none()
                && let Some(slot) = self.slot_of(again, Phase::Receiving)
            {
                self.receive(slot);
            }
        }
    }

    /// Reads until the answer ends or nothing is there. A short read of a stream says that it is drained (epoll(7)),
    /// unless the server's close is to be read too.
    pub(super) fn receive(&mut self, slot: u32) {
        for _ in 0..READS_MAX {
            let conn = &mut self.conns[slot as usize];
            let left = conn.answer.fixed_left();
            let dropping = left >= DISCARD_BYTES_MIN;
            let memory = &mut self.memory[conn.request.template];
            let asked = match dropping {
                true => left.min(BUFFER_BYTES as u64) as usize,
                false if !conn.answer.begun() && memory.expects_body(DISCARD_BYTES_MIN) => FIRST_READ_BYTES,
                false => BUFFER_BYTES,
            };
            let got = match dropping {
                true => self.world.discard(slot, &mut self.buffer[..asked]),
                false => self.world.recv(slot, &mut self.buffer[..asked]),
            };
            match got {
                Ok(0) => return self.on_close(slot),
                Ok(count) => {
                    self.stamp();
                    if self.over.is_some() || self.take(slot, count, dropping) {
                        return;
                    }
                    if count < asked && !self.conns[slot as usize].hangup {
                        return;
                    }
                }
                Err(Broke::INTERRUPTED) => {}
                Err(Broke::AGAIN) if conn.send_failed => return self.broken(slot, Failure::Reset),
                Err(Broke::AGAIN) => return,
                Err(broke) => {
                    self.stamp();
                    if self.over.is_none() {
                        self.broken(slot, Failure::of_transfer(broke));
                    }
                    return;
                }
            }
        }
        let conn = &mut self.conns[slot as usize];
        if !std::mem::replace(&mut conn.waits_for_turn, true) {
            self.again.push(token(slot, conn.generation));
        }
    }

    /// Takes bytes of an answer. True when that settled the request.
    fn take(&mut self, slot: u32, count: usize, dropped: bool) -> bool {
        let conn = &mut self.conns[slot as usize];
        self.recorder.report.bytes_received += count as u64;
        if !conn.answer.begun() {
            let first_us = microseconds(conn.sent_ns, self.now_ns);
            self.recorder.report.first_byte.record(first_us);
        }
        let to_head = self.plan.templates[conn.request.template].to_head;
        let memory = &mut self.memory[conn.request.template];
        let fed = match dropped {
            true if conn.answer.dropped(count as u64) => Ok(Fed::Done { extra_bytes: 0 }),
            true => Ok(Fed::More),
            false => conn.answer.feed(&self.buffer[..count], memory, to_head),
        };
        match fed {
            Ok(Fed::More) => return false,
            Ok(Fed::Done { extra_bytes }) => self.answered(slot, extra_bytes),
            Err(_) => self.fail(slot, Failure::Protocol, self.now_ns),
        }
        true
    }

    /// The server closed.
    fn on_close(&mut self, slot: u32) {
        self.stamp();
        if self.over.is_some() {
            return;
        }
        let conn = &mut self.conns[slot as usize];
        conn.hangup = true;
        match conn.answer.at_close() {
            AtClose::Complete => self.answered(slot, 0),
            AtClose::Early if conn.send_failed => self.broken(slot, Failure::Reset),
            AtClose::Early => self.broken(slot, Failure::ClosedEarly),
        }
    }

    /// An established connection broke. If it was a kept one and the server cannot have begun to answer, that is a
    /// close that crossed the request: an idempotent one is sent again, once, on a fresh connection (RFC 9110, 9.2.2).
    fn broken(&mut self, slot: u32, failure: Failure) {
        let conn = &mut self.conns[slot as usize];
        let idempotent = self.plan.templates[conn.request.template].idempotent;
        let crossed = conn.carried > 0 && !conn.answer.begun() && !conn.request.retried;
        if !(crossed && idempotent) {
            return self.fail(slot, failure, self.now_ns);
        }
        self.recorder.report.connections.quiet_closes += 1;
        let mut request = conn.request;
        let origin = conn.origin;
        request.retried = true;
        self.disconnect(slot);
        let conn = &mut self.conns[slot as usize];
        conn.renew(origin);
        conn.assign(request);
        self.connect(slot);
    }

    /// The answer is complete.
    fn answered(&mut self, slot: u32, extra_bytes: usize) {
        let now_ns = self.now_ns;
        let conn = &mut self.conns[slot as usize];
        let template = &self.plan.templates[conn.request.template];
        let keeps = self.plan.keepalive && conn.answer.keep();
        let sent = conn.written_bytes == template.bytes.len();
        let failure = match keeps && extra_bytes > 0 {
            true => Some(Failure::Protocol),
            false => judge(self.plan, conn),
        };
        let times = times(self.plan, conn);
        self.recorder.status(conn.answer.status());
        match failure {
            None => self.recorder.complete(times, now_ns),
            Some(failure) => self.recorder.fail(failure, times, now_ns),
        }
        self.last_outcome_ns = now_ns;
        self.deadlines.remove(slot);
        conn.carried = conn.carried.saturating_add(1);
        let user = conn.request.user;
        let kept = keeps && sent && extra_bytes == 0;
        let hangup = conn.hangup;
        match (kept, hangup) {
            (true, false) => self.keep(slot),
            (true, true) => self.quiet_close(slot),
            (false, _) => self.park(slot),
        }
        self.next_of_user(user);
    }

    /// In closed arrival, the user's next request follows at once.
    fn next_of_user(&mut self, user: u32) {
        let now_ns = self.now_ns;
        if !matches!(self.arrivals, Arrivals::Closed(_)) || !self.claim() {
            return;
        }
        self.recorder.start(now_ns);
        let request = self.request(user, now_ns, self.wake_ns, now_ns);
        let origin = self.plan.templates[request.template].origin;
        match self.take_idle(origin) {
            // The clock was read when the answer ended, which is now.
            Some(slot) => {
                self.put_on(slot, request);
                self.transmit(slot, request.could_ns);
            }
            None => self.open(request),
        }
    }

    /// A request failed; its connection goes with it.
    pub(super) fn fail(&mut self, slot: u32, failure: Failure, end_ns: u64) {
        let conn = &self.conns[slot as usize];
        let times = times(self.plan, conn);
        let user = conn.request.user;
        self.recorder.fail(failure, times, end_ns);
        self.last_outcome_ns = self.last_outcome_ns.max(end_ns);
        self.deadlines.remove(slot);
        self.close(slot);
        if let Arrivals::Closed(users) = &mut self.arrivals {
            match failure.is_connect() {
                true => users.pause(user, self.now_ns),
                false => users.done(user, self.now_ns),
            }
        }
    }

    /// Ends the requests whose time is over by then.
    pub(super) fn expire(&mut self, until_ns: u64) {
        while let Some((slot, deadline_ns)) = self.deadlines.first()
            && deadline_ns <= until_ns
        {
            let failure = match self.conns[slot as usize].phase {
                Phase::Connecting => Failure::ConnectTimeout,
                _ => Failure::Timeout,
            };
            self.fail(slot, failure, deadline_ns);
        }
    }
}

/// Why an answer that came is not a good one.
fn judge(plan: &Plan, conn: &Conn) -> Option<Failure> {
    let (status, body_bytes) = (conn.answer.status(), conn.answer.body_bytes());
    if !plan.is_ok(status) {
        return Some(Failure::Status);
    }
    let met = |expectation: &Expectation| match *expectation {
        Expectation::Status(expected) => status == expected,
        Expectation::Length(expected) => body_bytes == expected,
        // Refused before the load.
        Expectation::Regex(_) | Expectation::Sha256(_) => false,
    };
    (!plan.expect.iter().all(met)).then_some(Failure::Expect)
}

/// The times of a request. One that was never sent counts its service from the start of its connection.
fn times(plan: &Plan, conn: &Conn) -> Times {
    let sent_ns = match conn.written_bytes {
        0 => conn.begun_ns.max(conn.request.intended_ns),
        _ => conn.sent_ns,
    };
    Times { intended_ns: conn.request.intended_ns, sent_ns, name: plan.templates[conn.request.template].name }
}

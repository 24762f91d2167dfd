//! The start of a request: due, assigned to a connection, sent.

use super::conn::{Phase, Request, token};
use super::{Arrivals, Engine, START_BATCH};
use crate::io::network_io::{Handshake, NetworkIo, Ready, SocketError};
use crate::plan::{Choice, number_in_turn};
use crate::results::failure::Failure;
use crate::results::recorder::{Report, microseconds};
use rustix::io::Errno;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    /// Starts what is due, up to a batch.
    pub(super) fn start_due(&mut self) {
        for _ in 0..START_BATCH {
            if self.load_end.is_some() || !self.start_one() {
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
        if self.has_visits() && self.visits_due_ns().is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.start_due();
        }
    }

    /// Counts the starts that fall before `until_ns`.
    pub(super) fn count_due_starts(&mut self, until_ns: u64) {
        if let Arrivals::Open(starts) = &mut self.arrivals {
            while let Some(intended_ns) = starts.pop_due(until_ns) {
                self.recorder.start(intended_ns);
            }
        }
        if self.has_visits() {
            self.count_due_visits(until_ns);
        }
    }

    /// Starts the next request if one is due and possible.
    fn start_one(&mut self) -> bool {
        self.count_due_starts(self.now_ns + 1);
        let room = self.has_room();
        let now_ns = self.now_ns;
        match &mut self.arrivals {
            Arrivals::Visits => return self.advance_visits(),
            Arrivals::Open(starts) => {
                if !room {
                    return false;
                }
                let Some((intended_ns, sendable_ns)) = starts.pop_oldest() else {
                    return false;
                };
                let request = self.request(0, intended_ns, sendable_ns, now_ns);
                self.dispatch(request);
                self.update_room(self.wake_ns);
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
                self.dispatch(request);
            }
        }
        true
    }

    /// Claims one of the remaining requests or sessions; false when none is left.
    pub(super) fn claim(&mut self) -> bool {
        self.budget.as_mut().is_none_or(super::Budget::claim)
    }

    /// The target and the item of the next request.
    #[inline]
    fn choose(&mut self) -> (usize, u32) {
        let (turn, stride) = (self.turn as u64, self.stride as u64);
        let number = match (&self.budget, &self.plan.choice, &self.arrivals) {
            (Some(budget), ..) => budget.number(),
            // Each thread at its own pace, and so each takes all of them in turn.
            (None, Choice::InTurn(_), Arrivals::Closed(_)) => {
                self.turn += 1;
                turn
            }
            (None, choice, _) => {
                self.turn += self.stride;
                match choice {
                    Choice::InTurn(count) => number_in_turn(turn, *count, stride),
                    _ => turn,
                }
            }
        };
        self.plan.choice.at(self.plan.seed, number)
    }

    /// The next request. Its timeout runs from `taken_ns`.
    fn request(&mut self, user: u32, intended_ns: u64, sendable_ns: u64, taken_ns: u64) -> Request {
        let (template, item) = self.choose();
        Request {
            user,
            template,
            item,
            intended_ns,
            sendable_ns,
            deadline_ns: taken_ns.saturating_add(self.plan.timeout_ns),
            ..Request::default()
        }
    }

    /// Sends a request on a kept connection, or on a new one.
    pub(super) fn dispatch(&mut self, request: Request) {
        let origin = self.targets.get(request.template).origin;
        match self.acquire_idle(origin) {
            None => self.open(request),
            Some(slot) => {
                self.assign_to_connection(slot, request);
                self.update_clock();
                if self.load_end.is_none() {
                    self.transmit(slot, request.sendable_ns);
                }
            }
        }
    }

    /// Assigns a request to a slot. The bytes of a request that its template does not fully determine are built here.
    #[inline]
    pub(super) fn prepare_slot(&mut self, slot: u32, request: Request) {
        let visited = self.has_visits();
        let conn = &mut self.conns[slot as usize];
        conn.assign(request);
        if visited {
            conn.message.clear();
            return self.build_message(slot, request);
        }
        match self.plan.choice.list().filter(|_| self.targets.is_planned(request.template)) {
            Some(list) => list.write(request.item, &mut conn.message),
            None => conn.message.clear(),
        }
    }

    pub(super) fn assign_to_connection(&mut self, slot: u32, request: Request) {
        self.prepare_slot(slot, request);
        let conn = &mut self.conns[slot as usize];
        conn.phase = Phase::Sending;
        conn.connect_delay_ns = 0;
        self.deadlines.add(slot, request.deadline_ns);
    }

    /// A readiness event of a connection.
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
            Phase::Receiving if ready.readable && !conn.has_unread_data => self.receive(slot),
            Phase::Connecting | Phase::Sending => {
                self.update_clock();
                if self.load_end.is_none() {
                    self.transmit(slot, self.wake_ns);
                }
                // An edge is reported once: what came with it must be read now, unless the connection was replaced.
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
        let in_progress = matches!(conn.phase, Phase::Sending | Phase::Receiving);
        token(slot, conn.generation) == ready && in_progress && self.load_end.is_none()
    }

    /// A kept connection speaks between requests: it closes, perhaps after a last word such as a 408.
    fn on_idle(&mut self, slot: u32) {
        match self.io.recv(slot, &mut self.buffer) {
            Err(SocketError::AGAIN | SocketError::INTERRUPTED) if !self.conns[slot as usize].hangup => {}
            _ => self.close_idle_by_peer(slot),
        }
    }

    /// Sends what is left of a request. `sendable_ns` is the moment since when it could have been sent.
    pub(super) fn transmit(&mut self, slot: u32, sendable_ns: u64) {
        loop {
            let conn = &mut self.conns[slot as usize];
            let template = self.targets.get(conn.request.template);
            let unsent = conn.message.unsent(template, conn.written_bytes);
            let (offered, length_bytes) = (unsent.len(), conn.message.length_bytes(template));
            match self.io.send(slot, unsent) {
                Ok(count) => {
                    self.recorder.report.bytes_sent += count as u64;
                    if conn.written_bytes == 0 {
                        self.record_sent(slot, sendable_ns);
                    }
                    let conn = &mut self.conns[slot as usize];
                    conn.written_bytes += count;
                    conn.phase = Phase::Receiving;
                    if conn.written_bytes == length_bytes {
                        return;
                    }
                    conn.phase = Phase::Sending;
                    // After a complete write epoll reports no edge when there is room for the next part.
                    if count < offered {
                        return;
                    }
                }
                Err(SocketError::INTERRUPTED) => {}
                Err(SocketError::AGAIN) => return,
                Err(error) => return self.send_failed_with(slot, error),
            }
        }
    }

    /// The connection took no more of a request.
    fn send_failed_with(&mut self, slot: u32, error: SocketError) {
        if error == SocketError::Refused && self.may_send_refused(slot) {
            return self.send_again(slot);
        }
        let conn = &mut self.conns[slot as usize];
        if !conn.established {
            // A proxy that makes no tunnel, or a server that does not change to WebSocket, has answered.
            if let SocketError::Proxy(Some(status)) | SocketError::Upgrade(Some(status)) = error {
                self.recorder.record_response(status, 0);
            }
            return self.fail(slot, Failure::from_connect(error), self.now_ns);
        }
        // The server may have answered before it closed: what there is to read decides.
        conn.send_failed = true;
        conn.hangup = true;
        conn.phase = Phase::Receiving;
        if matches!(error, SocketError::Os(Errno::PIPE | Errno::CONNRESET)) {
            self.receive(slot);
        } else {
            self.connection_broken(slot, Failure::from_transfer(error));
        }
    }

    /// The first bytes of a request were accepted by the kernel; on a new connection that proves that it is
    /// established.
    fn record_sent(&mut self, slot: u32, sendable_ns: u64) {
        let now_ns = self.now_ns;
        let conn = &mut self.conns[slot as usize];
        conn.sent_ns = now_ns;
        if !conn.established {
            conn.established = true;
            conn.rx_timestamped = self.io.has_rx_timestamps(slot);
            if let Arrivals::Closed(users) = &mut self.arrivals {
                users.connected(conn.request.user);
            }
            if self.io.opens_connection(slot) {
                self.record_opened(slot);
            } else {
                conn.responses_served = 1;
            }
        }
        let conn = &self.conns[slot as usize];
        self.recorder.report.connections.reused += u64::from(conn.responses_served > 0);
        let counts = !conn.request.retried && conn.request.hops == 0;
        if N::GATHERS {
            self.gathered.push((token(slot, conn.generation), counts.then_some(sendable_ns)));
        } else if counts {
            self.record_client_delay(slot, sendable_ns, now_ns);
        }
    }

    /// A connection carries its first request.
    fn record_opened(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        let mut established_ns = self.now_ns;
        if let Handshake::Done { started_ns, ended_ns, resumed } = self.io.handshake(slot) {
            (established_ns, conn.sent_ns) = (started_ns, ended_ns);
            self.recorder.handshake_done(started_ns, ended_ns, resumed);
        }
        self.recorder.connection_opened(conn.started_ns, established_ns);
        self.recorder.report.stamps.connections += u64::from(conn.rx_timestamped);
        self.sample_opened(slot);
    }

    fn record_client_delay(&mut self, slot: u32, sendable_ns: u64, sent_ns: u64) {
        let connect_delay_ns = self.conns[slot as usize].connect_delay_ns;
        let delay_us = microseconds(sendable_ns, connect_delay_ns.saturating_add(sent_ns));
        self.recorder.report.client_delay.record(delay_us);
    }

    /// What was gathered is written now: its requests are sent from now on, and the time until now was our own delay.
    pub(super) fn record_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let sent_ns = self.io.now_ns();
        for index in 0..self.gathered.len() {
            let (gathered, sendable_ns) = self.gathered[index];
            let slot = gathered as u32;
            let conn = &mut self.conns[slot as usize];
            if token(slot, conn.generation) != gathered {
                continue;
            }
            conn.sent_ns = sent_ns;
            if let Some(sendable_ns) = sendable_ns {
                self.record_client_delay(slot, sendable_ns, sent_ns);
            }
        }
        self.gathered.clear();
    }

    /// In closed arrival, the user's next request follows at once.
    pub(super) fn start_next_of_user(&mut self, user: u32) {
        let now_ns = self.now_ns;
        let Arrivals::Closed(users) = &mut self.arrivals else { return };
        if !users.stays_active(user, now_ns) {
            return self.close_surplus_idle();
        }
        if !self.claim() {
            return;
        }
        self.recorder.start(now_ns);
        let request = self.request(user, now_ns, self.wake_ns, now_ns);
        let origin = self.targets.get(request.template).origin;
        match self.acquire_idle(origin) {
            // The clock was read when the response ended, which is now.
            Some(slot) => {
                self.assign_to_connection(slot, request);
                self.transmit(slot, request.sendable_ns);
            }
            None => self.open(request),
        }
    }
}

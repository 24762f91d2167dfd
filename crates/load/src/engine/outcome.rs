//! The end of a request: exactly one outcome, and what its connection and its user do next.

use super::conn::{Conn, Phase, Request};
use super::receiving::arrival_ns;
use super::redirect::{Targets, is_redirected};
use super::visits::FetchEnd;
use super::{Arrivals, Engine};
use crate::io::multiplexed::grpc::status_name;
use crate::io::network_io::{Handshake, NetworkIo};
use crate::plan::Plan;
use crate::results::failure::Failure;
use crate::results::recorder::{Report, RequestTimes};

/// The status of a response to a conditional request: nothing has changed (RFC 9110, 15.4.5).
const NOT_MODIFIED: u16 = 304;

impl<N: NetworkIo, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, N, X> {
    pub(super) fn response_complete(&mut self, slot: u32, extra_bytes: usize) {
        let now_ns = self.now_ns;
        if self.is_server_timeout(slot) {
            return self.resend(slot);
        }
        if self.has_visits() {
            self.store_cookies(slot);
        }
        // What follows a response belongs to none: where the next one would be awaited, that is a fault.
        let faulty = self.is_reusable(slot) && extra_bytes > 0;
        if !faulty && self.follow_redirect(slot) {
            return;
        }
        let conn = &mut self.conns[slot as usize];
        let checked = conn.content.is_some();
        let (failure, body) = match faulty {
            true => (Some(Failure::Protocol), None),
            false => check_response(self.plan, conn),
        };
        let request = conn.request;
        let times = times(self.plan, &self.targets, conn);
        self.recorder.record_response(conn.response.status(), conn.response.body_bytes());
        if conn.rx_timestamped {
            self.recorder.record_rx_timestamp(self.received_ns, now_ns);
        }
        let end_ns = arrival_ns(self.plan.clock, self.received_ns, conn.sent_ns, now_ns);
        let mut ended = fetch_end(slot, conn, failure, end_ns, times.sent_ns);
        match failure {
            None => self.recorder.complete(times, end_ns),
            Some(failure) => self.recorder.fail(failure, times, end_ns),
        }
        self.last_outcome_ns = now_ns;
        self.deadlines.remove(slot);
        self.targets.release(request.template);
        self.keep_or_close(slot, extra_bytes == 0);
        if checked {
            // Checking a body takes time, which is our own delay.
            self.update_clock();
        }
        if self.has_visits() {
            ended.body = body;
            return self.visitor_response_complete(request, ended);
        }
        self.body_buffers.release(body);
        if self.load_end.is_none() {
            self.start_next_of_user(request.user);
        }
    }

    fn visitor_response_complete(&mut self, request: Request, mut ended: FetchEnd) {
        let serial = self.step_serial(request);
        self.fetch_ended(request, &mut ended);
        self.body_buffers.release(ended.body);
        if self.load_end.is_none() {
            self.continue_visitor(request, serial);
        }
    }

    /// Whether the connection of a response that has ended may carry another request.
    fn is_reusable(&self, slot: u32) -> bool {
        let conn = &self.conns[slot as usize];
        self.plan.keepalive && conn.response.keep_alive() && !self.targets.get(conn.request.template).closes
    }

    /// Keeps the connection of a response that has ended, or lets it end. `clean`: nothing followed the response.
    pub(super) fn keep_or_close(&mut self, slot: u32, clean: bool) {
        let keeps = clean && self.is_reusable(slot);
        let conn = &mut self.conns[slot as usize];
        conn.responses_served = conn.responses_served.saturating_add(1);
        let sent = conn.written_bytes == conn.message.length_bytes(self.targets.get(conn.request.template));
        let keeps = keeps && sent;
        // A connection that ended with its response is not reusable, whatever its head announces.
        match (keeps, conn.hangup || (keeps && self.io.has_ended(slot))) {
            (true, false) => self.keep_idle(slot),
            (true, true) => self.close_idle_by_peer(slot),
            (false, _) => self.park(slot),
        }
    }

    /// A request failed; its connection is closed.
    pub(super) fn fail(&mut self, slot: u32, failure: Failure, end_ns: u64) {
        let conn = &self.conns[slot as usize];
        let times = times(self.plan, &self.targets, conn);
        let (request, user) = (conn.request, conn.request.user);
        let mut ended = fetch_end(slot, conn, Some(failure), end_ns, times.sent_ns);
        self.targets.release(request.template);
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
        if self.has_visits() {
            self.fetch_ended(request, &mut ended);
            self.visitor_failed(request);
        }
    }

    /// Ends the requests that have timed out by now, once all that has come by now is handled: after a stall of this thread
    /// that may be more than one wait gives, and it came in time.
    pub(super) fn expire_due(&mut self) {
        let until_ns = self.now_ns;
        if self.deadlines.first().is_none_or(|(_, at_ns)| at_ns > until_ns) {
            return;
        }
        // What a layer of the I/O had taken before, then what the kernel has: of each no more than there are slots, however
        // fast more comes.
        let (mut rounds, mut left) = (0, 2 * self.conns.len());
        while rounds < 2 && left > 0 && self.load_end.is_none() {
            let count = self.handle_events(0, false);
            left = left.saturating_sub(count.max(1));
            rounds += u32::from(!self.io.has_more());
        }
        // At the end of the load `finish` does it.
        if self.load_end.is_none() {
            self.expire(until_ns);
        }
    }

    /// Ends the requests that have timed out by then.
    pub(super) fn expire(&mut self, until_ns: u64) {
        while let Some((slot, deadline_ns)) = self.deadlines.first()
            && deadline_ns <= until_ns
        {
            let connecting = self.conns[slot as usize].phase == Phase::Connecting;
            let failure = match self.io.handshake(slot) {
                // Without an address, no server was contacted.
                Handshake::None if connecting && self.io.is_resolving(slot) => Failure::Dns,
                Handshake::None if connecting => Failure::ConnectTimeout,
                // A server that accepts a connection and stalls in the handshake is reachable.
                _ => Failure::Timeout,
            };
            self.fail(slot, failure, deadline_ns);
        }
    }
}

/// The result of a request, as its visitor records it.
fn fetch_end(
    slot: u32,
    conn: &Conn,
    failure: Option<Failure>,
    end_ns: u64,
    sent_ns: Option<u64>,
) -> FetchEnd {
    FetchEnd {
        failure,
        end_ns,
        status: conn.response.status(),
        sent_ns,
        first_byte_ns: conn.first_byte_ns,
        bytes: conn.received_bytes,
        kept_connection: conn.responses_served > 0,
        slot,
        body: None,
    }
}

/// Why a complete response is a failure, if it is one, and its content, if that was to be kept.
fn check_response(plan: &Plan, conn: &mut Conn) -> (Option<Failure>, Option<Vec<u8>>) {
    let (status, body_bytes) = (conn.response.status(), conn.response.body_bytes());
    // The visitor's copy is still valid: no other expectation applies.
    if status == NOT_MODIFIED && conn.request.confirms {
        return (None, None);
    }
    // A redirect that could not be followed did not deliver what was requested. Nor did a document that is
    // elsewhere, or a 304 for a client without a copy (RFC 9110, 15.4).
    let no_document = conn.request.body_handling.needed && (300..400).contains(&status);
    if plan.speaks_grpc && status_name(status).is_some() {
        return (Some(Failure::Grpc), None);
    }
    if !plan.is_ok(status) || is_redirected(conn) || no_document {
        return (Some(Failure::Status), None);
    }
    let (met, body) =
        plan.checks.evaluate(conn.request.body_handling, status, body_bytes, conn.content.take());
    ((!met).then_some(Failure::Expect), body)
}

/// The times of a request. One that was never sent on its connection was not served; one that was redirected counts
/// from the send of the first of its chain.
fn times(plan: &Plan, targets: &Targets<'_>, conn: &Conn) -> RequestTimes {
    let request = &conn.request;
    let sent_ns = match (request.hops, conn.written_bytes) {
        (0, 0) => None,
        (0, _) => Some(conn.sent_ns),
        _ => Some(request.sent_ns),
    };
    let name = match plan.choice.list() {
        Some(list) => list.name(request.item),
        None => targets.get(request.template).name,
    };
    RequestTimes { intended_ns: request.intended_ns, sent_ns, name }
}

//! The end of a request: exactly one outcome, and what becomes of its connection and its user.

use super::conn::{Conn, Phase};
use super::{Arrivals, Engine};
use crate::content::Spare;
use crate::failure::Failure;
use crate::prepare::Plan;
use crate::recorder::{Report, Times};
use crate::world::World;

impl<W: World, X: FnMut(Box<Report>) -> Option<Box<Report>>> Engine<'_, W, X> {
    /// The answer is complete.
    pub(super) fn answered(&mut self, slot: u32, extra_bytes: usize) {
        let now_ns = self.now_ns;
        let conn = &mut self.conns[slot as usize];
        let template = &self.plan.templates[conn.request.template];
        let keeps = self.plan.keepalive && conn.answer.keep();
        let sent = conn.written_bytes == template.bytes.len();
        let checked = conn.content.is_some();
        let failure = match keeps && extra_bytes > 0 {
            true => Some(Failure::Protocol),
            false => judge(self.plan, conn, &mut self.bodies),
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
        if checked {
            // Looking into a body takes time, and it is ours.
            self.stamp();
        }
        if self.over.is_none() {
            self.next_of_user(user);
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
fn judge(plan: &Plan, conn: &mut Conn, bodies: &mut Spare) -> Option<Failure> {
    let (status, body_bytes) = (conn.answer.status(), conn.answer.body_bytes());
    if !plan.is_ok(status) {
        return Some(Failure::Status);
    }
    let met = plan.checks.are_met(status, body_bytes, conn.content.take(), bodies);
    (!met).then_some(Failure::Expect)
}

/// The times of a request. One that was never sent counts its service from the start of its connection.
fn times(plan: &Plan, conn: &Conn) -> Times {
    let sent_ns = match conn.written_bytes {
        0 => conn.begun_ns.max(conn.request.intended_ns),
        _ => conn.sent_ns,
    };
    Times { intended_ns: conn.request.intended_ns, sent_ns, name: plan.templates[conn.request.template].name }
}

//! One worker as the coordinator knows it: what it says, when it was heard, and how its clock stands to ours.
//!
//! The offset of the clocks is that of the shortest of several round trips, halfway through it (RFC 5905, section 8): it is wrong by
//! at most half of that trip.

use super::Action;
use crate::protocol::{
    Announce, CLOCK_SAMPLES_MIN, LEASE_NS, LOST_AFTER_NS, LoadStatus, MOVE_LEASE_NS, MOVE_LOST_AFTER_NS,
    MOVE_MARGIN_NS, Order, OrderBody, Phase, ROUND_TRIP_NS_MAX, S, VERSION,
};
use webdyno_model::worker::WorkerPart;

/// How often the clock is asked for until it is known, and after that: clocks drift.
const PING_EVERY_NS: u64 = S / 10;
const PING_LATER_NS: u64 = 2 * S;
/// How often a lease is renewed when nothing else is ordered.
const LEASE_EVERY_NS: u64 = S;
/// A round trip is forgotten after so many newer ones: by then the clocks have drifted apart by more than it was wrong.
const SAMPLES_KEPT: usize = 16;

/// One worker.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) announce: Announce,
    last_contact_ns: u64,
    /// The ping that is under way, and when it was sent.
    ping: Option<(u64, u64)>,
    pinged_ns: Option<u64>,
    answered_ns: Option<u64>,
    nonce: u64,
    /// Round trips, and the offsets that they say: its clock less ours.
    samples: Vec<(u64, i64)>,
    measured: u32,
    sequence: u64,
    ordered_ns: Option<u64>,
    repeated_ns: Option<u64>,
    /// Whether its part goes to others when it is lost: then it may load for a short time only after it was heard last.
    moves: bool,
    /// Until when its last order counts.
    lease_until_ns: u64,
}

impl Member {
    pub(super) fn new(announce: Announce) -> Self {
        Self {
            announce,
            last_contact_ns: 0,
            ping: None,
            pinged_ns: None,
            answered_ns: None,
            nonce: 0,
            samples: vec![],
            measured: 0,
            sequence: 0,
            ordered_ns: None,
            repeated_ns: None,
            moves: false,
            lease_until_ns: 0,
        }
    }

    /// One of a load whose coordinator is gone: it was not heard yet, and may be soon.
    pub(super) fn from_part(now_ns: u64, part: &WorkerPart) -> Self {
        let (instance, name) = (part.instance.clone(), part.name.clone());
        let (version, build, threads) = (VERSION, String::new(), part.share.threads);
        let announce = Announce {
            version,
            build,
            instance,
            name,
            threads,
            requests_per_s: None,
            spare: false,
            session: None,
            load: None,
        };
        Self { last_contact_ns: now_ns, ..Self::new(announce) }
    }

    pub(super) fn announced(&mut self, now_ns: u64, announce: Announce) {
        // A state that was overtaken is older than the one that is known.
        let rank = |announce: &Announce| {
            let load = announce.load.as_ref();
            load.map(|load| (load.load, load.phase as u32, load.began_ns.is_some()))
        };
        self.last_contact_ns = now_ns;
        let is_older = announce.session == self.announce.session && rank(&announce) < rank(&self.announce);
        if !is_older {
            // What was ordered last had its effect: the next order need not wait.
            if rank(&announce) != rank(&self.announce) {
                self.repeated_ns = None;
            }
            self.announce = announce;
        }
    }

    /// When it was asked what it answered last: it said its state within [`ANNOUNCE_EVERY_NS`] before.
    pub(super) fn answered_ns(&self) -> Option<u64> {
        self.answered_ns
    }

    pub(super) fn last_contact_ns(&self) -> u64 {
        self.last_contact_ns
    }

    pub(super) fn is_silent(&self, now_ns: u64) -> bool {
        let after_ns = if self.moves { MOVE_LOST_AFTER_NS } else { LOST_AFTER_NS };
        now_ns > self.last_contact_ns + after_ns
    }

    pub(super) fn set_moves(&mut self, moves: bool) {
        self.moves = moves;
    }

    /// By then it sends nothing more, unless it gets another order.
    pub(super) fn quiet_at_ns(&self) -> u64 {
        self.lease_until_ns + self.round_trip_ns() / 2 + MOVE_MARGIN_NS
    }

    /// The number of a ping, when one is due.
    pub(super) fn ping(&mut self, now_ns: u64) -> Option<u64> {
        let every_ns = if self.measured < CLOCK_SAMPLES_MIN { PING_EVERY_NS } else { PING_LATER_NS };
        if self.pinged_ns.is_some_and(|pinged_ns| now_ns < pinged_ns + every_ns) || self.is_silent(now_ns) {
            return None;
        }
        self.nonce += 1;
        (self.ping, self.pinged_ns) = (Some((self.nonce, now_ns)), Some(now_ns));
        Some(self.nonce)
    }

    pub(super) fn pong(&mut self, now_ns: u64, nonce: u64, clock_ns: u64) {
        let Some((_, sent_ns)) = self.ping.take_if(|(sent, _)| *sent == nonce) else { return };
        self.answered_ns = Some(sent_ns);
        let round_trip_ns = now_ns.saturating_sub(sent_ns);
        let halfway_ns = sent_ns + round_trip_ns / 2;
        self.measured += 1;
        if self.samples.len() == SAMPLES_KEPT {
            self.samples.remove(0);
        }
        self.samples.push((round_trip_ns, clock_ns as i64 - halfway_ns as i64));
    }

    fn best(&self) -> Option<(u64, i64)> {
        self.samples.iter().min_by_key(|(round_trip_ns, _)| *round_trip_ns).copied()
    }

    pub(super) fn round_trip_ns(&self) -> u64 {
        self.best().map_or(0, |(round_trip_ns, _)| round_trip_ns)
    }

    pub(super) fn is_clock_known(&self) -> bool {
        let near = self.best().is_some_and(|(round_trip_ns, _)| round_trip_ns <= ROUND_TRIP_NS_MAX);
        near && self.measured >= CLOCK_SAMPLES_MIN
    }

    pub(super) fn to_its_clock(&self, own_ns: u64) -> u64 {
        own_ns.saturating_add_signed(self.best().map_or(0, |(_, offset_ns)| offset_ns))
    }

    pub(super) fn to_own_clock(&self, its_ns: u64) -> Option<i64> {
        self.best().map(|(_, offset_ns)| its_ns as i64 - offset_ns)
    }

    /// Whether it can work for a session.
    pub(super) fn is_free_for(&self, session: &str) -> bool {
        let idle = self.announce.load.as_ref().is_none_or(|load| load.phase == Phase::Over);
        let is_ours = self.announce.session.as_deref().is_none_or(|of| of == session);
        self.announce.version == VERSION && self.announce.threads > 0 && (idle || is_ours)
    }

    pub(super) fn why_not_free(&self) -> String {
        let Announce { name, version, session, .. } = &self.announce;
        match session {
            _ if *version != VERSION => {
                format!("{name} speaks version {version}, and this program {VERSION}")
            }
            Some(session) => format!("{name} works for session {session}"),
            None => format!("{name} has no thread to give"),
        }
    }

    /// How far it is with a load.
    pub(super) fn status(&self, session: &str, load: u32) -> Option<&LoadStatus> {
        let is_ours = self.announce.session.as_deref() == Some(session);
        self.announce.load.as_ref().filter(|status| is_ours && status.load == load)
    }

    /// An order; `None` as long as its clock is unknown.
    pub(super) fn order(&mut self, now_ns: u64, session: &str, body: OrderBody) -> Option<Action> {
        self.best()?;
        self.sequence += 1;
        self.ordered_ns = Some(now_ns);
        let (session, worker) = (session.to_owned(), self.announce.instance.clone());
        let bound_ns = if self.moves { self.last_contact_ns + MOVE_LEASE_NS } else { u64::MAX };
        let until_ns = bound_ns.min(now_ns + LEASE_NS);
        self.lease_until_ns = self.lease_until_ns.max(until_ns);
        let expires_ns = self.to_its_clock(until_ns);
        let sequence = self.sequence;
        Some(Action::Order(Box::new(Order { version: VERSION, session, worker, sequence, expires_ns, body })))
    }

    /// An order that is given every so often until its effect shows.
    pub(super) fn repeat(
        &mut self,
        now_ns: u64,
        session: &str,
        (every_ns, body): (u64, OrderBody),
    ) -> Option<Action> {
        if self.repeated_ns.is_some_and(|repeated_ns| now_ns < repeated_ns + every_ns) {
            return self.lease(now_ns, session);
        }
        self.repeated_ns = Some(now_ns);
        self.order(now_ns, session, body)
    }

    /// A lease, when one is due.
    pub(super) fn lease(&mut self, now_ns: u64, session: &str) -> Option<Action> {
        let due = self.ordered_ns.is_none_or(|ordered_ns| now_ns >= ordered_ns + LEASE_EVERY_NS);
        due.then(|| self.order(now_ns, session, OrderBody::Lease)).flatten()
    }
}

//! Which request starts next, and when: virtual users in closed arrival, a pacer in open arrival.

use crate::pacer::Pacer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// First pause of a user whose connection attempt failed; it doubles with each failure in a row.
const BACKOFF_NS_MIN: u64 = 10_000_000;
/// Longest pause.
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// Most requests that a thread takes out of the common budget at once.
const CLAIM_MAX: u64 = 1024;

/// How requests arrive at one thread.
#[derive(Debug)]
pub(crate) enum Arrivals {
    Closed(Users),
    Open(Starts),
}

/// A user whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) user: u32,
    pub(crate) intended_ns: u64,
}

/// The virtual users of one thread.
#[derive(Debug)]
pub(crate) struct Users {
    count: u32,
    begun: u32,
    ready: VecDeque<Turn>,
    pausing: BinaryHeap<Reverse<(u64, u32)>>,
    failures: Vec<u8>,
}

impl Users {
    /// So many users, all due at the start of the load.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            count,
            begun: 0,
            ready: VecDeque::with_capacity(count as usize),
            pausing: BinaryHeap::with_capacity(count as usize),
            failures: vec![0; count as usize],
        }
    }

    /// The next user whose turn it is.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<Turn> {
        if let Some(turn) = self.ready.pop_front() {
            return Some(turn);
        }
        if self.begun < self.count {
            self.begun += 1;
            let user = self.begun - 1;
            return Some(Turn { user, intended_ns: 0 });
        }
        let &Reverse((intended_ns, user)) = self.pausing.peek()?;
        (intended_ns <= now_ns).then(|| {
            self.pausing.pop();
            Turn { user, intended_ns }
        })
    }

    /// When somebody is due: 0 for at once, `None` if all are busy.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if self.begun < self.count || !self.ready.is_empty() {
            return Some(0);
        }
        self.pausing.peek().map(|&Reverse((due_ns, _))| due_ns)
    }

    /// The user's request ended; the next one is due now.
    pub(crate) fn done(&mut self, user: u32, now_ns: u64) {
        let intended_ns = now_ns;
        self.ready.push_back(Turn { user, intended_ns });
    }

    /// The user got no connection; the next try comes after a pause.
    pub(crate) fn pause(&mut self, user: u32, now_ns: u64) {
        let failures = &mut self.failures[user as usize];
        let pause_ns = (BACKOFF_NS_MIN << (*failures).min(16)).min(BACKOFF_NS_MAX);
        *failures = failures.saturating_add(1);
        self.pausing.push(Reverse((now_ns + pause_ns, user)));
    }

    /// The user has a connection: the next failure begins with the shortest pause again.
    pub(crate) fn connected(&mut self, user: u32) {
        self.failures[user as usize] = 0;
    }
}

/// The intended starts of one thread: those that are due, and behind them those that were taken.
#[derive(Debug)]
pub(crate) struct Starts {
    due: Pacer,
    taken: Pacer,
    /// Since when a connection has been free or allowed; `None` while all are busy.
    room_since_ns: Option<u64>,
}

impl Starts {
    /// The starts of this pacer.
    pub(crate) fn new(pacer: Pacer) -> Self {
        Self { due: pacer.clone(), taken: pacer, room_since_ns: Some(0) }
    }

    /// The next start that falls before `until_ns`, once.
    #[inline]
    pub(crate) fn fall_due(&mut self, until_ns: u64) -> Option<u64> {
        let next_ns = self.due.next_ns().filter(|&next_ns| next_ns < until_ns)?;
        self.due.advance();
        Some(next_ns)
    }

    /// When the next start falls due.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.due.next_ns()
    }

    /// Starts that are due and not taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.due.taken() - self.taken.taken()
    }

    /// Takes the oldest start that waits: when it was intended and when it could have been sent.
    pub(crate) fn take(&mut self) -> Option<(u64, u64)> {
        if self.waiting() == 0 {
            return None;
        }
        let intended_ns = self.taken.next_ns()?;
        self.taken.advance();
        let could_ns = intended_ns.max(self.room_since_ns.unwrap_or(0));
        Some((intended_ns, could_ns))
    }

    /// Tells whether there is room for one more request, as of `since_ns`.
    #[inline]
    pub(crate) fn set_room(&mut self, room: bool, since_ns: u64) {
        self.room_since_ns = room.then(|| self.room_since_ns.unwrap_or(since_ns));
    }
}

/// The requests that are still to be started, of all threads together. A thread claims a share at a time: large ones
/// at first, single ones near the end, so that no thread is left with work that others could do.
#[derive(Debug)]
pub(crate) struct Budget {
    common: Arc<AtomicU64>,
    threads: u64,
    claimed: u64,
    exhausted: bool,
}

impl Budget {
    /// One thread's hand in the common budget.
    pub(crate) fn new(common: Arc<AtomicU64>, threads: u64) -> Self {
        Self { common, threads, claimed: 0, exhausted: false }
    }

    /// Takes one request; false when none is left.
    #[inline]
    pub(crate) fn claim(&mut self) -> bool {
        if self.claimed == 0 && !self.exhausted {
            self.claimed = self.claim_share();
            self.exhausted = self.claimed == 0;
        }
        let some = self.claimed > 0;
        self.claimed -= u64::from(some);
        some
    }

    /// Whether a claim has failed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn claim_share(&self) -> u64 {
        let share = |left: u64| (left / (8 * self.threads)).clamp(1, CLAIM_MAX).min(left);
        let before = self.common.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            left.checked_sub(share(left)).filter(|_| left > 0)
        });
        before.map_or(0, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_exactly() {
        for (requests, threads) in [(0u64, 1u64), (1, 3), (10, 4), (100_000, 3)] {
            let common = Arc::new(AtomicU64::new(requests));
            let mut hands: Vec<_> = (0..threads).map(|_| Budget::new(common.clone(), threads)).collect();
            let mut spent = 0;
            while hands.iter().any(|hand| !hand.is_exhausted()) {
                spent += hands.iter_mut().map(|hand| u64::from(hand.claim())).sum::<u64>();
            }
            assert_eq!(spent, requests, "{threads} threads");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_second_and_end_with_a_connection() {
        let mut users = Users::new(1);
        let mut pauses_ms = vec![];
        let first = users.next(0).unwrap();
        for _ in 0..9 {
            users.pause(first.user, 0);
            let due_ns = users.due_ns().unwrap();
            assert_eq!(users.next(due_ns - 1), None);
            assert_eq!(users.next(due_ns).unwrap().intended_ns, due_ns);
            pauses_ms.push(due_ns / 1_000_000);
        }
        assert_eq!(pauses_ms, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        users.connected(0);
        users.pause(0, 5_000_000);
        assert_eq!(users.due_ns(), Some(15_000_000));
    }

    #[test]
    fn a_start_could_be_sent_when_it_was_due_and_there_was_room() {
        let mut starts = Starts::new(Pacer::even(1000.0, 0, 1, None));
        while starts.fall_due(4_500_000).is_some() {}
        assert_eq!(starts.waiting(), 5);
        assert_eq!(starts.take(), Some((0, 0)));
        starts.set_room(false, 100);
        starts.set_room(true, 2_700_000);
        starts.set_room(true, 9_000_000);
        let rest: Vec<_> = std::iter::from_fn(|| starts.take()).collect();
        let ms = 1_000_000;
        let expected = [(ms, 2_700_000), (2 * ms, 2_700_000), (3 * ms, 3 * ms), (4 * ms, 4 * ms)];
        assert_eq!(rest, expected);
        assert_eq!(starts.waiting(), 0);
    }
}

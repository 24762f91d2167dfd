//! Which request starts next, and when: virtual users in closed arrival, a pacer in open arrival.

pub(crate) use crate::schedule::user_profile::UserProfile;

use crate::plan::thread_share::ThreadShare;
use crate::schedule::pacer::Pacer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// First pause of a user whose connection attempt failed; it doubles with each failure in a row.
const BACKOFF_NS_MIN: u64 = 10_000_000;
/// Longest pause.
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// Most requests that a thread claims from the shared budget at once.
const CLAIM_MAX: u64 = 1024;

/// How requests arrive at one thread.
#[derive(Debug)]
pub(crate) enum Arrivals {
    Closed(Users),
    Open(Starts),
    /// Visitors generate the load: `visits` schedules them.
    Visits,
}

/// The backoff of a user without a connection, after this many earlier failures in a row.
pub(super) fn pause_ns(failures: u8) -> u64 {
    (BACKOFF_NS_MIN << failures.min(16)).min(BACKOFF_NS_MAX)
}

/// A user that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserTurn {
    pub(crate) user: u32,
    pub(crate) intended_ns: u64,
}

/// The virtual users of one thread, numbered from 0. Of all threads together, user n of thread k is number
/// `n * threads + k`.
#[derive(Debug)]
pub(crate) struct Users {
    user_profile: UserProfile,
    share: ThreadShare,
    /// Those with lower numbers are active.
    active: u32,
    /// Of those that are active from the beginning, this many have started.
    started: u32,
    active_at_start: u32,
    /// Whether each has a request in progress, or waits for its turn.
    engaged: Vec<bool>,
    engaged_count: u32,
    ready: VecDeque<UserTurn>,
    pausing: BinaryHeap<Reverse<(u64, u32)>>,
    failures: Vec<u8>,
}

impl Users {
    /// This thread's share of users, up to a maximum.
    pub(crate) fn new(mut user_profile: UserProfile, share: &ThreadShare, count_max: u32) -> Self {
        let active = share.part(user_profile.active(0));
        let count = share.part(count_max).max(active) as usize;
        Self {
            user_profile,
            share: share.clone(),
            active,
            started: 0,
            active_at_start: active,
            engaged: vec![false; count],
            engaged_count: 0,
            ready: VecDeque::with_capacity(count),
            pausing: BinaryHeap::with_capacity(count),
            failures: vec![0; count],
        }
    }

    /// The next user that is due.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<UserTurn> {
        self.apply_user_profile(now_ns);
        while let Some(turn) = self.ready.pop_front() {
            if turn.user < self.active {
                return Some(turn);
            }
            self.leave(turn.user);
        }
        if self.started < self.active_at_start {
            let user = self.started;
            self.started += 1;
            self.engage(user);
            return Some(UserTurn { user, intended_ns: 0 });
        }
        while let Some(&Reverse((intended_ns, user))) = self.pausing.peek()
            && intended_ns <= now_ns
        {
            self.pausing.pop();
            if user < self.active {
                return Some(UserTurn { user, intended_ns });
            }
            self.leave(user);
        }
        None
    }

    /// When the next user is due or the number of users changes: 0 for now, `None` if all stay busy.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if self.started < self.active_at_start || !self.ready.is_empty() {
            return Some(0);
        }
        let pausing = self.pausing.peek().map(|&Reverse((due_ns, _))| due_ns);
        pausing.into_iter().chain(self.user_profile.next_change_ns()).min()
    }

    /// The user's request ended; the next one is due now, if the user stays active.
    pub(crate) fn done(&mut self, user: u32, now_ns: u64) {
        if self.stays_active(user, now_ns) {
            let intended_ns = now_ns;
            self.ready.push_back(UserTurn { user, intended_ns });
        }
    }

    /// Whether a user whose request has ended makes another one. One that does not is gone, until the level rises
    /// again.
    #[inline]
    pub(crate) fn stays_active(&mut self, user: u32, now_ns: u64) -> bool {
        self.apply_user_profile(now_ns);
        let stays_active = user < self.active;
        if !stays_active {
            self.leave(user);
        }
        stays_active
    }

    /// Users that have a request in progress, or wait for their turn.
    pub(crate) fn engaged(&self) -> u32 {
        self.engaged_count
    }

    /// Activates the users of the profile up to now.
    #[inline]
    fn apply_user_profile(&mut self, now_ns: u64) {
        while let Some((intended_ns, active)) = self.user_profile.advance(now_ns) {
            let before = std::mem::replace(&mut self.active, self.share.part(active));
            self.active_at_start = self.active_at_start.min(self.active);
            for user in before..self.active {
                if !self.engaged[user as usize] {
                    self.engage(user);
                    self.ready.push_back(UserTurn { user, intended_ns });
                }
            }
        }
    }

    fn engage(&mut self, user: u32) {
        self.engaged[user as usize] = true;
        self.engaged_count += 1;
    }

    fn leave(&mut self, user: u32) {
        self.engaged[user as usize] = false;
        self.engaged_count -= 1;
    }

    /// The user got no connection; the next try comes after a pause.
    pub(crate) fn pause(&mut self, user: u32, now_ns: u64) {
        let failures = &mut self.failures[user as usize];
        let pause_ns = pause_ns(*failures);
        *failures = failures.saturating_add(1);
        self.pausing.push(Reverse((now_ns + pause_ns, user)));
    }

    /// The user has a connection: the next failure begins with the shortest pause again.
    pub(crate) fn connected(&mut self, user: u32) {
        self.failures[user as usize] = 0;
    }
}

/// The intended starts of one thread: how many are due, and how many of those were started.
#[derive(Debug)]
pub(crate) struct Starts {
    due: Pacer,
    dispatched: Pacer,
    /// Since when a connection has been free or allowed; `None` while all are busy.
    room_since_ns: Option<u64>,
}

impl Starts {
    /// The starts of this pacer.
    pub(crate) fn new(pacer: Pacer) -> Self {
        Self { due: pacer.clone(), dispatched: pacer, room_since_ns: Some(0) }
    }

    /// Passes by those before a moment: others had them. Gives how many; their numbers are taken.
    pub(crate) fn skip_until(&mut self, until_ns: u64) -> u64 {
        while self.due.next_ns().is_some_and(|next_ns| next_ns < until_ns) {
            self.due.advance();
        }
        self.dispatched = self.due.clone();
        self.passed_count()
    }

    /// How many became due, or were passed by.
    pub(crate) fn passed_count(&self) -> u64 {
        self.due.taken_count()
    }

    /// The next start that falls before `until_ns`, once.
    #[inline]
    pub(crate) fn pop_due(&mut self, until_ns: u64) -> Option<u64> {
        let next_ns = self.due.next_ns().filter(|&next_ns| next_ns < until_ns)?;
        self.due.advance();
        Some(next_ns)
    }

    /// Whether every start has become due; never without a bound on their number.
    pub(crate) fn all_due(&self) -> bool {
        self.due.is_exhausted()
    }

    /// When the next start becomes due.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.due.next_ns()
    }

    /// Starts that are due and not started.
    pub(crate) fn waiting(&self) -> u64 {
        self.due.taken_count() - self.dispatched.taken_count()
    }

    /// Removes the oldest pending start: when it was intended and when it could have been sent.
    pub(crate) fn pop_oldest(&mut self) -> Option<(u64, u64)> {
        if self.waiting() == 0 {
            return None;
        }
        let intended_ns = self.dispatched.next_ns()?;
        self.dispatched.advance();
        let sendable_ns = intended_ns.max(self.room_since_ns.unwrap_or(0));
        Some((intended_ns, sendable_ns))
    }

    /// Records whether there is room for one more request, as of `since_ns`.
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
    /// Of all threads, at the beginning.
    total: u64,
    /// The number of the next request.
    next: u64,
    claimed: u64,
    exhausted: bool,
}

impl Budget {
    /// One thread's access to the shared budget, which was `total` at the beginning.
    pub(crate) fn new(common: Arc<AtomicU64>, threads: u64, total: u64) -> Self {
        Self { common, threads, total, next: 0, claimed: 0, exhausted: false }
    }

    /// The number of the request claimed last, from 0, unique over all threads.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Claims one request; false when none is left.
    #[inline]
    pub(crate) fn claim(&mut self) -> bool {
        if self.claimed == 0 && !self.exhausted {
            self.claimed = self.claim_share();
            self.exhausted = self.claimed == 0;
        }
        let some = self.claimed > 0;
        self.claimed -= u64::from(some);
        self.next += u64::from(some);
        some
    }

    /// Whether a claim has failed.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn claim_share(&mut self) -> u64 {
        let share = |left: u64| (left / (8 * self.threads)).clamp(1, CLAIM_MAX).min(left);
        let before = self.common.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            left.checked_sub(share(left)).filter(|_| left > 0)
        });
        let Ok(left) = before else { return 0 };
        self.next = self.total.saturating_sub(left);
        share(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_exactly() {
        for (requests, threads) in [(0u64, 1u64), (1, 3), (10, 4), (100_000, 3)] {
            let common = Arc::new(AtomicU64::new(requests));
            let hand = |_| Budget::new(common.clone(), threads, requests);
            let mut hands: Vec<_> = (0..threads).map(hand).collect();
            let mut numbers = vec![];
            while hands.iter().any(|hand| !hand.is_exhausted()) {
                let taken = hands.iter_mut().filter_map(|hand| hand.claim().then(|| hand.number()));
                numbers.extend(taken);
            }
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..requests), "{requests} requests, {threads} threads");
        }
    }

    fn users(user_profile: UserProfile, count_max: u32) -> Users {
        Users::new(user_profile, &ThreadShare { thread: 0, threads: 1, unit: 1, budget: None }, count_max)
    }

    #[test]
    fn users_come_and_go_with_the_level() {
        let s = 1_000_000_000;
        let written: Vec<_> = ["2s@3users", "2s@1users", "2s@2users", "1s@0users"]
            .iter()
            .map(|text| webdyno_model::workload::stage::parse(text).unwrap())
            .collect();
        let stages = webdyno_model::workload::stage::check_stages(&written).unwrap().stages;
        let mut users = users(UserProfile::from_stages(&stages, 0), 3);
        let turn = |user, intended_ns| Some(UserTurn { user, intended_ns });
        assert_eq!(
            [users.next(0), users.next(0), users.next(0), users.next(0)],
            [turn(0, 0), turn(1, 0), turn(2, 0), None]
        );
        assert_eq!(users.due_ns(), Some(2 * s));
        users.done(1, s);
        assert_eq!(users.next(s), turn(1, s));
        // One waits for its turn, one pauses, one is busy when the level falls: two of them begin nothing more.
        users.done(2, 2 * s - 1);
        users.pause(1, 2 * s - 1);
        assert_eq!((users.next(2 * s), users.engaged()), (None, 2));
        assert_eq!((users.next(2 * s + 10_000_000), users.engaged()), (None, 1));
        assert!(users.stays_active(0, 3 * s));
        // The level rises again: an inactive user starts again at that moment.
        assert_eq!(users.due_ns(), Some(4 * s));
        assert_eq!((users.next(4 * s + 5), users.next(4 * s + 5)), (turn(1, 4 * s), None));
        assert!(!users.stays_active(0, 6 * s));
        users.done(1, 6 * s);
        assert_eq!((users.next(6 * s), users.engaged(), users.due_ns()), (None, 0, None));
    }

    #[test]
    fn a_user_still_busy_when_the_level_rises_again_starts_nothing_twice() {
        let s = 1_000_000_000;
        let written: Vec<_> = ["1s@2users", "1s@1users", "1s@2users"]
            .iter()
            .map(|text| webdyno_model::workload::stage::parse(text).unwrap())
            .collect();
        let stages = webdyno_model::workload::stage::check_stages(&written).unwrap().stages;
        let mut users = users(UserProfile::from_stages(&stages, 0), 2);
        assert!(users.next(0).is_some() && users.next(0).is_some());
        assert_eq!(users.next(2 * s), None);
        assert!(users.stays_active(1, 2 * s) && users.engaged() == 2);
    }

    #[test]
    fn pauses_grow_up_to_a_second_and_end_with_a_connection() {
        let mut users = users(UserProfile::constant(1), 1);
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
    fn what_others_had_is_passed_by_with_its_numbers() {
        let mut starts = Starts::new(Pacer::even(10.0, 1, 2, Some(30)));
        // Thread 1 of 2 has the numbers 1, 3, 5 ..: at 100 ms, 300 ms, 500 ms.
        assert_eq!((starts.skip_until(1_000_000_000), starts.waiting()), (5, 0));
        assert_eq!(starts.pop_due(2_000_000_000), Some(1_100_000_000));
        assert_eq!((starts.waiting(), starts.pop_oldest()), (1, Some((1_100_000_000, 1_100_000_000))));
        assert_eq!(starts.skip_until(u64::MAX), 15);
        assert!(starts.all_due());
    }

    #[test]
    fn a_start_could_be_sent_when_it_was_due_and_there_was_room() {
        let mut starts = Starts::new(Pacer::even(1000.0, 0, 1, None));
        while starts.pop_due(4_500_000).is_some() {}
        assert_eq!(starts.waiting(), 5);
        assert_eq!(starts.pop_oldest(), Some((0, 0)));
        starts.set_room(false, 100);
        starts.set_room(true, 2_700_000);
        starts.set_room(true, 9_000_000);
        let rest: Vec<_> = std::iter::from_fn(|| starts.pop_oldest()).collect();
        let ms = 1_000_000;
        let expected = [(ms, 2_700_000), (2 * ms, 2_700_000), (3 * ms, 3 * ms), (4 * ms, 4 * ms)];
        assert_eq!(rest, expected);
        assert_eq!(starts.waiting(), 0);
    }
}

//! By how much the agent's clock differs from ours, and how far off that may be.
//!
//! A question asked at `a`, answered at `t` of the other clock and heard at `b`: whatever the way there and the way back
//! took, the offset then lay between `t - b` and `t - a` (Cristian 1989, "Probabilistic clock synchronization"). Clocks
//! drift, so an earlier reading says less the older it is; what all readings allow is their intersection (Marzullo and
//! Owicki 1983). The bound is therefore never an assumption about the network, and at most half of the fastest way there
//! and back, plus the drift since. CLOCK_MONOTONIC is slewed by at most 500 parts per million (adjtimex(2)); two of them
//! drift apart by at most twice that.

use std::collections::VecDeque;

/// The most that two clocks drift apart: microseconds in a second.
const DRIFT_PPM: i128 = 1000;

/// How many readings count: with one a second, a quarter of a minute.
const READINGS_COUNT_MAX: usize = 16;

/// One question about the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Our clock when it was asked, in microseconds.
    pub asked_us: u64,
    /// The agent's clock when it answered.
    pub theirs_us: u64,
    /// Our clock when the answer was heard.
    pub heard_us: u64,
}

/// What is known of the agent's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// The agent's clock minus ours, in microseconds.
    pub offset_us: i64,
    /// How far off that may be, in microseconds.
    pub error_us: u64,
}

impl ClockOffset {
    /// A time of the agent's clock on ours.
    pub fn ours(self, theirs_us: u64) -> u64 {
        let ours = i128::from(theirs_us) - i128::from(self.offset_us);
        u64::try_from(ours.max(0)).unwrap_or(u64::MAX)
    }
}

/// The last readings of an agent's clock.
#[derive(Debug, Default)]
pub struct Clocks {
    readings: VecDeque<ClockReading>,
    /// Whether it is one clock, read in two places.
    is_ours: bool,
}

impl Clocks {
    /// The agent reads the very clock that we read.
    pub fn is_ours(&mut self) {
        self.is_ours = true;
    }

    /// One more reading; those that it contradicts are forgotten: a machine stood still, or its clock was moved.
    pub fn add(&mut self, reading: ClockReading) {
        if reading.heard_us < reading.asked_us {
            return;
        }
        if self.readings.len() == READINGS_COUNT_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        while self.readings.len() > 1 && self.range(reading.heard_us).is_none() {
            self.readings.pop_front();
        }
    }

    /// The offset at a time of our clock; `None` before the first reading.
    pub fn offset(&self, now_us: u64) -> Option<ClockOffset> {
        if self.is_ours {
            return Some(ClockOffset { offset_us: 0, error_us: 0 });
        }
        let (low, high) = self.range(now_us)?;
        let offset_us = i64::try_from((low + high).div_euclid(2)).ok()?;
        let error_us = u64::try_from((high - low + 1) / 2).ok()?;
        Some(ClockOffset { offset_us, error_us })
    }

    /// The offsets that all readings allow; `None` when they contradict each other.
    fn range(&self, now_us: u64) -> Option<(i128, i128)> {
        let ranges = self.readings.iter().map(|reading| {
            let [asked, theirs, heard, now] =
                [reading.asked_us, reading.theirs_us, reading.heard_us, now_us].map(i128::from);
            let drift = ((now - asked).abs() * DRIFT_PPM + 999_999) / 1_000_000;
            // All three are cut to whole microseconds.
            (theirs - heard - 1 - drift, theirs + 1 - asked + drift)
        });
        let (low, high) =
            ranges.reduce(|(low, high), (next_low, next_high)| (low.max(next_low), high.min(next_high)))?;
        (low <= high).then_some((low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Another clock: it runs at its own pace from its own beginning.
    #[derive(Debug, Clone, Copy)]
    struct Other {
        offset_us: f64,
        drift_ppm: f64,
    }

    impl Other {
        fn at(self, ours_us: f64) -> f64 {
            ours_us * (1.0 + self.drift_ppm / 1e6) + self.offset_us
        }

        fn offset(self, ours_us: f64) -> f64 {
            self.at(ours_us) - ours_us
        }
    }

    /// A reading whose way there and way back took so long.
    fn reading(clock: Other, asked_us: f64, there_us: f64, back_us: f64) -> ClockReading {
        let theirs_us = clock.at(asked_us + there_us);
        let cut = |us: f64| us.max(0.0) as u64;
        ClockReading {
            asked_us: cut(asked_us),
            theirs_us: cut(theirs_us),
            heard_us: cut(asked_us + there_us + back_us),
        }
    }

    fn clock() -> impl Strategy<Value = Other> {
        // The agent's machine may be up for a shorter or longer time than ours.
        (-1e9..1e12, -999.0..999.0).prop_map(|(offset_us, drift_ppm)| Other { offset_us, drift_ppm })
    }

    fn close(found: ClockOffset, truth: f64) -> bool {
        (found.offset_us as f64 - truth).abs() <= found.error_us as f64 + 1.0
    }

    proptest! {
        /// However the clock drifts, and however unequal and jittering the ways are: the truth lies within the bound, at
        /// any time, also long after the last reading.
        #[test]
        fn the_bound_is_honest(
            clock in clock(),
            ways in prop::collection::vec((1.0..200_000.0, 1.0..200_000.0, 0.0..5e6), 1..40),
            later_us in 0.0..60e6,
        ) {
            let mut clocks = Clocks::default();
            let mut now = 2e9;
            for (there, back, pause) in ways {
                clocks.add(reading(clock, now, there, back));
                now += there + back;
                let found = clocks.offset(now as u64).unwrap();
                prop_assert!(close(found, clock.offset(now)), "{found:?} for {}", clock.offset(now));
                now += pause;
            }
            let found = clocks.offset((now + later_us) as u64).unwrap();
            prop_assert!(close(found, clock.offset(now + later_us)), "{found:?} after {later_us}");
        }

        /// Right after a reading the bound is at most half of its way there and back (and what rounding takes).
        #[test]
        fn the_bound_is_half_the_way_or_less(clock in clock(), there in 1.0..1e5, back in 1.0..1e5, slower in 0.0..1e6) {
            let mut clocks = Clocks::default();
            clocks.add(reading(clock, 2e9, there + slower, back));
            clocks.add(reading(clock, 2.01e9, there, back));
            let found = clocks.offset((2.01e9 + there + back) as u64).unwrap();
            let half = (there + back) / 2.0 * 1.003 + 3.0;
            prop_assert!(found.error_us as f64 <= half, "{found:?} for {half}");
        }

        /// Any numbers give an offset or none, never a panic.
        #[test]
        fn any_readings_are_borne(readings in prop::collection::vec(any::<(u64, u64, u64)>(), 0..20), now in any::<u64>()) {
            let mut clocks = Clocks::default();
            for (asked_us, theirs_us, heard_us) in readings {
                clocks.add(ClockReading { asked_us, theirs_us, heard_us });
            }
            let _ = clocks.offset(now).map(|found| found.ours(now));
        }
    }

    /// On a network as between racks (under a millisecond, jittering), readings a second apart keep an hour of samples
    /// within 5 ms, by the bound itself.
    #[test]
    fn an_hour_stays_within_5_ms() {
        let clock = Other { offset_us: 1e8, drift_ppm: 400.0 };
        let mut clocks = Clocks::default();
        for n in 0..3600_u32 {
            let begun = 5e9 + f64::from(n) * 1e6;
            let jitter = f64::from(n * 7919 % 400);
            // Now and then a packet is sent again.
            let there = if n % 10 == 5 { 200_000.0 } else { 300.0 + jitter };
            clocks.add(reading(clock, begun, there, 250.0));
            let late = begun + 1e6 + 250_000.0;
            let found = clocks.offset(late as u64).unwrap();
            assert!(close(found, clock.offset(late)) && found.error_us < 5000, "{n}: {found:?}");
        }
    }

    #[test]
    fn a_clock_that_was_moved_is_believed_again_at_once() {
        let mut clocks = Clocks::default();
        let before = Other { offset_us: 1e7, drift_ppm: 0.0 };
        let after = Other { offset_us: 4e7, drift_ppm: 0.0 };
        for n in 0..5 {
            clocks.add(reading(before, 2e9 + f64::from(n) * 1e6, 100.0, 100.0));
        }
        clocks.add(reading(after, 2.01e9, 100.0, 100.0));
        assert!(close(clocks.offset(2_010_000_300).unwrap(), 4e7));
    }

    #[test]
    fn one_clock_has_no_offset() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.offset(5), None);
        clocks.add(ClockReading { asked_us: 1000, theirs_us: 1500, heard_us: 3000 });
        assert_eq!(clocks.offset(3000), Some(ClockOffset { offset_us: -500, error_us: 1003 }));
        clocks.is_ours();
        assert_eq!(clocks.offset(9000), Some(ClockOffset { offset_us: 0, error_us: 0 }));
        assert_eq!(ClockOffset { offset_us: -500, error_us: 0 }.ours(100), 600);
        assert_eq!(ClockOffset { offset_us: 500, error_us: 0 }.ours(100), 0);
    }
}

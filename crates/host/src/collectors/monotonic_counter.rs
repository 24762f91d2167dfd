//! Keeps totals rising that are put together from processes which come and go.
//!
//! A sum over a process tree falls for a moment when a process ends between two reads, and for good when one leaves
//! the tree or the service is another one. A counter must never fall: only its differences are used.

/// After this many lower sums in a row the loss is taken for good, and the counter goes on from there.
const LOWER_IN_A_ROW_MAX: u32 = 3;

/// A counter that never falls.
#[derive(Debug, Default, Clone)]
pub struct MonotonicCounter {
    source: Option<u64>,
    /// Added to the sum so that the counter continues where it was.
    offset: f64,
    /// The last value given.
    shown: f64,
    lower_in_a_row: u32,
}

impl MonotonicCounter {
    /// The counter after reading `sum` from what `source` names; a new source goes on where the former one ended,
    /// and so does one that was lost and came back (a process id that was used again).
    pub fn update(&mut self, source: u64, sum: f64) -> f64 {
        if self.source.is_some_and(|known| known != source) {
            self.offset = self.shown - sum;
            self.lower_in_a_row = 0;
        }
        self.source = Some(source);
        if self.offset + sum >= self.shown {
            self.shown = self.offset + sum;
            self.lower_in_a_row = 0;
        } else {
            self.lower_in_a_row += 1;
            if self.lower_in_a_row >= LOWER_IN_A_ROW_MAX {
                self.offset = self.shown - sum;
                self.lower_in_a_row = 0;
            }
        }
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(readings: &[(u64, f64)], expected: &[f64]) {
        let mut counter = MonotonicCounter::default();
        let shown: Vec<f64> = readings.iter().map(|&(source, sum)| counter.update(source, sum)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_dip_is_bridged_and_a_loss_is_not_waited_for() {
        check(&[(1, 5.0), (1, 7.0)], &[5.0, 7.0]);
        check(&[(1, 5.0), (1, 3.0), (1, 6.0)], &[5.0, 5.0, 6.0]);
        // Three lower sums: 4 of what was counted has left for good.
        check(&[(1, 9.0), (1, 5.0), (1, 5.0), (1, 5.0), (1, 6.0)], &[9.0, 9.0, 9.0, 9.0, 10.0]);
        check(&[(1, 9.0), (2, 100.0), (2, 101.0)], &[9.0, 9.0, 10.0]);
    }

    proptest! {
        // Whatever is read, in whatever order sources change: the counter never falls.
        #[test]
        fn it_never_falls(readings in prop::collection::vec((0u64..3, 0.0f64..1e6), 1..60)) {
            let mut counter = MonotonicCounter::default();
            let mut last = 0.0;
            for (source, sum) in readings {
                let shown = counter.update(source, sum);
                prop_assert!(shown >= last);
                last = shown;
            }
        }
    }
}

//! Keeps counters that stand still out of readings: most counters of a large table never move, and the log has little
//! room.
//!
//! The first reading tells all counters, and each [`FULL_EVERY`]th one after it; the others tell those that differ from the
//! first reading. A counter that is not there is what it was: who wants its rise over a window takes the last reading
//! before its end, and the last one at or before its begin.

use super::Reading;
use std::collections::HashMap;

/// Every so manieth reading tells all.
pub const FULL_EVERY: u64 = 60;

/// What was told first.
#[derive(Debug, Default)]
pub struct Moved {
    first: HashMap<String, f64>,
    readings_count: u64,
}

impl Moved {
    /// Leaves out the values that are counters and have not moved since they were read first.
    pub fn leave_out(&mut self, reading: &mut Reading, is_counter: impl Fn(&str) -> bool) {
        let is_full = self.readings_count.is_multiple_of(FULL_EVERY);
        self.readings_count += 1;
        reading.values.retain(|(name, value)| {
            if !is_counter(name) {
                return true;
            }
            let known = self.first.get(name).copied();
            self.first.entry(name.clone()).or_insert(*value);
            is_full || known != Some(*value)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_once_is_told_ever_after_and_the_rest_now_and_then() {
        let mut moved = Moved::default();
        let mut read = |a: f64, b: f64| {
            let mut reading = Reading::default();
            for (name, value) in [("a", a), ("b", b), ("level", 1.0)] {
                reading.push(name, value);
            }
            moved.leave_out(&mut reading, |name| name != "level");
            reading.values.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(read(1.0, 5.0), ["a", "b", "level"]);
        assert_eq!(read(1.0, 5.0), ["level"]);
        assert_eq!(read(2.0, 5.0), ["a", "level"]);
        assert_eq!(read(2.0, 5.0), ["a", "level"], "it differs from the first reading still");
        for _ in 4..FULL_EVERY {
            read(2.0, 5.0);
        }
        assert_eq!(read(2.0, 5.0), ["a", "b", "level"]);
    }
}

//! Leaves out of readings what is as it was told last. Most of the hundreds of counters that a kernel keeps never move.
//!
//! A metric whose values may be left out says so ([`Metric::on_change`]): absent from a reading without error it is
//! unchanged. The first reading tells all, zeros included, so that whatever rises later has where it began; every
//! [`crate::collectors::observer::REPEAT_COUNT`]th tells all again, for those who listen since, and so that what is gone ends.

use super::{Metric, Reading};
use crate::collectors::observer::REPEAT_COUNT;
use std::collections::HashMap;

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    reported: HashMap<String, f64>,
    readings_count: u64,
}

impl Changes {
    /// Leaves out what is unchanged of the values that `may_miss`. A reading with an error keeps all: of what is not in it,
    /// nobody knows whether it was read.
    pub fn only(&mut self, mut reading: Reading, may_miss: impl Fn(&str) -> bool) -> Reading {
        if reading.error.is_some() || self.readings_count.is_multiple_of(REPEAT_COUNT) {
            self.reported.clear();
        }
        self.readings_count = if reading.error.is_some() { 0 } else { self.readings_count + 1 };
        reading.values.retain(|(name, value)| {
            if !may_miss(name) {
                return true;
            }
            match self.reported.get_mut(name) {
                Some(message) if message == value => false,
                Some(message) => {
                    *message = *value;
                    true
                }
                None => {
                    self.reported.insert(name.clone(), *value);
                    true
                }
            }
        });
        reading
    }
}

/// Marks a metric as one whose readings leave it out while it does not change.
pub(crate) fn on_change(metric: Metric) -> Metric {
    Metric { on_change: true, ..metric }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(values: &[(&str, f64)], error: Option<&str>) -> Reading {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Reading { values, error: error.map(str::to_owned), ..Reading::default() }
    }

    #[test]
    fn what_is_unchanged_is_left_out_until_all_is_told_again() {
        let mut changes = Changes::default();
        let mut message = |values: &[(&str, f64)], error| {
            let message = changes.only(reading(values, error), |name| name != "always");
            message.values.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        let all = [("a", 0.0), ("b", 7.0), ("always", 1.0)];
        assert_eq!(message(&all, None), "a b always");
        assert_eq!(message(&all, None), "always");
        assert_eq!(message(&[("a", 0.0), ("b", 8.0), ("always", 1.0)], None), "b always");
        assert_eq!(message(&[("a", 0.0), ("b", 8.0), ("new", 0.0)], None), "new");
        // An error: nobody knows what was not read, so all is told in this reading and the next one.
        assert_eq!(message(&all, Some("torn")), "a b always");
        assert_eq!(message(&all, None), "a b always");
        let rest: Vec<String> = (1..=REPEAT_COUNT).map(|_| message(&all, None)).collect();
        assert!(rest[..rest.len() - 1].iter().all(|message| message == "always"), "{rest:?}");
        assert_eq!(rest.last().unwrap(), "a b always");
    }
}

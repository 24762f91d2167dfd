//! What readings left out because it had not changed.
//!
//! Facts: [`Metric::on_change`](webdyno_model::sample::Metric): a reading without error leaves out what is as it was told
//! last, and all is told again at least every [`FORWARD_FILL_READINGS_MAX`] readings. So a value holds in the readings after it
//! that have no error, until one tells another, and no longer than that: what is gone is not told again.

use crate::measurement::{Measurement, TimedSample};
use std::collections::BTreeMap;
use webdyno_model::sample::FORWARD_FILL_READINGS_MAX;

/// A value that holds until it is told anew.
#[derive(Debug, Clone, Copy)]
struct LastValue {
    value: f64,
    readings_since: u64,
}

/// The values that the measurement's own readings left out, by name, with the time of the reading that left them out.
/// `may_miss` tells which ones may be.
pub(crate) fn values(measurement: &Measurement, may_miss: impl Fn(&str) -> bool) -> Vec<(&str, (f64, f64))> {
    let own_from_s = measurement.samples.iter().map(|timed| timed.t_s).fold(f64::INFINITY, f64::min);
    let mut by_source: BTreeMap<&str, Vec<&TimedSample>> = BTreeMap::new();
    for timed in measurement.earlier_samples.iter().chain(&measurement.samples) {
        by_source.entry(&timed.sample.source).or_default().push(timed);
    }
    let mut left_out = vec![];
    // Asked once for each name: whether it may be left out does not change.
    let mut requested: BTreeMap<&str, bool> = BTreeMap::new();
    for samples in by_source.values_mut() {
        samples.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        let mut reported: BTreeMap<&str, Option<LastValue>> = BTreeMap::new();
        for timed in samples {
            let values = &timed.sample.values;
            for (&name, known) in reported.iter_mut() {
                let Some(mut since) = known.filter(|_| !values.contains_key(name)) else {
                    continue;
                };
                since.readings_since += 1;
                let holds = timed.sample.error.is_none() && since.readings_since < FORWARD_FILL_READINGS_MAX;
                *known = holds.then_some(since);
                left_out
                    .extend((holds && timed.t_s >= own_from_s).then_some((name, (timed.t_s, since.value))));
            }
            for (name, value) in values {
                if *requested.entry(name).or_insert_with(|| may_miss(name)) {
                    reported.insert(name, Some(LastValue { value: value.0, readings_since: 0 }));
                }
            }
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;

    fn sample(t_s: f64, values: &[(&str, f64)], error: Option<&str>) -> TimedSample {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), Number(value))).collect();
        let error = error.map(str::to_owned);
        TimedSample { t_s, sample: Sample { source: "tcp".into(), values, error, ..Sample::default() } }
    }

    fn check(samples: Vec<TimedSample>, expected: &[(&str, (f64, f64))]) {
        let measurement = Measurement { samples, ..Measurement::default() };
        assert_eq!(values(&measurement, |name| name != "always"), expected);
    }

    #[test]
    fn a_value_holds_until_another_one_or_an_error() {
        let both = [("tcp.a", 1.0), ("always", 2.0)];
        check(vec![sample(0.0, &both, None), sample(1.0, &[], None)], &[("tcp.a", (1.0, 1.0))]);
        let moved =
            vec![sample(0.0, &both, None), sample(1.0, &[("tcp.a", 3.0)], None), sample(2.0, &[], None)];
        check(moved, &[("tcp.a", (2.0, 3.0))]);
        // Of what is missing beside an error, nobody knows whether it was read.
        let torn = vec![sample(0.0, &both, None), sample(1.0, &[], Some("torn")), sample(2.0, &[], None)];
        check(torn, &[]);
    }

    #[test]
    fn a_value_that_was_told_before_the_load_holds_in_it() {
        let earlier_samples = vec![sample(-8.0, &[("tcp.a", 1.0)], None), sample(-7.0, &[], None)];
        let samples = vec![sample(-1.0, &[], None), sample(0.0, &[], None)];
        let measurement = Measurement { samples, earlier_samples, ..Measurement::default() };
        assert_eq!(values(&measurement, |_| true), [("tcp.a", (-1.0, 1.0)), ("tcp.a", (0.0, 1.0))]);
    }

    #[test]
    fn what_is_not_told_again_is_gone() {
        let rest = (1..200).map(|t_s| sample(f64::from(t_s), &[], None));
        let samples: Vec<_> = [sample(0.0, &[("tcp.a", 1.0)], None)].into_iter().chain(rest).collect();
        let measurement = Measurement { samples, ..Measurement::default() };
        assert_eq!(values(&measurement, |_| true).len() as u64, FORWARD_FILL_READINGS_MAX - 1);
    }
}

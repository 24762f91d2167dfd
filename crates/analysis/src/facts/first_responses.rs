//! What the first second of a load tells: how long answers took while few requests had come before.
//!
//! Where answers set the pace and every user waits for the same thing, all answers take equally long, and nothing in them shows
//! that they waited: a page that sleeps looks the same. The start does: all users begin at once, and what serves one after
//! the other answers the first of them soon, the next ones later, as many a second as ever after. What takes its time without
//! waiting answers none of them soon, and what runs in step (all at the next tick of a clock) answers all of them soon.

use super::{FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use webdyno_model::Result;
use webdyno_model::workload::Arrival;

/// Answers that take at most this share of the usual time are soon.
const SOON: f64 = 0.5;
/// Later on, at most this share of them is soon: else answers differ by nature. A lock is not always given to who waits longest.
const SOON_LATER_MAX: f64 = 0.15;
/// Of the soon answers that one after the other would give, at least and at most so many were there.
const SOON_AT_START: [f64; 2] = [0.3, 1.5];
/// With fewer soon answers than this it may be chance.
const SOON_MIN: u64 = 3;
/// One after the other they come at different times: where their quick tenth takes more than this share of the time of the
/// slow one, they are the quick ones of what takes its time.
const SOON_SPREAD_MAX: f64 = 0.8;

fact_table! {
    "us": service_time_first_us, response_time_first_us, response_time_alone_us;
}

impl FactBuilder<'_> {
    /// `response_time_first_us`: the quick tenth of the soon answers of the first second, if they show that later ones wait for
    /// others. There is no such fact where they do not.
    ///
    /// `service_time_first_us`: at a rate, the quick tenth of the times from sending to the answer in the first second,
    /// before all connections were in use.
    ///
    /// `response_time_alone_us`: the slowest of a few requests that were sent one after the other before the load.
    pub(super) fn first_responses(&mut self, measurement: &Measurement) -> Result<()> {
        self.add_client(
            measurement,
            FactId::response_time_alone_us,
            measurement.alone_us.map(|us| us as f64),
        );
        if let Some(first) = measurement.intervals.first().filter(|_| is_open_arrival(measurement)) {
            let quick = merged(first.service_time.iter())?.quantile_us(0.1).map(|us| us as f64);
            self.add_client(measurement, FactId::service_time_first_us, quick);
        }
        let closed = measurement
            .workload
            .as_ref()
            .is_some_and(|workload| workload.arrival == Arrival::Closed && workload.stages.is_empty());
        let first = measurement.intervals.first().filter(|first| closed && first.failed == 0);
        let Some(first) = first.filter(|_| measurement.measured_from_s > 0.0) else { return Ok(()) };
        let later = merged(measurement.measured().filter_map(|interval| interval.response_time.as_ref()))?;
        let start = merged(first.response_time.iter())?;
        let seconds = measurement.measured().map(|interval| interval.length_us as f64 / 1e6).sum::<f64>();
        let Some(usual_us) = later.mean_us().filter(|_| seconds > 0.0) else { return Ok(()) };
        let soon_us = SOON * usual_us;
        let one_by_one = later.count() as f64 / seconds * (soon_us / 1e6).min(first.length_us as f64 / 1e6);
        let soon = start.count_between(0, soon_us as u64);
        let later_soon = later.count_between(0, soon_us as u64) as f64 / later.count() as f64;
        let ratio = soon as f64 / one_by_one;
        if later_soon > SOON_LATER_MAX
            || soon < SOON_MIN
            || !(SOON_AT_START[0]..=SOON_AT_START[1]).contains(&ratio)
        {
            return Ok(());
        }
        let of_soon = |share: f64| start.quantile_us(share * soon as f64 / start.count() as f64);
        let quick = of_soon(0.1).map(|us| us as f64);
        let slow = of_soon(0.9).map(|us| us as f64);
        if quick.zip(slow).is_some_and(|(quick, slow)| quick > SOON_SPREAD_MAX * slow) {
            return Ok(());
        }
        self.add_client(measurement, FactId::response_time_first_us, quick);
        Ok(())
    }
}

fn is_open_arrival(measurement: &Measurement) -> bool {
    measurement.workload.as_ref().is_some_and(|workload| workload.arrival != Arrival::Closed)
}

#[cfg(test)]
mod tests {
    use crate::facts::{FactId, Facts, facts};
    use crate::measurement::Measurement;
    use crate::run_report::run_report;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;
    use webdyno_model::workload::Workload;

    /// A second of these answers (time in ms, how many).
    fn second(index: usize, answers: &[(u64, u64)]) -> Interval {
        let mut times = TimeHistogram::new();
        answers.iter().for_each(|(ms, count)| times.record_many(ms * 1000, *count));
        let completed = times.count();
        let response_time = times.encode();
        Interval { t_s: index as f64, length_us: 1_000_000, completed, response_time, ..Interval::default() }
    }

    fn first_us(first: &[(u64, u64)], later: &[(u64, u64)]) -> Option<f64> {
        let later = (1..6).map(|index| second(index, later));
        let measurement = Measurement {
            intervals: std::iter::once(second(0, first)).chain(later).collect(),
            workload: Some(Workload { connections: 30, ..Workload::default() }),
            measured_from_s: 1.0,
            measured_to_s: 6.0,
            ..Measurement::default()
        };
        let facts: Facts = facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap();
        facts.value(FactId::response_time_first_us)
    }

    #[test]
    fn one_after_the_other_is_told_from_all_at_once() {
        // Thirty users of what takes 50 ms each, one after the other.
        let queue: Vec<(u64, u64)> = (1..=20).map(|number| (50 * number, 1)).collect();
        let found = first_us(&queue, &[(1500, 20)]).unwrap();
        assert!((50_000.0..=101_000.0).contains(&found), "{found}");
        for (first, later, what) in [
            (&[(1500, 20)][..], &[(1500, 20)][..], "each takes its time"),
            (&[(83, 300), (500, 300)], &[(500, 600)], "all are in step with a clock"),
            (&[(50, 10), (1500, 10)], &[(50, 10), (1500, 10)], "answers differ"),
            (&[(50, 1), (1500, 19)], &[(1500, 20)], "one was quick"),
            (&[(700, 4), (720, 8), (1500, 10)], &[(1500, 20)], "they differ a little by chance"),
        ] {
            assert_eq!(first_us(first, later), None, "{what}");
        }
    }
}

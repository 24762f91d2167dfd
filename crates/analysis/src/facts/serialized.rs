//! Whether workers, all of which are taken, wait for one thing in turn: the first second of a load tells.
//!
//! The first requests find a worker at once, and nobody waited before them. Workers that do their work independently of each
//! other give the first answers after the time that each is held for ever after (workers / rate, Little's law). Those that wait
//! in turn, for a lock or for a program behind them that serves only so many, give them from the beginning on as fast as later.

use super::{FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::run_report::{named_times, response_times};
use webdyno_model::Result;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::workload::Arrival;

/// Of the answers that come in turn in the time that each worker is held, at least and at most so many were there. Times of
/// any length up to twice their mean give six tenths of them.
const AT_START: [f64; 2] = [0.9, 1.3];
/// Of these, the share that came in the first half of that time: in turn it is a half. More are quick pages, or answers after
/// which the worker is still held.
const FIRST_HALF: [f64; 2] = [0.25, 0.7];
/// The first answer comes after at most this share of it.
const FIRST_MAX: f64 = 0.25;
/// Who waits in turn waits as long as the one before. Times that have nothing to do with each other, and are as often short as
/// they are long, come evenly from the beginning on, too, but spread as widely as they are long.
const SPREAD_MAX: f64 = 0.5;
/// At a rate the queue in front of the workers is empty at first: the answers of the first second take on average at most this
/// share of the time that workers are held for later.
const MEAN_MAX: f64 = 0.6;
/// With fewer workers or answers than this it may be chance.
const LEAST: f64 = 8.0;

fact_table! {
    "us": worker_time_first_us;
}

impl FactBuilder<'_> {
    /// `worker_time_first_us`: the quick tenth of the first answers, where they show that workers wait in turn. Requests for
    /// several things may take differently long: of one alone it is told.
    pub(super) fn serialized_worker_time(&mut self, measurement: &Measurement) -> Result<()> {
        let known = |name: FactId| self.facts.get(&name).map(|fact| fact.value);
        let configured = || self.service?.configured_number("MaxRequestWorkers");
        let workers = known(FactId::workers_when_full).or(known(FactId::workers_limit)).or_else(configured);
        let held = workers.zip(known(FactId::ended_per_s).filter(|rate| *rate > 0.0));
        let Some((workers, rate)) = held.filter(|(workers, _)| *workers >= LEAST) else { return Ok(()) };
        let Some(load) = measurement.workload.as_ref().filter(|load| load.visits.is_none()) else {
            return Ok(());
        };
        let first = measurement.intervals.first().filter(|first| first.failed == 0);
        let begins = measurement.measured_from_s > 0.0 && load.stages.is_empty();
        let Some(first) = first.filter(|_| begins && f64::from(load.concurrency()) > workers) else {
            return Ok(());
        };
        if named_times(measurement)?.len() > 1 {
            return Ok(());
        }
        let start =
            FirstSecond { times: merged(first.response_time.iter())?, length_us: first.length_us as f64 };
        let held_us = workers / rate * 1e6;
        let spread_us = response_times(measurement)?.dist().stdev.unwrap_or(f64::MAX);
        let quick = match load.arrival {
            Arrival::Closed if spread_us > SPREAD_MAX * held_us => None,
            Arrival::Closed => start.worker_time_closed(held_us, rate),
            _ => start.worker_time_open(held_us, rate),
        };
        self.add_client(measurement, FactId::worker_time_first_us, quick);
        Ok(())
    }
}

fn is_in(share: f64, [least, most]: [f64; 2]) -> bool {
    (least..=most).contains(&share)
}

/// The answers of the first second.
struct FirstSecond {
    times: TimeHistogram,
    length_us: f64,
}

impl FirstSecond {
    fn quantile(&self, share: f64) -> f64 {
        self.times.quantile_us(share).map_or(f64::MAX, |us| us as f64)
    }

    /// All users begin at once: the answers' times are the times at which they came.
    fn worker_time_closed(&self, held_us: f64, rate: f64) -> Option<f64> {
        let until_us = held_us.min(self.length_us);
        // The first one has nothing to wait for: until it is there, none is.
        let first_us = self.quantile(0.0);
        if first_us > FIRST_MAX * until_us {
            return None;
        }
        let soon = self.times.count_between(0, until_us as u64) as f64;
        let in_turn = rate * (until_us - first_us) / 1e6;
        let half = self.times.count_between(0, ((first_us + until_us) / 2.0) as u64) as f64;
        let is_so = soon >= LEAST && is_in(soon / in_turn, AT_START) && is_in(half / soon, FIRST_HALF);
        is_so.then(|| self.quantile(0.1 * soon / self.times.count() as f64))
    }

    /// Requests come one by one.
    fn worker_time_open(&self, held_us: f64, rate: f64) -> Option<f64> {
        let in_turn = rate * (self.length_us - self.quantile(0.0)).max(0.0) / 1e6;
        let ended = self.times.count() as f64;
        let is_so = ended >= LEAST
            && is_in(ended / in_turn, AT_START)
            && self.times.mean_us().is_some_and(|mean| mean <= MEAN_MAX * held_us.min(self.length_us));
        is_so.then(|| self.quantile(0.1))
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::{FactId, Facts, facts, testing};
    use crate::measurement::Measurement;
    use crate::run_report::run_report;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;
    use webdyno_model::workload::{Arrival, Workload};

    /// Forty workers, held for two seconds each, as twenty answers a second come through (time in ms, how many).
    fn held_us(first: &[(u64, u64)], names: u64, arrival: Arrival) -> Option<f64> {
        held_with(first, &[(2500, 20)], names, arrival)
    }

    /// The same with other answers in later seconds.
    fn held_with(first: &[(u64, u64)], usual: &[(u64, u64)], names: u64, arrival: Arrival) -> Option<f64> {
        let second = |index: usize, answers: &[(u64, u64)]| {
            let mut times = TimeHistogram::new();
            answers.iter().for_each(|(ms, count)| times.record_many(ms * 1000, *count));
            Interval {
                t_s: index as f64,
                length_us: 1_000_000,
                completed: times.count(),
                response_time: times.encode(),
                by_name: (0..names).map(|name| (name.to_string(), Default::default())).collect(),
                ..Interval::default()
            }
        };
        let later = (1..6).map(|index| second(index, usual));
        let measurement = Measurement {
            intervals: std::iter::once(second(0, first)).chain(later).collect(),
            workload: Some(Workload { connections: 90, arrival, ..Workload::default() }),
            service: Some(testing::apache(&[("MaxRequestWorkers", 40)])),
            measured_from_s: 1.0,
            measured_to_s: 6.0,
            ..Measurement::default()
        };
        let facts: Facts = facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap();
        facts.value(FactId::worker_time_first_us)
    }

    #[test]
    fn workers_that_wait_in_turn_are_told_from_those_that_work() {
        let turns: Vec<(u64, u64)> = (1..=20).map(|number| (50 * number, 1)).collect();
        assert!((50_000.0..=151_000.0).contains(&held_us(&turns, 1, Arrival::Closed).unwrap()));
        let eight_at_a_time = [(200, 4), (400, 4), (600, 4), (800, 4), (1000, 4)];
        let found = held_us(&eight_at_a_time, 1, Arrival::Closed);
        assert_eq!(found.map(|us| (us / 1e4).round()), Some(20.0));
        assert_eq!(held_us(&turns, 2, Arrival::Closed), None, "they may be the quick pages");
        let any_time = [(600, 6), (1700, 6), (3000, 5), (6000, 3)];
        assert_eq!(held_with(&turns, &any_time, 1, Arrival::Closed), None, "each takes its own time");
        for (first, what) in [
            (&[(900, 10), (1000, 10)][..], "they take their time"),
            (&[(100, 2), (500, 5), (900, 7)], "any time, up to twice the mean"),
            (&[(10, 20)], "half of the answers come from a cache"),
            (&[(1, 40)], "what holds them comes after the answer"),
        ] {
            assert_eq!(held_us(first, 1, Arrival::Closed), None, "{what}");
        }
    }

    #[test]
    fn at_a_rate_the_first_answers_are_quick_and_no_more_than_later() {
        let rate = Arrival::Open { rate_per_s: 30.0, poisson: false };
        // Each waits a little longer than the one before.
        let turns: Vec<(u64, u64)> = (1..=20).map(|number| (50 + 16 * number, 1)).collect();
        assert!(held_us(&turns, 1, rate).is_some());
        for (first, what) in [
            (&[(800, 20)][..], "they take their time"),
            (&[(100, 10)], "few were there"),
            (&[(10, 30)], "they hold the workers later, and not from the beginning on"),
        ] {
            assert_eq!(held_us(first, 1, rate), None, "{what}");
        }
    }
}

//! What the first second of a load tells: how long answers took while few requests had come before.
//!
//! Where answers set the pace and every user waits for the same thing, all answers take equally long, and nothing in them shows
//! that they waited: a page that sleeps looks the same. The start does: all users begin at once, and what serves one after
//! the other answers the first of them soon, the next ones later, as many a second as ever after. What takes its time without
//! waiting answers none of them soon, and what runs in step (all at the next tick of a clock) answers all of them soon.

use super::{FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::run_report::named_times;
use webdyno_model::Result;
use webdyno_model::workload::{Arrival, RequestSpec};

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
/// And they come as long as answers count as soon: where the slow tenth of them takes less than this share of that time, they are
/// those who came just before a tick of a clock.
const SOON_SLOW_MIN: f64 = 0.65;

/// So many requests of the workload are sent alone at most, the first ones.
const ALONE_REQUESTS_MAX: usize = 3;
/// The mean of fewer answers of a kind is chance.
const KIND_ANSWERS_MIN: u64 = 20;

fact_table! {
    "us": service_time_first_us, response_time_first_us, response_time_alone_us, response_time_slowest_kind_us;
}

impl FactBuilder<'_> {
    /// `response_time_first_us`: the quick tenth of the soon answers of the first second, if they show that later ones wait for
    /// others. There is no such fact where they do not.
    ///
    /// `service_time_first_us`: at a rate, the quick tenth of the times from sending to the answer in the first second,
    /// before all connections were in use.
    ///
    /// `response_time_alone_us`: the slowest of a few requests that were sent one after the other before the load.
    ///
    /// `response_time_slowest_kind_us`: the mean under load of the slowest kind of these requests, where the load has several.
    pub(super) fn first_responses(&mut self, measurement: &Measurement) -> Result<()> {
        self.add_client(
            measurement,
            FactId::response_time_alone_us,
            measurement.alone_us.map(|us| us as f64),
        );
        let slowest = measurement.alone_us.map(|_| slowest_kind_us(measurement)).transpose()?.flatten();
        self.add_client(measurement, FactId::response_time_slowest_kind_us, slowest);
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
        let by_chance = |(quick, slow)| quick > SOON_SPREAD_MAX * slow || slow < SOON_SLOW_MIN * soon_us;
        if quick.zip(slow).is_some_and(by_chance) {
            return Ok(());
        }
        self.add_client(measurement, FactId::response_time_first_us, quick);
        Ok(())
    }
}

/// The mean time of the slowest kind of requests that were also sent alone: of several kinds the mean of all says little of a slow one
/// among quick ones. `None` where there is one kind, or where it is not known which were sent alone.
fn slowest_kind_us(measurement: &Measurement) -> Result<Option<f64>> {
    let plain = measurement.workload.as_ref().filter(|load| load.list.is_none() && load.visits.is_none());
    let Some(requests) = plain.map(|load| &load.requests).filter(|all| all.len() > 1) else {
        return Ok(None);
    };
    // The probe sends those that change nothing, in this order.
    let is_safe = |one: &RequestSpec| ["GET", "HEAD"].contains(&one.method.as_str()) && !one.has_variables;
    let (safe, unsafe_ones): (Vec<_>, Vec<_>) = requests.iter().partition(|one| is_safe(one));
    let (first, rest) = safe.split_at(safe.len().min(ALONE_REQUESTS_MAX));
    let is_of_others =
        |name: &str| rest.iter().chain(&unsafe_ones).any(|other: &&RequestSpec| other.name == name);
    let named = named_times(measurement)?;
    let kinds = first.iter().filter(|one| !is_of_others(&one.name));
    let times = kinds.filter_map(|one| named.get(&one.name).map(|(_, _, times)| times));
    let means = times.filter(|times| times.count() >= KIND_ANSWERS_MIN).filter_map(|times| times.mean_us());
    Ok(means.reduce(f64::max))
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
    use webdyno_model::interval::{Interval, NamedInterval};
    use webdyno_model::workload::{RequestSpec, Workload};

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
            (&[(60, 90), (130, 39), (560, 300)], &[(500, 600)], "some came before the first tick"),
            (&[(50, 10), (1500, 10)], &[(50, 10), (1500, 10)], "answers differ"),
            (&[(50, 1), (1500, 19)], &[(1500, 20)], "one was quick"),
            (&[(700, 4), (720, 8), (1500, 10)], &[(1500, 20)], "they differ a little by chance"),
        ] {
            assert_eq!(first_us(first, later), None, "{what}");
        }
    }
    #[test]
    fn of_several_kinds_the_slowest_of_those_that_were_sent_alone_is_known() {
        let of = |kinds: &[(&str, u64, u64)], alone_us: Option<u64>| {
            let interval = |(ms, count): (u64, u64)| NamedInterval {
                completed: count,
                response_time: second(0, &[(ms, count)]).response_time,
                ..NamedInterval::default()
            };
            let by_name = kinds.iter().map(|(name, ms, count)| ((*name).to_owned(), interval((*ms, *count))));
            let interval = Interval { by_name: by_name.collect(), ..second(0, &[(50, 300)]) };
            let request = |name: &str| RequestSpec { name: name.into(), ..RequestSpec::default() };
            let requests = kinds.iter().map(|(name, ..)| request(name)).collect();
            let measurement = Measurement {
                intervals: vec![interval],
                workload: Some(Workload { requests, ..Workload::default() }),
                alone_us,
                measured_to_s: 1.0,
                ..Measurement::default()
            };
            let facts: Facts = facts(&measurement, Some(&run_report(&measurement).unwrap())).unwrap();
            facts.value(FactId::response_time_slowest_kind_us).map(|us| (us / 1e4).round() as u64)
        };
        let (page, file) = (("/page", 800, 30), ("/a", 2, 90));
        assert_eq!(of(&[page, file], Some(90_000)), Some(80));
        assert_eq!(of(&[page, file], None), None, "none was sent alone");
        assert_eq!(of(&[page], Some(90_000)), None, "that is the mean of all");
        assert_eq!(of(&[("/page", 800, 3), file], Some(90_000)), Some(0), "by chance");
        let others = [file, ("/b", 2, 90), ("/c", 2, 90), page];
        assert_eq!(of(&others, Some(90_000)), Some(0), "the fourth was not sent alone");
    }
}

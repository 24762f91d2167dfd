//! Facts of the slow end of the response times: how many responses take far longer than nearly all others of their kind, how much
//! of the clients' waiting they are, in which part of a request their time lies, and in how few seconds they come.
//!
//! A response is slow if it takes four times as long as four fifths of its kind take at most, and 50 ms. Times that differ by
//! nature hardly do: of exponential ones one in 600. Means do not show such responses, and users meet them on each page of a
//! hundred parts (Dean and Barroso, The Tail at Scale, CACM 2013).

use super::{FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::Interval;

fact_table! {
    "requests": slow_requests;
    "fraction": slow_fraction, slow_time_fraction, slow_seconds_fraction, slow_in_client_fraction,
        slow_in_connect_fraction, slow_in_server_fraction, slow_in_transfer_fraction;
    "us": usual_time_max_us, slow_time_mean_us;
}

/// What nearly all answers of a kind take at most.
const USUAL_QUANTILE: f64 = 0.8;
const USUAL_TIMES: f64 = 4.0;
const USUAL_EXCESS_US: f64 = 50_000.0;
/// Of fewer answers of a kind nobody knows what is usual.
const KIND_ANSWERS_MIN: u64 = 50;
/// In the fewest seconds that have so much of the slow ones.
const SECONDS_SHARE: f64 = 0.8;
/// A part of a request that takes at least this share of the bound is a part of a slow response.
const PART_OF_BOUND: f64 = 0.5;

/// Answers of one kind.
struct Kind {
    times: TimeHistogram,
    usual_us: f64,
    bound_us: u64,
}

impl Kind {
    fn of(times: TimeHistogram) -> Option<Self> {
        let usual_us =
            times.quantile_us(USUAL_QUANTILE).filter(|_| times.count() >= KIND_ANSWERS_MIN)? as f64;
        let bound_us = (USUAL_TIMES * usual_us).max(usual_us + USUAL_EXCESS_US) as u64;
        Some(Self { times, usual_us, bound_us })
    }
}

impl FactBuilder<'_> {
    pub(super) fn slow_responses(&mut self, measurement: &Measurement) -> Result<()> {
        let Some((rows, is_slow)) = slow_responses(measurement)? else { return Ok(()) };
        for (name, value) in rows {
            self.add_client(measurement, name, value);
        }
        self.slow_seconds(measurement, &is_slow);
        Ok(())
    }
}

type Rows = [(FactId, Option<f64>); 10];

/// All of them, and for each second whether it is one of the few in which most of the slow responses ended; `None` without enough answers
/// of any kind.
fn slow_responses(measurement: &Measurement) -> Result<Option<(Rows, Vec<bool>)>> {
    let kinds = kinds(measurement)?;
    let (mut count, mut time_us) = (0.0, 0.0);
    let (mut slow, mut slow_us, mut excess_us, mut usual_us, mut bound_us) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for kind in kinds.values() {
        let (of_kind, of_kind_us) = beyond(&kind.times, kind.bound_us);
        count += kind.times.count() as f64;
        time_us += kind.times.mean_us().unwrap_or(0.0) * kind.times.count() as f64;
        usual_us += kind.usual_us * kind.times.count() as f64;
        bound_us += kind.bound_us as f64 * of_kind;
        (slow, slow_us) = (slow + of_kind, slow_us + of_kind_us);
        excess_us += of_kind_us - of_kind * kind.usual_us;
    }
    if count == 0.0 {
        return Ok(None);
    }
    let is_any = slow > 0.0 && slow_us > 0.0;
    let parts = parts(measurement, (PART_OF_BOUND * bound_us / slow) as u64)?;
    let share = |us: f64| is_any.then(|| (us / slow_us).clamp(0.0, 1.0));
    let is_slow = slow_seconds(measurement, &kinds)?;
    let seconds = is_slow.iter().filter(|is_slow| **is_slow).count() as f64 / is_slow.len() as f64;
    let rows = [
        (FactId::slow_requests, Some(slow)),
        (FactId::slow_fraction, Some(slow / count)),
        (FactId::slow_time_fraction, (time_us > 0.0).then(|| excess_us / time_us)),
        (FactId::slow_time_mean_us, is_any.then(|| slow_us / slow)),
        (FactId::usual_time_max_us, Some(usual_us / count)),
        (FactId::slow_seconds_fraction, is_any.then_some(seconds)),
        (FactId::slow_in_client_fraction, share(parts.client_us)),
        (FactId::slow_in_connect_fraction, share(parts.connect_us)),
        (FactId::slow_in_server_fraction, share(parts.server_us)),
        (FactId::slow_in_transfer_fraction, share(parts.transfer_us)),
    ];
    Ok(Some((rows, is_slow)))
}

/// The time of all that takes this long in a part of a request.
struct Parts {
    client_us: f64,
    connect_us: f64,
    server_us: f64,
    transfer_us: f64,
}

/// What was given up without a first byte was with the server for as long as it was given.
fn parts(measurement: &Measurement, bound_us: u64) -> Result<Parts> {
    let of =
        |part: fn(&Interval) -> Option<&EncodedHistogram>| merged(measurement.measured().filter_map(part));
    let time = |times: &TimeHistogram| beyond(times, bound_us).1;
    let (first_byte, service) = (of(|one| one.first_byte.as_ref())?, of(|one| one.service_time.as_ref())?);
    let timeout_us = measurement.workload.as_ref().map_or(0, |workload| workload.timeout_us);
    let given_up = service.count().saturating_sub(first_byte.count());
    let after_us = (time(&service) - time(&first_byte)).max(0.0);
    let given_up_us = (given_up as f64 * timeout_us as f64).min(after_us);
    Ok(Parts {
        client_us: time(&of(|one| one.client_delay.as_ref())?),
        connect_us: time(&of(|one| one.connect_time.as_ref())?),
        server_us: time(&first_byte) + given_up_us,
        transfer_us: after_us - given_up_us,
    })
}

/// By their names, so that a mix of quick and slow pages is not taken for slow responses; all as one where they have none.
fn kinds(measurement: &Measurement) -> Result<BTreeMap<String, Kind>> {
    let named = crate::run_report::named_times(measurement)?;
    if named.is_empty() {
        let all = Kind::of(crate::run_report::response_times(measurement)?);
        return Ok(all.map(|all| (String::new(), all)).into_iter().collect());
    }
    Ok(named.into_iter().filter_map(|(name, (_, _, times))| Some((name, Kind::of(times)?))).collect())
}

/// How many samples take longer than this, and how long they take together, to the width of a bucket (a thousandth).
fn beyond(times: &TimeHistogram, bound_us: u64) -> (f64, f64) {
    let steps = times
        .buckets()
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_since_last_iteration() as f64));
    let slow = steps.filter(|(us, _)| *us > bound_us);
    slow.fold((0.0, 0.0), |(count, sum), (us, of_step)| (count + of_step, sum + us as f64 * of_step))
}

/// For each second whether it is one of the fewest in which most of the slow responses ended.
fn slow_seconds(measurement: &Measurement, kinds: &BTreeMap<String, Kind>) -> Result<Vec<bool>> {
    let mut counts = vec![];
    for (at, interval) in measurement.measured().enumerate() {
        let mut slow = 0.0;
        for (name, kind) in kinds {
            let whole = interval.response_time.as_ref().filter(|_| name.is_empty());
            let of_kind = interval.by_name.get(name).and_then(|named| named.response_time.as_ref());
            slow += beyond(&merged(whole.or(of_kind).into_iter())?, kind.bound_us).0;
        }
        counts.push((at, slow));
    }
    let mut is_slow = vec![false; counts.len()];
    let mut left = SECONDS_SHARE * counts.iter().map(|(_, slow)| slow).sum::<f64>();
    counts.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (at, slow) in counts {
        is_slow[at] = left > 0.0;
        left -= slow;
    }
    Ok(is_slow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::workload::Workload;

    fn second(t_s: u32, times_us: &[(u64, u64)], first_byte: bool) -> Interval {
        let mut times = TimeHistogram::new();
        times_us.iter().for_each(|(us, count)| times.record_many(*us, *count));
        let response_time = times.encode();
        let first_byte = response_time.clone().filter(|_| first_byte);
        let service_time = response_time.clone();
        let t_s = f64::from(t_s);
        Interval { t_s, length_us: 1_000_000, response_time, service_time, first_byte, ..Interval::default() }
    }

    fn of(intervals: Vec<Interval>) -> impl Fn(FactId) -> Option<f64> {
        of_load(intervals, None)
    }

    fn of_load(intervals: Vec<Interval>, workload: Option<Workload>) -> impl Fn(FactId) -> Option<f64> {
        let measured_to_s = intervals.len() as f64;
        let measurement = Measurement { intervals, measured_to_s, workload, ..Measurement::default() };
        let (rows, _) = slow_responses(&measurement).unwrap().unwrap();
        move |name| rows.iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn a_few_that_take_a_second_are_a_third_of_the_waiting_and_come_in_a_fifth_of_the_seconds() {
        let quick = [(20_000, 99)];
        let stalled = [(20_000, 99), (1_000_000, 5)];
        let seconds = (0..10).map(|t| second(t, if t % 5 == 0 { &stalled } else { &quick }, true));
        let value = of(seconds.collect());
        let near = |name: FactId, expected: f64| {
            let value = value(name).unwrap();
            assert!((value / expected - 1.0).abs() < 0.01, "{name}: {value}");
        };
        near(FactId::slow_requests, 10.0);
        near(FactId::slow_fraction, 0.01);
        near(FactId::slow_time_fraction, 9.8 / 29.8);
        near(FactId::slow_time_mean_us, 1e6);
        near(FactId::slow_seconds_fraction, 0.2);
        near(FactId::slow_in_server_fraction, 1.0);
        assert_eq!(value(FactId::slow_in_transfer_fraction), Some(0.0));
    }

    #[test]
    fn what_is_different_in_these_seconds_is_known() {
        let quick = [(20_000, 99)];
        let stalled = [(20_000, 99), (1_000_000, 5)];
        let intervals = (0..10).map(|t| second(t, if t % 5 < 2 { &stalled } else { &quick }, true)).collect();
        // Others take two cores in the two seconds of each five, and a tenth else.
        let mut cores = 0.0;
        let samples = (0..=10).map(|t| {
            cores += [0.1, 2.0, 2.0, 0.1, 0.1][t % 5];
            crate::facts::testing::sample(t as f64, "process", &[("process.foreign_cpu_s", cores)])
        });
        let samples = samples.collect();
        let measurement = Measurement { intervals, samples, measured_to_s: 10.0, ..Measurement::default() };
        let run = crate::run_report::run_report(&measurement).unwrap();
        let facts = crate::facts::facts(&measurement, Some(&run)).unwrap();
        assert_eq!(facts.value(FactId::slow_seconds_foreign_cores), Some(2.0));
        assert_eq!(facts.value(FactId::other_seconds_foreign_cores), Some(0.1));
        assert_eq!(facts.value(FactId::slow_seconds_io_fraction), None);
    }

    #[test]
    fn times_that_differ_by_nature_are_not_slow_and_what_comes_after_the_first_byte_is_the_transfer() {
        let exponential: Vec<_> =
            (0..1000).map(|i| ((-100_000.0 * ((f64::from(i) + 0.5) / 1000.0).ln()) as u64, 1)).collect();
        let value = of(vec![second(0, &exponential, false)]);
        assert!(value(FactId::slow_fraction).unwrap() < 0.003);
        let value = of(vec![second(0, &[(5_000, 95), (400_000, 5)], false)]);
        assert_eq!(value(FactId::slow_in_transfer_fraction), Some(1.0));
        assert_eq!(value(FactId::slow_in_server_fraction), Some(0.0));
    }

    #[test]
    fn what_is_given_up_without_a_first_byte_was_in_the_server() {
        let mut quick = second(0, &[(5_000, 95)], true);
        let given_up = second(0, &[(5_000, 95), (9_000_000, 5)], false);
        (quick.response_time, quick.service_time) = (given_up.response_time, given_up.service_time);
        let workload = Workload { timeout_us: 9_000_000, ..Workload::default() };
        let value = of_load(vec![quick], Some(workload));
        let near = |name: FactId, expected: f64| (value(name).unwrap() - expected).abs() < 0.01;
        assert!(near(FactId::slow_in_server_fraction, 1.0) && near(FactId::slow_in_transfer_fraction, 0.0));
    }
}

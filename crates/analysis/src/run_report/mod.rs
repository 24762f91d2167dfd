//! Intervals to the report of a run: sums and merged histograms over the measured part. [`run_report`] puts it together
//! once, from parts that are functions of the measurement and of what stands above them.

pub mod clock;
pub mod generator;
pub mod host_levels;
pub mod network;
pub mod pages;
pub mod percentiles;
pub mod repeats;
pub mod replay;
pub mod slo_abort;

use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::{Interval, TcpCounts};
use webdyno_model::number::significant;
use webdyno_model::run::{IntervalReport, NamedReport, RunReport, SCHEMA};

/// The report of the measured part. An error when a histogram of the recording is damaged.
pub fn run_report(measurement: &Measurement) -> Result<RunReport> {
    let timed = timed(measurement, counted(measurement))?;
    let percentiles_need = percentiles::request_needs(measurement, &timed);
    let names = by_name(measurement)?;
    let measured = RunReport {
        schema: SCHEMA.into(),
        workload: measurement.workload.clone(),
        environment: measurement.client.clone(),
        warmup_s: significant(measurement.measured_from_s, 6),
        warmup_why: measurement.warmup_reason.clone(),
        ramp_down_s: significant(ramp_down_s(measurement), 6),
        replay: replay::replay(measurement, &names),
        requests_by_name: names,
        pages: pages::report(measurement, timed.elapsed_s)?,
        visits: pages::visits(measurement),
        unsupported_percentiles: percentiles_need.keys().cloned().collect(),
        percentiles_need,
        intervals: measurement.measured().map(interval_report).collect::<Result<_>>()?,
        clock: clock::clock_report(measurement),
        brake: measurement.harm_guard_trip.clone(),
        ..timed
    };
    // The generator is judged by what was measured, and the objectives by all of it.
    let client = generator::client(measurement, &measured)?;
    let run = RunReport { client, workers: generator::workers::reports(measurement)?, ..measured };
    let objectives = measurement.objectives.iter().map(|objective| objective.check(&run)).collect();
    Ok(RunReport { objectives, ..run })
}

/// Seconds that were cut from the end.
fn ramp_down_s(measurement: &Measurement) -> f64 {
    let length_us: u64 = measurement.after().map(|interval| interval.length_us).sum();
    length_us as f64 / 1e6
}

/// Counts and rates alone. What was in flight when the measured part began counts as started in it, so that
/// started = completed + failed + in_flight_at_end holds for the measured part too.
fn counted(measurement: &Measurement) -> RunReport {
    let mut run = RunReport::default();
    let (mut length_us, mut tcp) = (0, TcpCounts::default());
    for interval in measurement.measured() {
        length_us += interval.length_us;
        run.requests.completed += interval.completed;
        run.requests.failed += interval.failed;
        run.requests.in_flight_at_end = interval.in_flight;
        run.bytes.received += interval.bytes_received;
        run.bytes.sent += interval.bytes_sent;
        for (status, answers) in &interval.status {
            *run.status.entry(status.clone()).or_default() += answers;
        }
        run.errors.add(&interval.errors);
        run.connections.add(&interval.connections);
        tcp.add(&interval.tcp);
        run.redirects += interval.redirects;
    }
    run.requests.started = run.requests.completed + run.requests.failed + run.requests.in_flight_at_end;
    run.tcp = network::tcp_report(&tcp);
    run.elapsed_s = length_us as f64 / 1e6;
    run.rate = (length_us > 0).then(|| significant(run.requests.completed as f64 / run.elapsed_s, 6));
    run
}

/// The times beside these counts.
fn timed(measurement: &Measurement, counted: RunReport) -> Result<RunReport> {
    let dist = |pick: fn(&Interval) -> &Option<EncodedHistogram>| {
        merged(measurement.measured().filter_map(|interval| pick(interval).as_ref()))
            .map(|merged| merged.dist())
    };
    // How long requests had been waiting is known at the end of the load, not at the end of a part of it.
    let to_the_end = measurement.after().next().is_none();
    let censored = measurement.end.as_ref().filter(|_| to_the_end).and_then(|end| end.censored_time.as_ref());
    Ok(RunReport {
        response_time_us: dist(|interval| &interval.response_time)?,
        service_time_us: dist(|interval| &interval.service_time)?,
        connect_time_us: dist(|interval| &interval.connect_time)?,
        connect_peaks: network::connect_peaks_of(measurement)?,
        first_byte_us: dist(|interval| &interval.first_byte)?,
        client_delay_us: dist(|interval| &interval.client_delay)?,
        tls_handshake_us: dist(|interval| &interval.tls_handshake)?,
        receive_delay_us: dist(|interval| &interval.receive_delay)?,
        round_trip_us: dist(|interval| &interval.round_trip)?,
        failed_time_us: dist(|interval| &interval.failed_time)?,
        censored_time_us: merged(censored.into_iter())?.dist(),
        ..counted
    })
}

/// The response times of the measured part.
pub fn response_times(measurement: &Measurement) -> Result<TimeHistogram> {
    merged(measurement.measured().filter_map(|interval| interval.response_time.as_ref()))
}

/// By request name: good answers, failures and merged response times of the measured part.
pub fn named_times(measurement: &Measurement) -> Result<BTreeMap<String, (u64, u64, TimeHistogram)>> {
    let mut names: BTreeMap<String, (u64, u64, TimeHistogram)> = BTreeMap::new();
    for (name, named) in measurement.measured().flat_map(|interval| &interval.by_name) {
        let (completed, failed, times) = names.entry(name.clone()).or_default();
        *completed += named.completed;
        *failed += named.failed;
        if let Some(encoded) = &named.response_time {
            times.merge_encoded(encoded)?;
        }
    }
    Ok(names)
}

fn by_name(measurement: &Measurement) -> Result<BTreeMap<String, NamedReport>> {
    let report = |(name, (completed, failed, times)): (String, (u64, u64, TimeHistogram))| {
        (name, NamedReport { completed, failed, response_time_us: times.dist() })
    };
    Ok(named_times(measurement)?.into_iter().map(report).collect())
}

/// One second as reports show it.
pub fn interval_report(interval: &Interval) -> Result<IntervalReport> {
    let times = merged(interval.response_time.iter())?;
    Ok(IntervalReport {
        t_s: interval.t_s,
        rate: per_second(interval.completed, interval),
        page_rate: interval.pages.as_ref().map(|pages| per_second(pages.completed, interval)),
        p50_us: times.quantile_us(0.5),
        p99_us: times.quantile_us(0.99),
        failed: interval.failed,
        in_flight: interval.in_flight,
    })
}

fn per_second(count: u64, interval: &Interval) -> f64 {
    significant(count as f64 * 1e6 / interval.length_us.max(1) as f64, 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::LoadEnd;
    use webdyno_model::objective::Objective;

    fn interval(t_s: f64, times_us: &[u64], failed: u64, in_flight: u64) -> Interval {
        let mut times = TimeHistogram::new();
        times_us.iter().for_each(|&time| times.record(time));
        Interval {
            t_s,
            length_us: 1_000_000,
            completed: times_us.len() as u64,
            failed,
            in_flight,
            status: [("200".to_owned(), times_us.len() as u64)].into(),
            response_time: times.encode(),
            ..Interval::default()
        }
    }

    #[test]
    fn the_warm_up_is_cut_and_the_counts_add_up() {
        let measurement = Measurement {
            intervals: vec![
                interval(0.0, &[9_000_000], 5, 1),
                interval(1.0, &[100, 300], 1, 2),
                interval(2.0, &[200], 0, 3),
            ],
            measured_from_s: 1.0,
            measured_to_s: 3.0,
            objectives: vec![Objective::parse("max<1ms").unwrap()],
            ..Measurement::default()
        };
        let run = run_report(&measurement).unwrap();
        assert_eq!(
            (
                run.requests.started,
                run.requests.completed,
                run.requests.failed,
                run.requests.in_flight_at_end
            ),
            (7, 3, 1, 3)
        );
        assert_eq!((run.rate, run.elapsed_s, run.warmup_s), (Some(1.5), 2.0, 1.0));
        assert_eq!((run.response_time_us.mean, run.response_time_us.max), (Some(200.0), Some(300)));
        assert_eq!(run.status["200"], 3);
        assert!(run.objectives[0].met);
        assert_eq!(run.intervals.len(), 2);
    }

    #[test]
    fn the_ramp_down_is_cut_as_well() {
        let mut censored = TimeHistogram::new();
        censored.record(5_000_000);
        let end = LoadEnd {
            elapsed_us: 4_000_000,
            in_flight_at_end: 1,
            censored_time: censored.encode(),
            ..LoadEnd::default()
        };
        let mut measurement = Measurement {
            intervals: vec![
                interval(0.0, &[9_000_000], 5, 1),
                interval(1.0, &[100, 300], 1, 2),
                interval(2.0, &[200], 0, 3),
                interval(3.0, &[8_000_000], 7, 1),
            ],
            measured_from_s: 1.0,
            measured_to_s: 3.0,
            ramp_down_from_s: Some(3.0),
            end: Some(end),
            objectives: vec![Objective::parse("max<1ms").unwrap(), Objective::parse("failed<2").unwrap()],
            ..Measurement::default()
        };
        let run = run_report(&measurement).unwrap();
        assert_eq!((run.warmup_s, run.elapsed_s, run.ramp_down_s), (1.0, 2.0, 1.0));
        assert_eq!((run.requests.completed, run.requests.failed, run.requests.in_flight_at_end), (3, 1, 3));
        assert_eq!((run.response_time_us.max, run.censored_time_us.count), (Some(300), 0));
        assert!(run.objectives.iter().all(|objective| objective.met));
        assert_eq!(run.intervals.iter().map(|second| second.t_s).collect::<Vec<_>>(), [1.0, 2.0]);
        measurement.ramp_down_from_s = None;
        let whole = run_report(&measurement).unwrap();
        assert_eq!((whole.ramp_down_s, whole.censored_time_us.count, whole.elapsed_s), (0.0, 1, 3.0));
        assert!(whole.ramp_down_s.is_sign_positive());
    }

    #[test]
    fn without_intervals_the_rate_is_unknown() {
        let run = run_report(&Measurement::default()).unwrap();
        assert_eq!((run.rate, run.response_time_us.p50), (None, None));
        assert!(!run.client.valid);
    }
}

//! Whether the generator's own delay falsifies the response times.
//!
//! Like is compared with like: the median delay with the median response time, the 90th percentile with the 90th, the
//! delays of a second with the times of all requests that ended in it, failures included, or with those of the good answers
//! alone, if these take longer: a server that refuses at once and answers slowly has times that no delay of a millisecond
//! falsifies. The mean over a run tells
//! little: two moments in which the scheduler held the generator ruin the mean over few requests, and not the run. A
//! generator that does not keep up delays half of its requests, or more than a tenth of them, or some in every second.

use super::{DELAY_FRACTION_MAX, DELAY_US_MIN, SECONDS_MIN};
use crate::measurement::Measurement;
use crate::measurement::histograms::merged;
use crate::wording::format_time;
use webdyno_model::Result;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::run::RunReport;
use webdyno_model::workload::{Arrival, Clock};

/// With fewer requests than this, or fewer for each connection, the first ones are many enough to be the tenth that is
/// late: they come all at once, and memory and caches are cold.
const REQUESTS_MIN: u64 = 200;
const REQUESTS_PER_CONNECTION_MIN: u64 = 20;
/// A cold start delays that few requests by some hundred microseconds, not by so much.
const COLD_START_US: f64 = 1000.0;
/// A tenth of the requests may be late by so much on any machine that has other work: its scheduler lets a program that wakes
/// up wait for a moment. Only a generator that does not keep up delays half of them by [`DELAY_US_MIN`].
const TENTH_US_MIN: f64 = 250.0;
/// With fewer requests than this nothing is said at all.
const REQUESTS_TO_JUDGE: u64 = 10;

/// Why the delay falsifies the times; `None` when it does not. An error when a histogram is damaged.
pub(super) fn fault(measurement: &Measurement, run: &RunReport) -> Result<Option<String>> {
    let times = |interval: &'_ Interval| [interval.response_time.clone(), interval.failed_time.clone()];
    let ended: Vec<_> = measurement.measured().flat_map(times).flatten().collect();
    let good = merged(measurement.measured().filter_map(|interval| interval.response_time.as_ref()))?;
    let ended = &[merged(ended.iter())?, good];
    let delays = merged(measurement.measured().filter_map(|interval| interval.client_delay.as_ref()))?;
    let many = delays.count() >= requests_min(run);
    let floor_us = if many { DELAY_US_MIN } else { COLD_START_US };
    let median = share("p50", 0.5, &delays, ended, floor_us);
    let tenth = share("p90", 0.9, &delays, ended, TENTH_US_MIN).filter(|_| many);
    let faults = [median.filter(|_| delays.count() >= REQUESTS_TO_JUDGE), tenth, usual_second(measurement)?];
    let worst = faults.into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0));
    Ok(worst.filter(|(share, _)| *share > DELAY_FRACTION_MAX).map(|(_, why)| why))
}

fn requests_min(run: &RunReport) -> u64 {
    let closed = run.workload.as_ref().filter(|workload| workload.arrival == Arrival::Closed);
    let connections = closed.map_or(0, |workload| u64::from(workload.concurrency()));
    REQUESTS_MIN.max(REQUESTS_PER_CONNECTION_MIN * connections)
}

/// A quantile of the delays as a share of the same quantile of the times, and what there is to say of it. Of several times
/// the longest count.
fn share(
    name: &str,
    quantile: f64,
    delays: &TimeHistogram,
    times: &[TimeHistogram],
    floor_us: f64,
) -> Option<(f64, String)> {
    let delay_us = delays.quantile_us(quantile)? as f64;
    let enough = times.iter().filter(|times| times.count() >= REQUESTS_TO_JUDGE);
    let longest = enough.filter_map(|times| times.quantile_us(quantile)).max();
    let time_us = longest.or_else(|| times.first()?.quantile_us(quantile))? as f64;
    let share = delay_us / time_us;
    (delay_us > floor_us && time_us > 0.0).then(|| {
        let why = format!(
            "the {name} of the generator's own delay, {}, is {:.0}% of the response time's, {} (limit {:.0}%)",
            format_time(delay_us),
            100.0 * share,
            format_time(time_us),
            100.0 * DELAY_FRACTION_MAX
        );
        (share, why)
    })
}

/// The share of all times that was delay, in the usual (median) second.
fn usual_second(measurement: &Measurement) -> Result<Option<(f64, String)>> {
    let mut shares = vec![];
    for interval in measurement.measured().filter(|interval| interval.length_us >= 900_000) {
        let sum = |times: &Option<webdyno_model::histogram::EncodedHistogram>| {
            times.as_ref().map_or(0.0, |times| times.sum_us)
        };
        let ended_us = sum(&interval.response_time) + sum(&interval.failed_time);
        let delays = merged(interval.client_delay.iter())?;
        if ended_us > 0.0 {
            let mean_us = delays.mean_us().filter(|mean_us| *mean_us > TENTH_US_MIN);
            let good_us = merged(interval.response_time.iter())?.mean_us();
            let of_good =
                mean_us.zip(good_us).map_or(f64::INFINITY, |(delay_us, good_us)| delay_us / good_us);
            let of_all = sum(&interval.client_delay) / ended_us;
            shares.push(mean_us.map_or(0.0, |_| of_all.min(of_good)));
        }
    }
    let usual = crate::measurement::statistics::median(&shares).filter(|_| shares.len() >= SECONDS_MIN);
    Ok(usual.map(|share| {
        let why = format!(
            "in the median second the generator's own delay was {:.0}% of the response time (limit {:.0}%)",
            100.0 * share,
            100.0 * DELAY_FRACTION_MAX
        );
        (share, why)
    }))
}

/// Whether answers lay in the kernel, unread, for too much of the time from sending to the answer: requests that wait in the
/// generator before they are sent wait because of that. One in ten may: answers come in
/// bursts, and each but the first of a burst waits for those before it. Half of them wait only for a generator that is
/// late. Where the kernel's clock ends the times, they do not hold this wait.
pub(super) fn unread_time_text(run: &RunReport) -> Option<String> {
    let ends_before = run.workload.as_ref().is_some_and(|workload| workload.clock == Clock::Kernel);
    let sent_us = run.service_time_us.p50.filter(|us| *us > 0);
    let (name, answer_us) = match sent_us {
        Some(us) => ("p50 service time", us),
        None => ("p50 response time", run.response_time_us.p50.filter(|us| *us > 0)?),
    };
    let floor_us = if run.response_time_us.count < REQUESTS_MIN { COLD_START_US } else { DELAY_US_MIN };
    let waited_us =
        run.receive_delay_us.p50.map(|us| us as f64).filter(|us| *us > floor_us && !ends_before)?;
    let share = waited_us / answer_us as f64;
    (share > DELAY_FRACTION_MAX).then(|| {
        format!(
            "responses waited {} (p50) in the socket buffer, {:.0}% of the {name} (limit {:.0}%)",
            format_time(waited_us),
            100.0 * share,
            100.0 * DELAY_FRACTION_MAX
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::client::ClientReport;
    use webdyno_model::histogram::EncodedHistogram;
    use webdyno_model::workload::Workload;

    fn of(times_us: &[u64]) -> Option<EncodedHistogram> {
        let mut times = TimeHistogram::new();
        times_us.iter().for_each(|us| times.record(*us));
        times.encode()
    }

    /// A second with these times and delays.
    fn second(index: usize, times_us: &[u64], delays_us: &[u64]) -> Interval {
        Interval {
            t_s: index as f64,
            length_us: 1_000_000,
            completed: times_us.len() as u64,
            in_flight_us: times_us.iter().sum(),
            response_time: of(times_us),
            client_delay: of(delays_us),
            ..Interval::default()
        }
    }

    fn client(intervals: Vec<Interval>, connections: u32) -> ClientReport {
        let workload = Some(Workload { connections, ..Workload::default() });
        let measurement = Measurement { intervals, workload, ..Measurement::default() };
        crate::run_report::run_report(&measurement).unwrap().client
    }

    /// `requests` of which `late` had this delay and took so much longer than the others.
    fn short(requests: usize, late: usize, delay_us: u64, time_us: u64) -> ClientReport {
        let delays: Vec<u64> = (0..requests).map(|index| if index < late { delay_us } else { 2 }).collect();
        let times: Vec<u64> = delays.iter().map(|delay| time_us + delay).collect();
        client(vec![second(0, &times, &delays)], 1)
    }

    /// Most are refused at once, and each refusal comes in the middle of many others.
    #[test]
    fn refusals_do_not_spoil_the_times_of_slow_answers() {
        let with = |good_us: u64| {
            let seconds = (0..4).map(|index| Interval {
                failed: 2000,
                failed_time: of(&vec![4000; 2000]),
                in_flight_us: 100 * good_us + 2000 * 4000,
                ..second(index, &vec![good_us; 100], &vec![3000; 2100])
            });
            client(seconds.collect(), 100)
        };
        assert!(with(300_000).valid, "{:?}", with(300_000));
        assert!(!with(8000).valid);
    }

    #[test]
    fn a_cold_start_does_not_spoil_a_short_run() {
        for requests in [1, 5, 10, 50, 100] {
            for late in [1, requests / 4, requests / 2, requests] {
                for delay_us in [101, 300, 900] {
                    let client = short(requests, late, delay_us, 120);
                    assert!(client.valid, "{late} of {requests} late by {delay_us}: {client:?}");
                }
            }
        }
        // A start that comes all at once on 50 connections is no tenth of the run either.
        let delays: Vec<u64> = (0..500).map(|index| if index < 60 { 400 } else { 2 }).collect();
        let times: Vec<u64> = delays.iter().map(|delay| 120 + delay).collect();
        let with = |connections| client(vec![second(0, &times, &delays)], connections);
        assert!(with(50).valid && !with(1).valid);
    }

    #[test]
    fn waking_up_on_a_busy_machine_spoils_nothing() {
        // A tenth of the answers is late by 174 us of 989.
        let times: Vec<u64> = (0..1000).map(|index| if index < 150 { 989 } else { 233 }).collect();
        let late = |by_us: u64| {
            let delays: Vec<u64> = (0..1000).map(|index| if index < 150 { by_us } else { 17 }).collect();
            client(vec![second(0, &times, &delays)], 1).valid
        };
        assert!(late(174) && !late(300));
    }

    #[test]
    fn a_generator_that_is_late_spoils_short_runs_too() {
        for (requests, late, delay_us) in [(50, 40, 2000), (200, 30, 300), (200, 150, 150)] {
            let client = short(requests, late, delay_us, 120);
            assert!(!client.valid_for.latency, "{late} of {requests} late by {delay_us}: {client:?}");
        }
    }

    #[test]
    fn the_share_is_the_one_that_it_is_called() {
        // 15% have a delay of 300 us of 420: by the mean of all times it would be more than all of them.
        let why = short(1000, 150, 300, 120).why.unwrap();
        assert_eq!(
            why,
            "the p90 of the generator's own delay, 300 µs, is 71% of the response time's, 420 µs (limit 10%)"
        );
        // Slow answers are not falsified by what is a tenth of the quick ones.
        let mut times = vec![120; 800];
        times.extend([5000; 200]);
        let mut delays = vec![2; 800];
        delays.extend([300; 200]);
        assert!(client(vec![second(0, &times, &delays)], 1).valid);
    }

    #[test]
    fn every_second_counts_with_its_failures() {
        // One request a second that is late by 1.4 ms of 1.5, and one that is late by less than waking up takes.
        let at = |delay_us: u64| {
            let seconds = (0..8).map(|index| second(index, &[100 + delay_us], &[delay_us])).collect();
            client(seconds, 50)
        };
        assert!(at(1400).why.unwrap().contains("in the median second the generator's own delay was 93%"));
        assert!(at(90).valid);
        // Nine of ten requests fail after 50 ms; the delays are those of all.
        let failing = |index| {
            let mut interval = second(index, &[200], &[250; 10]);
            (interval.failed, interval.failed_time) = (9, of(&[50_000; 9]));
            interval.in_flight_us += 9 * 50_000;
            interval
        };
        let client = client((0..8).map(failing).collect(), 1);
        assert!(client.valid, "{client:?}");
    }

    #[test]
    fn one_long_stall_is_not_the_usual_second() {
        let mut seconds: Vec<Interval> = (0..8).map(|index| second(index, &[100; 10], &[20; 10])).collect();
        seconds[3] = second(3, &[100_000; 10], &[90_000; 10]);
        assert!(client(seconds, 1).valid);
    }

    #[test]
    fn answers_that_lie_unread_spoil_times_that_end_when_they_are_read() {
        let of = |waited_us: u64, clock, count| {
            let mut run = RunReport::default();
            (run.response_time_us.p50, run.response_time_us.count) = (Some(900), count);
            run.receive_delay_us.p50 = Some(waited_us);
            run.workload = Some(Workload { clock, ..Workload::default() });
            unread_time_text(&run)
        };
        for (waited_us, clock, count, spoilt) in [
            (100, Clock::Auto, 1000, false),
            (101, Clock::Auto, 1000, true),
            (800, Clock::Kernel, 1000, false),
            (800, Clock::Auto, 100, false),
        ] {
            assert_eq!(of(waited_us, clock, count).is_some(), spoilt, "{waited_us}");
        }
        let why = of(207, Clock::Auto, 1000).unwrap();
        assert!(
            why.contains("waited 207 µs (p50) in the socket buffer, 23% of the p50 response time"),
            "{why}"
        );
        assert_eq!(unread_time_text(&RunReport::default()), None);
    }
}

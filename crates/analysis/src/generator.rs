//! Whether the generator kept up: a run whose figures show the generator and not the server is marked invalid.

use crate::measurement::Measurement;
use webdyno_model::run::{ClientReport, RunReport};

/// Above this share of a core the busiest engine thread is taken as the bottleneck.
pub const CPU_FRACTION_MAX: f64 = 0.70;
/// Above this share of the response time the generator's own delay falsifies it.
pub const DELAY_FRACTION_MAX: f64 = 0.10;
/// So many whole seconds are needed before the usual one of them is known.
const SECONDS_MIN: usize = 5;
/// A delay below this is the time that waking up takes on any machine, however quick the answers are.
pub const DELAY_US_MIN: f64 = 100.0;
/// By more than this share, Little's law between the mean in flight and rate x time is broken.
const LITTLE_TOLERANCE: f64 = 0.05;
/// Little's law holds for means over many requests: with fewer it says nothing.
const LITTLE_REQUESTS_MIN: f64 = 1000.0;

/// The verdict on the generator over the measured part. `run` has everything else filled in.
pub fn verdict(measurement: &Measurement, run: &RunReport) -> ClientReport {
    let (length_us, cpu_us) = measurement
        .measured()
        .fold((0, 0), |(length, cpu), interval| (length + interval.length_us, cpu + interval.cpu_us));
    let fractions = measurement.measured().filter(|interval| interval.length_us >= 500_000);
    let fractions: Vec<f64> =
        fractions.map(|interval| interval.cpu_us_max_thread as f64 / interval.length_us as f64).collect();
    let cpu_fraction = crate::stats::mean(&fractions);
    let saturation = overworked(cpu_fraction).or_else(|| delayed(measurement, run));
    let why =
        saturation.clone().or_else(|| nothing_measured(run)).or_else(|| little_broken(measurement, run));
    ClientReport {
        cpu_s: (length_us > 0).then_some(cpu_us as f64 / 1e6),
        cpu_fraction_max_thread: cpu_fraction.map(|fraction| webdyno_model::number::significant(fraction, 4)),
        saturated: saturation.is_some(),
        valid: why.is_none(),
        why,
    }
}

fn overworked(cpu_fraction: Option<f64>) -> Option<String> {
    cpu_fraction.filter(|fraction| *fraction > CPU_FRACTION_MAX).map(|fraction| {
        format!(
            "the busiest engine thread used {:.0}% of a core (more than {:.0}%): this measured the generator, not the server",
            fraction * 100.0,
            CPU_FRACTION_MAX * 100.0
        )
    })
}

/// Whether the generator's own delay falsifies the response times. The mean delay does not tell: two moments in which
/// the scheduler held the generator ruin the mean over few requests, and not the run. A generator that does not keep
/// up delays more than a tenth of its requests (the 90th percentile), or some of them in every second.
fn delayed(measurement: &Measurement, run: &RunReport) -> Option<String> {
    let (delays, response) = (&run.client_delay_us, run.response_time_us.mean.filter(|mean| *mean > 0.0)?);
    let high = delays.p90.map(|us| us as f64).filter(|us| *us > DELAY_US_MIN).map(|us| us / response);
    let steady = usual_delay(measurement).filter(|_| delays.mean.is_some_and(|mean| mean > DELAY_US_MIN));
    let share = high.into_iter().chain(steady).reduce(f64::max)?;
    (share > DELAY_FRACTION_MAX).then(|| {
        format!(
            "the generator itself added {:.0}% of the response time (more than {:.0}%)",
            100.0 * share.min(1.0),
            DELAY_FRACTION_MAX * 100.0
        )
    })
}

/// The share of the response times that was the generator's delay, in the usual (median) second.
fn usual_delay(measurement: &Measurement) -> Option<f64> {
    let seconds = measurement.measured().filter(|interval| interval.length_us >= 900_000);
    let shares: Vec<f64> = seconds
        .filter_map(|interval| {
            let response_us = interval.response_time.as_ref()?.sum_us;
            let delay_us = interval.client_delay.as_ref().map_or(0.0, |delay| delay.sum_us);
            (response_us > 0.0).then(|| delay_us / response_us)
        })
        .collect();
    crate::stats::median(&shares).filter(|_| shares.len() >= SECONDS_MIN)
}

fn nothing_measured(run: &RunReport) -> Option<String> {
    (run.requests.completed + run.requests.failed == 0)
        .then(|| "no request ended within the measured time".to_owned())
}

/// Mean in flight = ended per second x mean time, within the tolerance; else requests were lost or counted twice.
fn little_broken(measurement: &Measurement, run: &RunReport) -> Option<String> {
    let (length_us, in_flight_us) =
        measurement.measured().fold((0u64, 0u64), |(length, in_flight), interval| {
            (length + interval.length_us, in_flight + interval.in_flight_us)
        });
    let total = |dist: &webdyno_model::run::Dist| dist.mean.map_or(0.0, |mean| mean * dist.count as f64);
    let ended = run.requests.completed + run.requests.failed;
    // Requests that lie across an edge count with all of their time on one side and with part of it on the other:
    // none of them takes longer than the longest, which bounds what the law can show.
    let edges = (in_flight_at_start(measurement) + run.requests.in_flight_at_end) as f64;
    let times = [&run.response_time_us, &run.failed_time_us, &run.censored_time_us];
    let longest = times.into_iter().filter_map(|times| times.max).max().unwrap_or(0) as f64;
    let (seen, told) = (in_flight_us as f64, total(&run.response_time_us) + total(&run.failed_time_us));
    let broken = (seen - told).abs() > LITTLE_TOLERANCE * seen + edges * longest;
    (ended as f64 > LITTLE_REQUESTS_MIN && length_us > 0 && broken).then(|| {
        format!(
            "Little's law does not hold: {:.1} requests were in flight, rate times response time says {:.1}",
            seen / length_us as f64,
            told / length_us as f64
        )
    })
}

/// Requests in flight when the measured part began: those at the end of the interval before it.
fn in_flight_at_start(measurement: &Measurement) -> u64 {
    let warm_up = measurement.intervals.len().saturating_sub(measurement.measured().count());
    warm_up.checked_sub(1).and_then(|last| measurement.intervals.get(last)).map_or(0, |last| last.in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;

    fn second(t_s: f64, cpu_us_max_thread: u64, in_flight_us: u64) -> Interval {
        let (length_us, cpu_us) = (1_000_000, 100_000);
        Interval { t_s, length_us, cpu_us, cpu_us_max_thread, in_flight_us, ..Interval::default() }
    }

    /// 5000 requests of a millisecond each in one second; a tenth of them were delayed by this much.
    fn check(cpu_us_max_thread: u64, delay_us: u64, in_flight_us: u64) -> ClientReport {
        let intervals = vec![second(0.0, cpu_us_max_thread, in_flight_us)];
        verdict(&Measurement { intervals, ..Measurement::default() }, &run(delay_us, 1_000.0))
    }

    fn run(delay_p90_us: u64, delay_mean_us: f64) -> RunReport {
        let mut run = RunReport::default();
        run.requests.completed = 5_000;
        (run.response_time_us.count, run.response_time_us.mean) = (5_000, Some(1_000.0));
        run.response_time_us.max = Some(1_000);
        (run.client_delay_us.p90, run.client_delay_us.mean) = (Some(delay_p90_us), Some(delay_mean_us));
        run
    }

    #[test]
    fn a_generator_that_keeps_up_is_valid() {
        let report = check(400_000, 99, 5_000_000);
        assert!(report.valid && !report.saturated && report.why.is_none(), "{report:?}");
        assert_eq!((report.cpu_s, report.cpu_fraction_max_thread), (Some(0.1), Some(0.4)));
    }

    #[test]
    fn one_that_does_not_says_why() {
        for (cpu, delay, in_flight, saturated, word) in [
            (900_000, 1, 5_000_000, true, "of a core"),
            (100_000, 200, 5_000_000, true, "of the response time"),
            (100_000, 1, 9_000_000, false, "Little's law"),
        ] {
            let report = check(cpu, delay, in_flight);
            assert!(!report.valid && report.saturated == saturated, "{report:?}");
            assert!(report.why.unwrap().contains(word));
        }
    }

    /// Eight seconds, in each of which 20 answers took 10 ms; in `stalled` of them one of these was held up by 100 ms.
    fn with_stalls(stalled: usize) -> ClientReport {
        let of = |times_us: &[u64]| {
            let mut times = TimeHistogram::new();
            times_us.iter().for_each(|us| times.record(*us));
            times.encode()
        };
        let interval = |index: usize| {
            let delay = if index < stalled { 100_000 } else { 0 };
            let (mut delays, mut times) = ([0; 20], [10_000; 20]);
            (delays[0], times[0]) = (delay, 10_000 + delay);
            let (response_time, client_delay) = (of(&times), of(&delays));
            let in_flight_us = times.iter().sum();
            Interval { completed: 20, response_time, client_delay, ..second(index as f64, 1, in_flight_us) }
        };
        let intervals = (0..8).map(interval).collect();
        crate::summary::run_report(&Measurement { intervals, ..Measurement::default() }).unwrap().client
    }

    #[test]
    fn two_stalls_ruin_no_run_and_a_stall_in_every_second_does() {
        // Two stalls: 1250 us of a mean of 11 ms are more than a tenth.
        assert!(with_stalls(2).valid, "{:?}", with_stalls(2));
        assert!(with_stalls(8).saturated, "{:?}", with_stalls(8));
    }

    #[test]
    fn what_was_in_flight_before_the_window_is_no_loss() {
        // A slow start: 400 requests of five seconds end in the measured second, which saw little of them.
        let mut run = run(1, 1.0);
        run.response_time_us.mean = Some(400_000.0);
        run.response_time_us.max = Some(5_000_000);
        let warm_up = Interval { in_flight: 400, ..second(0.0, 1, 400_000_000) };
        let measured = |intervals| Measurement { intervals, measured_from_s: 1.0, ..Measurement::default() };
        let slow_start = measured(vec![warm_up, second(1.0, 1, 405_000_000)]);
        assert!(verdict(&slow_start, &run).valid, "{:?}", verdict(&slow_start, &run));
        let lost = measured(vec![second(0.0, 1, 0), second(1.0, 1, 405_000_000)]);
        assert!(!verdict(&lost, &run).valid);
    }
}

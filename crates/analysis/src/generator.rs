//! Whether the generator kept up: a run whose figures show the generator and not the server is marked invalid.

use crate::measurement::Measurement;
use webdyno_model::run::{ClientReport, RunReport};

/// Above this share of a core the busiest engine thread is taken as the bottleneck.
pub const CPU_FRACTION_MAX: f64 = 0.70;
/// Above this share of the response time the generator's own delay falsifies it.
pub const DELAY_FRACTION_MAX: f64 = 0.10;
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
    let saturation = saturation(cpu_fraction, run);
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

fn saturation(cpu_fraction: Option<f64>, run: &RunReport) -> Option<String> {
    if let Some(fraction) = cpu_fraction.filter(|fraction| *fraction > CPU_FRACTION_MAX) {
        return Some(format!(
            "the busiest engine thread used {:.0}% of a core (more than {:.0}%): this measured the generator, not the server",
            fraction * 100.0,
            CPU_FRACTION_MAX * 100.0
        ));
    }
    let (delay, response) = (run.client_delay_us.mean?, run.response_time_us.mean?);
    (delay > DELAY_US_MIN && delay > DELAY_FRACTION_MAX * response).then(|| {
        format!(
            "the generator added {:.0}% of the response time itself (more than {:.0}%)",
            100.0 * delay / response,
            DELAY_FRACTION_MAX * 100.0
        )
    })
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
    // Requests that lie across the edges count with part of their time: their share bounds what the law can show.
    let edge = (run.requests.in_flight_at_end as f64) * run.response_time_us.max.unwrap_or(0) as f64;
    let (seen, told) = (in_flight_us as f64, total(&run.response_time_us) + total(&run.failed_time_us));
    let broken = (seen - told).abs() > LITTLE_TOLERANCE * seen + 2.0 * edge;
    (ended as f64 > LITTLE_REQUESTS_MIN && length_us > 0 && broken).then(|| {
        format!(
            "Little's law does not hold: {:.1} requests were in flight, rate times response time says {:.1}",
            seen / length_us as f64,
            told / length_us as f64
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::Interval;

    fn check(cpu_us_max_thread: u64, delay_us: f64, in_flight_us: u64) -> ClientReport {
        let interval = Interval {
            length_us: 1_000_000,
            cpu_us: 100_000,
            cpu_us_max_thread,
            in_flight_us,
            ..Interval::default()
        };
        let measurement = Measurement { intervals: vec![interval], ..Measurement::default() };
        let mut run = RunReport::default();
        run.requests.completed = 5_000;
        (run.response_time_us.count, run.response_time_us.mean) = (5_000, Some(1_000.0));
        run.client_delay_us.mean = Some(delay_us);
        verdict(&measurement, &run)
    }

    #[test]
    fn a_generator_that_keeps_up_is_valid() {
        let report = check(400_000, 99.0, 5_000_000);
        assert!(report.valid && !report.saturated && report.why.is_none(), "{report:?}");
        assert_eq!((report.cpu_s, report.cpu_fraction_max_thread), (Some(0.1), Some(0.4)));
    }

    #[test]
    fn one_that_does_not_says_why() {
        for (cpu, delay, in_flight, saturated, word) in [
            (900_000, 1.0, 5_000_000, true, "of a core"),
            (100_000, 200.0, 5_000_000, true, "of the response time"),
            (100_000, 1.0, 9_000_000, false, "Little's law"),
        ] {
            let report = check(cpu, delay, in_flight);
            assert!(!report.valid && report.saturated == saturated, "{report:?}");
            assert!(report.why.unwrap().contains(word));
        }
    }
}

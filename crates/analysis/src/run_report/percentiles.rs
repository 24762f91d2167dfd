//! Which percentiles a run is long enough for.
//!
//! A percentile is told by the answers beyond it. How many lie there is a matter of chance (binomial): of ten expected
//! ones there are between four and seventeen, so that the 99th percentile is known to be one between the 98.3rd and the
//! 99.6th; of fewer it is hardly known at all. Ten is also what the usual rule asks for before a normal distribution may
//! stand for a binomial one (n p (1 - p) of about 10; Hahn and Meeker, "Statistical Intervals", 1991, chapter 5). Slow
//! answers come together: those of one stall are one observation, so that they must lie in several seconds.

use crate::measurement::Measurement;
use std::collections::BTreeMap;
use webdyno_model::distribution::{Dist, PercentileNeed};
use webdyno_model::number::significant;
use webdyno_model::run::RunReport;

const BEYOND_MIN: u64 = PercentileNeed::BEYOND_MIN;
const SECONDS_MIN: usize = PercentileNeed::SECONDS_MIN;

/// Percentiles of a distribution that are told by a few slow answers: name, share beyond it, value.
fn named(dist: &Dist) -> [(&'static str, f64, Option<u64>); 6] {
    [
        ("p50", 0.5, dist.p50),
        ("p75", 0.25, dist.p75),
        ("p90", 0.1, dist.p90),
        ("p95", 0.05, dist.p95),
        ("p99", 0.01, dist.p99),
        ("p999", 0.001, dist.p999),
    ]
}

/// Samples that it takes for so many beyond a percentile.
fn count_needed(beyond: f64) -> u64 {
    (BEYOND_MIN as f64 / beyond).round() as u64
}

/// The same with two digits, never less: a run as long as is said is long enough.
fn rounded_up(seconds: f64) -> f64 {
    let unit = 10f64.powf(seconds.log10().floor() - 1.0);
    significant((seconds / unit - 1e-9).ceil() * unit, 2)
}

/// Of the response times: the percentiles that the run is too short for, and what they take.
pub fn request_needs(measurement: &Measurement, run: &RunReport) -> BTreeMap<String, PercentileNeed> {
    let seconds: Vec<u64> =
        measurement.measured().filter_map(|second| Some(second.response_time.as_ref()?.max_us)).collect();
    unsupported(&run.response_time_us, &seconds, run.elapsed_s)
}

/// Of times that were measured for so long, with the longest one of each second that has some.
pub(crate) fn unsupported(dist: &Dist, seconds: &[u64], elapsed_s: f64) -> BTreeMap<String, PercentileNeed> {
    let mut needs = BTreeMap::new();
    for (name, beyond, value) in named(dist) {
        let Some(value) = value else { continue };
        let count = count_needed(beyond);
        let reaching = seconds.iter().filter(|max| **max >= value).count();
        if dist.count >= count && reaching >= SECONDS_MIN {
            continue;
        }
        let by_count = count as f64 / dist.count as f64;
        let by_seconds = SECONDS_MIN as f64 / reaching.max(1) as f64;
        let elapsed_s = (elapsed_s * by_count.max(by_seconds)).max(SECONDS_MIN as f64);
        let elapsed_s = rounded_up(elapsed_s);
        needs.insert(name.to_owned(), PercentileNeed { count, seconds: SECONDS_MIN as u64, elapsed_s });
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::histogram::TimeHistogram;
    use webdyno_model::interval::Interval;

    /// Seconds of so many answers of about a millisecond, of which so many took 50 ms.
    fn needs(seconds: &[(u64, u64)]) -> Vec<(String, u64, f64)> {
        let second = |(index, &(completed, slow)): (usize, &(u64, u64))| {
            let mut times = TimeHistogram::new();
            (0..completed - slow).for_each(|number| times.record(900 + number % 200));
            (0..slow).for_each(|_| times.record(50_000));
            let (t_s, length_us, response_time) = (index as f64, 1_000_000, times.encode());
            Interval { t_s, length_us, completed, response_time, ..Interval::default() }
        };
        let intervals = seconds.iter().enumerate().map(second).collect();
        let run =
            crate::run_report::run_report(&Measurement { intervals, ..Measurement::default() }).unwrap();
        assert_eq!(run.unsupported_percentiles, run.percentiles_need.keys().cloned().collect::<Vec<_>>());
        run.percentiles_need.into_iter().map(|(name, need)| (name, need.count, need.elapsed_s)).collect()
    }

    #[test]
    fn each_percentile_needs_its_samples() {
        let p999 = |elapsed_s| ("p999".to_owned(), 10_000, elapsed_s);
        assert_eq!(needs(&[(1000, 0); 10]), []);
        assert_eq!(needs(&[(999, 0); 10]), [p999(11.0)]);
        assert_eq!(needs(&[(100, 0); 10]), [p999(100.0)]);
        assert_eq!(needs(&[(99, 0); 10]), [("p99".into(), 1000, 11.0), p999(110.0)]);
        assert_eq!(needs(&[(2, 0); 5]).len(), 6);
        assert_eq!(needs(&[]), []);
    }

    #[test]
    fn one_stall_is_one_observation() {
        let mut stalled = [(2000, 0); 10];
        stalled[4].1 = 100;
        assert_eq!(needs(&stalled), [("p999".into(), 10_000, 30.0)]);
        (stalled[5].1, stalled[6].1) = (100, 100);
        assert_eq!(needs(&stalled), []);
        // A run of one second has seen one state of the server.
        let all: Vec<String> = needs(&[(50_000, 0)]).into_iter().map(|(name, _, _)| name).collect();
        assert_eq!(all, ["p50", "p75", "p90", "p95", "p99", "p999"]);
    }
}

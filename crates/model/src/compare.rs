//! A comparison of two measurements, figure by figure, as docs/contract.md fixes it.

use crate::tune::Verdict;
use serde::{Deserialize, Serialize};

/// The schema of [`CompareReport`].
pub const SCHEMA: &str = "webdyno/compare/v1";

/// What `webdyno compare` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run directory of A.
    pub a: String,
    /// The run directory of B: the same one where a tuning's baseline is compared with its best load.
    pub b: String,
    /// Which load of A's session, from 1.
    pub a_load: u32,
    /// Which load of B's session.
    pub b_load: u32,
    /// Whether nothing but the server differs, as far as the recordings tell.
    pub comparable: bool,
    /// What differs besides the server.
    pub differences: Vec<Difference>,
    /// The figures; the first one is the rate.
    pub metrics: Vec<ComparedMetric>,
    /// How many valid runs of A's load the figures are of: of `run --repeat N` their means, where the intervals rest on runs.
    #[serde(default = "one")]
    pub a_runs: u32,
    /// The same of B.
    #[serde(default = "one")]
    pub b_runs: u32,
    /// What the intervals rest on.
    #[serde(default)]
    pub intervals_from: IntervalBasis,
    /// By how much a figure may be worse, as a share; `None` without `--max-regression`.
    pub max_regression: Option<f64>,
    /// The names of the figures that are worse by more than that, with their whole interval.
    pub regressions: Vec<String>,
}

fn one() -> u32 {
    1
}

/// What intervals rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalBasis {
    /// How the seconds of one run differ on either side: what changes from run to run is not in them.
    #[default]
    Seconds,
    /// How the runs of either side differ, three or more valid ones of each.
    Runs,
}

/// Something in which two loads differ besides the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `url`, `requests`, `sessions`, `concurrency`, `stages`, `keepalive`, `conditions`, `transport`, `server`, `generator`, `validity`.
    pub what: String,
    /// What it was in A; `None` where that cannot be told in a line.
    pub a: Option<String>,
    /// What it was in B.
    pub b: Option<String>,
}

/// One figure of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// `rate`, `page_rate`, `p50_us`, `p90_us`, `p99_us`, `page_p50_us`, ..., `failed_fraction`, `cpu_per_request_us`.
    pub name: String,
    /// Per second, microseconds, or a share, as the name says.
    pub a: Option<f64>,
    /// The same of B.
    pub b: Option<f64>,
    /// B divided by A; `None` where that cannot be told.
    pub ratio: Option<f64>,
    /// 95% interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// What it says of B.
    pub verdict: Verdict,
    /// The smallest change that was believed to be one, as a share.
    pub noise_floor: f64,
}

impl ComparedMetric {
    /// Whether less of it is better.
    pub fn is_lower_better(&self) -> bool {
        !self.name.ends_with("rate")
    }

    /// Whether it is worse by more than this share, with its whole interval: of rates B / A lies below one less the share, of
    /// times and failures above one and the share. What is worse and has no ratio (nothing is served any more, something fails
    /// where nothing failed) is worse by more than any share.
    pub fn is_regression(&self, max_regression: f64) -> bool {
        let is_beyond = |[low, high]: [f64; 2]| match self.is_lower_better() {
            true => low > 1.0 + max_regression,
            false => high < 1.0 - max_regression,
        };
        self.verdict == Verdict::Worse && self.ci95.is_none_or(is_beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_lies_beyond_the_bound_with_its_whole_interval() {
        use Verdict::{Inconclusive, Same, Worse};
        for (name, ci95, verdict, expected) in [
            ("rate", Some([0.80, 0.94]), Worse, true),
            ("rate", Some([0.80, 0.96]), Worse, false),
            ("page_rate", Some([0.80, 0.94]), Worse, true),
            ("rate", None, Worse, true),
            ("rate", None, Inconclusive, false),
            ("p99_us", Some([1.06, 1.4]), Worse, true),
            ("p99_us", Some([1.04, 1.4]), Worse, false),
            // Within its noise.
            ("p99_us", Some([1.06, 1.09]), Same, false),
            ("failed_fraction", None, Worse, true),
            ("failed_fraction", Some([1.01, 1.04]), Worse, false),
        ] {
            let metric = ComparedMetric {
                name: name.into(),
                a: None,
                b: None,
                ratio: None,
                ci95,
                verdict,
                noise_floor: 0.03,
            };
            assert_eq!(metric.is_regression(0.05), expected, "{metric:?}");
        }
    }
}

//! Distributions of times, and what a percentile needs to mean something.

use serde::{Deserialize, Serialize};

/// A distribution of times in microseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it all
pub struct Dist {
    pub count: u64,
    pub min: Option<u64>,
    pub mean: Option<f64>,
    pub stdev: Option<f64>,
    pub p50: Option<u64>,
    pub p75: Option<u64>,
    pub p90: Option<u64>,
    pub p95: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
}

/// What a percentile takes to mean something.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileNeed {
    /// Answers.
    pub count: u64,
    /// Seconds in which answers beyond it lie.
    pub seconds: u64,
    /// How long the measured part would have to be for both, as things went.
    pub elapsed_s: f64,
}

impl PercentileNeed {
    /// Answers that must lie beyond a percentile.
    pub const BEYOND_MIN: u64 = 10;
    /// Seconds of the run in which some of them must lie.
    pub const SECONDS_MIN: usize = 3;
}

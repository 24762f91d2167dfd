//! The same load made several times: what each run gave, and how far they lie apart.

use serde::{Deserialize, Serialize};

/// Several runs of one load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Repeats {
    /// The run that everything else in the report is of: of those that are valid, the one whose rate is the median (of an
    /// even number the lower one of the two in the middle). Numbered from 1.
    pub chosen: u32,
    /// Each run that came to its end, in order.
    pub runs: Vec<RepeatedRun>,
    /// Of the successful requests per second.
    pub rate: Option<Spread>,
    /// Of the median response times.
    pub p50_us: Option<Spread>,
    /// Of the 99th percentiles.
    pub p99_us: Option<Spread>,
    /// Of the completed pages per second; `None` without pages, as the next two.
    #[serde(default)]
    pub page_rate: Option<Spread>,
    /// Of the median page times.
    #[serde(default)]
    pub page_p50_us: Option<Spread>,
    /// Of their 99th percentiles.
    #[serde(default)]
    pub page_p99_us: Option<Spread>,
}

/// One of several runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RepeatedRun {
    /// Its number, from 1.
    pub run: u32,
    /// Successful requests per second.
    pub rate: Option<f64>,
    /// Median response time.
    pub p50_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Requests that failed.
    pub failed: u64,
    /// Seconds cut from its start as warm-up.
    pub warmup_s: f64,
    /// Whether its figures may be believed.
    pub valid: bool,
    /// Why not.
    #[serde(default)]
    pub why: Option<String>,
    /// Completed pages per second; `None` without pages, as the next two.
    #[serde(default)]
    pub page_rate: Option<f64>,
    /// Median page time.
    #[serde(default)]
    pub page_p50_us: Option<u64>,
    /// Its 99th percentile.
    #[serde(default)]
    pub page_p99_us: Option<u64>,
}

/// How far a figure differs from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median of the runs.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Largest less smallest, as a share of the median.
    pub relative: Option<f64>,
    /// Arithmetic mean.
    pub mean: f64,
    /// 95% interval of the mean (Student); `None` for a single run.
    pub ci95: Option<[f64; 2]>,
}

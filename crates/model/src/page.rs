//! What was measured of pages and visits.

use crate::distribution::{Dist, PercentileNeed};
use crate::histogram::EncodedHistogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The pages of one second. A page counts in the interval in which it ended; started = completed + failed + in flight
/// over the whole load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PageInterval {
    /// Whose intended start fell into it.
    pub started: u64,
    /// With all their required parts.
    pub completed: u64,
    /// Without one of them.
    pub failed: u64,
    /// Started and not ended, at its end.
    pub in_flight: u64,
    /// From the intended start to the end of the last part, of completed pages.
    pub time: Option<EncodedHistogram>,
    /// By name of the page.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_name: BTreeMap<String, NamedPageInterval>,
    /// The slowest page, and one that took about as long as pages usually do: at most one of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<PageTrace>,
}

/// One page's share of an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // as PageInterval
pub struct NamedPageInterval {
    pub completed: u64,
    pub failed: u64,
    pub time: Option<EncodedHistogram>,
}

/// What a trace stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceKind {
    /// The slowest one.
    #[default]
    Slowest,
    /// One near the median.
    Typical,
}

/// How one page went, part by part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageTrace {
    /// What it stands for.
    pub kind: TraceKind,
    /// Name of the page.
    pub name: String,
    /// From the intended start to the end of its last part.
    pub time_us: u64,
    /// Whether it failed.
    pub failed: bool,
    /// The document first; the others in the order in which they were asked for.
    pub parts: Vec<PartTrace>,
}

/// One part of a page; times since the intended start of the page.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartTrace {
    /// Path of its URL (the whole of it when it is another server's), secrets replaced.
    pub name: String,
    /// When it could have been asked for: it was known.
    pub known_us: u64,
    /// When its first byte was sent; `None` when it never was.
    pub sent_us: Option<u64>,
    /// When the first byte of the answer came.
    pub first_byte_us: Option<u64>,
    /// When it ended.
    pub ended_us: u64,
    /// Status of the answer; `None` without one.
    pub status: Option<u16>,
    /// Bytes of the answer, head included.
    pub bytes: u64,
    /// How it was fetched.
    pub by: FetchedBy,
    /// Class of its failure, as in the errors of a run; `None` for a successful request.
    pub failure: Option<String>,
}

/// How a part was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchedBy {
    /// On a connection that was opened for it.
    #[default]
    NewConnection,
    /// On a kept connection.
    KeptConnection,
    /// The cache had it, and nothing was sent.
    Cache,
}

/// What visitors did in an interval, or a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VisitCounts {
    /// Sessions begun.
    pub sessions_started: u64,
    /// Sessions of which every step was taken.
    pub sessions_completed: u64,
    /// Sessions that ended with steps skipped.
    pub sessions_broken: u64,
    /// Steps skipped, as a value that they need was never captured, or leads to a server that is not loaded.
    pub steps_skipped: u64,
    /// Of these, those whose link leads to a server that is not loaded, by server; many of them under `(other)`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links_not_loaded: BTreeMap<String, u64>,
    /// Captures that matched nothing, by `STEP: NAME`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub captures_missed: BTreeMap<String, u64>,
    /// Answers taken from a cache without asking.
    pub cache_hits: u64,
    /// Answers that the server confirmed (304).
    pub cache_confirmed: u64,
    /// Visitors that are there, at the end of the interval.
    pub visitors: u64,
}

impl VisitCounts {
    /// More servers than this are not told apart.
    const SERVERS_MAX: usize = 16;

    /// Counts steps whose link leads to a server that is not loaded.
    pub fn add_not_loaded(&mut self, server: &str, steps: u64) {
        let servers = &mut self.links_not_loaded;
        let known = servers.contains_key(server) || servers.len() < Self::SERVERS_MAX;
        *servers.entry(if known { server } else { "(other)" }.to_owned()).or_default() += steps;
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another interval's counts; of `visitors` the later ones count.
    pub fn add(&mut self, later: &Self) {
        self.sessions_started += later.sessions_started;
        self.sessions_completed += later.sessions_completed;
        self.sessions_broken += later.sessions_broken;
        self.steps_skipped += later.steps_skipped;
        for (name, count) in &later.captures_missed {
            *self.captures_missed.entry(name.clone()).or_default() += count;
        }
        for (server, steps) in &later.links_not_loaded {
            self.add_not_loaded(server, *steps);
        }
        self.cache_hits += later.cache_hits;
        self.cache_confirmed += later.cache_confirmed;
        self.visitors = later.visitors;
    }
}

/// The pages of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PageReport {
    /// started = completed + failed + in flight at the end.
    pub started: u64,
    /// With all their required parts.
    pub completed: u64,
    /// Without one of them.
    pub failed: u64,
    /// Neither, when the load ended.
    pub in_flight_at_end: u64,
    /// Completed pages per second.
    pub rate: Option<f64>,
    /// Of completed pages.
    pub time_us: Dist,
    /// Percentiles of it that the run is too short for.
    pub unsupported_percentiles: Vec<String>,
    /// What each of those takes, in pages.
    pub percentiles_need: BTreeMap<String, PercentileNeed>,
    /// By name.
    pub by_name: BTreeMap<String, NamedPageReport>,
    /// The page nearest to the median.
    pub median_page: Option<PageTrace>,
    /// The slowest page.
    pub slowest_page: Option<PageTrace>,
}

/// One page's figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // as PageReport
pub struct NamedPageReport {
    pub completed: u64,
    pub failed: u64,
    pub rate: Option<f64>,
    pub time_us: Dist,
}

/// The same pages without their resources, beside those with them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ablation {
    /// What was left out: `resources`.
    pub without: String,
    /// How many loads of each kind were made, in turns; of several the figures are means.
    pub runs: u32,
    /// What the difference says of the server, in a sentence.
    pub means: String,
    /// The figures of both, by name.
    pub figures: Vec<AblationFigure>,
}

/// One figure of both loads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AblationFigure {
    /// As `pages/s`.
    pub name: String,
    /// Its unit: `1/s`, `us`, `bytes/s`, ...
    pub unit: String,
    /// With everything.
    pub with: Option<f64>,
    /// Without it.
    pub without: Option<f64>,
    /// `without / with`.
    pub ratio: Option<f64>,
    /// 95% confidence interval of the ratio, where it has one.
    pub ci95: Option<[f64; 2]>,
}

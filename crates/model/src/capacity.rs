//! Capacity: the highest load that meets the objectives, and the steps that led to it, as docs/contract.md fixes them.

use crate::environment::Environment;
use crate::objective::Objective;
use serde::{Deserialize, Serialize};

/// The schema of [`CapacityReport`].
pub const SCHEMA: &str = "webdyno/capacity/v1";

/// What a load is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadUnit {
    /// Requests per second, open loop.
    #[default]
    RequestsPerSecond,
    /// Pages per second, open loop.
    PagesPerSecond,
    /// Users at once, with their think time.
    Users,
}

impl LoadUnit {
    /// As figures have it: `req/s`, `pages/s`, `users`.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "req/s",
            Self::PagesPerSecond => "pages/s",
            Self::Users => "users",
        }
    }
}

/// One load of the search.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CapacityStep {
    /// Its number in the log.
    pub load: u32,
    /// What was offered: req/s, pages/s or users.
    pub offered: f64,
    /// Successful requests (pages) per second.
    pub rate: Option<f64>,
    /// Half answered within, in microseconds.
    pub p50_us: Option<u64>,
    /// 99% answered within, in microseconds.
    pub p99_us: Option<u64>,
    /// Requests that failed.
    pub errors: Option<u64>,
    /// Whether all objectives were met; `None` where the step did not decide.
    pub met: Option<bool>,
    /// The objective that was missed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// How long it measured, seconds.
    pub measured_s: f64,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<String>,
}

/// The capacity of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CapacityReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// What `rate` counts.
    pub unit: LoadUnit,
    /// The highest load that met the objectives, or where the fit of all steps meets them just so, when slow requests come by chance; `None`
    /// where the lowest load missed them.
    pub rate: Option<f64>,
    /// The highest load that surely meets them, and the lowest that surely misses them; the 95% interval of the fit, when it is one.
    pub ci95: Option<[f64; 2]>,
    /// What they were.
    pub objectives: Vec<Objective>,
    /// The objective that was missed beyond it.
    pub limited_by: Option<String>,
    /// Where more load begins to cost response time instead of giving more; `None` where no knee was seen.
    pub knee: Option<f64>,
    /// Why the load generator was the limit; then `rate` is only what was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// Id of the finding at the knee.
    pub bottleneck: Option<String>,
    /// Its summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck_summary: Option<String>,
    /// In order of time.
    pub steps: Vec<CapacityStep>,
    /// What a reader should know. Sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The machine of the server; `None` without an agent.
    pub environment: Option<Environment>,
}

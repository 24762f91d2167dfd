//! Curves: the points of a sweep, the scaling law behind them, plateau and choice, as docs/contract.md fixes them. Also what `fit`
//! makes of points that were measured elsewhere.

use crate::environment::Environment;
use crate::objective::Objective;
use crate::setting::SettingId;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// The schema of [`SweepReport`].
pub const SCHEMA: &str = "webdyno/sweep/v1";

/// What a point was measured at: a value of each knob, in the order of [`SweepReport::knobs`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KnobValue {
    /// A number: workers, users, processors, bytes of memory.
    Number(f64),
    /// A word: `on`, `event`, `cgi`.
    Word(String),
}

impl KnobValue {
    /// The number; `None` of words.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }
}

/// What is varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    /// As the user wrote it: `MaxRequestWorkers`, `users`, `cpus`.
    pub name: String,
    /// The setting of the server; `None` where the load or its content is varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<SettingId>,
    /// `B` for memory, `req/s` for a rate; `None` for counts and words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// What a sweep is about: what a session that goes on with an interrupted one has to have in common with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPlan {
    /// What is varied.
    pub knobs: Vec<Knob>,
    /// The values of each knob as they were asked for: `16..256`, `on,off`.
    pub ranges: Vec<String>,
    /// What a point has to meet to be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<Objective>,
    /// What is sent, without secrets; what a knob varies stands as it does without it.
    pub workload: Workload,
    /// Loads of each point.
    pub repeat: u32,
    /// Decides the order of the points.
    pub seed: u64,
    /// The value of each setting at the start, which is in force again at the end; `None` for knobs of the load.
    pub original: Vec<Option<KnobValue>>,
}

/// A load at one point; several of one point are its repeats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SweepLoad {
    /// Its number in the log; `None` of points that were measured elsewhere.
    pub load: Option<u32>,
    /// Successful requests per second.
    pub rate: Option<f64>,
    /// 99% answered within, in microseconds.
    pub p99_us: Option<u64>,
    /// Why it does not count: stolen or throttled time, a generator that was the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<String>,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Of the first knob; `None` where it is a word (see `values`).
    pub value: Option<f64>,
    /// Of all knobs, in their order.
    pub values: Vec<KnobValue>,
    /// Mean of the repeats, successful requests per second.
    pub rate: Option<f64>,
    /// 95% interval of it, from the repeats; of a single load from its seconds.
    pub ci95: Option<[f64; 2]>,
    /// Median of the repeats: half answered within, in microseconds.
    pub p50_us: Option<u64>,
    /// 99% answered within, in microseconds.
    pub p99_us: Option<u64>,
    /// Requests that failed, of all repeats.
    pub errors: Option<u64>,
    /// Memory of the server's processes (PSS), bytes.
    pub memory_bytes: Option<u64>,
    /// Share of the processors that were busy, 0 to 1.
    pub cpu_fraction: Option<f64>,
    /// The loads, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<SweepLoad>,
    /// The first objective that most of its loads missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// Why nothing was measured here: the server failed, or the value could not be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The universal scalability law (Gunther): X(N) = lambda N / (1 + sigma (N-1) + kappa N (N-1)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingLaw {
    /// Rate at N = 1.
    pub lambda: f64,
    /// Contention: the share that is serial.
    pub sigma: f64,
    /// Coherency: the cost of agreeing with one another.
    pub kappa: f64,
    /// Where the rate is highest: sqrt((1 - sigma) / kappa); `None` where it has no peak (kappa = 0).
    pub n_star: Option<f64>,
    /// 95% bootstrap interval of it.
    pub n_star_ci95: Option<[f64; 2]>,
    /// The rate there.
    pub peak_rate: Option<f64>,
    /// 95% bootstrap interval of it.
    pub peak_rate_ci95: Option<[f64; 2]>,
    /// Standard deviation of the residuals, req/s.
    pub residual_sd: f64,
    /// The largest N for which it may be used: twice the largest that was measured.
    pub valid_to: f64,
    /// Curve for plots: N, rate, and the 95% band of the rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<LawPoint>,
}

/// The law at one N.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawPoint {
    /// N.
    pub value: f64,
    /// Rate by the law.
    pub rate: f64,
    /// 95% bootstrap band.
    pub ci95: Option<[f64; 2]>,
}

/// A curve and what it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the first knob.
    pub knob: String,
    /// All knobs; empty where the points were measured elsewhere.
    #[serde(default)]
    pub knobs: Vec<Knob>,
    /// In order of their values.
    pub points: Vec<SweepPoint>,
    /// Smallest and largest value whose rate is within 1% of the peak; `None` where that cannot be told.
    pub plateau: Option<[f64; 2]>,
    /// The smallest value of the plateau: least memory for the same rate.
    pub choice: Option<f64>,
    /// Of knobs that are words, or of several knobs: the values of the best point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Vec<KnobValue>>,
    /// Why the choice, or the best point, is not sure; `None` where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsure: Option<String>,
    /// What a point had to meet to be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<Objective>,
    /// The law; `None` where the data cannot tell.
    pub usl: Option<ScalingLaw>,
    /// Why there is no law, no plateau, or an uncertain one; what to measure instead. Sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The value at the start, which is in force again at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<KnobValue>,
    /// The machine of the server; `None` of points that were measured elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
}

//! Curves: the points of a sweep, the scaling law behind them, plateau and choice, as docs/contract.md fixes them. Also what `fit`
//! makes of points that were measured elsewhere.

use crate::environment::Environment;
use crate::harm_guard::HarmCause;
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
    /// What a study adds to that: several knobs, some of them contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyPlan>,
}

/// What a study file says beside its knobs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyPlan {
    /// The levels of each knob, in the order of the file.
    pub levels: Vec<Vec<KnobValue>>,
    /// What the levels of `content` send, in their order, without secrets.
    pub contents: Vec<StudyContent>,
    /// The files that a cold page cache holds nothing of, on the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub page_cache_paths: Vec<String>,
}

/// A level of the axis `content`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyContent {
    /// As the file names it.
    pub name: String,
    /// What is sent, without secrets; what a knob varies stands as it does without it.
    pub workload: Workload,
    /// Mean size of the files that its URLs name, of one that follows the axis `store`; bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_size_bytes: Option<u64>,
}

/// The axis of a study whose levels are workloads.
pub const CONTENT: &str = "content";
/// The axis of a study that says how much of the file store is asked for.
pub const STORE: &str = "store";
/// The axis of a study that says what the page cache holds when a load begins.
pub const PAGE_CACHE: &str = "page_cache";
/// Stands for the level of an axis that a content does not follow.
pub const NOT_FOLLOWED: &str = "-";

/// What of the files under load the page cache holds when a load begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// Nothing: it was dropped.
    Cold,
    /// What fits: all was read just before.
    Warm,
    /// What the load before left.
    AsIs,
}

impl PageCache {
    /// Each with its word.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Cold, "cold"), (Self::Warm, "warm"), (Self::AsIs, "as-is")];

    /// The state of a word; `None` for other words.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == word).map(|(state, _)| state)
    }
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
    /// The harm for which a load of it was stopped; `None` where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harm: Option<HarmCause>,
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// What each axis of a study does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyReport>,
}

/// What each axis of a study does to the rate, and what they do together. Ratios of geometric means over matched points.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyReport {
    /// What was varied, in the order of the file.
    pub axes: Vec<StudyAxis>,
    /// From one level to another, of each content by itself: over all other axes, at each of their levels, and at each point; of
    /// the axis `content` one content against another.
    pub effects: Vec<Effect>,
    /// Where the effect of an axis is another one at another level of a second axis.
    pub interactions: Vec<Interaction>,
}

/// An axis of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyAxis {
    /// `memory`, `content`.
    pub name: String,
    /// Its levels, in the order of the file.
    pub levels: Vec<KnobValue>,
}

/// A level of an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AxisLevel {
    /// The axis.
    pub axis: String,
    /// The level.
    pub value: KnobValue,
}

/// The rate at one level of an axis, as a multiple of that at another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The axis.
    pub axis: String,
    /// The level that is 1.
    pub from: KnobValue,
    /// The other one.
    pub to: KnobValue,
    /// Levels of other axes at which this holds; axes that are not here are averaged over.
    pub at: Vec<AxisLevel>,
    /// Rate at `to` divided by that at `from`: geometric mean over pairs of points that differ in nothing else.
    pub ratio: f64,
    /// 95% interval of it, from how far repeats lie apart; `None` without repeats.
    pub ci95: Option<[f64; 2]>,
    /// Pairs of points that it is the mean of.
    pub pairs: u32,
}

/// The effect of an axis at one level of a second axis, as a multiple of its effect at another level of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    /// The axis.
    pub axis: String,
    /// From this level of it ..
    pub from: KnobValue,
    /// .. to that.
    pub to: KnobValue,
    /// The second axis.
    pub second: String,
    /// The level of the second axis that is 1.
    pub second_from: KnobValue,
    /// Its other one.
    pub second_to: KnobValue,
    /// Levels of other axes at which this holds; axes that are not here are averaged over.
    pub at: Vec<AxisLevel>,
    /// Effect at `second_to` divided by that at `second_from`: a ratio of ratios.
    pub ratio: f64,
    /// 95% interval of it; `None` without repeats.
    pub ci95: Option<[f64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A point of a recording of before `harm`, which is read as one that did none; of other points its key is left out.
    #[test]
    fn points_without_harm_are_read_and_written() {
        let old = r#"{"value":40.0,"values":[40.0],"rate":null,"ci95":null,"p50_us":null,"p99_us":null,
            "errors":3,"memory_bytes":null,"cpu_fraction":null,"failed":"the load was stopped: swapping: it swaps"}"#;
        let mut point: SweepPoint = serde_json::from_str(old).unwrap();
        assert_eq!((point.harm, point.errors), (None, Some(3)));
        assert!(serde_json::to_value(&point).unwrap().get("harm").is_none());
        point.harm = Some(HarmCause::OutOfMemory);
        assert_eq!(serde_json::to_value(&point).unwrap()["harm"], "out_of_memory");
    }
}

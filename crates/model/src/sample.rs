//! Samples: readings of a host, and the catalogue that says what each value is and how to read it by hand.

use crate::number::Number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One reading of one collector. Values that could not be read are missing, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the collector, such as `cpu`.
    pub source: String,
    /// How long reading took.
    pub duration_us: u64,
    /// Values by metric name, such as `cpu.idle_s`.
    pub values: BTreeMap<String, Number>,
    /// Why there are no values, or why some are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a collector reads, written to the log once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectorInfo {
    /// Name of the collector.
    pub name: String,
    /// Its metrics.
    pub metrics: Vec<Metric>,
}

/// One value that a collector reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `collector.what_unit`.
    pub name: String,
    /// `s`, `us`, `bytes`, `count`, ...
    pub unit: String,
    /// How to combine readings.
    pub kind: MetricKind,
    /// Where it is read: `/proc/stat`, `mod_status`, ...
    pub source: String,
    /// A shell command that shows the same figure by hand.
    pub reproduce: String,
}

/// How readings of a metric combine over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// A level: means and extremes make sense.
    Gauge,
    /// A total that rises: only differences make sense.
    Counter,
}

/// A signal that could not be read, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which signal: `mod_status`.
    pub signal: String,
    /// Why it is missing.
    pub why: String,
    /// What the operator can do to have it.
    pub how_to_enable: String,
}

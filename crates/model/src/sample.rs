//! Samples: readings of a host, and the catalogue that says what each value is and how to read it by hand.

use crate::number::Number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One reading of one collector. Values that could not be read are missing, never zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the collector, such as `cpu`.
    pub source: String,
    /// How long reading took.
    pub duration_us: u64,
    /// How long after its turn reading began; `None` in recordings of before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_us: Option<u64>,
    /// Values by metric name, such as `cpu.idle_s`.
    pub values: BTreeMap<String, Number>,
    /// Why there are no values, or why some are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Signals that this collector could give and does not, each with why and what helps; `None` when they are those of
    /// its sample before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<MissingSignal>>,
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Metric {
    /// `collector.what_unit`, or `collector.*.what_unit` for what there are several of: in readings the name of the disk,
    /// interface, pool.. stands for the star, in the command it stands for the word INSTANCE. It may hold dots.
    pub name: String,
    /// `s`, `us`, `bytes`, `count`, ...
    pub unit: String,
    /// How to combine readings.
    pub kind: MetricKind,
    /// Where it is read: `/proc/stat`, `mod_status`, ...
    pub source: String,
    /// A shell command that shows the same figure by hand.
    pub reproduce: String,
    /// Whether readings leave it out while it is as it was told last. The first reading tells all, zeros included, and
    /// all is told again at least every [`FORWARD_FILL_READINGS_MAX`] readings and beside any error; absent from a reading without
    /// error it is unchanged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_change: bool,
}

/// After so many readings a collector tells again what did not change.
pub const FORWARD_FILL_READINGS_MAX: u64 = 60;

impl Metric {
    /// Whether this describes the values of that name.
    pub fn describes(&self, name: &str) -> bool {
        self.name == name || self.instance(name).is_some()
    }

    /// What stands for the star in the name of a value; `None` when this is not one of several, or does not describe it.
    pub fn instance<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (before, after) = self.name.split_once('*')?;
        let instance = name.strip_prefix(before)?.strip_suffix(after)?;
        (!instance.is_empty()).then_some(instance)
    }
}

/// How readings of a metric combine over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// A level: means and extremes make sense.
    #[default]
    Gauge,
    /// A total that rises: only differences make sense.
    Counter,
}

/// A signal that could not be read, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingSignal {
    /// Which signal: `mod_status`.
    pub signal: String,
    /// Why it is missing.
    pub why: String,
    /// What the operator can do to have it.
    pub how_to_enable: String,
}

impl MissingSignal {
    /// A signal that could not be read, why, and what helps.
    pub fn new(signal: impl Into<String>, why: impl Into<String>, how_to_enable: impl Into<String>) -> Self {
        Self { signal: signal.into(), why: why.into(), how_to_enable: how_to_enable.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_metric_describes_the_values_of_all_instances() {
        for (metric, value, instance, describes) in [
            ("disk.*.read_bytes", "disk.sda.read_bytes", Some("sda"), true),
            ("nic.*.received_bytes", "nic.eth0.100.received_bytes", Some("eth0.100"), true),
            ("disk.*.read_bytes", "disk..read_bytes", None, false),
            ("disk.*.read_bytes", "disk.read_bytes", None, false),
            ("cpu.idle_s", "cpu.idle_s", None, true),
            ("cpu.idle_s", "cpu.busy_s", None, false),
        ] {
            let metric = Metric { name: metric.into(), ..Metric::default() };
            assert_eq!((metric.instance(value), metric.describes(value)), (instance, describes), "{value}");
        }
    }
}

//! What an observation amounts to: the hosts, their services, and every metric of the catalogue with its value, or with
//! the reason why there is none. The shape is that of docs/contract.md.

use crate::environment::Environment;
use crate::number::Number;
use crate::sample::{MetricKind, MissingSignal};
use crate::topology::Topology;
use serde::{Deserialize, Serialize};

/// The schema of [`Observation`].
pub const SCHEMA: &str = "webdyno/observe/v1";

/// An observation, as it stood at its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Wall clock of the last reading, RFC 3339.
    pub taken_at: String,
    /// Seconds between the first reading and the last one: rates and means are over them.
    pub window_s: f64,
    /// The host that was observed; of several the one under load.
    #[serde(flatten)]
    pub observed: ObservedHost,
    /// The other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ObservedHost>,
    /// What went wrong meanwhile.
    pub incidents: Vec<ObservedIncident>,
}

/// One host of an observation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ObservedHost {
    /// Its role among several hosts; `None` for the one under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The machine.
    pub host: Environment,
    /// Its services and who talks to whom.
    pub services: Topology,
    /// Every metric of the catalogue; of several things of a kind one for each.
    pub facts: Vec<ObservedFact>,
    /// Every collector, and how its readings went.
    pub collectors: Vec<CollectorState>,
    /// Signals that could not be had, each once.
    pub missing: Vec<MissingSignal>,
}

/// One metric as it was read last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedFact {
    /// `cpu.idle_s`, `disk.sda.read_bytes`; with a star in place of the name where there is none of it.
    pub name: String,
    /// As it was read last; `None` when it was not.
    pub value: Option<Number>,
    /// `s`, `us`, `bytes`, `count`, ...
    pub unit: String,
    /// Level or total.
    pub kind: MetricKind,
    /// By how much a total rose per second, over the window; `None` for levels, and of totals that were read once or set
    /// back.
    pub rate_per_s: Option<Number>,
    /// Mean of a level over the window; `None` for totals.
    pub mean: Option<Number>,
    /// Its smallest reading.
    pub min: Option<Number>,
    /// Its largest reading.
    pub max: Option<Number>,
    /// Where it is read.
    pub source: String,
    /// A shell command that shows the same figure by hand.
    pub reproduce: String,
    /// Why there is no value.
    pub why: Option<String>,
    /// What the operator can do to have it.
    pub how_to_enable: Option<String>,
}

/// How the readings of one collector went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CollectorState {
    /// `cpu`.
    pub name: String,
    /// How long its last reading took; `None` when none came.
    pub duration_us: Option<u64>,
    /// How long the longest one took.
    pub duration_us_max: Option<u64>,
    /// How long after its turn the last reading began.
    pub late_us: Option<u64>,
    /// The worst of that.
    pub late_us_max: Option<u64>,
    /// Readings that came.
    pub readings: u64,
    /// Those of them at which something went wrong.
    pub failed: u64,
    /// Whether a reading came and nothing went wrong at the last one. Nothing to read is no failure.
    pub success: bool,
    /// What went wrong at the last reading at which something did.
    pub error: Option<String>,
}

/// Something that went wrong while a host was watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObservedIncident {
    /// Wall clock, RFC 3339.
    pub at: String,
    /// Seconds since the session began.
    pub t_s: u64,
    /// The role of the host; `None` for the one under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The metric that showed it.
    pub metric: String,
    /// What went wrong, in words, with the figure.
    pub what: String,
}

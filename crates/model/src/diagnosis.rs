//! The diagnosis: facts, findings that cite them, and remedies. The shapes are those of docs/contract.md.

use crate::change::{ApplyClass, SettingChange};
use crate::environment::Environment;
use crate::fact::Fact;
use crate::live_traffic::LiveTraffic;
use crate::page::AblationFigure;
use crate::processor_time::ProcessorTime;
use crate::purpose::Purpose;
use crate::run::RunReport;
use crate::sample::MissingSignal;
use crate::service::SettingValue;
use crate::setting::{SettingId, Target};
use crate::site::Site;
use serde::{Deserialize, Serialize};

/// The schema of [`Diagnosis`].
pub const SCHEMA: &str = "webdyno/diagnosis/v1";
/// The schema of a [`Diagnosis`] without traffic, which has no `run`.
pub const CHECK_SCHEMA: &str = "webdyno/check/v1";

/// A named bottleneck.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Stable id, such as `apache-workers-exhausted`.
    pub id: String,
    /// What limits and how we know, in a sentence or two.
    pub summary: String,
    /// How sure it is, 0 to 1.
    pub confidence: f64,
    /// The share of the lost time that it explains, 0 to 1; `None` when it loses none or it cannot be told.
    pub explains_fraction: Option<f64>,
    /// What it rests on.
    pub facts: Vec<Fact>,
    /// What can be done, the best first.
    pub remedies: Vec<Remedy>,
}

/// One way to lift a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// What is to be changed.
    #[serde(flatten)]
    pub setting: SettingId,
    /// The value in force.
    pub from: Option<SettingValue>,
    /// The proposed value; `None` where the value has to be chosen by the operator.
    pub to: Option<SettingValue>,
    /// How it takes effect.
    pub class: ApplyClass,
    /// What it may cost or break.
    pub risk: String,
    /// Why this value.
    pub why: String,
    /// What is expected to happen.
    pub predicted: Option<Predicted>,
    /// Settings that must move with it (ServerLimit with MaxRequestWorkers), also those of others that it will need (connections
    /// of the database for more workers).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together_with: Vec<SettingChange>,
}

impl Remedy {
    /// All changes of this remedy; none when only a person can do it. How a setting of the kernel takes effect is known
    /// where it is set: advice always calls it manual.
    pub fn setting_changes(&self) -> Vec<SettingChange> {
        let is_asked = matches!(self.setting.target, Target::Sysctl | Target::ProcessLimit(_));
        let is_manual = self.class == ApplyClass::Manual && !is_asked;
        let Some(to) = self.to.clone().filter(|_| !is_manual) else {
            return vec![];
        };
        let first = SettingChange { setting: self.setting.clone(), to };
        std::iter::once(first).chain(self.together_with.iter().cloned()).collect()
    }
}

/// A prediction with its 95% interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Successful requests per second.
    pub rate: f64,
    /// 95% interval.
    pub ci95: [f64; 2],
}

/// A limit and the rate at which it saturates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// `apache workers`.
    pub limit: String,
    /// Use now, in the unit of `max`.
    pub now: Option<f64>,
    /// The limit: connections, workers, cores, bits per second.
    pub max: Option<f64>,
    /// Rate of successful requests at which it saturates; `None` where use does not grow with the rate, where too little is used to say
    /// how, and without traffic.
    pub binds_at_rate: Option<f64>,
    /// 95% interval of that rate, where the readings tell one.
    #[serde(default)]
    pub binds_at_ci95: Option<[f64; 2]>,
    /// Whether it saturates so far beyond what the processors and the link allow that it is no concern.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remote: bool,
    /// Where the figures come from.
    pub source: String,
}

/// Where the mean response time goes, in microseconds; what cannot be told is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TimeBreakdown {
    /// Added by the generator.
    pub client: Option<f64>,
    /// Establishing connections, per request.
    pub connect: Option<f64>,
    /// Waiting for a worker.
    pub accept_queue: Option<f64>,
    /// In a worker.
    pub worker: Option<f64>,
    /// In what stands behind the worker.
    pub backend: Option<f64>,
    /// On the way.
    pub network: Option<f64>,
    /// The rest.
    pub unexplained: Option<f64>,
}

/// The limit that is expected after this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NextLimit {
    /// Id of the finding it would be.
    pub id: String,
    /// The rate of successful requests at which it saturates.
    pub rate: Option<f64>,
}

/// How a load fared with one thing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// More answers, or faster ones.
    Better,
    /// As many, as fast.
    Same,
    /// Fewer, or slower ones.
    Worse,
}

/// The same load with one thing changed, made to tell two explanations apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// What was changed.
    pub what: Purpose,
    /// Ids of the two findings.
    pub between: [String; 2],
    /// The figure that tells, `with` before and `without` after.
    pub figure: AblationFigure,
    /// How the load fared; `None` when the figure does not tell.
    pub outcome: Option<Outcome>,
    /// What that says of the two, in a sentence.
    pub means: String,
}

/// The whole diagnosis of one recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`SCHEMA`].
    pub schema: String,
    /// Id of the first finding: the answer.
    pub bottleneck: String,
    /// Ranked; never empty (`healthy` and `unknown` are findings too).
    pub findings: Vec<Finding>,
    /// What was tried to tell explanations apart, in order (`--disambiguate`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
    /// The lowest ceiling that is left when the first finding is lifted.
    pub next_limit: Option<NextLimit>,
    /// Limits before they are hit.
    pub ceilings: Vec<Ceiling>,
    /// Where the time goes.
    pub time_breakdown_us: TimeBreakdown,
    /// Where the processors' time goes; `None` where it was not sampled, or too little was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_time: Option<ProcessorTime>,
    /// Signals that were not there.
    pub missing: Vec<MissingSignal>,
    /// The load that was diagnosed; `None` without load of our own.
    pub run: Option<RunReport>,
    /// What other clients sent meanwhile; `None` when that is not known.
    #[serde(default)]
    pub live_traffic: Option<LiveTraffic>,
    /// What kind of site it is, as far as it can be told; `None` in diagnoses of before it was.
    #[serde(default)]
    pub site: Option<Site>,
    /// The machine of the server.
    pub environment: Environment,
}

/// What a check is written as: a diagnosis without its field `run`.
#[derive(Debug, Serialize)]
pub struct CheckOutput<'a> {
    schema: &'a str,
    bottleneck: &'a str,
    findings: &'a [Finding],
    next_limit: &'a Option<NextLimit>,
    ceilings: &'a [Ceiling],
    time_breakdown_us: &'a TimeBreakdown,
    missing: &'a [MissingSignal],
    live_traffic: &'a Option<LiveTraffic>,
    site: &'a Option<Site>,
    environment: &'a Environment,
}

impl<'a> CheckOutput<'a> {
    /// The same, borrowed.
    pub fn of(check: &'a Diagnosis) -> Self {
        Self {
            schema: &check.schema,
            bottleneck: &check.bottleneck,
            findings: &check.findings,
            next_limit: &check.next_limit,
            ceilings: &check.ceilings,
            time_breakdown_us: &check.time_breakdown_us,
            missing: &check.missing,
            live_traffic: &check.live_traffic,
            site: &check.site,
            environment: &check.environment,
        }
    }
}

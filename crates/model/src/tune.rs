//! Tuning: the goal, the rounds and their verdicts, as docs/contract.md fixes them.

use crate::change::{Change, ManagedFile};
use crate::diagnosis::{Ceiling, Predicted};
use crate::environment::Environment;
use crate::error::{Result, UserError};
use crate::harm_guard::HarmGuardTrip;
use crate::live_traffic::LiveTraffic;
use crate::run::RunReport;
use serde::{Deserialize, Serialize};

/// The schema of [`TuneReport`].
pub const SCHEMA: &str = "webdyno/tune/v1";

/// What the user wants to reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Goal {
    /// As fast as this hardware can.
    Max,
    /// Good answers per second.
    Rate(f64),
}

impl Goal {
    /// Reads `max`, `500 req/s`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            UserError::usage(format!("`{text}` is not a goal"))
                .hint("write --goal max, or a rate as in --goal '500 req/s'")
        };
        let text = text.trim();
        if text == "max" {
            return Ok(Self::Max);
        }
        let number =
            ["req/s", "requests/s"].iter().find_map(|unit| text.strip_suffix(unit)).ok_or_else(wrong)?;
        let rate: f64 = number.trim().parse().map_err(|_| wrong())?;
        if rate.is_finite() && rate > 0.0 { Ok(Self::Rate(rate)) } else { Err(wrong()) }
    }

    /// Whether a rate of good answers meets it. `max` is never met by a figure: tuning goes on until nothing helps.
    pub fn is_met_by(self, rate: f64) -> bool {
        matches!(self, Self::Rate(goal) if rate >= goal)
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Rate(rate) => write!(f, "{rate} req/s"),
        }
    }
}

impl TryFrom<String> for Goal {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Goal> for String {
    fn from(goal: Goal) -> Self {
        goal.to_string()
    }
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies above one, beyond the noise.
    Better,
    /// The interval lies within the noise.
    Same,
    /// The interval lies below one, beyond the noise.
    Worse,
    /// The interval is too wide to say.
    Inconclusive,
}

impl Verdict {
    /// The word that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// A ratio with its 95% interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Improvement {
    /// `rate`.
    pub metric: String,
    /// After divided by before.
    pub ratio: Option<f64>,
    /// 95% interval.
    pub ci95: Option<[f64; 2]>,
}

/// One round: a finding, a change, a verdict.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Round {
    /// From 1.
    pub n: u32,
    /// The finding that led to it.
    pub finding: String,
    /// Its summary at that time.
    pub summary: String,
    /// What was changed.
    pub changes: Vec<Change>,
    /// What the change may cost or break; `None` in recordings of before that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What was expected.
    pub predicted: Option<Predicted>,
    /// Good answers per second before.
    pub before: Option<f64>,
    /// After; `None` when it was only planned.
    pub after: Option<f64>,
    /// After divided by before.
    pub ratio: Option<f64>,
    /// 95% interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// `None` when it was only planned.
    pub verdict: Option<Verdict>,
    /// Why the load that was to verify it was stopped: then the change does harm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<HarmGuardTrip>,
    /// Whether the change stayed.
    pub kept: bool,
    /// How long the service did not answer while the change took effect: 0 when no question from outside was missed,
    /// `None` when that was not measured.
    pub outage_us: Option<u64>,
    /// The diff that was shown.
    pub diff: String,
    /// Files of it that belong to a configuration management: then it was proposed, and not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed: Vec<ManagedFile>,
}

/// What became of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuneState {
    /// Nothing was written.
    Planned,
    /// Changes that were verified better are in force.
    Applied,
    /// Nothing was changed, or everything was put back.
    Reverted,
}

/// The whole tuning session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// As the user wrote it.
    pub goal: Goal,
    /// For `max`: that nothing more helps or the hardware is the limit.
    pub goal_met: bool,
    /// What limits now; `None` when it ended before that was known.
    pub limit: Option<String>,
    /// Its summary.
    pub limit_summary: Option<String>,
    /// The first measurement.
    pub baseline: RunReport,
    /// The best measurement that stands.
    pub best: RunReport,
    /// Best against baseline.
    pub improvement: Improvement,
    /// In order.
    pub rounds: Vec<Round>,
    /// What became of the server.
    pub state: TuneState,
    /// Limits before they are hit, from the last measurement.
    pub ceilings: Vec<Ceiling>,
    /// What other clients sent during the session; `None` when that is not known.
    #[serde(default)]
    pub live_traffic: Option<LiveTraffic>,
    /// The machine of the server.
    pub environment: Environment,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_parse_and_render() {
        for (text, goal) in
            [("max", Goal::Max), ("500 req/s", Goal::Rate(500.0)), ("0.5req/s", Goal::Rate(0.5))]
        {
            assert_eq!(Goal::parse(text).unwrap(), goal);
            assert_eq!(Goal::parse(&goal.to_string()).unwrap(), goal);
        }
        for text in ["", "500", "fast", "-1 req/s", "0 req/s", "NaN req/s"] {
            assert_eq!(Goal::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }
}

//! Tuning: the goal, the rounds and their verdicts, as docs/contract.md fixes them.

use crate::change::{Change, ManagedFile};
use crate::diagnosis::{Ceiling, Predicted};
use crate::environment::Environment;
use crate::error::{Result, UserError};
use crate::harm_guard::HarmGuardTrip;
use crate::live_traffic::LiveTraffic;
use crate::objective::Objective;
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
    /// Successful requests per second.
    Rate(f64),
    /// That all objectives are met.
    Objectives,
}

impl Goal {
    /// Reads `max`, `500 req/s`, `objectives`.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text {
            "max" => Ok(Self::Max),
            "objectives" => Ok(Self::Objectives),
            _ => rate_of(text).map(Self::Rate).ok_or_else(|| not_a_goal(text)),
        }
    }

    /// Whether a rate of successful requests meets it, objectives apart. `max` is never met by a figure: tuning goes on until
    /// nothing helps.
    pub fn is_met_by(self, rate: f64) -> bool {
        match self {
            Self::Max => false,
            Self::Rate(goal) => rate >= goal,
            Self::Objectives => rate > 0.0,
        }
    }
}

fn not_a_goal(text: &str) -> UserError {
    UserError::usage(format!("`{text}` is not a goal")).hint(
        "write --goal max, or what to reach as in --goal '500 req/s', '70 pages/s', '4250 users' or 'p99<200ms at 300 req/s'",
    )
}

/// A number above 0 before one of these units.
fn amount(text: &str, units: &[&str]) -> Option<f64> {
    let number = units.iter().find_map(|unit| text.strip_suffix(unit))?;
    number.trim().parse().ok().filter(|amount: &f64| amount.is_finite() && *amount > 0.0)
}

fn rate_of(text: &str) -> Option<f64> {
    amount(text, &["req/s", "requests/s"])
}

/// A goal as a user writes it: what to reach, and what it says of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalRequest {
    /// What to reach.
    pub goal: Goal,
    /// The objective that it names.
    pub objective: Option<Objective>,
    /// The rate at which it is to be met: the load's, unless that has one.
    pub rate_per_s: Option<f64>,
    /// The users with whom it is to be met: the load's, unless it has them.
    pub users: Option<u32>,
}

impl GoalRequest {
    /// Reads what [`Goal::parse`] reads, `70 pages/s`, `4250 users`, `p99<200ms`, and `p99<200ms at 300 req/s`.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let plain = |goal| Self { goal, objective: None, rate_per_s: None, users: None };
        if let Ok(goal) = Goal::parse(text) {
            return Ok(plain(goal));
        }
        let by_objectives = plain(Goal::Objectives);
        if let Some(pages) = amount(text, &["pages/s"]) {
            let objective = Some(Objective::parse(&format!("pages/s>={pages}"))?);
            return Ok(Self { objective, ..by_objectives });
        }
        if let Some(users) = amount(text, &["users"]) {
            let whole = (users.fract() == 0.0 && users <= 1e6).then_some(users as u32);
            return Ok(Self { users: Some(whole.ok_or_else(|| not_a_goal(text))?), ..by_objectives });
        }
        if !text.contains(['<', '>']) {
            return Err(not_a_goal(text));
        }
        let (objective, rate_per_s) = match text.rsplit_once(" at ") {
            Some((objective, rate)) => {
                (objective, Some(rate_of(rate.trim()).ok_or_else(|| not_a_goal(text))?))
            }
            None => (text, None),
        };
        Ok(Self { objective: Some(Objective::parse(objective.trim())?), rate_per_s, ..by_objectives })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Rate(rate) => write!(f, "{rate} req/s"),
            Self::Objectives => f.write_str("objectives"),
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
    /// Successful requests per second before.
    pub before: Option<f64>,
    /// After; `None` when it was only planned.
    pub after: Option<f64>,
    /// After divided by before.
    pub ratio: Option<f64>,
    /// 95% interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// The smallest change that was believed to be one, as a share: what the load before it went up and down by itself. `None`
    /// where nothing was compared, and in recordings of before that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_floor: Option<f64>,
    /// How many pairs of loads, without the change and with it, the verdict rests on where one was not enough; `None` where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u32>,
    /// What was measured so far, where this round is a step of a search; empty elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<SearchPoint>,
    /// `None` when it was only planned.
    pub verdict: Option<Verdict>,
    /// Why the load that was to verify it was stopped: then the change does harm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<HarmGuardTrip>,
    /// Whether the change stayed.
    pub kept: bool,
    /// Whether it stayed in force without being better, to be judged together with the next round, whose limit may have hidden it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub judged_with_next: bool,
    /// How long the service did not answer while the change took effect: 0 when no question from outside was missed,
    /// `None` when that was not measured.
    pub outage_us: Option<u64>,
    /// The diff that was shown.
    pub diff: String,
    /// Files of it that belong to a configuration management: then it was proposed, and not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed: Vec<ManagedFile>,
    /// Why a person has to decide, in sentences: then it was proposed, and not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_decide: Vec<String>,
}

/// A value that a search tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchPoint {
    /// Of the setting.
    pub value: i64,
    /// Successful requests per second.
    pub rate: Option<f64>,
    /// 99% answered within, in microseconds.
    pub p99_us: Option<u64>,
}

/// What became of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuneState {
    /// Nothing was written.
    Planned,
    /// Changes that were verified better are in force.
    Applied,
    /// Nothing was changed, or everything was reverted.
    Reverted,
}

/// The whole tuning session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// As the user wrote it.
    pub goal: Goal,
    /// Whether it was met; of `max`: that nothing more helps or the hardware is the limit.
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
        for (text, goal) in [
            ("max", Goal::Max),
            ("500 req/s", Goal::Rate(500.0)),
            ("0.5req/s", Goal::Rate(0.5)),
            ("objectives", Goal::Objectives),
        ] {
            assert_eq!(Goal::parse(text).unwrap(), goal);
            assert_eq!(Goal::parse(&goal.to_string()).unwrap(), goal);
        }
        for text in ["", "500", "fast", "-1 req/s", "0 req/s", "NaN req/s"] {
            assert_eq!(Goal::parse(text).unwrap_err().exit_code(), 2, "{text}");
            assert_eq!(GoalRequest::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn goals_say_something_of_the_load() {
        for (text, goal, objective, rate_per_s, users) in [
            ("max", Goal::Max, None, None, None),
            ("500 req/s", Goal::Rate(500.0), None, None, None),
            ("70 pages/s", Goal::Objectives, Some("pages/s>=70"), None, None),
            ("4250 users", Goal::Objectives, None, None, Some(4250)),
            ("p99<200ms", Goal::Objectives, Some("p99<200ms"), None, None),
            ("p99 < 200ms at 300 req/s", Goal::Objectives, Some("p99 < 200ms"), Some(300.0), None),
        ] {
            let request = GoalRequest::parse(text).unwrap();
            let shown = request.objective.as_ref().map(Objective::text);
            assert_eq!(
                (request.goal, shown, request.rate_per_s, request.users),
                (goal, objective, rate_per_s, users)
            );
        }
        for text in
            ["p99<200ms at noon", "p98<200ms", "1.5 users", "-3 users", "0 pages/s", "p99<200ms at 0 req/s"]
        {
            assert_eq!(GoalRequest::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }
}

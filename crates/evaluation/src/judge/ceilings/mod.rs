//! Predicted ceilings against measured ones: what a round in which a limit does not bind says of it, against the rate of a
//! round of the same load in which it does. Pure.

use super::JudgedRound;
use std::fmt::Write as _;
use webdyno_analysis::diagnosis::next_limit::{after, remaining_limit};
use webdyno_analysis::facts::{Facts, facts};
use webdyno_analysis::limits::ceiling::ResourceCeiling;
use webdyno_analysis::limits::{LimitId, resource_ceilings};
use webdyno_analysis::run_report::run_report;
use webdyno_model::Result;
use webdyno_model::diagnosis::NextLimit;
use webdyno_model::workload::Workload;

mod filled;
mod legitimate;
pub mod section;

/// A prediction is near when it is off by no more than this share.
pub const NEAR_FRACTION: f64 = 0.15;

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictionKind {
    /// The limit's rate, scaled to its size in the round in which it binds.
    Ceiling,
    /// What the round before tells as its next limit, whatever its size is there.
    NextLimit,
    /// The rate at which a table was full when it was.
    Filled,
}

impl PredictionKind {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ceiling => "ceiling",
            Self::NextLimit => "next limit",
            Self::Filled => "full when it was",
        }
    }
}

/// Two rounds of a scenario: one that predicts, and one in which the limit binds.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundPair {
    /// The scenario.
    pub scenario: String,
    /// What binds.
    pub finding: String,
    /// The round whose readings predict, from 1.
    pub from: usize,
    /// The round in which it binds.
    pub of: usize,
}

/// A prediction, and what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct CeilingPrediction {
    /// Of which rounds.
    pub pair: RoundPair,
    /// What was predicted.
    pub kind: PredictionKind,
    /// Good answers per second.
    pub predicted: f64,
    /// Good answers per second.
    pub measured: f64,
}

impl CeilingPrediction {
    /// By how much it is off: 0.15 is 15% too high.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }

    /// Whether it is near enough.
    pub fn is_near(&self) -> bool {
        self.error().abs() <= NEAR_FRACTION
    }
}

/// Predictions, and what cannot be compared.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CeilingComparison {
    /// What can.
    pub predicted: Vec<CeilingPrediction>,
    /// What cannot, and why.
    pub left_out: Vec<(RoundPair, String)>,
}

/// A round as the table of limits has it.
struct CeilingRound<'a> {
    case: &'a JudgedRound,
    facts: Facts,
    ceilings: Vec<ResourceCeiling>,
    rate: f64,
}

impl CeilingRound<'_> {
    fn ceiling(&self, finding: &str) -> Option<&ResourceCeiling> {
        self.ceilings.iter().find(|one| one.finding.is_some_and(|id| id.as_str() == finding))
    }

    /// Whether its rate is the server's.
    fn is_valid(&self) -> bool {
        self.facts.generator_fault.is_none() && self.facts.kernel_limit_total.is_none()
    }
}

/// Every prediction that the recordings of these cases allow.
pub fn predictions(cases: &[JudgedRound]) -> Result<CeilingComparison> {
    let mut observed = vec![];
    for case in cases.iter().filter(|case| case.measurement.workload.is_some()) {
        let run = run_report(&case.measurement)?;
        let facts: Facts = facts(&case.measurement, Some(&run))?;
        if let Some(rate) = run.rate.filter(|rate| *rate > 0.0 && facts.harm_guard_trip.is_none()) {
            observed.push(CeilingRound { case, ceilings: resource_ceilings(&facts), facts, rate });
        }
    }
    let mut compared = CeilingComparison::default();
    for bound in &observed {
        let others = observed.iter().filter(|other| is_same_load(other.case, bound.case));
        for other in others {
            let found = [scaled(other, bound), filled::fill_rate(other, bound), next(other, bound)];
            for one in found.into_iter().flatten() {
                match one {
                    Ok(predicted) => compared.predicted.push(predicted),
                    Err(why) => compared.left_out.push((pair(other, bound), why)),
                }
            }
        }
    }
    Ok(compared)
}

/// Whether two rounds of a scenario ask for the same in the same way.
pub(super) fn is_same_load(one: &JudgedRound, other: &JudgedRound) -> bool {
    let asks = |case: &JudgedRound| {
        let of = |workload: &Workload| (workload.requests.clone(), workload.keepalive, workload.list.clone());
        case.measurement.workload.as_ref().map(of)
    };
    one.place.scenario == other.place.scenario
        && one.place.number != other.place.number
        && asks(one) == asks(other)
}

/// A machine that swaps falls far below what memory holds: its ceiling is a number of workers, and no rate.
const NO_RATE: LimitId = LimitId::MemoryExhausted;

/// What another round, in which something else binds, says of the limit that binds here; an error says why that cannot be
/// compared.
fn scaled(
    other: &CeilingRound,
    bound: &CeilingRound,
) -> Option<std::result::Result<CeilingPrediction, String>> {
    let finding = bound.case.round.finding.as_str();
    let (here, there) = (bound.ceiling(finding)?, other.ceiling(finding)?);
    let is_rate = here.fills.is_none() && finding != NO_RATE.as_str();
    (is_rate && bound.is_valid() && other.is_valid()).then_some(())?;
    // What binds there may change what a request costs: then it says nothing of this limit.
    (remaining_limit(there, &other.case.round.finding).map(LimitId::as_str) == Some(finding)).then_some(())?;
    let rate = there.rate_at_size(here.ceiling.max?)?;
    let why_not = legitimate::incomparable_reason(other, bound, Some((there, here)));
    Some(why_not.map_or_else(|| Ok(prediction(other, bound, PredictionKind::Ceiling, rate)), Err))
}

/// What the round before calls the next limit, if it is the one that binds here.
fn next(
    other: &CeilingRound,
    bound: &CeilingRound,
) -> Option<std::result::Result<CeilingPrediction, String>> {
    let finding = bound.case.round.finding.as_str();
    let follows = other.case.place.number + 1 == bound.case.place.number;
    let expected = other.case.round.next_limit.as_deref() == Some(finding);
    let is_rate = bound.ceiling(finding)?.fills.is_none() && finding != NO_RATE.as_str();
    (follows && expected && is_rate).then_some(())?;
    let next = after(&other.facts, &other.case.round.finding, &[]).filter(|next| next.id == finding)?;
    let rate = next.rate?;
    let why_not = legitimate::incomparable_reason(other, bound, None);
    Some(why_not.map_or_else(|| Ok(prediction(other, bound, PredictionKind::NextLimit, rate)), Err))
}

fn pair(other: &CeilingRound, bound: &CeilingRound) -> RoundPair {
    RoundPair {
        scenario: bound.case.place.scenario.clone(),
        finding: bound.case.round.finding.clone(),
        from: other.case.place.number,
        of: bound.case.place.number,
    }
}

fn prediction(
    other: &CeilingRound,
    bound: &CeilingRound,
    kind: PredictionKind,
    predicted: f64,
) -> CeilingPrediction {
    CeilingPrediction { pair: pair(other, bound), kind, predicted, measured: bound.rate }
}

/// A round whose scenario says what comes next, and what is told.
#[derive(Debug, Clone, PartialEq)]
pub struct NextLimitCase {
    /// The scenario.
    pub scenario: String,
    /// The number of the round, from 1.
    pub number: usize,
    /// What the scenario says.
    pub expected: String,
    /// What is told.
    pub found: Option<NextLimit>,
}

impl NextLimitCase {
    /// Whether it is the one that the scenario says.
    pub fn is_right(&self) -> bool {
        self.found.as_ref().is_some_and(|next| next.id == self.expected)
    }
}

/// What is told as the next limit of each round whose scenario says which one it is.
pub fn next_limits(cases: &[JudgedRound]) -> Result<Vec<NextLimitCase>> {
    let mut reported = vec![];
    for case in cases {
        let Some(expected) = &case.round.next_limit else { continue };
        let run = run_report(&case.measurement)?;
        let found = after(&facts(&case.measurement, Some(&run))?, &case.round.finding, &[]);
        let (scenario, number) = (case.place.scenario.clone(), case.place.number);
        reported.push(NextLimitCase { scenario, number, expected: expected.clone(), found });
    }
    Ok(reported)
}

/// A line for each, and how many are near.
pub fn text(compared: &CeilingComparison, next_limits: &[NextLimitCase]) -> String {
    let mut text = String::new();
    for one in next_limits {
        let found = one.found.as_ref().map_or("none", |next| next.id.as_str());
        let state = if one.is_right() { "right" } else { "WRONG" };
        let rate = one.found.as_ref().and_then(|next| next.rate);
        let rate = rate.map_or(String::new(), |rate| format!(" at {rate}/s"));
        let (name, number, expected) = (&one.scenario, one.number, &one.expected);
        let _ = writeln!(text, "{state}  {name} {number}: after it {expected}: {found}{rate}");
    }
    for one in &compared.predicted {
        let RoundPair { scenario, finding, from, of } = &one.pair;
        let (error, how) = (one.error() * 100.0, one.kind.name());
        let _ = writeln!(
            text,
            "{error:+6.1}%  {scenario} {from} -> {of}  {finding} {how}: predicted {:.1}/s, measured {:.1}/s",
            one.predicted, one.measured
        );
    }
    for (RoundPair { scenario, finding, from, of }, why) in &compared.left_out {
        let _ = writeln!(text, "left out  {scenario} {from} -> {of}  {finding}: {why}");
    }
    let near = compared.predicted.iter().filter(|one| one.is_near()).count();
    let _ = writeln!(text, "{near} of {} predictions are within 15%", compared.predicted.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let pair = || RoundPair { scenario: "x".into(), finding: "network-saturated".into(), from: 1, of: 2 };
        let one = |predicted, reported| CeilingPrediction {
            pair: pair(),
            kind: reported,
            predicted,
            measured: 100.0,
        };
        let found = Some(NextLimit { id: "conntrack-full".into(), rate: Some(7.0) });
        let next =
            NextLimitCase { scenario: "x".into(), number: 1, expected: "network-saturated".into(), found };
        let compared = CeilingComparison {
            predicted: vec![one(90.0, PredictionKind::Ceiling), one(116.0, PredictionKind::NextLimit)],
            left_out: vec![(pair(), "an answer is another".into())],
        };
        let text = text(&compared, &[next]);
        for part in [
            "WRONG  x 1: after it network-saturated: conntrack-full at 7/s",
            "-10.0%  x 1 -> 2  network-saturated ceiling: predicted 90.0/s, measured 100.0/s",
            "+16.0%  x 1 -> 2  network-saturated next limit",
            "left out  x 1 -> 2  network-saturated: an answer is another",
            "1 of 2 predictions are within 15%",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

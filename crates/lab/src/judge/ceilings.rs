//! Predicted ceilings against measured ones: what a round in which a limit does not bind says of it, against the rate of a
//! round of the same load in which it does. Pure.

use super::Case;
use std::fmt::Write as _;
use webdyno_analysis::ceilings::{Limit, limits};
use webdyno_analysis::facts::{Facts, facts};
use webdyno_analysis::next_limit::{after, told as stays};
use webdyno_analysis::summary::run_report;
use webdyno_model::Result;
use webdyno_model::diagnosis::NextLimit;
use webdyno_model::workload::Workload;

/// A prediction, and what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// The scenario.
    pub scenario: String,
    /// What binds.
    pub finding: String,
    /// The round whose readings predict, from 1.
    pub from: usize,
    /// The round in which it binds.
    pub of: usize,
    /// Whether it is told as the next limit of the round, whatever its size is there; else the limit's rate, scaled to
    /// its size in the round in which it binds.
    pub as_next: bool,
    /// Good answers per second.
    pub predicted: f64,
    /// Good answers per second.
    pub measured: f64,
}

impl Predicted {
    /// By how much it is off: 0.15 is 15% too high.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// A round as the table of limits has it.
struct Seen<'a> {
    case: &'a Case,
    facts: Facts,
    limits: Vec<Limit>,
    rate: f64,
}

/// Every prediction that the recordings of these cases allow.
pub fn predictions(cases: &[Case]) -> Result<Vec<Predicted>> {
    let mut seen = vec![];
    for case in cases.iter().filter(|case| case.measurement.workload.is_some()) {
        let run = run_report(&case.measurement)?;
        let facts: Facts = facts(&case.measurement, Some(&run))?;
        if let Some(rate) = run.rate.filter(|rate| *rate > 0.0 && run.client.valid) {
            seen.push(Seen { case, limits: limits(&facts), facts, rate });
        }
    }
    let mut found = vec![];
    for bound in &seen {
        let others = seen.iter().filter(|other| is_same_load(other.case, bound.case));
        found.extend(others.clone().filter_map(|other| scaled(other, bound)));
        found.extend(others.filter_map(|other| next(other, bound)));
    }
    Ok(found)
}

/// Whether two rounds of a scenario ask for the same in the same way.
fn is_same_load(one: &Case, other: &Case) -> bool {
    let asks = |case: &Case| {
        let of = |workload: &Workload| (workload.requests.clone(), workload.keepalive);
        case.measurement.workload.as_ref().map(of)
    };
    one.place.scenario == other.place.scenario
        && one.place.number != other.place.number
        && asks(one) == asks(other)
}

/// Limits whose ceiling is no rate that can be measured: a table of connections that live for two minutes binds only after
/// as long, and gives up entries early when it is full; and a machine that swaps falls far below what memory holds.
const NOT_MEASURED: [&str; 2] = ["conntrack-full", "memory-exhausted"];

/// What another round, in which something else binds, says of the limit that binds here.
fn scaled(other: &Seen, bound: &Seen) -> Option<Predicted> {
    let finding = bound.case.round.finding.as_str();
    (!NOT_MEASURED.contains(&finding)).then_some(())?;
    let of = |seen: &Seen| {
        let limit = seen.limits.iter().find(|limit| limit.finding == Some(finding))?;
        Some((limit.ceiling.max?, limit.ceiling.binds_at_rate))
    };
    let (size, _) = of(bound)?;
    // What binds there may change what a request costs: then it says nothing of this limit.
    let stays = |limit: &Limit| stays(limit, &other.case.round.finding) == Some(finding);
    let (before, binds) = of(other).filter(|_| other.limits.iter().any(stays))?;
    Some(told(other, bound, false, binds? * size / before))
}

/// What the round before calls the next limit, if it is the one that binds here.
fn next(other: &Seen, bound: &Seen) -> Option<Predicted> {
    let finding = bound.case.round.finding.as_str();
    let follows = other.case.place.number + 1 == bound.case.place.number;
    let expected = other.case.round.next_limit.as_deref() == Some(finding);
    (follows && expected && !NOT_MEASURED.contains(&finding)).then_some(())?;
    let next = after(&other.facts, &other.case.round.finding).filter(|next| next.id == finding);
    Some(told(other, bound, true, next?.rate?))
}

fn told(other: &Seen, bound: &Seen, as_next: bool, predicted: f64) -> Predicted {
    Predicted {
        scenario: bound.case.place.scenario.clone(),
        finding: bound.case.round.finding.clone(),
        from: other.case.place.number,
        of: bound.case.place.number,
        as_next,
        predicted,
        measured: bound.rate,
    }
}

/// What is told as the next limit of each round whose scenario says which one it is: where, expected, found.
pub fn next_limits(cases: &[Case]) -> Result<Vec<(String, String, Option<NextLimit>)>> {
    let mut found = vec![];
    for case in cases {
        let Some(expected) = &case.round.next_limit else { continue };
        let run = run_report(&case.measurement)?;
        let next = after(&facts(&case.measurement, Some(&run))?, &case.round.finding);
        found.push((format!("{} {}", case.place.scenario, case.place.number), expected.clone(), next));
    }
    Ok(found)
}

/// A line for each, and how many are within 15%.
pub fn text(predictions: &[Predicted], next_limits: &[(String, String, Option<NextLimit>)]) -> String {
    let mut text = String::new();
    for (place, expected, next) in next_limits {
        let found = next.as_ref().map_or("none", |next| next.id.as_str());
        let state = if found == expected { "right" } else { "WRONG" };
        let rate =
            next.as_ref().and_then(|next| next.rate).map_or(String::new(), |rate| format!(" at {rate}/s"));
        let _ = writeln!(text, "{state}  {place}: after it {expected}: {found}{rate}");
    }
    for one in predictions {
        let how = if one.as_next { "next limit" } else { "ceiling" };
        let _ = writeln!(
            text,
            "{:+6.1}%  {} {} -> {}  {} {how}: predicted {:.1}/s, measured {:.1}/s",
            one.error() * 100.0,
            one.scenario,
            one.from,
            one.of,
            one.finding,
            one.predicted,
            one.measured
        );
    }
    let near = predictions.iter().filter(|one| one.error().abs() <= 0.15).count();
    let _ = writeln!(text, "{near} of {} predictions are within 15%", predictions.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let one = |predicted| Predicted {
            scenario: "x".into(),
            finding: "network-saturated".into(),
            from: 1,
            of: 2,
            as_next: predicted > 100.0,
            predicted,
            measured: 100.0,
        };
        let next = NextLimit { id: "conntrack-full".into(), rate: Some(7.0) };
        let limits = [("x 1".to_owned(), "network-saturated".to_owned(), Some(next))];
        let text = text(&[one(90.0), one(116.0)], &limits);
        for part in [
            "WRONG  x 1: after it network-saturated: conntrack-full at 7/s",
            "-10.0%  x 1 -> 2  network-saturated ceiling: predicted 90.0/s, measured 100.0/s",
            "+16.0%  x 1 -> 2  network-saturated next limit",
            "1 of 2 predictions are within 15%",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

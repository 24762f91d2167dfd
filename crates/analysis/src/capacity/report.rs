//! What a search came to, from its steps.

use super::chance::{chance_fit, decides};
use super::search::{Bracket, bracket, bracket_of_sure};
use super::{FALLS_BEHIND, KneeStep, StepResult, knee};
use webdyno_model::capacity::{CapacityReport, LoadUnit, SCHEMA};
use webdyno_model::number::significant;
use webdyno_model::objective::Objective;

/// Why a search ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchEnd {
    /// The two ends are near enough.
    Found,
    /// The lowest load misses the objectives.
    LowestMissed,
    /// The highest load that may be offered meets them.
    Max,
    /// The load generator was the limit.
    Generator,
    /// The time was over.
    Budget,
    /// An error: what is known so far.
    Failed(String),
}

fn counted(steps: &[StepResult]) -> impl DoubleEndedIterator<Item = &StepResult> {
    steps.iter().filter(|one| one.generator.is_none())
}

fn seeming_bracket(steps: &[StepResult]) -> Bracket {
    bracket(counted(steps).map(|one| (one.step.offered, one.outcome.seems_met)))
}

/// The lowest load that seems to miss the objectives. One that a later step met, or that lies below one that did, missed them by a pause.
pub fn lowest_missed(steps: &[StepResult]) -> Option<f64> {
    seeming_bracket(steps).bad
}

/// The report of these steps. What only an agent knows is left out.
pub fn capacity_report(
    steps: &[StepResult],
    end: &SearchEnd,
    unit: LoadUnit,
    objectives: &[Objective],
) -> CapacityReport {
    let seeming = seeming_bracket(steps);
    // What a later step contradicts is no end of the interval, sure as it was: the capacity would lie outside of it.
    let sure = bracket_of_sure(
        counted(steps).map(|one| (one.step.offered, one.outcome.seems_met, one.outcome.met.is_some())),
    );
    let ci95 = match sure {
        Bracket { good: Some(good), bad: Some(bad) } => Some([good, bad]),
        _ => None,
    };
    let chance = (decides(steps) && seeming.bad.is_some()).then(|| chance_fit(steps)).flatten();
    let rate = chance.map_or(seeming.good, |fit| seeming.good.map(|_| rounded(fit.rate, unit)));
    let ci95 = chance.map_or(ci95, |fit| Some(fit.ci95.map(|load| rounded(load, unit))));
    let missing = |one: &&StepResult| Some(one.step.offered) == seeming.bad && !one.outcome.seems_met;
    let limited_by = counted(steps).rfind(missing).and_then(|one| one.outcome.missed.clone());
    let knee_step = |one: &StepResult| KneeStep {
        offered: one.step.offered,
        p50_us: one.step.p50_us,
        keeps_up: one.outcome.missed.as_deref() != Some(FALLS_BEHIND),
    };
    let knee_steps: Vec<KneeStep> = counted(steps).map(knee_step).collect();
    let last_generator = steps.iter().rev().find_map(|one| one.generator.clone());
    let mut report = CapacityReport {
        schema: SCHEMA.into(),
        unit,
        rate,
        ci95,
        objectives: objectives.to_vec(),
        limited_by,
        knee: knee(&knee_steps).map(|load| significant(load, 3)),
        generator: last_generator.filter(|_| *end == SearchEnd::Generator),
        bottleneck: None,
        bottleneck_summary: None,
        steps: steps.iter().map(|one| one.step.clone()).collect(),
        notes: vec![],
        environment: None,
    };
    report.notes = notes(&report, end, seeming, sure, chance.is_some());
    report
}

/// A load that was not offered itself, with as many digits as it is known to.
fn rounded(load: f64, unit: LoadUnit) -> f64 {
    if unit == LoadUnit::Users { load.round() } else { significant(load, 3) }
}

/// What a reader has to know of how sure it is.
fn notes(
    report: &CapacityReport,
    end: &SearchEnd,
    seeming: Bracket,
    sure: Bracket,
    is_chance: bool,
) -> Vec<String> {
    let unit = report.unit.name();
    let known = report.rate.map_or("nothing met the objectives".into(), |rate| {
        format!("the capacity is at least {} {unit}", significant(rate, 4))
    });
    let ended = match end {
        SearchEnd::LowestMissed => {
            Some("the lowest load misses the objectives: no load is known that meets them".to_owned())
        }
        SearchEnd::Max => Some(format!("the highest load (--max) meets the objectives: {known}")),
        SearchEnd::Generator => Some(format!(
            "the load generator was the limit, not the server: {known}; load from another or a larger machine"
        )),
        SearchEnd::Found | SearchEnd::Budget if is_chance => Some(
            "slow requests come in bursts by chance near the capacity: it and its 95% interval are fitted to all steps"
                .to_owned(),
        ),
        SearchEnd::Found => None,
        SearchEnd::Budget if seeming.bad.is_some() => {
            Some("the time was over before the interval was as narrow as it could be: --budget".to_owned())
        }
        SearchEnd::Budget => Some(format!("the time was over: {known}; --budget gives more")),
        SearchEnd::Failed(error) => Some(format!("the search could not go on: {error}; {known}")),
    };
    let is_unsure = report.rate.is_some() && (sure.good != seeming.good || sure.bad != seeming.bad);
    let unsure = (is_unsure && !is_chance && *end == SearchEnd::Found).then(|| {
        "too few requests to be sure of each step: the interval spans the loads that are sure".to_owned()
    });
    ended.into_iter().chain(unsure).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{StepKind, StepOutcome};
    use super::*;
    use webdyno_model::capacity::CapacityStep;

    fn step(offered: f64, met: Option<bool>, seems_met: bool) -> StepResult {
        let missed = (!seems_met).then(|| "p99<1s".to_owned());
        StepResult {
            kind: StepKind::Search,
            step: CapacityStep {
                load: 1,
                offered,
                rate: Some(offered),
                p50_us: Some(if seems_met { 10_000 } else { 900_000 }),
                p99_us: None,
                errors: Some(0),
                met,
                missed: missed.clone(),
                measured_s: 3.0,
                discarded: None,
            },
            outcome: StepOutcome { met, seems_met, missed, measured_s: 3, ..StepOutcome::default() },
            generator: None,
        }
    }

    #[test]
    fn the_interval_is_of_the_steps_that_are_sure() {
        let steps = [
            step(100.0, Some(true), true),
            step(200.0, Some(false), false),
            step(140.0, None, true),
            step(150.0, None, false),
        ];
        let report = capacity_report(&steps, &SearchEnd::Found, LoadUnit::RequestsPerSecond, &[]);
        assert_eq!((report.rate, report.ci95), (Some(140.0), Some([100.0, 200.0])));
        assert_eq!(report.limited_by.as_deref(), Some("p99<1s"));
        assert!(report.knee.is_some_and(|knee| (140.0..=150.0).contains(&knee)), "{:?}", report.knee);
        assert!(report.notes[0].contains("too few requests"));
    }

    #[test]
    fn the_interval_holds_the_capacity_where_a_later_step_contradicts_a_sure_one() {
        let ends = [step(100.0, Some(true), true), step(200.0, Some(false), false)];
        let sure_then_doubted = |first: StepResult, last: [StepResult; 2]| {
            let steps = [&ends[..], &[first], &last].concat();
            let report = capacity_report(&steps, &SearchEnd::Found, LoadUnit::RequestsPerSecond, &[]);
            (report.rate, report.ci95)
        };
        for (first, last, rate) in [
            (step(150.0, Some(true), true), [step(150.0, None, false), step(140.0, None, true)], 140.0),
            (step(120.0, Some(false), false), [step(120.0, None, true), step(150.0, None, true)], 150.0),
        ] {
            assert_eq!(sure_then_doubted(first, last), (Some(rate), Some([100.0, 200.0])), "{rate}");
        }
    }

    #[test]
    fn a_miss_that_a_later_step_contradicts_is_no_limit() {
        let paused = [step(100.0, None, false), step(50.0, Some(true), true), step(100.0, Some(true), true)];
        assert_eq!((lowest_missed(&paused[..2]), lowest_missed(&paused)), (Some(100.0), None));
        let beyond = [&paused[..], &[step(300.0, Some(false), false)]].concat();
        assert_eq!(lowest_missed(&beyond), Some(300.0));
    }

    #[test]
    fn a_generator_that_limits_is_no_capacity() {
        let mut limited = step(400.0, Some(false), false);
        limited.generator = Some("a core was full".into());
        let steps = [step(100.0, Some(true), true), limited];
        let report = capacity_report(&steps, &SearchEnd::Generator, LoadUnit::RequestsPerSecond, &[]);
        assert_eq!((report.rate, report.ci95, report.limited_by), (Some(100.0), None, None));
        assert_eq!(report.generator.as_deref(), Some("a core was full"));
        assert!(report.notes[0].contains("at least 100 req/s"), "{:?}", report.notes);
    }

    #[test]
    fn every_end_that_leaves_doubt_is_noted() {
        let steps = [step(100.0, Some(true), true)];
        for (end, part) in [
            (SearchEnd::LowestMissed, "the lowest load misses"),
            (SearchEnd::Max, "at least 100"),
            (SearchEnd::Budget, "--budget"),
            (SearchEnd::Failed("no route".into()), "no route"),
        ] {
            let report = capacity_report(&steps, &end, LoadUnit::Users, &[]);
            assert!(report.notes[0].contains(part), "{:?}", report.notes);
        }
        assert!(capacity_report(&[], &SearchEnd::Failed("x".into()), LoadUnit::Users, &[]).rate.is_none());
    }
}

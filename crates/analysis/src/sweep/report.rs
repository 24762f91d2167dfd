//! What a sweep came to, from its loads.

use super::conditions::GENERATOR;
use super::effects::study_report;
use super::planner::SweepEnd;
use super::points::merged_points;
use crate::scaling::{CurveAnalysis, curve};
use webdyno_model::number::human::{number, percent};
use webdyno_model::objective::Objective;
use webdyno_model::sweep::{KnobValue, SCHEMA, SweepPlan, SweepPoint, SweepReport};

/// The report of these loads. What only an agent knows is left out.
pub fn sweep_report(plan: &SweepPlan, loads: &[SweepPoint], end: &SweepEnd) -> SweepReport {
    let mut points = merged_points(loads);
    let study = plan.study.as_ref().map(|study| study_report(plan, study, &mut points));
    let is_curve =
        study.is_none() && plan.knobs.len() == 1 && points.iter().all(|point| point.value.is_some());
    let has_objectives = !plan.objectives.is_empty();
    let found = if is_curve { chosen_curve(&points, has_objectives) } else { CurveAnalysis::default() };
    let mut notes = found.notes;
    notes.extend(objectives_note(plan, &points));
    notes.extend(end_note(end));
    notes.extend(discarded_note(loads));
    if study.is_some() {
        notes.extend(left_out_note(&points));
    }
    let mut unsure = found.unsure;
    let best = if is_curve || study.is_some() { None } else { best(&points, &mut notes, &mut unsure) };
    let has_answer = found.choice.is_some() || best.is_some();
    let is_whole = matches!(end, SweepEnd::Measured | SweepEnd::BeyondHarm(_));
    unsure = unsure.or_else(|| (!is_whole).then(|| "not all points were measured".into()));
    SweepReport {
        schema: SCHEMA.into(),
        knob: plan.knobs.first().map(|knob| knob.name.clone()).unwrap_or_default(),
        knobs: plan.knobs.clone(),
        plateau: found.plateau,
        choice: found.choice,
        best,
        unsure: unsure.filter(|_| has_answer),
        objectives: plan.objectives.clone(),
        usl: found.usl,
        notes,
        original: plan.original.first().cloned().flatten(),
        environment: None,
        study,
        points,
    }
}

/// What a curve says of these points, in the order of their values; with objectives its choice is among those that meet them.
pub fn chosen_curve(points: &[SweepPoint], has_objectives: bool) -> CurveAnalysis {
    let found = curve(points);
    if has_objectives { among_those_that_meet(points, found) } else { found }
}

/// Within this share of the best rate a point is as good.
const AS_GOOD: f64 = 0.99;

/// The choice among the points that meet the objectives: the smallest value whose rate is within 1% of the best of them. Here a rate that
/// rises up to the last point which meets them is an answer, too.
fn among_those_that_meet(points: &[SweepPoint], found: CurveAnalysis) -> CurveAnalysis {
    if points.iter().all(|point| point.missed.is_none()) && found.choice.is_some() {
        return found;
    }
    let meeting = || points.iter().filter(|point| point.missed.is_none() && point.failed.is_none());
    let most = meeting().filter_map(|point| point.rate).reduce(f64::max);
    let is_good =
        |point: &&SweepPoint| point.rate.zip(most).is_some_and(|(rate, most)| rate >= AS_GOOD * most);
    let good: Vec<f64> = meeting().filter(is_good).filter_map(|point| point.value).collect();
    let ends = good.first().zip(good.last());
    let below = |point: &&SweepPoint| point.value.zip(good.first().copied()).is_some_and(|(a, b)| a < b);
    let reaches =
        |point: &&SweepPoint| point.ci95.zip(most).is_some_and(|(ci95, most)| ci95[1] >= AS_GOOD * most);
    let also = meeting().filter(below).find(reaches).and_then(|point| point.value);
    // The best at the end of the range: where no point misses them it is not the objectives that end it.
    let is_open = points.iter().all(|point| point.missed.is_none() && point.failed.is_none());
    let is_last = good.first().copied() == points.last().and_then(|point| point.value);
    let unsure = also.map(|value| format!("{} may do as well", number(value)));
    CurveAnalysis {
        plateau: ends.map(|(first, last)| [*first, *last]),
        choice: good.first().copied(),
        unsure: unsure.or((is_open && is_last).then(|| "values beyond it were not measured".to_owned())),
        ..found
    }
}

fn objectives_note(plan: &SweepPlan, points: &[SweepPoint]) -> Option<String> {
    let missing = points.iter().filter(|point| point.missed.is_some()).count();
    let rated = points.iter().filter(|point| point.rate.is_some()).count();
    let texts: Vec<&str> = plan.objectives.iter().map(Objective::text).collect();
    let all = texts.join(" and ");
    match missing {
        0 => None,
        _ if missing == rated => Some(format!("No point meets {all}.")),
        _ => Some(format!("{missing} of {rated} points miss {all}: the choice is among the others.")),
    }
}

fn end_note(end: &SweepEnd) -> Option<String> {
    match end {
        SweepEnd::Measured => None,
        SweepEnd::BeyondHarm(count) => Some(format!(
            "{count} of the planned loads {} left out: they lie beyond one that did harm, and would do more.",
            if *count == 1 { "was" } else { "were" }
        )),
        SweepEnd::Budget => Some(
            "The time was over before all was measured (--budget): the points are those until then.".into(),
        ),
        SweepEnd::ServerFailed(why) => Some(format!("The sweep ended early, as the server failed: {why}.")),
        SweepEnd::Failed(why) => Some(format!("The sweep ended early: {why}.")),
    }
}

fn discarded_note(loads: &[SweepPoint]) -> Option<String> {
    let discarded: Vec<&String> =
        loads.iter().flat_map(|point| &point.loads).filter_map(|load| load.discarded.as_ref()).collect();
    let last = discarded.last()?;
    let (count, all) = (discarded.len(), loads.iter().map(|point| point.loads.len()).sum::<usize>());
    let by_generator = last.starts_with(GENERATOR).then_some(
        " Load from another machine; on this one `-t 1` and `taskset` give the generator a core of its own, and the server the others.",
    );
    let do_not = if count == 1 { "does" } else { "do" };
    Some(format!(
        "{count} of {all} loads {do_not} not count and {} repeated; the last one: {last}.{}",
        if count == 1 { "was" } else { "were" },
        by_generator.unwrap_or_default()
    ))
}

/// Points without a figure are in no effect.
fn left_out_note(points: &[SweepPoint]) -> Option<String> {
    let failed: Vec<&String> = points.iter().filter_map(|point| point.failed.as_ref()).collect();
    let last = failed.last()?;
    Some(format!(
        "{} of {} points failed and {} left out of the effects; the last one: {last}.",
        failed.len(),
        points.len(),
        if failed.len() == 1 { "is" } else { "are" }
    ))
}

/// The best of points that are no curve. Where another one is as good within the noise, a note says so.
fn best(
    points: &[SweepPoint],
    notes: &mut Vec<String>,
    unsure: &mut Option<String>,
) -> Option<Vec<KnobValue>> {
    let can_be =
        |point: &&SweepPoint| point.failed.is_none() && point.rate.is_some() && point.missed.is_none();
    let mut rated: Vec<&SweepPoint> = points.iter().filter(can_be).collect();
    rated.sort_by(|a, b| b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0)));
    let first = *rated.first()?;
    let reaches = |other: &&&SweepPoint| {
        let ends = other.ci95.zip(first.ci95);
        ends.is_some_and(|(other, best)| other[1] >= best[0])
    };
    if let Some(second) = rated.get(1).filter(reaches) {
        *unsure = Some("the next best is within the noise".into());
        let less = 1.0 - second.rate.unwrap_or(0.0) / first.rate.unwrap_or(f64::NAN);
        notes.push(format!(
            "The next best has {} less, which is within the noise: repeat both to be sure (--repeat).",
            percent(less)
        ));
    }
    Some(first.values.clone())
}

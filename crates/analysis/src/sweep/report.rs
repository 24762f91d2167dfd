//! What a sweep came to, from its loads.

use super::effects::study_report;
use super::planner::SweepEnd;
use super::points::merged_points;
use crate::scaling::curve;
use webdyno_model::number::human::percent;
use webdyno_model::sweep::{KnobValue, SCHEMA, SweepPlan, SweepPoint, SweepReport};

/// The report of these loads. What only an agent knows is left out.
pub fn sweep_report(plan: &SweepPlan, loads: &[SweepPoint], end: &SweepEnd) -> SweepReport {
    let mut points = merged_points(loads);
    let study = plan.study.as_ref().map(|study| study_report(plan, study, &mut points));
    let is_curve =
        study.is_none() && plan.knobs.len() == 1 && points.iter().all(|point| point.value.is_some());
    let found = if is_curve { curve(&points) } else { Default::default() };
    let mut notes = found.notes;
    notes.extend(end_note(end));
    notes.extend(discarded_note(loads));
    if study.is_some() {
        notes.extend(left_out_note(&points));
    }
    let best = if is_curve || study.is_some() { None } else { best(&points, &mut notes) };
    SweepReport {
        schema: SCHEMA.into(),
        knob: plan.knobs.first().map(|knob| knob.name.clone()).unwrap_or_default(),
        knobs: plan.knobs.clone(),
        plateau: found.plateau,
        choice: found.choice,
        best,
        usl: found.usl,
        notes,
        original: plan.original.first().cloned().flatten(),
        environment: None,
        study,
        points,
    }
}

fn end_note(end: &SweepEnd) -> Option<String> {
    match end {
        SweepEnd::Measured => None,
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
    let do_not = if count == 1 { "does" } else { "do" };
    Some(format!(
        "{count} of {all} loads {do_not} not count and {} repeated; the last one: {last}.",
        if count == 1 { "was" } else { "were" }
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
fn best(points: &[SweepPoint], notes: &mut Vec<String>) -> Option<Vec<KnobValue>> {
    let mut rated: Vec<&SweepPoint> =
        points.iter().filter(|point| point.failed.is_none() && point.rate.is_some()).collect();
    rated.sort_by(|a, b| b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0)));
    let first = *rated.first()?;
    let reaches = |other: &&&SweepPoint| {
        let ends = other.ci95.zip(first.ci95);
        ends.is_some_and(|(other, best)| other[1] >= best[0])
    };
    if let Some(second) = rated.get(1).filter(reaches) {
        let less = 1.0 - second.rate.unwrap_or(0.0) / first.rate.unwrap_or(f64::NAN);
        notes.push(format!(
            "The next best has {} less, which is within the noise: repeat both to be sure (--repeat).",
            percent(less)
        ));
    }
    Some(first.values.clone())
}

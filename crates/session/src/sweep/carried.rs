//! What an interrupted sweep has measured, for the session that goes on with it, and for reports of one that was killed.

use crate::recording::Recording;
use std::path::Path;
use webdyno_analysis::sweep::{SweepEnd, sweep_report};
use webdyno_model::sweep::{SweepPlan, SweepPoint, SweepReport};
use webdyno_model::{Result, UserError};

/// The loads of the sweep in a run directory, which has to be the one that is wanted. Loads that were cut off are not among them.
pub fn carried_loads(directory: &Path, wanted: &SweepPlan) -> Result<Vec<SweepPoint>> {
    let recording = Recording::read(directory)?;
    let Some(plan) = &recording.sweep_plan else {
        return Err(UserError::usage(format!("{} is no sweep", directory.display()))
            .hint("--resume takes the run directory of an interrupted `webdyno sweep`"));
    };
    if let Some(difference) = difference(plan, wanted) {
        return Err(UserError::usage(format!(
            "the sweep in {} is another one: {difference}",
            directory.display()
        ))
        .hint("resume it with the command that began it, or begin a new one without --resume"));
    }
    let carried = |point: &SweepPoint| {
        let mut point = point.clone();
        point.loads.iter_mut().for_each(|load| load.load = None);
        point
    };
    Ok(recording.sweep_loads.iter().map(carried).collect())
}

/// What makes two sweeps different, with both sides.
fn difference(before: &SweepPlan, now: &SweepPlan) -> Option<String> {
    let knobs = |plan: &SweepPlan| {
        let named = plan.knobs.iter().zip(&plan.ranges);
        named.map(|(knob, range)| format!("{}={range}", knob.name)).collect::<Vec<_>>().join(", ")
    };
    if before.knobs != now.knobs || before.ranges != now.ranges {
        return Some(format!("it varies {}, and this one {}", knobs(before), knobs(now)));
    }
    if before.original != now.original {
        return Some("the settings of the server at its start were others than now".into());
    }
    if (before.repeat, before.seed) != (now.repeat, now.seed) {
        let shown = |plan: &SweepPlan| format!("--repeat {} --seed {}", plan.repeat, plan.seed);
        return Some(format!("it has {}, and this one {}", shown(before), shown(now)));
    }
    if before.objectives != now.objectives {
        return Some("it has other objectives (--slo)".into());
    }
    // As a log keeps it: without the requests of lists.
    let kept = |plan: &SweepPlan| serde_json::to_value(&plan.study).ok();
    if kept(before) != kept(now) {
        return Some("its contents send other requests or make other loads, or its levels are others".into());
    }
    let sent = |plan: &SweepPlan| serde_json::to_value(&plan.workload).ok();
    (sent(before) != sent(now)).then(|| "it sends other requests, or makes another load".into())
}

/// What a sweep came to, also one that was cut off; `None` of other sessions, and where nothing was measured.
pub fn recorded_report(recording: &Recording) -> Option<SweepReport> {
    if recording.sweep.is_some() {
        return recording.sweep.clone();
    }
    let plan = recording.sweep_plan.as_ref().filter(|_| !recording.sweep_loads.is_empty())?;
    let end = SweepEnd::Failed("it was cut off, or is still under way".into());
    let report = sweep_report(plan, &recording.sweep_loads, &end);
    Some(SweepReport { environment: recording.server.clone(), ..report })
}

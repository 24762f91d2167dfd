//! Two recordings side by side, for `webdyno compare` and for the browser.

use std::path::Path;
use webdyno_analysis::comparison::{ComparedRuns, LoadComparison, compare_runs};
use webdyno_model::compare::{CompareReport, SCHEMA};
use webdyno_model::interval::EndReason;
use webdyno_model::purpose::Purpose;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::{LoadRecord, Recording};
use webdyno_session::view::{Outcome, View};

/// One of the two loads, and where it was recorded.
struct ComparedLoad {
    directory: String,
    load: u32,
    runs: ComparedRuns,
}

/// Compares the sessions in two run directories; without the second one, the baseline of a tuning with its best load.
pub fn compare(a: &Path, b: Option<&Path>, max_regression: Option<f64>) -> Result<CompareReport> {
    let (a, b) = match b {
        Some(b) => (reported_load(a)?, reported_load(b)?),
        None => tuned_loads(a)?,
    };
    let LoadComparison { differences, metrics, runs: [a_runs, b_runs], intervals_from } =
        compare_runs(&a.runs, &b.runs)?;
    let is_regression = |max: f64| metrics.iter().filter(move |metric| metric.is_regression(max));
    let regressions =
        max_regression.map(|max| is_regression(max).map(|metric| metric.name.clone()).collect());
    Ok(CompareReport {
        schema: SCHEMA.into(),
        a: a.directory,
        b: b.directory,
        a_load: a.load,
        b_load: b.load,
        a_runs,
        b_runs,
        intervals_from,
        comparable: differences.is_empty(),
        differences,
        regressions: regressions.unwrap_or_default(),
        max_regression,
        metrics,
    })
}

/// The load that the report of a session is of: of a tuning the best one.
fn reported_load(directory: &Path) -> Result<ComparedLoad> {
    let recording = Recording::read(directory)?;
    let view = View::of(&recording)?;
    let has_load = matches!(view.outcome, Outcome::Run(_) | Outcome::Diagnosis(_) | Outcome::Tune(_));
    let load = view.reported_load.filter(|_| has_load);
    load.and_then(|load| load_of(&recording, directory, load)).ok_or_else(|| {
        UserError::cannot_run(format!("{} holds no load to compare", directory.display()))
            .hint("give directories of `webdyno run`, `webdyno diagnose URL` or `webdyno tune`; `webdyno report DIR` shows what this one holds")
    })
}

/// The first and the best load of a tuning.
fn tuned_loads(directory: &Path) -> Result<(ComparedLoad, ComparedLoad)> {
    let recording = Recording::read(directory)?;
    let of = |load: u32| load_of(&recording, directory, load);
    let ends = recording.tune_end.and_then(|end| of(end.baseline_load).zip(of(end.best_load)));
    ends.ok_or_else(|| {
        let message = format!(
            "{} is no tuning that came to its end: there is nothing to compare it with",
            directory.display()
        );
        UserError::usage(message).hint("give two run directories: `webdyno compare A B`")
    })
}

fn load_of(recording: &Recording, directory: &Path, load: u32) -> Option<ComparedLoad> {
    let chosen = recording.measurement(recording.load(load)?);
    // One that was cut short is the answer by itself, whatever the others were like.
    let is_whole = |record: &&LoadRecord| {
        let reason = record.end.as_ref().map(|(end, _)| end.reason);
        record.purpose == Purpose::Run && matches!(reason, Some(EndReason::Duration | EndReason::Requests))
    };
    let whole: Vec<&LoadRecord> = recording.loads.iter().filter(is_whole).collect();
    let stands_for_all = whole.iter().any(|record| record.load == load);
    let runs = whole.into_iter().filter(|_| stands_for_all).map(|record| recording.measurement(record));
    let runs = ComparedRuns { chosen, runs: runs.collect() };
    Some(ComparedLoad { directory: directory.display().to_string(), load, runs })
}

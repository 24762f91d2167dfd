//! Two recordings side by side, for `webdyno compare` and for the browser.

use std::path::Path;
use webdyno_analysis::comparison::compare_loads;
use webdyno_analysis::measurement::Measurement;
use webdyno_model::compare::{CompareReport, SCHEMA};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// One of the two loads, and where it was recorded.
struct ComparedLoad {
    directory: String,
    load: u32,
    measurement: Measurement,
}

/// Compares the sessions in two run directories; without the second one, the baseline of a tuning with its best load.
pub fn compare(a: &Path, b: Option<&Path>, max_regression: Option<f64>) -> Result<CompareReport> {
    let (a, b) = match b {
        Some(b) => (reported_load(a)?, reported_load(b)?),
        None => tuned_loads(a)?,
    };
    let (differences, metrics) = compare_loads(&a.measurement, &b.measurement)?;
    let is_regression = |max: f64| metrics.iter().filter(move |metric| metric.is_regression(max));
    let regressions =
        max_regression.map(|max| is_regression(max).map(|metric| metric.name.clone()).collect());
    Ok(CompareReport {
        schema: SCHEMA.into(),
        a: a.directory,
        b: b.directory,
        a_load: a.load,
        b_load: b.load,
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
    let measurement = recording.measurement(recording.load(load)?);
    Some(ComparedLoad { directory: directory.display().to_string(), load, measurement })
}

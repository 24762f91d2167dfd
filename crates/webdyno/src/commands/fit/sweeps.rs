//! Points of sweeps that were recorded: of one run directory, or of all in a directory.

use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::sweep::SweepReport;
use webdyno_model::{Result, UserError};
use webdyno_session::log::FILE_NAME;
use webdyno_session::recording::Recording;
use webdyno_session::sweep::recorded_report;

/// The points of the sweeps there, which must be of the same knobs.
pub fn read(directory: &Path) -> Result<SweepReport> {
    if directory.join(FILE_NAME).exists() {
        return recorded_report(&Recording::read(directory)?)
            .ok_or_else(|| no_sweep(directory, "is no sweep that measured a point"));
    }
    let mut sweeps = Vec::new();
    for run in run_directories(directory)? {
        sweeps.extend(recorded_report(&Recording::read(&run)?).map(|sweep| (run, sweep)));
    }
    let mut sweeps = sweeps.into_iter();
    let (first, mut all) = sweeps.next().ok_or_else(|| no_sweep(directory, "holds no sweep"))?;
    for (run, sweep) in sweeps {
        if sweep.knobs != all.knobs || sweep.knob != all.knob {
            let message =
                format!("{} varies {}, {} varies {}", first.display(), all.knob, run.display(), sweep.knob);
            return Err(UserError::usage(message)
                .hint("put sweeps of the same knobs together, or fit each by itself"));
        }
        all.points.extend(sweep.points);
        let further = sweep.objectives.into_iter().filter(|one| !all.objectives.contains(one));
        let further: Vec<_> = further.collect();
        all.objectives.extend(further);
    }
    let value = |point: &webdyno_model::sweep::SweepPoint| point.value.unwrap_or(f64::INFINITY);
    all.points.sort_by(|a, b| value(a).total_cmp(&value(b)));
    Ok(all)
}

fn run_directories(directory: &Path) -> Result<Vec<PathBuf>> {
    let wrong = |error: std::io::Error| io_error("read", directory.display(), &error);
    let entries = std::fs::read_dir(directory).map_err(wrong)?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(wrong)?;
    let mut runs: Vec<PathBuf> = paths.into_iter().filter(|path| path.join(FILE_NAME).exists()).collect();
    runs.sort();
    Ok(runs)
}

fn no_sweep(directory: &Path, why: &str) -> UserError {
    UserError::cannot_run(format!("{} {why}", directory.display())).hint(
        "give the directory of `webdyno sweep`, one that holds several, or a CSV of value,rate; `webdyno report DIR` shows what a run \
         directory holds",
    )
}

//! A scenario from its start to its end: up, its rounds, down.
//!
//! What a round is: [`rounds`]; what comes out: [`ScenarioOutcome`]. The hosts are behind a seam, so that a run can be tested
//! without namespaces.

mod child;
pub mod hosts;
pub mod outcome;
pub mod passive;
pub mod rounds;
pub mod text;
pub mod tuned;

use crate::scenario::{ScenarioFolder, ScenarioRound};
use outcome::{SCHEMA, ScenarioOutcome};
use passive::PassiveOutcome;
use rounds::RoundRunner;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tuned::TunedOutcome;
use webdyno_model::error::io_error;
use webdyno_model::number::significant;
use webdyno_model::{Result, UserError};

/// The hosts of a scenario that is up.
pub trait ScenarioHosts {
    /// A command that runs what is added to its arguments in a host.
    fn enter(&self, host: &str) -> Result<Command>;

    /// Makes the changes of limits, links and machine settings that a round asks for.
    fn change(&mut self, round: &ScenarioRound) -> Result<()>;

    /// Removes everything. Gives what somebody has to know about it, a line each.
    fn down(&mut self) -> Result<Vec<String>>;
}

/// How a scenario is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Where recordings and logs go; made anew.
    pub directory: PathBuf,
    /// This program, which makes the load.
    pub executable: PathBuf,
    /// How many rounds; `None` for all.
    pub rounds: Option<usize>,
    /// Whether the scenario stays up.
    pub keep: bool,
    /// Set when the user interrupts.
    pub interrupted: Arc<AtomicBool>,
}

impl RunOptions {
    /// An error once the user has interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) { Err(UserError::interrupted()) } else { Ok(()) }
    }
}

/// Runs a scenario. `up` builds it, and leaves nothing when it fails; `tell` gets a line for each thing that begins.
/// Whatever happens in between, it is taken down again, unless it is to be kept.
pub fn run(
    folder: &ScenarioFolder,
    options: &RunOptions,
    up: &mut dyn FnMut() -> Result<Box<dyn ScenarioHosts>>,
    on_progress: &mut dyn FnMut(&str),
) -> Result<ScenarioOutcome> {
    let scenario = &folder.scenario;
    let made = built(folder, options, up, on_progress, |drive| drive.rounds())?;
    let rounds = made.of_it;
    let proved = rounds.iter().all(|round| round.is_proved());
    Ok(ScenarioOutcome {
        schema: SCHEMA.into(),
        scenario: folder.name.clone(),
        title: scenario.title.clone(),
        group: scenario.group,
        rounds_in_all: scenario.rounds.len(),
        up_s: made.up_s,
        run_s: made.run_s,
        down_s: made.down_s,
        rounds,
        proved,
        directory: options.directory.display().to_string(),
    })
}

/// Watches the server of a scenario as it was found, under users whom nobody knows. Otherwise as [`run`].
pub fn run_passively(
    folder: &ScenarioFolder,
    options: &RunOptions,
    up: &mut dyn FnMut() -> Result<Box<dyn ScenarioHosts>>,
    on_progress: &mut dyn FnMut(&str),
) -> Result<PassiveOutcome> {
    built(folder, options, up, on_progress, |drive| drive.run_passively()).map(|made| made.of_it)
}

/// Tunes the server of a scenario as it was found, rolls back, and mends it by hand. Otherwise as [`run`].
pub fn run_tuned(
    folder: &ScenarioFolder,
    options: &RunOptions,
    up: &mut dyn FnMut() -> Result<Box<dyn ScenarioHosts>>,
    on_progress: &mut dyn FnMut(&str),
) -> Result<TunedOutcome> {
    built(folder, options, up, on_progress, |drive| drive.run_tuned()).map(|made| made.of_it)
}

/// What was done with a scenario that was up, and how long each part took.
struct TimedOutcome<T> {
    of_it: T,
    up_s: f64,
    run_s: f64,
    down_s: Option<f64>,
}

/// Builds a scenario, does something with it, and takes it down.
fn built<T>(
    folder: &ScenarioFolder,
    options: &RunOptions,
    up: &mut dyn FnMut() -> Result<Box<dyn ScenarioHosts>>,
    on_progress: &mut dyn FnMut(&str),
    drive: impl FnOnce(RoundRunner) -> Result<T>,
) -> Result<TimedOutcome<T>> {
    create_directory(&options.directory)?;
    on_progress(&format!("{}: up", folder.name));
    let began = Instant::now();
    // What was not built has nothing to record.
    let mut hosts = up().inspect_err(|_| drop(std::fs::remove_dir(&options.directory)))?;
    let up_s = seconds(began);
    let began = Instant::now();
    let driven = options
        .check()
        .and_then(|()| drive(RoundRunner { folder, options, hosts: &mut *hosts, progress: on_progress }));
    let run_s = seconds(began);
    let began = Instant::now();
    // What is to be kept for a look is also kept when something went wrong, but not when the user has had enough.
    let interrupted = options.check().is_err();
    let downed = if options.keep && !interrupted {
        on_progress(&format!("{0}: stays up; `webdyno lab down {0}` removes it", folder.name));
        Ok(None)
    } else {
        on_progress(&format!("{}: down", folder.name));
        hosts.down().map(|notes| {
            notes.iter().for_each(|note| on_progress(&format!("{}: {note}", folder.name)));
            Some(seconds(began))
        })
    };
    // Why the run failed matters more than that something could not be removed, which is told besides.
    if let (Err(_), Err(error)) = (&driven, &downed) {
        on_progress(&format!("{0}: {1}; `webdyno lab down {0}` tries again", folder.name, error.message));
    }
    if driven.is_err() {
        on_progress(&format!("{}: what was recorded is in {}", folder.name, options.directory.display()));
    }
    let of_it = driven?;
    Ok(TimedOutcome { of_it, up_s, run_s, down_s: downed? })
}

fn seconds(since: Instant) -> f64 {
    significant(since.elapsed().as_secs_f64(), 3)
}

/// A new directory, with those that it lies in.
fn create_directory(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        std::fs::create_dir_all(parent).map_err(|error| io_error("create", parent.display(), &error))?;
    }
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(UserError::usage(format!("{} exists already", path.display()))
                .hint("give a new directory with --out DIR; recordings are never overwritten"))
        }
        made => made.map_err(|error| io_error("create", path.display(), &error)),
    }
}

#[cfg(test)]
mod tests;

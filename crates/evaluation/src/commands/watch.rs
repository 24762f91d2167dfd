//! `webdyno-evaluation watch`: scenarios as they are found, under users of whom the diagnosis knows nothing.

use super::{ScenarioRunner, check_root, folders, print, print_note, write};
use crate::cli::ScenariosArgs;
use std::path::{Path, PathBuf};
use webdyno_evaluation::judge;
use webdyno_lab::packages;
use webdyno_lab::run::passive::{self, PassiveOutcome};
use webdyno_lab::run::{self, hosts};
use webdyno_lab::scenario::{Catalogue, ScenarioFolder};
use webdyno_model::{ErrorKind, Result, UserError};

/// A first finding was wrong.
const WRONG: u8 = 3;

/// Watches scenarios. Gives the exit code: 3 when a first finding is wrong, 1 when one of several could not be run.
pub fn watch(catalogue: &Catalogue, webdyno: Option<PathBuf>, arguments: &ScenariosArgs) -> Result<u8> {
    let mut folders = folders(catalogue, &arguments.names)?;
    check_root()?;
    packages::WRK.find()?;
    keep_those_with_users(&mut folders)?;
    let runner = ScenarioRunner::new(webdyno)?;
    let up = runner.up();
    let mut print_progress = |line: &str| {
        if !arguments.quiet {
            print_note(line);
        }
    };
    let mut code = 0;
    for folder in &folders {
        let options = runner.run(arguments, folder, folders.len())?;
        match run::run_passively(folder, &options, &mut || hosts::build(folder, &up), &mut print_progress) {
            Ok(outcome) => {
                print(&format!("{}\n", outcome.line()))?;
                code = if outcome.right || code != 0 { code } else { WRONG };
                if let Some(path) = &arguments.json {
                    keep(path, outcome)?;
                }
            }
            Err(error) if folders.len() == 1 || error.kind == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                super::print_error(&UserError {
                    message: format!("{}: {}", folder.name, error.message),
                    ..error
                });
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Leaves out those whose answer nobody could find who only watches, unless nothing else is left.
fn keep_those_with_users(folders: &mut Vec<ScenarioFolder>) -> Result<()> {
    let checked = |folder: &ScenarioFolder| {
        folder.scenario.rounds.first().map_or(Ok(()), |round| passive::check(&folder.name, round))
    };
    match &folders[..] {
        [only] => checked(only),
        _ => {
            folders.retain(|folder| checked(folder).is_ok());
            Ok(())
        }
    }
}

/// Puts what was found into a file, in place of what is there of the same scenario.
fn keep(path: &Path, outcome: PassiveOutcome) -> Result<()> {
    let text = if path.exists() { super::read(path)? } else { String::new() };
    let mut all = judge::passive_outcomes::read(&text, path)?;
    all.retain(|other| other.scenario != outcome.scenario);
    all.push(outcome);
    all.sort_by(|one, other| one.scenario.cmp(&other.scenario));
    let mut lines = String::new();
    for one in &all {
        let line = serde_json::to_string(one)
            .map_err(|error| UserError::cannot_run(format!("{} cannot be JSON: {error}", one.scenario)))?;
        lines.push_str(&(line + "\n"));
    }
    write(path, &lines)
}

//! `webdyno-evaluation tune`: what tuning reaches on scenarios as they are found, beside what their fix by hand does.

use super::{ScenarioRunner, check_root, folders, print, print_error, print_note, write};
use crate::cli::ScenariosArgs;
use std::path::PathBuf;
use webdyno_lab::run::{self, hosts};
use webdyno_lab::scenario::Catalogue;
use webdyno_model::{ErrorKind, Result, UserError};

/// A tuning ended with an error, left something behind, or fell short of the fix by hand.
const SHORT: u8 = 3;
/// The share of what the fix by hand reaches that counts as reached.
const SHARE_MIN: f64 = 0.9;

/// Tunes scenarios. Gives the exit code: 3 when one falls short, 1 when one could not be run.
pub fn tune(catalogue: &Catalogue, webdyno: Option<PathBuf>, arguments: &ScenariosArgs) -> Result<u8> {
    let folders = folders(catalogue, &arguments.names)?;
    check_root()?;
    let runner = ScenarioRunner::new(webdyno)?;
    let up = runner.up();
    let mut print_progress = |line: &str| {
        if !arguments.quiet {
            print_note(line);
        }
    };
    let (mut code, mut lines) = (0, String::new());
    for folder in &folders {
        let options = runner.run(arguments, folder, folders.len())?;
        match run::run_tuned(folder, &options, &mut || hosts::build(folder, &up), &mut print_progress) {
            Ok(outcome) => {
                print(&format!("{}\n", outcome.line()))?;
                let is_short = outcome.share_of_by_hand().is_some_and(|share| share < SHARE_MIN);
                let is_wrong = is_short || outcome.exit_code == 1 || outcome.not_restored.is_some();
                code = if is_wrong && code == 0 { SHORT } else { code };
                let line = serde_json::to_string(&outcome).map_err(|error| {
                    UserError::cannot_run(format!("{} cannot be JSON: {error}", outcome.scenario))
                })?;
                lines.push_str(&(line + "\n"));
                arguments.json.as_ref().map_or(Ok(()), |path| write(path, &lines))?;
            }
            Err(error) if folders.len() == 1 || error.kind == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                print_error(&UserError { message: format!("{}: {}", folder.name, error.message), ..error });
                code = 1;
            }
        }
    }
    Ok(code)
}

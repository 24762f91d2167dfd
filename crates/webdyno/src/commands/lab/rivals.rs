//! `webdyno lab rivals`: what apache2buddy and MySQLTuner say of scenarios, beside the diagnosis of the same load.

use super::run::folders;
use crate::cli::lab_run::LabRivalsArgs;
use crate::{interrupt, place, terminal};
use std::path::PathBuf;
use webdyno_host::change::journal::state::StateDir;
use webdyno_lab::rivals::kept::{self, Judged};
use webdyno_lab::rivals::{Asked, Heard, Options, ask};
use webdyno_lab::run;
use webdyno_lab::scenario::{Catalogue, Folder};
use webdyno_lab::up::{self, check_root};
use webdyno_model::error::io_error;
use webdyno_model::{ErrorKind, Result, UserError};

/// Asks about scenarios. Gives the exit code: 1 when one of several could not be run.
pub fn rivals(catalogue: &Catalogue, arguments: &LabRivalsArgs) -> Result<u8> {
    let folders = folders(catalogue, &arguments.names)?;
    check_root("rivals", &arguments.names.join(" "))?;
    let interrupted = interrupt::flag()?;
    let program = crate::commands::own_executable()?;
    let state = StateDir::of_environment()?.root().to_owned();
    let up = up::Options { program: program.clone(), state, stop: interrupted.clone() };
    let mut tell = |line: &str| {
        if !arguments.quiet {
            terminal::tell(line);
        }
    };
    let (mut failed, mut skipped) = (0, 0);
    for folder in &folders {
        let run = run::Options {
            directory: directory(arguments, folder, folders.len())?,
            executable: program.clone(),
            rounds: Some(1),
            keep: false,
            interrupted: interrupted.clone(),
        };
        match ask(folder, &Options { run, up: &up }, &mut tell) {
            Ok(heard) => {
                skipped += usize::from(matches!(heard.mysqltuner, Some(Asked::Skipped { .. })));
                tell_one(&heard, catalogue)?;
                if let Some(path) = &arguments.json {
                    kept::write(path, &[heard], catalogue)?;
                }
            }
            Err(error) if folders.len() == 1 || error.kind == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let message = format!("{}: {}", folder.name, error.message);
                terminal::tell_error(&UserError { message, ..error });
                failed += 1;
            }
        }
    }
    if skipped > 0 {
        terminal::tell(&format!(
            "webdyno: MySQLTuner was skipped in {skipped} of {} scenarios: apt-get install mysqltuner mariadb-client",
            folders.len()
        ));
    }
    Ok(u8::from(failed > 0))
}

/// A line for each of the three.
fn tell_one(heard: &Heard, catalogue: &Catalogue) -> Result<()> {
    let remedy = kept::remedy(catalogue, &heard.scenario)?;
    let Heard { scenario, answer, found, confidence, .. } = heard;
    let mut text = format!("{scenario}: {answer}\n  webdyno       {found} {confidence:.2}\n");
    let mut add = |name: &str, judged: &Judged| {
        let verdict = &judged.verdict;
        let words = [
            (verdict.names, "names it"),
            (!verdict.harms.is_empty(), "makes it worse"),
            (!verdict.needless.is_empty(), "needless"),
        ];
        let words: Vec<&str> = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        let worth = if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) };
        let says = if judged.says.is_empty() { "nothing".to_owned() } else { judged.says.join("; ") };
        text.push_str(&format!("  {name:12}  {says}{worth}\n"));
    };
    add("apache2buddy", &heard.apache2buddy(remedy.as_ref()));
    if let Some(judged) = heard.mysqltuner(remedy.as_ref()) {
        add("MySQLTuner", &judged);
    }
    terminal::print(&text)
}

/// Where the recording of a scenario goes: below what was given there is a directory for each of several.
fn directory(arguments: &LabRivalsArgs, folder: &Folder, scenarios: usize) -> Result<PathBuf> {
    let directory = match &arguments.out {
        Some(directory) if scenarios > 1 => directory.join(&folder.name),
        Some(directory) => directory.clone(),
        None => place::fresh_directory(&format!("lab-{}", folder.name)),
    };
    std::path::absolute(&directory).map_err(|error| io_error("find", directory.display(), &error))
}

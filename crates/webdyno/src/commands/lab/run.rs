//! `webdyno lab run`: scenarios one after the other, each built, driven through its rounds, judged, and removed.

use crate::cli::lab_run::LabRunArgs;
use crate::process::{interrupt_flag, own_executable};
use crate::{run_directory, terminal};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use webdyno_host::change::seams::state_dir::StateDir;
use webdyno_lab::build;
use webdyno_lab::preconditions::check_root;
use webdyno_lab::run::{self, RunOptions, hosts, text};
use webdyno_lab::scenario::{Catalogue, ScenarioFolder};
use webdyno_model::error::io_error;
use webdyno_model::{ErrorKind, Result, UserError};

/// A scenario did not prove itself.
const NOT_PROVED: u8 = 3;
/// The name that means all scenarios.
const ALL: &str = "all";

/// What came of one scenario, run once or several times.
#[derive(Default)]
struct ScenarioTally {
    made: u32,
    proved: u32,
    failed: u32,
}

/// Runs scenarios. Gives the exit code: 3 when one did not prove itself, 1 when one of several could not be run.
pub fn run(catalogue: &Catalogue, arguments: &LabRunArgs) -> Result<u8> {
    let folders = folders(catalogue, &arguments.names)?;
    check_root("run", &arguments.names.join(" "))?;
    let mut json = JsonOutput::open(arguments.json.as_deref())?;
    let interrupted = interrupt_flag()?;
    let single = folders.len() == 1 && arguments.repeat == 1;
    let mut tallies = vec![];
    for folder in &folders {
        let mut tally = ScenarioTally::default();
        for number in 1..=arguments.repeat {
            let options = RunOptions {
                directory: directory(arguments, folder, number, folders.len())?,
                executable: own_executable()?,
                rounds: arguments.rounds.map(|rounds| rounds as usize),
                // Kept is what the last run leaves: the next one could not be built beside it.
                keep: arguments.keep && number == arguments.repeat,
                interrupted: interrupted.clone(),
            };
            match one(folder, &options, arguments, &mut json) {
                Ok(proved) => (tally.made, tally.proved) = (tally.made + 1, tally.proved + u32::from(proved)),
                Err(error) if single || error.kind == ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    terminal::print_error(&UserError {
                        message: format!("{}: {}", folder.name, error.message),
                        ..error
                    });
                    tally.failed += 1;
                }
            }
        }
        tallies.push((&folder.name, tally));
    }
    if !single && !json.takes_stdout() {
        terminal::print_report(&summary(&tallies))?;
    }
    let failed = tallies.iter().any(|(_, tally)| tally.failed > 0);
    let proved = tallies.iter().all(|(_, tally)| tally.proved == tally.made);
    Ok(if failed {
        1
    } else if proved {
        0
    } else {
        NOT_PROVED
    })
}

fn one(
    folder: &ScenarioFolder,
    options: &RunOptions,
    arguments: &LabRunArgs,
    json: &mut JsonOutput,
) -> Result<bool> {
    let mut progress = |line: &str| {
        if !arguments.quiet {
            terminal::print_status(line);
        }
    };
    let up = build::BuildOptions {
        program: options.executable.clone(),
        state: StateDir::of_environment()?.root().to_owned(),
        stop: options.interrupted.clone(),
    };
    let outcome = run::run(folder, options, &mut || hosts::build(folder, &up), &mut progress)?;
    json.write(serde_json::to_string(&outcome))?;
    match json.takes_stdout() {
        false => terminal::print_report(&text::outcome_text(&outcome))?,
        // Whoever reads JSON sees at once what was not there.
        true if !outcome.proved => progress(&text::outcome_text(&outcome)),
        true => {}
    }
    Ok(outcome.proved)
}

/// The scenarios of these names, all of them checked before anything is built.
fn folders(catalogue: &Catalogue, names: &[String]) -> Result<Vec<ScenarioFolder>> {
    let known = catalogue.names()?;
    let mut wanted: Vec<&String> = vec![];
    for name in names {
        let named: Vec<&String> = if name == ALL { known.iter().collect() } else { vec![name] };
        wanted.extend(named.into_iter().filter(|name| !wanted.contains(name)).collect::<Vec<_>>());
    }
    let folders: Vec<ScenarioFolder> =
        wanted.into_iter().map(|name| catalogue.open(name)).collect::<Result<_>>()?;
    folders.iter().try_for_each(super::load::check)?;
    Ok(folders)
}

/// Where the recordings of a run go: below what was given there is a directory for each of several.
fn directory(
    arguments: &LabRunArgs,
    folder: &ScenarioFolder,
    number: u32,
    scenarios: usize,
) -> Result<PathBuf> {
    let mut directory = match &arguments.out {
        Some(directory) => directory.clone(),
        None => run_directory::new_run_directory(&format!("lab-{}", folder.name)),
    };
    if arguments.out.is_some() && scenarios > 1 {
        directory.push(&folder.name);
    }
    if arguments.out.is_some() && arguments.repeat > 1 {
        directory.push(number.to_string());
    }
    // From a host's point of view a relative path may mean something else.
    std::path::absolute(&directory).map_err(|error| io_error("find", directory.display(), &error))
}

/// `workers-exhausted-prefork: proved in 10 of 10`.
fn summary(tallies: &[(&String, ScenarioTally)]) -> String {
    let mut text = String::new();
    for (name, tally) in tallies {
        let failed =
            if tally.failed > 0 { format!(", {} could not be run", tally.failed) } else { String::new() };
        let _ = writeln!(text, "{name}: proved in {} of {}{failed}", tally.proved, tally.made + tally.failed);
    }
    text
}

/// Where the JSON goes.
struct JsonOutput {
    file: Option<(PathBuf, std::fs::File)>,
    stdout: bool,
}

impl JsonOutput {
    fn open(path: Option<&Path>) -> Result<Self> {
        let stdout = path.is_some_and(|path| path == Path::new("-"));
        let create = |path: &Path| {
            let file =
                std::fs::File::create(path).map_err(|error| io_error("write", path.display(), &error))?;
            Ok::<_, UserError>((path.to_owned(), file))
        };
        Ok(Self { file: path.filter(|_| !stdout).map(create).transpose()?, stdout })
    }

    fn takes_stdout(&self) -> bool {
        self.stdout
    }

    /// Writes a run, in one line.
    fn write(&mut self, reported: serde_json::Result<String>) -> Result<()> {
        use std::io::Write as _;
        let line = reported
            .map_err(|error| UserError::cannot_run(format!("the run cannot be written as JSON: {error}")))?
            + "\n";
        if self.stdout {
            terminal::print(&line)?;
        }
        match &mut self.file {
            Some((path, file)) => {
                file.write_all(line.as_bytes()).map_err(|error| io_error("write", path.display(), &error))
            }
            None => Ok(()),
        }
    }
}

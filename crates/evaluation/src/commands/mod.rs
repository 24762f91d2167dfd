//! The commands, and what they share: output, errors, the scenarios that they run, and the program that runs these.

pub mod draw;
pub mod judge;
pub mod pages;
pub mod rivals;
pub mod tune;
pub mod watch;

use crate::cli::ScenariosArgs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_host::change::seams::state_dir::StateDir;
use webdyno_lab::scenario::{Catalogue, ScenarioFolder};
use webdyno_lab::{build, preconditions, run};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The name that means all scenarios.
const ALL: &str = "all";

/// Writes to stdout.
pub fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| io_error("write to", "stdout", &error))
}

/// Writes one line to stderr.
pub fn print_note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An error in one line, and its hint in the next.
pub fn print_error(error: &UserError) {
    print_note(&format!("webdyno-evaluation: {}", error.message));
    if let Some(hint) = &error.hint {
        print_note(&format!("  hint: {hint}"));
    }
}

/// The text of a file.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| io_error("read", path.display(), &error))
}

/// Writes a whole file.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| io_error("write", path.display(), &error))
}

/// How scenarios are built and run.
struct ScenarioRunner {
    program: PathBuf,
    state: PathBuf,
    interrupted: Arc<AtomicBool>,
}

impl ScenarioRunner {
    /// With this program, or with the `webdyno` beside ours.
    fn new(webdyno: Option<PathBuf>) -> Result<Self> {
        let beside = || {
            let own = std::env::current_exe().map_err(|error| io_error("find", "this program", &error))?;
            Ok::<_, UserError>(own.with_file_name("webdyno"))
        };
        let program = webdyno.map_or_else(beside, Ok)?;
        // From a host's point of view a relative path may mean something else.
        let program = program.canonicalize().map_err(|error| {
            io_error("find", program.display(), &error).hint("cargo build -p webdyno makes it")
        })?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())
                .map_err(|error| UserError::cannot_run(format!("cannot handle signals: {error}")))?;
        }
        Ok(Self { program, state: StateDir::of_environment()?.root().to_owned(), interrupted })
    }

    fn up(&self) -> build::BuildOptions {
        let (program, state) = (self.program.clone(), self.state.clone());
        build::BuildOptions { program, state, stop: self.interrupted.clone() }
    }

    /// One scenario's first round. With several scenarios each has a directory of its own.
    fn run(
        &self,
        arguments: &ScenariosArgs,
        folder: &ScenarioFolder,
        scenarios: usize,
    ) -> Result<run::RunOptions> {
        let mut directory = arguments.out.clone();
        if scenarios > 1 {
            directory.push(&folder.name);
        }
        Ok(run::RunOptions {
            directory: std::path::absolute(&directory)
                .map_err(|error| io_error("find", directory.display(), &error))?,
            executable: self.program.clone(),
            rounds: Some(1),
            keep: false,
            interrupted: self.interrupted.clone(),
        })
    }
}

/// The scenarios of these names, each once.
fn folders(catalogue: &Catalogue, names: &[String]) -> Result<Vec<ScenarioFolder>> {
    let all = if names.iter().any(|name| name == ALL) { catalogue.names()? } else { vec![] };
    let mut wanted: Vec<&String> = vec![];
    for name in names.iter().filter(|name| *name != ALL).chain(&all) {
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    wanted.into_iter().map(|name| catalogue.open(name)).collect()
}

/// An error for whoever is not root.
fn check_root() -> Result<()> {
    preconditions::check_root("up", "")
        .map_err(|error| UserError { hint: Some("run it with sudo".into()), ..error })
}

//! Saved workloads that may be started from the browser: those that were named when the server began, one at a time, each as a
//! `webdyno run` of its own. Only a run that was started here can be stopped.

use crate::process::own_executable;
use crate::run_directory::new_directory_in;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use webdyno_load::workload::file;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// What is kept of what a run writes to stderr: its error and the hint.
const ERROR_BYTES_MAX: u64 = 4096;

/// What may be started, and what runs.
pub struct Control {
    /// Names and files, both distinct.
    workloads: Vec<(String, PathBuf)>,
    /// Where run directories go.
    runs: PathBuf,
    run: Mutex<Option<StartedRun>>,
}

/// A run that was started here: it goes on, or was the last one.
struct StartedRun {
    workload: String,
    session: String,
    child: Child,
    ended: Option<(Option<i32>, String)>,
}

impl Control {
    /// Of these workload files, or without any of those in `runs`. An error where a file is none, or there is none at all.
    pub fn new(named: &[PathBuf], runs: &Path) -> Result<Self> {
        let paths = if named.is_empty() { files_in(runs) } else { named.to_vec() };
        let mut workloads: Vec<(String, PathBuf)> = vec![];
        for path in paths {
            // What cannot be loaded, or is no workload, is told now.
            if let Err(error) = file::read(&path) {
                if named.is_empty() {
                    continue;
                }
                return Err(error);
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if workloads.iter().any(|(other, _)| *other == name) {
                return Err(UserError::usage(format!("two workloads are called {name}"))
                    .hint("rename one of the files"));
            }
            let path =
                std::path::absolute(&path).map_err(|error| io_error("find", path.display(), &error))?;
            workloads.push((name, path));
        }
        if workloads.is_empty() {
            let text =
                format!("--control has nothing to start: there is no workload file in {}", runs.display());
            return Err(UserError::usage(text).hint(
                "name one with --workload FILE.toml; `webdyno workload from-urls` makes one of a list",
            ));
        }
        Ok(Self { workloads, runs: runs.to_owned(), run: Mutex::new(None) })
    }

    /// What may be started, what runs, and how the last one ended.
    pub fn state(&self) -> Value {
        let run = self.current();
        let names: Vec<&str> = self.workloads.iter().map(|(name, _)| name.as_str()).collect();
        let told = run.as_ref().map(|run| {
            let (code, error) = run.ended.as_ref().map_or((None, None), |(code, error)| (*code, Some(error)));
            let is_over = run.ended.is_some();
            json!({ "workload": run.workload, "session": run.session, "is_over": is_over, "exit_code": code, "error": error })
        });
        json!({ "workloads": names, "run": told })
    }

    /// Starts a workload. An error when it is unknown or one runs already: two loads would measure each other.
    pub fn start(&self, name: &str) -> Result<()> {
        let mut run = self.current();
        if let Some(going) = run.as_ref().filter(|run| run.ended.is_none()) {
            return Err(UserError::usage(format!(
                "{} runs: two loads would measure each other",
                going.workload
            ))
            .hint("stop it, or wait for its end"));
        }
        let Some((_, path)) = self.workloads.iter().find(|(known, _)| known == name) else {
            return Err(UserError::usage(format!("there is no workload `{name}`")));
        };
        let directory = new_directory_in(&self.runs, &jiff::Timestamp::now().to_string(), "run");
        let started = Command::new(own_executable()?)
            .args(["run", "-q", "--workload"])
            .arg(path)
            .arg("--out")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = started.map_err(|error| io_error("start", path.display(), &error))?;
        let session = directory.strip_prefix(&self.runs).unwrap_or(&directory).to_string_lossy().into_owned();
        *run = Some(StartedRun { workload: name.into(), session, child, ended: None });
        Ok(())
    }

    /// Ends the run that goes on, as Ctrl-C does: with its results so far. Nothing where none does.
    pub fn stop(&self) {
        if let Some(run) = self.current().as_ref().filter(|run| run.ended.is_none()) {
            run.interrupt();
        }
    }

    /// Ends the run that goes on, and waits for its end.
    pub fn end(&self) {
        if let Some(run) = self.current().as_mut().filter(|run| run.ended.is_none()) {
            run.interrupt();
            let _ = run.child.wait();
        }
    }

    /// The run as it is now.
    fn current(&self) -> MutexGuard<'_, Option<StartedRun>> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = run.as_mut() {
            run.update();
        }
        run
    }
}

impl StartedRun {
    fn update(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        if self.ended.is_none() {
            let mut error = vec![];
            let stderr = self.child.stderr.take();
            let _ = stderr.map(|stderr| stderr.take(ERROR_BYTES_MAX).read_to_end(&mut error));
            self.ended = Some((status.code(), String::from_utf8_lossy(&error).trim().to_owned()));
        }
    }

    /// It has not been waited for, so its number is still its own.
    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
    }
}

/// The files in a directory that may be workloads, by name.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    paths.sort();
    paths
}

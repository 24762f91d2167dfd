//! A command that is waited for: with a bound on its time, ended when the user interrupts, its output in a file.
//!
//! The output goes to a file, as a daemon that a command starts keeps what it inherits: whoever read a pipe would wait
//! for the daemon.

use super::RunOptions;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

const POLL: Duration = Duration::from_millis(20);
/// What is interrupted ends in order within this time, or is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Characters of a command's output that an error shows: its end.
const SHOWN_MAX: usize = 2000;

/// Runs a command to its end. Its output goes to `log`, after what is there. `None` when its time was over.
pub fn run(
    command: Command,
    what: &str,
    log: &Path,
    bound: Duration,
    options: &RunOptions,
) -> Result<Option<ExitStatus>> {
    let mut child = start(command, what, log)?;
    let begun = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|error| io_error("wait for", what, &error))?;
        if ended.is_some() {
            options.check()?;
            return Ok(ended);
        }
        if options.check().is_err() {
            end(&mut child);
            return Err(UserError::interrupted());
        }
        if begun.elapsed() > bound {
            end(&mut child);
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Starts a command. Its output goes to `log`, after what is there.
fn start(mut command: Command, what: &str, log: &Path) -> Result<Child> {
    let open = || File::options().create(true).append(true).open(log);
    let file = open().map_err(|error| io_error("write", log.display(), &error))?;
    let other = file.try_clone().map_err(|error| io_error("write", log.display(), &error))?;
    command.stdin(Stdio::null()).stdout(file).stderr(other);
    command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        io_error("start", format_args!("{program} for {what}"), &error)
    })
}

/// A command that goes on beside us, and is ended when it is let go.
pub struct BackgroundCommand(Child);

impl BackgroundCommand {
    /// Starts it, as [`run`] does.
    pub fn start(command: Command, what: &str, log: &Path) -> Result<Self> {
        start(command, what, log).map(Self)
    }

    /// How it ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for BackgroundCommand {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a process, in order if it can. What it started in a host ends with the host.
fn end(child: &mut Child) {
    let begun = Instant::now();
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    while begun.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(POLL);
    }
    drop(child.kill());
    drop(child.wait());
}

/// The end of a log, as an error shows it: indented below its first line. Empty when there is none.
pub fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(SHOWN_MAX);
    let displayed: String = text.chars().skip(skipped).collect();
    displayed.lines().map(|line| format!("\n  {line}")).collect()
}

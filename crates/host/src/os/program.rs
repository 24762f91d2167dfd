//! Runs a program for a bounded time and without a shell.

use crate::os::process_location::HeldLocation;
use crate::os::spawn::spawn_in;
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::service::{Control, Inherited};
use webdyno_model::{Result, UserError};

/// Most bytes of output that are kept.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A command that is ready to run.
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    /// Absolute path.
    pub executable: &'a str,
    /// Without the program's name.
    pub arguments: Vec<String>,
    /// The whole environment; `None` keeps ours.
    pub environment: Option<&'a BTreeMap<String, String>>,
    /// Working directory; `None` keeps ours.
    pub directory: Option<&'a str>,
}

impl<'a> Invocation<'a> {
    /// The program of a service with these arguments, in its environment and directory.
    pub fn of(control: &'a Control, arguments: Vec<String>) -> Self {
        Self {
            executable: &control.executable,
            arguments,
            environment: Some(&control.environment),
            directory: Some(&control.directory),
        }
    }

    /// The same with these options before its own.
    pub fn with_options(control: &'a Control, options: &[&str]) -> Self {
        let own = control.arguments.iter().skip(1).cloned();
        Self::of(control, options.iter().map(|&option| option.to_owned()).chain(own).collect())
    }
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Whether it ended with code 0.
    pub success: bool,
    /// What it wrote to standard output, bounded.
    pub stdout: String,
    /// What it wrote to standard error, bounded.
    pub stderr: String,
}

/// Runs a command to its end. An error when it cannot be started or takes longer than `timeout`; it is ended then.
///
/// Output goes to memory files: a daemon that the command leaves behind may keep them open without blocking us.
pub fn run(invocation: &Invocation<'_>, timeout: Duration) -> Result<Finished> {
    run_in(invocation, None, &HeldLocation::default(), timeout)
}

/// The same for a program that is to have inherited something else than we have, and to run elsewhere.
pub fn run_in(
    invocation: &Invocation<'_>,
    inherited: Option<&Inherited>,
    place: &HeldLocation,
    timeout: Duration,
) -> Result<Finished> {
    let name = invocation.executable;
    let memory = |what: &str| {
        let fd = rustix::fs::memfd_create("webdyno-output", MemfdFlags::CLOEXEC);
        fd.map(File::from).map_err(|error| io_error("make a memory file for", what, &error.into()))
    };
    let (stdout, stderr) = (memory("standard output")?, memory("standard error")?);
    let failed = |error: &std::io::Error| io_error("run", name, error);
    let mut command = command(invocation);
    command.stdout(stdout.try_clone().map_err(|e| failed(&e))?);
    command.stderr(stderr.try_clone().map_err(|e| failed(&e))?);
    let mut child = spawn_in(&mut command, inherited, place).map_err(|error| failed(&error))?;
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            break status;
        }
        if Instant::now() >= deadline {
            // Its own child, which no one else waits for: it cannot be another process.
            let _ = child.kill();
            let _ = child.wait();
            return Err(UserError::cannot_run(format!("{name} did not end within {} s", timeout.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Finished { success: status.success(), stdout: contents(&stdout), stderr: contents(&stderr) })
}

/// The command with its arguments, environment and directory, its input closed.
pub fn command(invocation: &Invocation<'_>) -> Command {
    let mut command = Command::new(invocation.executable);
    command.args(&invocation.arguments).stdin(Stdio::null());
    if let Some(environment) = invocation.environment {
        command.env_clear().envs(environment);
    }
    if let Some(directory) = invocation.directory.filter(|directory| Path::new(directory).is_dir()) {
        command.current_dir(directory);
    }
    command
}

/// What stands for messages where there are none.
pub const NO_MESSAGE: &str = "it said nothing";

/// The messages of a program in one line, bounded.
pub fn summary(text: &str) -> String {
    const LINES_MAX: usize = 6;
    const CHARACTERS_MAX: usize = 300;
    let lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(LINES_MAX)
        .map(|line| line.trim().chars().take(CHARACTERS_MAX).collect())
        .collect();
    if lines.is_empty() { NO_MESSAGE.into() } else { lines.join("; ") }
}

fn contents(file: &File) -> String {
    let mut bytes = vec![0; OUTPUT_BYTES_MAX];
    let mut filled = 0;
    while let Ok(count @ 1..) = file.read_at(&mut bytes[filled..], filled as u64) {
        filled += count;
    }
    String::from_utf8_lossy(&bytes[..filled]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::timeouts;

    #[test]
    fn messages_are_joined_and_bounded() {
        assert_eq!(summary(" a\n\nb\n"), "a; b");
        assert_eq!(summary(""), NO_MESSAGE);
        assert!(summary(&"x\n".repeat(100)).len() < 100);
        assert!(summary(&"x".repeat(10_000)).len() <= 300);
    }

    #[test]
    fn a_program_is_run_without_a_shell_and_bounded() {
        let invoke = |executable, arguments: &[&str]| Invocation {
            executable,
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: None,
            directory: None,
        };
        let echoed = run(&invoke("/bin/echo", &["$HOME;", "x"]), timeouts::QUERY).unwrap();
        assert_eq!((echoed.success, echoed.stdout.as_str()), (true, "$HOME; x\n"));
        assert!(!run(&invoke("/bin/false", &[]), timeouts::QUERY).unwrap().success);
        let slow = run(&invoke("/bin/sleep", &["20"]), Duration::from_millis(50)).unwrap_err();
        assert!(slow.message.contains("did not end"), "{slow}");
        let none = run(&invoke("/no/such/program", &[]), timeouts::QUERY).unwrap_err();
        assert_eq!(none.message, "cannot run /no/such/program: no such file or directory");
    }
}

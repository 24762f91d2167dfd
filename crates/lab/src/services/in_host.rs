//! Short scripts of sh(1) that run inside of a host: they start a program, wait until it is ready, and tell why not.

use crate::scenario::ScenarioService;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// What the scripts share.
const PRELUDE: &str = include_str!("prelude.sh");
/// Lines of a log that an error tells.
const LINES_QUOTED_MAX: usize = 6;
/// How much of what a script said is read.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// A host in which commands can run.
pub struct CommandHost<'a> {
    /// Its name.
    pub host: &'a str,
    /// Where what a script says is kept while it runs: no pipe, which a server in the background would hold open.
    pub scratch: &'a std::path::Path,
    /// Gives a command to which the program and its arguments are added.
    pub enter: &'a dyn Fn() -> Result<Command>,
}

impl CommandHost<'_> {
    /// Runs the script of a service to its end: `$1` is its limit of open files, `arguments` are `$2`.. An error tells
    /// what it said.
    pub fn run(
        &self,
        service: &ScenarioService,
        name: &str,
        script: &str,
        arguments: &[&str],
        deadline: Instant,
    ) -> Result<()> {
        self.run_with(service, name, script, arguments, b"", deadline)
    }

    /// The same with standard input.
    pub fn run_with(
        &self,
        service: &ScenarioService,
        name: &str,
        script: &str,
        arguments: &[&str],
        input: &[u8],
        deadline: Instant,
    ) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        let mut command = (self.enter)()?;
        // timeout(1) inside of the host ends what the script has started; from outside only the entering would end.
        let script = format!("{PRELUDE}{script}");
        let left = format!("{:.3}", left.as_secs_f64());
        command.args(["timeout", "-k", "1", &left, "sh", "-c", &script, name]);
        command.arg(service.open_files.map(|files| files.to_string()).unwrap_or_default());
        let mut output = self.scratch_file(b"")?;
        let clone = |file: &std::fs::File| {
            file.try_clone().map_err(|error| io_error("share", self.scratch.display(), &error))
        };
        command.args(arguments).stdin(Stdio::from(self.scratch_file(input)?)).stdout(clone(&output)?);
        command.stderr(clone(&output)?);
        let status = command.status().map_err(|error| io_error("start", name, &error))?;
        if status.success() {
            return Ok(());
        }
        let mut text = vec![];
        let read = output
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&output).take(OUTPUT_BYTES_MAX).read_to_end(&mut text));
        read.map_err(|error| io_error("read", self.scratch.display(), &error))?;
        let why = match status.code() {
            // What timeout(1) says when the time is over, and when it had to kill.
            Some(124 | 137) => "is not ready in time",
            _ => "does not start",
        };
        Err(command_error(name, self.host, why, &String::from_utf8_lossy(&text)))
    }

    /// A file without a name.
    fn scratch_file(&self, bytes: &[u8]) -> Result<std::fs::File> {
        let made = rustix::fs::open(
            self.scratch,
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        );
        let made = made.map_err(std::io::Error::from).and_then(|descriptor| {
            let mut file = std::fs::File::from(descriptor);
            file.write_all(bytes)?;
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        });
        made.map_err(|error| io_error("create a file in", self.scratch.display(), &error))
    }
}

fn command_error(name: &str, host: &str, why: &str, output: &str) -> UserError {
    // What the shell says of a program that it ended itself is no reason.
    let is_said = |line: &&str| !line.is_empty() && *line != "Terminated";
    let lines: Vec<&str> = output.lines().map(str::trim).filter(is_said).collect();
    let last = &lines[lines.len().saturating_sub(LINES_QUOTED_MAX)..];
    let end = if last.is_empty() { "it said nothing".to_owned() } else { last.join(" / ") };
    UserError::cannot_run(format!("{name} {why} on {host}: {end}"))
}

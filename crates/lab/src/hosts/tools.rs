//! Programs of others, run while a scenario is built: in a group of the scenario, so that `down` finds and ends them also
//! when whoever started them was killed.

use crate::lab::join_groups;
use crate::packages::ExternalProgram;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Runs programs.
#[derive(Debug, Clone, Default)]
pub struct ToolRunner {
    /// The group; `None` runs them as they are.
    pub group: Option<PathBuf>,
}

impl ToolRunner {
    /// Runs one to its end; what it wrote to stdout. An error tells what it said.
    pub fn run(&self, program: ExternalProgram, arguments: &[&str]) -> Result<String> {
        self.run_with_input(program, arguments, "")
    }

    /// The same with something on its stdin.
    pub fn run_with_input(
        &self,
        program: ExternalProgram,
        arguments: &[&str],
        input: &str,
    ) -> Result<String> {
        let file = program.find()?;
        let mut command = match &self.group {
            Some(group) => join_groups(std::slice::from_ref(group)),
            None => Command::new("/usr/bin/env"),
        };
        command.arg(file).args(arguments).env("LC_ALL", "C");
        let output =
            output_with_input(command, input).map_err(|error| io_error("run", program.name, &error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let printed = String::from_utf8_lossy(&output.stderr);
        let printed =
            printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let text =
            format!("`{} {}` failed: {printed} ({})", program.name, arguments.join(" "), output.status);
        Err(UserError::cannot_run(text))
    }
}

/// Runs a command with something on its stdin, which must fit into a pipe (64 KiB).
fn output_with_input(mut command: Command, input: &str) -> std::io::Result<Output> {
    // Ctrl-C is ours to hear: what removes things must not be ended by it.
    command.process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    child.wait_with_output()
}

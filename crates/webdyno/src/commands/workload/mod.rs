//! `webdyno workload`: what is done with workload files, without any load. One file for each command.

mod check;

use crate::cli::workload::{WorkloadArgs, WorkloadCommand};
use webdyno_model::Result;

/// Runs one of them. Gives the exit code.
pub fn workload(arguments: &WorkloadArgs) -> Result<u8> {
    match &arguments.command {
        WorkloadCommand::Check(arguments) => check::check(arguments),
    }
}

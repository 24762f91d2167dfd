//! `webdyno workload check`: reads a workload file and tells what it means.

use crate::cli::workload::CheckArgs;
use crate::terminal;
use webdyno_model::Result;

/// Reads the file. Gives the exit code.
pub fn check(arguments: &CheckArgs) -> Result<u8> {
    let workload = webdyno_load::workload_file::read(&arguments.file)?;
    terminal::print(&format!("{}: {} requests\n", arguments.file.display(), workload.requests.len()))?;
    Ok(0)
}

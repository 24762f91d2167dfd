//! `webdyno workload check`: reads a workload file and tells what it means.

use crate::cli::open_file_connections_max;
use crate::cli::workload::CheckArgs;
use crate::measuring::objectives;
use crate::terminal;
use webdyno_load::workload::file;
use webdyno_model::Result;

/// Reads the file and tells what it means. Gives the exit code.
pub fn check(arguments: &CheckArgs) -> Result<u8> {
    let mut draft = file::read(&arguments.file)?;
    draft.settings.connections_allowed = open_file_connections_max(None);
    let workload = draft.workload_as_written()?;
    objectives::check_before_probe(&draft.objectives, &draft.objective_places, &workload, &[])?;
    let objectives: Vec<&str> = draft.objectives.iter().map(|objective| objective.text()).collect();
    let reported = file::describe(&workload, &objectives);
    terminal::print(&format!("{} is right.\n{reported}", arguments.file.display()))?;
    Ok(0)
}

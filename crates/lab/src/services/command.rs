//! A program of the scenario's own: a command line in the foreground, with its output in /var/log.

use super::in_host::CommandHost;
use crate::scenario::{LabProgram, ScenarioFolder, ScenarioService};
use std::time::Instant;
use webdyno_model::Result;

/// Starts it in the background and waits until it is ready.
pub fn start(
    inside: &CommandHost,
    folder: &ScenarioFolder,
    service: &ScenarioService,
    deadline: Instant,
) -> Result<()> {
    let log = log_of(folder, service);
    let line = service.command.as_deref().unwrap_or_default();
    let ready = service.ready.as_deref().unwrap_or_default();
    let name = format!("`{line}`");
    inside.run(service, &name, include_str!("command.sh"), &[&log, line, ready], deadline)
}

/// The log: command.log for the first one of a host, command-2.log for the second, and so on.
fn log_of(folder: &ScenarioFolder, service: &ScenarioService) -> String {
    let of_host =
        |other: &&ScenarioService| other.program == LabProgram::Command && other.host == service.host;
    let before =
        folder.scenario.services.iter().filter(of_host).take_while(|other| *other != service).count();
    match before {
        0 => "/var/log/command.log".into(),
        _ => format!("/var/log/command-{}.log", before + 1),
    }
}

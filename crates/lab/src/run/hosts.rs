//! The hosts of a run, made of namespaces and control groups.

use super::ScenarioHosts;
use crate::scenario::{MachineSettings, ScenarioFolder, ScenarioRound};
use crate::{Lab, build, remove};
use std::path::PathBuf;
use std::process::Command;
use webdyno_model::Result;

/// A scenario that is up.
struct RunningScenario {
    lab: Lab,
    name: String,
    state: PathBuf,
}

/// Builds a scenario for a run. Nothing of it is left when that fails.
pub fn build(folder: &ScenarioFolder, options: &build::BuildOptions) -> Result<Box<dyn ScenarioHosts>> {
    let lab = build::build(folder, options)?;
    Ok(Box::new(RunningScenario { lab, name: folder.name.clone(), state: options.state.clone() }))
}

impl ScenarioHosts for RunningScenario {
    fn enter(&self, host: &str) -> Result<Command> {
        self.lab.enter_host(host)
    }

    fn change(&mut self, round: &ScenarioRound) -> Result<()> {
        if round.machine != MachineSettings::default() {
            self.lab.change_machine(&round.machine)?;
        }
        for (name, host) in &round.hosts {
            self.lab.change_host(name, host)?;
        }
        round.links.iter().try_for_each(|link| self.lab.change_link(link))
    }

    fn down(&mut self) -> Result<Vec<String>> {
        remove::down(&self.state, &self.name).map(|removed| removed.notes)
    }
}

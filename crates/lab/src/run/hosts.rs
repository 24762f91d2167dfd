//! The hosts of a run, made of namespaces and control groups.

use super::Hosts;
use crate::scenario::{Folder, Machine, Round};
use crate::{Lab, down, up};
use std::path::PathBuf;
use std::process::Command;
use webdyno_model::Result;

/// A scenario that is up.
struct Up {
    lab: Lab,
    name: String,
    state: PathBuf,
}

/// Builds a scenario for a run. Nothing of it is left when that fails.
pub fn build(folder: &Folder, options: &up::Options) -> Result<Box<dyn Hosts>> {
    let lab = up::up(folder, options)?;
    Ok(Box::new(Up { lab, name: folder.name.clone(), state: options.state.clone() }))
}

impl Hosts for Up {
    fn enter(&self, host: &str) -> Result<Command> {
        self.lab.enter(host)
    }

    fn change(&mut self, round: &Round) -> Result<()> {
        if round.machine != Machine::default() {
            self.lab.change_machine(&round.machine)?;
        }
        for (name, host) in &round.hosts {
            self.lab.change_host(name, host)?;
        }
        round.links.iter().try_for_each(|link| self.lab.change_link(link))
    }

    fn down(&mut self) -> Result<Vec<String>> {
        down::down(&self.state, &self.name).map(|removed| removed.notes)
    }
}

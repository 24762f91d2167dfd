//! What must hold before a scenario is built or removed: the right to do it, the place, and that the scenario is ours.

use crate::cgroups::{self, GroupTree};
use crate::journal::ScenarioPlace;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// An error for whoever is not root.
pub fn check_root(command: &str, name: &str) -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(UserError::cannot_run(format!(
            "`webdyno lab {command}` needs root: hosts have namespaces and control groups of their own"
        ))
        .hint(format!("sudo webdyno lab {command} {name}"))),
    }
}

/// An error for whoever is on a host: the end of its scenario would be ours, half-way.
pub(crate) fn check_not_on_lab_host(command: &str) -> Result<()> {
    let path = "/proc/self/cgroup";
    let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error))?;
    match cgroups::host_of(&text) {
        None => Ok(()),
        Some((scenario, host)) => Err(UserError::cannot_run(format!(
            "`webdyno lab {command}` was typed on the host `{host}` of `{scenario}`, and would end with it"
        ))
        .hint("leave the host with `exit`, and repeat it")),
    }
}

/// An error when a scenario of this name was built with another state directory: its groups would be taken for ours.
pub(crate) fn check_same_state_directory(place: &ScenarioPlace, tree: &GroupTree) -> Result<()> {
    match tree.foreign_root(&place.path()) {
        None => Ok(()),
        Some(folder) => Err(UserError::cannot_run(format!(
            "the scenario `{}` is up already, with its files in {}",
            place.name(),
            folder.display()
        ))
        .hint("set WEBDYNO_STATE to the folder that holds that `lab`, then `webdyno lab down` removes it")),
    }
}

//! Removes a scenario, whole or half-built: by its journal, and by what is found under its name.
//!
//! Order: processes (with them go namespaces, cables, mounts), groups, swap, loop devices, settings of the machine, files.
//! Facts: proc_swaps(5), `/sys/block/loopN/loop/backing_file` (loop(4)).

use crate::cgroups::GroupTree;
use crate::hosts::{ToolRunner, disks};
use crate::journal::{Act, JournalContent, ScenarioLock, ScenarioPlace};
use crate::machine;
use crate::preconditions::{check_not_on_lab_host, check_root, check_same_state_directory};
use std::path::Path;
use webdyno_model::{Result, UserError};

/// How a removal went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Whether there was anything.
    pub existed: bool,
    /// What somebody has to know, a line each.
    pub notes: Vec<String>,
}

/// Removes a scenario, if any of it is there.
pub fn down(state: &Path, name: &str) -> Result<Removal> {
    let place = ScenarioPlace::of(state, name)?;
    let nothing = Removal { existed: false, notes: vec![] };
    if !exists(&place)? {
        return Ok(nothing);
    }
    check_root("down", name)?;
    check_not_on_lab_host("down")?;
    check_same_state_directory(&place, &GroupTree::of_machine(name)?)?;
    take_down(ScenarioLock::acquire(&place)?)
}

/// Names of all scenarios of which anything is there, and whether each is up as a whole.
pub fn all(state: &Path) -> Result<Vec<(String, bool)>> {
    let places = ScenarioPlace::all(state)?;
    let is_up =
        |place: &ScenarioPlace| place.read().ok().flatten().is_some_and(|reported| reported.is_complete());
    Ok(places.iter().map(|place| (place.name().to_owned(), is_up(place))).collect())
}

/// Whether anything of a scenario is there.
fn exists(place: &ScenarioPlace) -> Result<bool> {
    Ok(place.path().exists() || GroupTree::of_machine(place.name())?.exists())
}

/// Removes what there is of a scenario that is claimed. An error when something of it stays: then it can be tried again.
pub(crate) fn take_down(claimed: ScenarioLock) -> Result<Removal> {
    let place = claimed.place().clone();
    let reported = place.read()?.unwrap_or_default();
    let tree = GroupTree::of_machine(place.name())?;
    let tools = ToolRunner::default();
    let removed = tree
        .remove()
        .and_then(|()| machine::remove_swap(&tools, &place.path()))
        .and_then(|()| disks::detach(&tools, &place.path()));
    // The machine's settings do not wait for what does not end.
    let notes = if reported.is_of_another_boot() { vec![] } else { revert_machine_settings(&reported) };
    removed?;
    let damaged = reported.damaged.first().copied();
    claimed.remove()?;
    if let Some(line) = damaged {
        let text = format!(
            "line {line} of the journal of `{}` was damaged: everything else is removed, but a setting of this machine \
             that it told of stays as it is",
            place.name()
        );
        return Err(UserError::cannot_run(text)
            .hint("`sysctl -a` shows the settings; they are as they were when the machine is started anew"));
    }
    Ok(Removal { existed: true, notes })
}

/// Puts settings of the machine back, and takes controllers from groups that nobody uses; the notes about it.
fn revert_machine_settings(reported: &JournalContent) -> Vec<String> {
    for act in reported.acts.iter().rev() {
        if let Act::Controllers { path, added } = act {
            // Refused while somebody else uses them; nothing hangs on it.
            for name in added.split(' ') {
                let _ = std::fs::write(path, format!("-{name}\n"));
            }
        }
    }
    machine::changed_settings(&reported.acts)
        .iter()
        .rev()
        .filter_map(machine::ChangedSetting::revert)
        .collect()
}

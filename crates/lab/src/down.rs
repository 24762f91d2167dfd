//! Removes a scenario, whole or half-built: by its journal, and by what is found under its name.
//!
//! Order: processes (with them go namespaces, cables, mounts), groups, swap, loop devices, settings of the machine, files.
//! Facts: proc_swaps(5), `/sys/block/loopN/loop/backing_file` (loop(4)).

use crate::groups::Tree;
use crate::hosts::{Tools, disks};
use crate::journal::{Act, Claimed, Place, Told};
use crate::machine;
use crate::preconditions::{check_outside, check_own, check_root};
use std::path::Path;
use webdyno_model::{Result, UserError};

/// How a removal went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Whether there was anything.
    pub was_there: bool,
    /// What somebody has to know, a line each.
    pub notes: Vec<String>,
}

/// Removes a scenario, if any of it is there.
pub fn down(state: &Path, name: &str) -> Result<Removed> {
    let place = Place::of(state, name)?;
    let nothing = Removed { was_there: false, notes: vec![] };
    if !is_there(&place)? {
        return Ok(nothing);
    }
    check_root("down", name)?;
    check_outside("down")?;
    check_own(&place, &Tree::of_this_machine(name)?)?;
    take_down(Claimed::take(&place)?)
}

/// Names of all scenarios of which anything is there, and whether each is up as a whole.
pub fn all(state: &Path) -> Result<Vec<(String, bool)>> {
    let places = Place::all(state)?;
    let is_up = |place: &Place| place.told().ok().flatten().is_some_and(|told| told.is_up());
    Ok(places.iter().map(|place| (place.name().to_owned(), is_up(place))).collect())
}

/// Whether anything of a scenario is there.
fn is_there(place: &Place) -> Result<bool> {
    Ok(place.path().exists() || Tree::of_this_machine(place.name())?.exists())
}

/// Removes what there is of a scenario that is claimed. An error when something of it stays: then it can be tried again.
pub(crate) fn take_down(claimed: Claimed) -> Result<Removed> {
    let place = claimed.place().clone();
    let told = place.told()?.unwrap_or_default();
    let tree = Tree::of_this_machine(place.name())?;
    let tools = Tools::default();
    let removed = tree
        .remove()
        .and_then(|()| machine::remove_swap(&tools, &place.path()))
        .and_then(|()| disks::detach(&tools, &place.path()));
    // The machine's settings do not wait for what does not end.
    let notes = if told.is_of_another_boot() { vec![] } else { put_back(&told) };
    removed?;
    let damaged = told.damaged.first().copied();
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
    Ok(Removed { was_there: true, notes })
}

/// Puts settings of the machine back, and takes controllers from groups that nobody uses; the notes about it.
fn put_back(told: &Told) -> Vec<String> {
    for act in told.acts.iter().rev() {
        if let Act::Controllers { path, added } = act {
            // Refused while somebody else uses them; nothing hangs on it.
            for name in added.split(' ') {
                let _ = std::fs::write(path, format!("-{name}\n"));
            }
        }
    }
    machine::changed(&told.acts).iter().rev().filter_map(machine::Changed::put_back).collect()
}

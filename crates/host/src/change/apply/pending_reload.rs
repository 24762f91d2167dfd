//! Changes of others that wait for a reload: ours would put them in force, too, so it is refused until the operator
//! accepts that. Reverting never asks: it must end at the original whatever others did.

use crate::change::action::{Action, Served};
use crate::change::journal;
use crate::change::journal::history::{Entry, History};
use crate::change::seams::Tools;
use crate::change::seams::disk::folder_of;
use crate::services::Tunable;
use std::path::{Path, PathBuf};
use webdyno_model::change::{ApplyClass, ApplyOptions};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// How many changes are named.
const NAMED_MAX: usize = 10;

/// Refuses a reload or restart that would put changes of others in force. When the operator accepts that, gives what
/// they are, in words. `own` are files and directories that are newer by us.
pub fn check(
    service: &dyn Tunable,
    served: &Served,
    class: ApplyClass,
    own: &[PathBuf],
    options: &ApplyOptions,
) -> Result<Vec<String>> {
    if class < ApplyClass::Reload {
        return Ok(vec![]);
    }
    let found = service.pending_changes(&served.control, served.port, own)?;
    let message: Vec<String> = found.iter().map(ToString::to_string).collect();
    match message.is_empty() || options.yes_reload {
        true => Ok(named(&message)),
        false => Err(refusal(service.name(), &message)),
    }
}

/// The error that names what waits, and says how to look at it and how to go on.
pub fn refusal(service: &str, message: &[String]) -> UserError {
    UserError::cannot_run(format!(
        "changing {service} would put changes of others in force: {}",
        named(message).join("; ")
    ))
    .hint(format!(
        "look with `ls -ldc FILE`, and `diff` against a backup; reload {service} yourself if they are meant to be (restart it \
         for a program or library that was replaced), or accept them with --accept-pending"
    ))
}

/// At most so many, and how many more there are.
fn named(message: &[String]) -> Vec<String> {
    let more = message.len().saturating_sub(NAMED_MAX);
    let rest = (more > 0).then(|| format!("and {more} more"));
    message.iter().take(NAMED_MAX).cloned().chain(rest).collect()
}

/// What earlier sessions wrote and put back without the service taking its configuration, and the directories: newer than
/// what runs, and nobody's change. What somebody touched after the last record of such a session is his.
pub fn left(tools: &Tools) -> Result<Vec<PathBuf>> {
    let changed_at = |path: &Path| tools.disk.changed_at(path).ok().flatten();
    let mut left = vec![];
    for (journal, read) in journal::read_all(tools)? {
        let Some(history) = read.ok().filter(History::is_settled) else { continue };
        let Some(ended_at) = changed_at(&journal) else { continue };
        let untouched = |path: &PathBuf| changed_at(path).is_some_and(|changed_at| changed_at <= ended_at);
        left.extend(own(&history.entries).into_iter().filter(untouched));
    }
    Ok(left)
}

/// Takes out of a snapshot what earlier sessions of ours left newer than what runs: it waits for no reload. Of a file that
/// is reached through links, the path as told is another one.
pub fn forget_ours(tools: &Tools, snapshot: &mut ServiceSnapshot) {
    if snapshot.pending.is_empty() {
        return;
    }
    // Where journals cannot be read, a session that begins says so.
    let left = left(tools).unwrap_or_default();
    let leads_to_ours = |path: &str| {
        path.starts_with('/')
            && tools.disk.resolve(Path::new(path)).ok().flatten().is_some_and(|real| left.contains(&real))
    };
    let is_ours = |message: &str| message.match_indices(' ').any(|(at, _)| leads_to_ours(&message[..at]));
    let (ours, others) =
        std::mem::take(&mut snapshot.pending).into_iter().partition(|message| is_ours(message));
    let ours: Vec<String> = ours;
    snapshot.warnings.retain(|warning| !ours.iter().any(|message| warning.starts_with(message)));
    snapshot.pending = others;
}

/// The files that a session wrote since it last made the service take its configuration, and their directories, in
/// which temporary files came and went. What it wrote before is in force: there, what is newer is somebody else's.
pub fn own(entries: &[Entry]) -> Vec<PathBuf> {
    let reloads =
        |action: &Action| matches!(action, Action::Activate(act) if act.class >= ApplyClass::Reload);
    let since = entries.iter().rev().take_while(|entry| !reloads(&entry.action));
    let written = since.filter_map(|entry| match &entry.action {
        Action::WriteFile(write) => Some(Path::new(&write.path)),
        _ => None,
    });
    written.flat_map(|path| [path.to_owned(), folder_of(path).to_owned()]).collect()
}

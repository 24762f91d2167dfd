//! What must hold when a session and all that followed from it are over.

use crate::simulated::load::LoadModel;
use crate::simulated::machine::{Machine, MachineState};
use crate::simulated::operator::{Configuration, OperatorEdit, configuration};
use crate::simulated::server::{EffectiveSettings, configured};
use crate::simulated::target::{live, tools};
use std::path::{Path, PathBuf};
use webdyno_host::change::action::OldFile;
use webdyno_host::change::undo::rollback::{pending_with, rollback_with};

/// Where shadows have their files.
const SHADOWS: &str = "/var/lib/webdyno/shadow";

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As it was before the session.
    AsBefore,
    /// With a change that was verified and kept.
    Kept,
    /// As it was before all sessions.
    RolledBack,
    /// With something that must not be.
    Wrong,
}

/// Looks at everything; what is wrong goes to the violations.
pub fn check(
    machine: &Machine,
    [first, before]: [&Configuration; 2],
    kept: Option<&Configuration>,
    model: &LoadModel,
    reported: &[String],
) -> Outcome {
    let mut wrong = vec![];
    let kept_count = check_nothing_pending(machine, &mut wrong);
    // One of them is of the earlier session.
    let is_kept = kept_count > usize::from(first != before);
    let state = machine.state();
    let outcome = match kept {
        Some(kept) if is_kept && matches(&state, before, before, Some(kept)) => Outcome::Kept,
        _ if matches(&state, before, before, None) => Outcome::AsBefore,
        _ if matches(&state, before, first, None) => Outcome::RolledBack,
        _ => Outcome::Wrong,
    };
    match outcome {
        Outcome::Wrong => wrong.push(format!(
            "the configuration is neither as before nor verified:\n{}",
            described(&state, before, kept)
        )),
        Outcome::Kept => check_is_better(&state, before, kept.unwrap_or(before), model, &mut wrong),
        Outcome::AsBefore | Outcome::RolledBack => {
            check_is_reported(&state, [first, before], reported, &mut wrong)
        }
    }
    check_in_force(&state, reported, &mut wrong);
    wrong.extend(reported.iter().filter(|text| text.contains("within webdyno itself")).cloned());
    drop(state);
    machine.state().violations.extend(wrong);
    outcome
}

/// Nothing is pending, locked, or lies about; and a second rollback does nothing. Gives how many sessions are kept.
fn check_nothing_pending(machine: &Machine, wrong: &mut Vec<String>) -> usize {
    let mut kept_count = 0;
    let process = machine.start();
    let tools = tools(&process);
    let pending = live(|| pending_with(&tools));
    match pending {
        Some(Ok(pending)) => {
            kept_count = pending.iter().filter(|journal| journal.kept).count();
            let unkept = pending.iter().filter(|journal| !journal.kept);
            wrong.extend(unkept.map(|journal| format!("{} is pending", journal.id)));
            if pending.is_empty() {
                let again = live(|| rollback_with(&tools));
                if !matches!(&again, Some(Ok(lines)) if lines.is_empty()) {
                    wrong.push(format!("the second rollback did something: {again:?}"));
                }
            }
        }
        other => wrong.push(format!("the journals cannot be read: {other:?}")),
    }
    let mut state = machine.state();
    state.end(process.name);
    if !state.shadows.is_empty() || !state.files.below(Path::new(SHADOWS)).is_empty() {
        wrong.push(format!("a shadow is left: {:?}", state.shadows));
    }
    if state.is_locked() {
        wrong.push("the lock is held".into());
    }
    let all = state.files.below(Path::new("/etc"));
    let is_left = |path: &&PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        name.starts_with('.') || name.starts_with("webdyno-rollback")
    };
    wrong.extend(all.keys().filter(is_left).map(|path| format!("{} lies about", path.display())));
    if state.files.is_directory(Path::new("/etc/systemd/system/multi-user.target.d")) {
        wrong.push("the directory of a hook lies about".into());
    }
    kept_count
}

/// Whether every file is as given, or as the operator left it since.
fn matches(
    state: &MachineState,
    was: &Configuration,
    before: &Configuration,
    kept: Option<&Configuration>,
) -> bool {
    let now = configuration(&state.files);
    let mut paths = now.keys().chain(before.keys()).chain(kept.into_iter().flat_map(|kept| kept.keys()));
    paths.all(|path| {
        let found = now.get(path);
        let left = state.operator.last_edit(path).map(|edit| edit.now.as_ref());
        match kept {
            // A version that is the one from before cannot be told from it.
            None => found == left.filter(|left| *left != was.get(path)).unwrap_or(before.get(path)),
            Some(kept) => found == kept.get(path) || left.is_some_and(|left| found == left),
        }
    })
}

fn described(state: &MachineState, before: &Configuration, kept: Option<&Configuration>) -> String {
    let displayed = |file: Option<&OldFile>| match file {
        Some(file) => format!(
            "{:?} mode {:o} owner {} time {:?}",
            String::from_utf8_lossy(&file.content),
            file.mode,
            file.uid,
            file.modified
        ),
        None => "nothing".into(),
    };
    let now = configuration(&state.files);
    let mut text = String::new();
    for path in now.keys().chain(before.keys().filter(|path| !now.contains_key(*path))) {
        text.push_str(&format!("{}\n   is     {}\n", path.display(), displayed(now.get(path))));
        text.push_str(&format!("   before {}\n", displayed(before.get(path))));
        if let Some(edit) = state.operator.last_edit(path) {
            text.push_str(&format!("   left   {}\n", displayed(edit.now.as_ref())));
        }
        if let Some(kept) = kept {
            text.push_str(&format!("   kept   {}\n", displayed(kept.get(path))));
        }
    }
    text
}

/// What was kept must be better than what was there.
fn check_is_better(
    state: &MachineState,
    before: &Configuration,
    kept: &Configuration,
    model: &LoadModel,
    wrong: &mut Vec<String>,
) {
    let rate_of = |wanted: &Configuration| {
        let mut model = model.clone();
        let is_set = |file: &OldFile| String::from_utf8_lossy(&file.content).contains("nf_conntrack_max");
        model.widen_table(wanted.values().any(is_set));
        parse_configuration(state, wanted).map(|settings| model.rate(settings))
    };
    let (rate_before, rate_kept) = (rate_of(before), rate_of(kept));
    if parse_configuration(state, kept).and_then(|settings| model.harm_guard_trip(settings)).is_some() {
        wrong.push("kept, and it does harm".into());
    }
    // What the operator changed after it was verified is his.
    let is_his = |(path, edits): (&PathBuf, &Vec<OperatorEdit>)| {
        edits.iter().any(|edit| edit.now.as_ref() == kept.get(path))
    };
    if state.operator.edits.iter().any(is_his) {
        return;
    }
    if rate_kept <= rate_before {
        wrong.push(format!("kept, and not better: {rate_kept:?} after {rate_before:?}"));
    }
}

/// What a configuration says.
fn parse_configuration(state: &MachineState, wanted: &Configuration) -> Option<EffectiveSettings> {
    let mut files = state.files.clone();
    let there = configuration(&files);
    for path in there.keys().chain(wanted.keys()) {
        files.write_durable(path, wanted.get(path).cloned());
    }
    configured(&files)
}

/// What runs is what the files say.
fn check_in_force(state: &MachineState, reported: &[String], wrong: &mut Vec<String>) {
    let (running, configured) = (state.server.running(), configured(&state.files));
    if running.is_none() && (state.operator.killed_service || state.is_dead_since_boot) {
        return;
    }
    // What the operator changed is left to him, in force or not.
    let is_left = reported.iter().any(|text| text.contains("left alone"));
    // With live traffic nothing is restarted to put a limit back.
    let displayed = |settings: Option<EffectiveSettings>| match (settings, state.is_live) {
        (Some(settings), true) => Some(EffectiveSettings { server_limit: 0, ..settings }),
        (settings, _) => settings,
    };
    if displayed(running) != displayed(configured) && !is_left {
        wrong.push(format!("{running:?} runs, and the files say {configured:?}"));
    }
}

/// Whether the operator made his version of a file from ours.
fn is_edit_of_ours(path: &Path, edits: &[OperatorEdit], were: [&Configuration; 2]) -> bool {
    let Some((last, earlier)) = edits.split_last() else { return false };
    let is_known = |file: &Option<OldFile>| {
        let was = were.iter().any(|files| files.get(path) == file.as_ref());
        was || earlier.iter().any(|edit| edit.now == *file)
    };
    !is_known(&last.now) && !is_known(&last.over)
}

/// Where the operator's version of a file stays over ours, the original is kept, and he is told.
fn check_is_reported(
    state: &MachineState,
    were: [&Configuration; 2],
    reported: &[String],
    wrong: &mut Vec<String>,
) {
    for (path, edits) in &state.operator.edits {
        if !is_edit_of_ours(path, edits, were) {
            continue;
        }
        let displayed = path.display().to_string();
        let is_about = |text: &&String| text.contains(&displayed) && text.contains("left alone");
        let Some(text) = reported.iter().find(is_about) else {
            wrong.push(format!("nobody was told that {displayed} was left alone"));
            continue;
        };
        let saved = text.split(&[' ', ';', ',', '\n'][..]).filter(|word| word.contains("/originals/"));
        let mut saved = saved.filter_map(|path| state.files.read(Path::new(path)));
        let is_original = |file: &OldFile| {
            let was = were.iter().any(|files| files.get(path) == Some(file));
            was || edits.iter().any(|edit| edit.now.as_ref() == Some(file))
        };
        let was_removed = edits.iter().any(|edit| edit.now.is_none());
        let existed = were.iter().any(|files| files.contains_key(path)) && !was_removed;
        if existed && !saved.any(is_original) {
            wrong.push(format!("the original of {displayed} is not kept: {text}"));
        }
    }
}

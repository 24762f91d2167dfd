//! Rollback: what no session will undo any more is undone here, from the journals alone.
//!
//! The newest session first, as an older one wrote what the newer one found. A session whose guardian still lives is
//! given time to finish; a journal that cannot be read is left alone, and told after all the others are done.

use crate::change::action::Action;
use crate::change::journal::claim::Claims;
use crate::change::journal::history::{ClosedBy, Entry, Header, History, Record, served};
use crate::change::journal::lock::{self, Holder, Lock};
use crate::change::journal::{self, Journal};
use crate::change::location::{self, LocationMatch};
use crate::change::seams::Tools;
use crate::change::seams::helper::RollbackOutcome;
use crate::change::seams::processes::System;
use crate::change::seams::state_dir::StateDir;
use crate::change::undo::relocated_files::{CHANGED, left_alone};
use crate::change::undo::{Scope, stop_launched, undo, values};
use crate::os::process::ProcessName;
use crate::os::timeouts;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_model::{Result, UserError};

/// How long a session whose tool still lives is waited for: it may just be ending.
const ENDING_TIME_MAX: Duration = Duration::from_secs(5);

/// What the lock is taken for.
const WHAT: &str = "webdyno rollback";

/// A journal with something left to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingJournal {
    /// The session's id.
    pub id: String,
    /// Its file.
    pub path: PathBuf,
    /// What it was about.
    pub what: String,
    /// Its start, microseconds since 1970.
    pub started_at_us: u64,
    /// Whether all of it was verified and kept: nothing is wrong, it only can be undone.
    pub kept: bool,
    /// Whether the tool still runs on this machine.
    pub tool_is_alive: bool,
    /// Whether its guardian still runs.
    pub guardian_is_alive: bool,
}

/// All journals with something left to undo, the oldest first. An error when one cannot be read.
pub fn pending(state: &StateDir) -> Result<Vec<PendingJournal>> {
    pending_with(&Tools::of_this_machine(state.clone()))
}

/// [`pending`] with given seams.
pub fn pending_with(tools: &Tools) -> Result<Vec<PendingJournal>> {
    let mut found = vec![];
    for (path, read) in journal::read_here(tools)? {
        found.extend(pending_in(path, &read?, tools.system.as_ref()));
    }
    Ok(found)
}

fn pending_in(path: PathBuf, history: &History, system: &dyn System) -> Option<PendingJournal> {
    let header = history.header.as_ref()?;
    (!history.is_settled()).then(|| PendingJournal {
        id: header.id.clone(),
        path,
        what: header.what.clone(),
        started_at_us: header.started_at_us,
        kept: !history.has_unkept(),
        tool_is_alive: history.tool_is_alive(system),
        guardian_is_alive: history.guardian_is_alive(system),
    })
}

/// Restores what was there before every session that is pending or kept. One line for each thing that was done; none when
/// nothing is pending. Conflicts and journals that cannot be read are an error, after everything else is done.
pub fn rollback_with(tools: &Tools) -> Result<Vec<String>> {
    let is_over = |history: &History| history.is_settled() && !history.is_open();
    let is_done = |history: &History| is_over(history) && !has_unreported_conflicts(history);
    if journal::read_here(tools)?.iter().all(|(_, read)| read.as_ref().is_ok_and(is_done)) {
        return Ok(vec![]);
    }
    let mut lock = Some(take_over(tools)?);
    let mut lines = vec![];
    let mut problems = vec![];
    let mut waiting = BTreeSet::new();
    // Read again: a guardian may have finished while the lock was waited for.
    for (path, read) in journal::read_here(tools)?.into_iter().rev() {
        match read {
            Ok(history) if is_done(&history) => {}
            Ok(history) if is_over(&history) => problems.push(conflicts_error(&path, &history, tools)),
            Ok(history) if !waiting.is_disjoint(&files_of(&history)) => {
                waiting.extend(files_of(&history));
                problems.push(after_a_later_one(&history));
            }
            Ok(history) => {
                match placed(&path, &history, tools, Extent::Everything, &mut lock) {
                    Ok((done, problem)) => {
                        lines.extend(done);
                        problems.extend(problem);
                    }
                    Err(error) => problems.push(error),
                }
                waiting.extend(journal::read(&path, tools.disk.as_ref()).iter().flat_map(files_of));
            }
            Err(error) => problems.push(error),
        }
    }
    match problems.split_first() {
        None => Ok(lines),
        Some((first, more)) => Err(joined(first, more, &lines)),
    }
}

/// The files of which a journal has something to undo.
fn files_of(history: &History) -> BTreeSet<String> {
    let path = |entry: &Entry| match &entry.action {
        Action::WriteFile(write) => Some(write.path.clone()),
        Action::WriteValue(write) => Some(write.name.clone()),
        _ => None,
    };
    history.outstanding(1).filter_map(path).collect()
}

/// An older session only knows its own files again when what came later is gone.
fn after_a_later_one(history: &History) -> UserError {
    let id = history.header.as_ref().map_or("", |header| &header.id);
    UserError::cannot_run(format!("the session {id} waits for a later one of the same files to be undone"))
        .hint("remove the cause of that, then run `webdyno rollback` again")
}

/// Undoes what was never kept of sessions whose guardian is gone, as their guardian would have done. A session
/// that is at work, be it on its own end, is left to itself.
pub fn undo_interrupted_with(tools: &Tools) -> Result<RollbackOutcome> {
    let system = tools.system.as_ref();
    let is_cut_off = |history: &History| history.is_open() && !history.guardian_is_alive(system);
    if !journal::read_here(tools)?.iter().any(|(_, read)| read.as_ref().is_ok_and(is_cut_off)) {
        return Ok(RollbackOutcome::default());
    }
    let mut lock = lock_unless_busy(tools)?;
    if lock.is_none() {
        return Ok(RollbackOutcome::default());
    }
    let mut lines = vec![];
    let mut problems = vec![];
    let mut unfinished = false;
    for (path, read) in journal::read_here(tools)?.into_iter().rev() {
        // One that cannot be read is told by the notice, and keeps a session from beginning.
        let Some(history) = read.ok().filter(is_cut_off) else { continue };
        match placed(&path, &history, tools, Extent::Unkept, &mut lock) {
            Ok((done, problem)) => {
                lines.extend(done);
                problems.extend(problem);
            }
            Err(error) => problems.push(error),
        }
        unfinished |= journal::read(&path, tools.disk.as_ref()).is_ok_and(|history| history.has_unkept());
    }
    let problem = problems.split_first().map(|(first, more)| joined(first, more, &[]));
    Ok(RollbackOutcome { lines, problem, unfinished })
}

/// A guardian has nobody to tell what it left alone.
fn has_unreported_conflicts(history: &History) -> bool {
    history.closed == Some(ClosedBy::Guardian) && !history.reported && !history.conflicts.is_empty()
}

/// The error that tells, once, what a guardian left alone.
fn conflicts_error(path: &Path, history: &History, tools: &Tools) -> UserError {
    // That it is told again next time, when this cannot be written, harms nobody.
    let _ = Journal::open(path, &tools.disk).and_then(|mut journal| journal.append(Record::Told));
    UserError::cannot_run(joined_conflicts(history))
        .hint("compare it with the original, and take over what you want")
}

fn joined_conflicts(history: &History) -> String {
    conflicts_of(history).into_iter().collect::<Vec<_>>().join("; ")
}

/// Files that were left alone, one line each.
fn conflicts_of(history: &History) -> BTreeSet<String> {
    let message = history.conflicts.iter().filter_map(|conflict| {
        let entry = history.entries.iter().find(|entry| entry.n == conflict.n)?;
        let what = conflict.what.as_deref().unwrap_or(CHANGED);
        match &entry.action {
            Action::WriteFile(write) => Some(left_alone(&write.path, what, conflict.saved.as_deref())),
            Action::WriteValue(write) => Some(values::left_alone(&write.name, what, &write.before)),
            _ => None,
        }
    });
    message.collect()
}

/// How much of a session is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All of it.
    Everything,
    /// What was never kept: what the guardian would have undone. As after a guardian, the next command tells of it: at
    /// boot nobody reads.
    Unkept,
}

/// What was done, one line each, and what could not be.
type Done = (Vec<String>, Option<UserError>);

/// Undoes one journal where its session was. An error, with the command that can do it, when that is neither here nor can
/// be entered: then nothing of it was touched.
fn placed(
    path: &Path,
    history: &History,
    tools: &Tools,
    extent: Extent,
    lock: &mut Option<Lock>,
) -> Result<Done> {
    if lock.is_none() {
        *lock = Some(Lock::take(tools, WHAT)?);
    }
    let entrance = match location::of_journal(history, tools)? {
        LocationMatch::Here => return one(path, tools, extent, true),
        LocationMatch::FilesOnly => return one(path, tools, extent, false),
        LocationMatch::There(entrance) => entrance,
        LocationMatch::Unreachable(what) => return Err(UserError::cannot_run(what)),
    };
    let Some(helper) = &tools.helper else {
        return Err(UserError::cannot_run("other namespaces cannot be entered"));
    };
    let id = history.header.as_ref().map_or("", |header| &header.id);
    // It takes the lock itself.
    *lock = None;
    let done = helper.undo(&entrance, id, extent == Extent::Unkept);
    done.map(|done| (done.lines, done.problem)).map_err(|error| {
        let hints =
            [Some(history.command()), error.hint].into_iter().flatten().collect::<Vec<_>>().join("\n");
        UserError::cannot_run(format!(
            "the session {id} was at work in other namespaces, which could not be entered: {}",
            error.message
        ))
        .hint(hints)
    })
}

/// Undoes one journal for somebody who came here for it.
pub fn one_here(tools: &Tools, id: &str, only_unkept: bool) -> Result<RollbackOutcome> {
    // Whoever may ask for it by its name must not name another file: root would write what stands in there.
    if id.contains('/') {
        return Err(UserError::cannot_run(format!("`{id}` is no session")));
    }
    let path = tools.state.journal(id);
    let mut lock = Some(take_over(tools)?);
    let history = journal::read(&path, tools.disk.as_ref())?;
    let extent = if only_unkept { Extent::Unkept } else { Extent::Everything };
    // Who came here goes nowhere else.
    let tools = Tools { helper: None, ..tools.clone() };
    let (lines, problem) = placed(&path, &history, &tools, extent, &mut lock)?;
    let unfinished = journal::read(&path, tools.disk.as_ref()).is_ok_and(|history| history.has_unkept());
    Ok(RollbackOutcome { lines, problem, unfinished })
}

/// Undoes one journal, and closes it if nothing is left that a further attempt could do. Without `services` only its
/// files.
fn one(path: &Path, tools: &Tools, extent: Extent, services: bool) -> Result<Done> {
    let mut journal = Journal::open(path, &tools.disk)?;
    let has_news = journal.history().has_unkept() || !journal.history().conflicts.is_empty();
    let unkept_from_n = journal.history().kept_through + 1;
    let (from_n, patience, by) = match extent {
        Extent::Everything => (1, ENDING_TIME_MAX, ClosedBy::Rollback),
        Extent::Unkept if has_news => (unkept_from_n, Duration::ZERO, ClosedBy::Guardian),
        // It was at its end.
        Extent::Unkept => (unkept_from_n, Duration::ZERO, ClosedBy::Tool),
    };
    // A session in another state directory may be at work on the same service.
    let mut claims = Claims::default();
    let served_here = journal.history().outstanding(from_n).filter_map(|entry| served(&entry.action));
    let by_port: BTreeMap<u16, _> = served_here.map(|served| (served.port, served)).collect();
    let mut ignored = vec![];
    for served in by_port.into_values().filter(|_| services) {
        ignored.extend(claims.wait_to_undo(tools, served, patience)?);
    }
    let is_kept = journal.history().kept_through > 0 && !journal.history().is_settled();
    let unkept = match extent {
        Extent::Everything if is_kept => journal.note(Record::Unkept),
        _ => Ok(()),
    };
    let scope = Scope { from_n, launched: true, live_traffic: false, services };
    let mut report = undo(&mut journal, tools, scope, &mut BTreeMap::new());
    let stopping = stop_launched(&mut journal, tools, &mut BTreeMap::new());
    report.lines.extend(stopping.lines);
    report.lines.extend(ignored);
    report.failures.extend(stopping.failures.into_iter().chain(unkept.err()));
    if report.failures.is_empty()
        && let Err(error) = journal.append(Record::Closed { by })
    {
        report.failures.push(error);
    }
    let id = journal.id();
    // What an attempt before this one left alone was told to nobody.
    let conflicts = conflicts_of(journal.history());
    report.conflicts = conflicts.into_iter().collect();
    let problem = report.error();
    let mut lines: Vec<String> =
        report.lines.into_iter().map(|line| format!("session {id}: {line}")).collect();
    if lines.is_empty() && problem.is_none() && extent == Extent::Everything {
        lines.push(format!("session {id}: everything was as before already"));
    }
    Ok((lines, problem))
}

fn joined(first: &UserError, more: &[UserError], lines: &[String]) -> UserError {
    let mut hints: Vec<String> = first.hint.iter().cloned().collect();
    for error in more {
        hints.push(error.message.clone());
        hints.extend(error.hint.clone());
    }
    if !lines.is_empty() {
        hints.push(format!("all else is done: {}", lines.join("; ")));
    }
    let error = UserError::cannot_run(first.message.clone());
    if hints.is_empty() { error } else { error.hint(hints.join("\n")) }
}

/// Takes the lock unless somebody is at work. A killed process is seen as ended before the kernel drops its lock, with
/// its last thread and with the child that it was just starting.
fn lock_unless_busy(tools: &Tools) -> Result<Option<Lock>> {
    if let Some(lock) = Lock::try_take(tools, WHAT)? {
        return Ok(Some(lock));
    }
    let lives = lock::holder(tools).is_none_or(|holder| tools.system.is_running(holder.process));
    Lock::wait(tools, WHAT, if lives { lock::HANDOVER } else { ENDING_TIME_MAX })
}

/// Takes the lock; from a guardian that does not finish it is taken over.
fn take_over(tools: &Tools) -> Result<Lock> {
    if let Some(lock) = Lock::wait(tools, WHAT, ENDING_TIME_MAX)? {
        return Ok(lock);
    }
    let holder = lock::holder(tools);
    let system = tools.system.as_ref();
    let orphan = || {
        let all = journal::read_here(tools).ok()?;
        let histories = all.into_iter().filter_map(|(_, read)| read.ok());
        let mut alive =
            histories.filter(|history| history.closed.is_none() && history.guardian_is_alive(system));
        alive.find(|history| !history.tool_is_alive(system)).and_then(|history| history.header)
    };
    if orphan().is_none() {
        // The tool lives: its session goes on, and ends in good order.
        return Err(lock::held_by(holder.as_ref()));
    }
    if let Some(lock) = Lock::wait(tools, WHAT, timeouts::GUARDIAN)? {
        return Ok(lock);
    }
    if let Some(header) = orphan().filter(|header| holder.is_some_and(|holder| holds(&holder, header))) {
        system.end_process(header.agent, None, Duration::from_secs(2))?;
    }
    Lock::wait(tools, WHAT, ENDING_TIME_MAX)?.ok_or_else(|| lock::held_by(lock::holder(tools).as_ref()))
}

/// Whether the lock is held by a session's agent, or shared by it with another one of its tool.
fn holds(holder: &Holder, header: &Header) -> bool {
    holder.process == header.agent || (holder.tool.is_some() && holder.tool == header.tool)
}

/// Refuses to begin a session while one that is dead waits for its rollback. The caller holds the lock, so whoever
/// has not closed his journal will not do it any more; but for the other agents of our own tool, who share the lock.
pub(crate) fn refuse_when_pending(tools: &Tools, tool: Option<ProcessName>) -> Result<()> {
    for (_, read) in journal::read_here(tools)? {
        let history = read?;
        let is_ours = |header: &Header| tool.is_some() && header.tool == tool;
        let is_shared = history.header.as_ref().is_some_and(is_ours);
        if is_shared && history.guardian_is_alive(tools.system.as_ref()) {
            continue;
        }
        if let Some(header) = history.header.as_ref().filter(|_| history.has_unkept()) {
            return Err(UserError::cannot_run(format!(
                "the session {} was interrupted and is not undone yet",
                header.id
            ))
            .hint("run `webdyno rollback` first"));
        }
    }
    Ok(())
}

/// One line for the user of the next command: that a rollback is pending, or, once, that the guardian put everything
/// back. `None` when there is nothing to tell.
pub fn notice(state: &StateDir) -> Option<String> {
    notice_with(&Tools::of_this_machine(state.clone()))
}

/// [`notice`] with given seams.
pub fn notice_with(tools: &Tools) -> Option<String> {
    let all = journal::read_here(tools).ok()?;
    for (path, read) in &all {
        let Ok(history) = read else {
            return Some(format!(
                "the journal {} cannot be read: run `webdyno rollback` to hear why",
                path.display()
            ));
        };
        if let Some(header) =
            history.header.as_ref().filter(|_| history.has_unkept() && !may_be_at_work(history, tools))
        {
            let is_within_reach = location::of_journal(history, tools).is_ok();
            let by = if is_within_reach { "run `webdyno rollback`".into() } else { history.command() };
            return Some(format!(
                "a rollback is pending: the session {} (`{}`) was interrupted; {by}",
                header.id, header.what
            ));
        }
    }
    let untold = |history: &History| history.closed == Some(ClosedBy::Guardian) && !history.reported;
    let (path, _) = all.iter().find(|(_, read)| read.as_ref().is_ok_and(untold))?;
    guardian_report(tools, path)
}

/// Whether the guardian of a session still lives. One in another pid namespace is not seen, but for the lock that it holds.
fn may_be_at_work(history: &History, tools: &Tools) -> bool {
    let system = tools.system.as_ref();
    history.guardian_is_alive(system)
        || history.has_other_pids(system) && Lock::try_take(tools, WHAT).is_ok_and(|lock| lock.is_none())
}

/// Tells of a guardian's work, and remembers that it was told; not while a session is at work on the journals.
fn guardian_report(tools: &Tools, path: &Path) -> Option<String> {
    let _lock = Lock::try_take(tools, "webdyno").ok()??;
    let mut journal = Journal::open(path, &tools.disk).ok()?;
    journal.append(Record::Told).ok()?;
    let message =
        format!("the session {} was interrupted; its guardian reverted all of its changes", journal.id());
    Some(match joined_conflicts(journal.history()) {
        none if none.is_empty() => message,
        conflicts => format!("{message}, but {conflicts}"),
    })
}

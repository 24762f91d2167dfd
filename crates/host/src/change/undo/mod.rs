//! Undoing: files in reverse order, the kernel's settings, then each service once, then the programs that were launched.
//!
//! Idempotent at every step. What a file holds now decides: what was there before means that nothing is to do, what we
//! wrote is reverted, and anything else is somebody's work that is left alone and told, with a saved copy of the
//! original. Undoing never depends on being able to write the journal: it goes on, and says so afterwards.

pub mod relocated_files;
pub mod rollback;
mod services;
pub(super) mod values;

use crate::change::action::{Action, Launch, OldFile, WriteFile};
use crate::change::boot;
use crate::change::file::{self, Replaced};
use crate::change::journal::Journal;
use crate::change::journal::history::{Entry, Header, Record, served};
use crate::change::seams::Tools;
use crate::change::seams::disk::folder_of;
use crate::change::seams::processes::Running;
use crate::change::seams::state_dir::private_directory;
use crate::change::undo::relocated_files::{CHANGED, Known, REMOVED, left_alone};
use crate::change::undo::services::Touched;
use crate::services::common::unit;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The programs that were started here, by the number of their intent.
pub type RunningPrograms = BTreeMap<u64, Box<dyn Running>>;

/// What is to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The first action.
    pub from_n: u64,
    /// Whether launched programs are stopped too: at the end of a session, not when a round is taken back.
    pub launched: bool,
    /// Whether others use the services now; for what was done while they did, it holds anyway.
    pub live_traffic: bool,
    /// Whether services are looked for and take over what is put back; else the network that they ran in is gone, and they
    /// with it.
    pub services: bool,
}

/// What was undone, and what could not be.
#[derive(Debug, Default)]
pub struct Report {
    /// One line each, in the order in which it was done.
    pub lines: Vec<String>,
    /// Files that somebody else changed, one line each; they are left alone.
    pub conflicts: Vec<String>,
    /// What failed and is still to be undone.
    pub failures: Vec<UserError>,
    /// What is not as before until the next restart, one line each; in `lines`, too.
    pub left: Vec<String>,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

/// Undoes what is outstanding in a journal, from an action on.
pub fn undo(journal: &mut Journal, tools: &Tools, scope: Scope, running: &mut RunningPrograms) -> Report {
    let mut undo = Undo::new(journal, tools, scope);
    undo.refuse_harmful();
    undo.files();
    undo.values();
    undo.temporaries();
    undo.services();
    if scope.launched {
        undo.launched(running, |_| true);
    }
    undo.boot_hook();
    undo.report
}

/// Removes the hook at boot when nothing is left for it to revert.
pub fn remove_boot_hook(journal: &mut Journal, tools: &Tools) -> Report {
    let scope = Scope { from_n: 1, launched: false, live_traffic: false, services: true };
    let mut undo = Undo::new(journal, tools, scope);
    undo.boot_hook();
    undo.report
}

/// Stops what was launched, and forgets its files: nobody uses them any more.
pub fn stop_launched(journal: &mut Journal, tools: &Tools, running: &mut RunningPrograms) -> Report {
    stop_some(journal, tools, running, |_| true)
}

/// Stops those of what was launched that are meant.
pub fn stop_some(
    journal: &mut Journal,
    tools: &Tools,
    running: &mut RunningPrograms,
    is_meant: fn(&Launch) -> bool,
) -> Report {
    let scope = Scope { from_n: 1, launched: true, live_traffic: false, services: true };
    let mut undo = Undo::new(journal, tools, scope);
    undo.launched(running, is_meant);
    undo.report
}

struct Undo<'a> {
    journal: &'a mut Journal,
    tools: &'a Tools,
    scope: Scope,
    report: Report,
    touched: BTreeMap<(String, u16), Touched>,
    /// Services that are left as they are now.
    left_alone: BTreeSet<(String, u16)>,
}

/// The outstanding writes of one file, the last one first.
type Chain = Vec<(u64, WriteFile)>;

impl<'a> Undo<'a> {
    fn new(journal: &'a mut Journal, tools: &'a Tools, scope: Scope) -> Self {
        let (touched, left_alone) = (BTreeMap::new(), BTreeSet::new());
        Self { journal, tools, scope, report: Report::default(), touched, left_alone }
    }
}

impl Undo<'_> {
    fn outstanding(&self) -> Vec<Entry> {
        self.journal.history().outstanding(self.scope.from_n).cloned().collect()
    }

    fn is_same_boot(&self) -> bool {
        self.journal.history().is_same_boot(self.tools.system.as_ref())
    }

    fn touched(&mut self, write: &WriteFile) -> &mut Touched {
        self.touched.entry((write.served.service.clone(), write.served.port)).or_default()
    }

    /// Writes what has been done to the journal; that it cannot be written is a failure to tell, not to stop at.
    fn note(&mut self, record: Record) {
        if let Err(error) = self.journal.note(record) {
            self.report.failures.push(error);
        }
    }

    fn is_left_alone(&self, write: &WriteFile) -> bool {
        self.left_alone.contains(&(write.served.service.clone(), write.served.port))
    }

    fn files(&mut self) {
        let mut chains: Vec<(String, Chain)> = vec![];
        for entry in self.outstanding().into_iter().rev() {
            let Action::WriteFile(write) = entry.action else { continue };
            if self.is_left_alone(&write) {
                continue;
            }
            match chains.iter_mut().find(|(path, _)| *path == write.path) {
                Some((_, chain)) => chain.push((entry.n, write)),
                None => chains.push((write.path.clone(), vec![(entry.n, write)])),
            }
        }
        for (path, chain) in chains {
            let result = self.file(Path::new(&path), &chain);
            let Some((_, first)) = chain.last() else { continue };
            if let Err(error) = result {
                // Nobody uses the files of a program that is being stopped.
                if !self.journal.history().is_launched_here(first.served.port) {
                    self.report.failures.push(error);
                }
                self.touched(first).failed_count += 1;
            }
        }
    }

    /// Puts one file back, through all its writes at once.
    fn file(&mut self, path: &Path, chain: &Chain) -> Result<()> {
        let Some((first_n, first)) = chain.last() else { return Ok(()) };
        let message = |error: io::Error| io_error("restore", path.display(), &error);
        let found =
            relocated_files::find(self.tools.disk.as_ref(), path, &Known::of(chain)).map_err(message)?;
        let mut is_original = found.lost.is_none();
        let was_taken = self.was_taken(first);
        let mut is_changed = false;
        for (path, now) in &found.files {
            let (target, is_back) = follow(chain, now.as_deref());
            is_original &= is_back;
            if target.is_some_and(|(_, sha256)| sha256 != now.as_deref()) {
                let (write, _) = target.unwrap_or((first, None));
                if was_taken != Some(false) {
                    self.intend_activation(chain);
                }
                is_changed = true;
                if self.write(path, *first_n, write.before.as_ref(), now.as_deref())? == Replaced::Changed {
                    return self.conflict(path, chain, CHANGED);
                }
            } else if is_back {
                self.settle(path)?;
            }
        }
        if let Some(link) = found.link.filter(|_| first.before.is_none()) {
            if was_taken != Some(false) {
                self.intend_activation(chain);
            }
            is_changed = true;
            self.write(&link, *first_n, None, None)?;
        }
        // Somebody may have reloaded it until now; from here on nobody can with our file. A try before this one may have
        // ended between putting the file back and this look.
        let may_be_taken = || match self.was_taken(first) {
            None => is_changed,
            Some(is_taken) => is_taken,
        };
        if first.at_us.is_some() && may_be_taken() {
            self.intend_activation(chain);
        }
        // Whoever put it back may have ended before systemd knew.
        if unit::is_drop_in(path) {
            self.tools.system.reload_units()?;
        }
        if !is_original {
            let is_gone = found.files.iter().all(|(_, now)| now.is_none());
            let what = found.lost.as_deref().unwrap_or(if is_gone { REMOVED } else { CHANGED });
            return self.conflict(path, chain, what);
        }
        self.touched(first).restored_count += 1;
        self.note_all(chain, |n| Record::Undone { n, control: None });
        Ok(())
    }

    /// Whoever put the original there may have ended before it was on the disk to stay.
    fn settle(&self, path: &Path) -> Result<()> {
        match self.tools.disk.sync_directory(folder_of(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("restore", path.display(), &error))
            }
            _ => Ok(()),
        }
    }

    /// Notes what became of the writes of a file, the last one first. When one cannot be written, those before it are
    /// not written either: on disk only the end of a chain may be missing, or what remains would not fit together.
    fn note_all(&mut self, chain: &Chain, record: impl Fn(u64) -> Record) {
        let mut writable = true;
        for (n, _) in chain {
            let noted = match writable {
                true => self.journal.note(record(*n)),
                false => self.journal.remember(record(*n)),
            };
            writable &= noted.is_ok();
            self.report.failures.extend(noted.err());
        }
    }

    fn write(
        &mut self,
        path: &Path,
        n: u64,
        before: Option<&OldFile>,
        now: Option<&str>,
    ) -> Result<Replaced> {
        let message = |error: io::Error| {
            io_error("restore", path.display(), &error).hint("remove the cause, then run `webdyno rollback`")
        };
        let disk = self.tools.disk.as_ref();
        let Some(before) = before else {
            // As late as can be: an operator's editor may have been at work since we looked. (A link has no content.)
            if now.is_some() && file::sha256_of(disk, path).map_err(message)?.as_deref() != now {
                return Ok(Replaced::Changed);
            }
            disk.remove(path).and_then(|()| disk.sync_directory(folder_of(path))).map_err(message)?;
            self.report.lines.push(format!("removed {}, which was not there before", path.display()));
            return Ok(Replaced::Done);
        };
        let there = disk.read(path).map_err(message)?.filter(|there| Some(there.sha256.as_str()) == now);
        let before = there.map_or_else(|| before.clone(), |there| file::with_rights_of(before, there));
        let temporary = file::temporary(path, &self.journal.id(), n);
        // What a killed session left there would be in the way.
        disk.remove(&temporary).map_err(message)?;
        let (replaced, without) = file::restore(disk, path, &before, now, &temporary).map_err(message)?;
        if replaced == Replaced::Done {
            self.report.lines.push(format!("restored {}{without}", path.display()));
        }
        Ok(replaced)
    }

    /// Leaves a file alone that somebody else changed, and keeps the original where it can be found.
    fn conflict(&mut self, path: &Path, chain: &Chain, what: &str) -> Result<()> {
        let Some((first_n, first)) = chain.last() else { return Ok(()) };
        self.touched(first).conflicts_count += 1;
        if self.journal.history().is_launched_here(first.served.port) {
            return Ok(());
        }
        let saved = match &first.before {
            Some(before) => Some(self.save(path, *first_n, before)?),
            None => None,
        };
        let saved = saved.map(|saved| saved.display().to_string());
        self.report.conflicts.push(left_alone(&first.path, what, saved.as_deref()));
        self.note_all(chain, |n| Record::Conflict { n, saved: saved.clone(), what: Some(what.to_owned()) });
        Ok(())
    }

    fn save(&self, path: &Path, n: u64, before: &OldFile) -> Result<PathBuf> {
        let saved = self.tools.state.saved_copy(&self.journal.id(), n, path);
        let message = |error: io::Error| io_error("keep the original as", saved.display(), &error);
        let folder = folder_of(&saved);
        let disk = self.tools.disk.as_ref();
        private_directory(disk, folder)?;
        let create = |file: &OldFile| disk.remove(&saved).and_then(|()| disk.create(&saved, file));
        let plain = OldFile { attributes: BTreeMap::new(), ..before.clone() };
        match create(before) {
            Err(error) if file::is_refused(&error) => create(&plain),
            other => other,
        }
        .map_err(message)?;
        disk.sync_directory(folder).map_err(message)?;
        Ok(saved)
    }

    /// Removes temporary files of this session from the directories that it wrote to, and those that it made if nothing is
    /// left in them.
    fn temporaries(&mut self) {
        let id = self.journal.id();
        let mut folders: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for entry in &self.journal.history().entries {
            let Action::WriteFile(write) = &entry.action else { continue };
            *folders.entry(folder_of(Path::new(&write.path)).to_owned()).or_default() |= write.makes_folder;
        }
        for (folder, is_made) in folders {
            let disk = self.tools.disk.as_ref();
            let removed = file::remove_temporaries(disk, &folder, &id).and_then(|count| {
                if is_made && disk.path_info(&folder)?.is_some() && disk.remove_empty_directory(&folder)? {
                    disk.sync_directory(folder_of(&folder))?;
                }
                Ok(count)
            });
            match removed {
                Ok(0) => {}
                Ok(count) => {
                    self.report
                        .lines
                        .push(format!("removed {count} temporary file(s) from {}", folder.display()));
                }
                Err(error) => self.report.failures.push(io_error("clean up", folder.display(), &error)),
            }
        }
    }

    /// As long as something could not be reverted, the next boot is to try it.
    fn boot_hook(&mut self) {
        if self.journal.history().needs_boot_hook() {
            return;
        }
        let hooks = self.journal.history().boot_hooks();
        let hooks: Vec<_> = hooks.map(|(n, hook)| (n, hook.clone())).collect();
        for (n, hook) in hooks {
            match boot::remove(self.tools.disk.as_ref(), &hook) {
                Ok(()) => self.note(Record::Undone { n, control: None }),
                Err(error) => {
                    let first = hook.files.first().map_or("a hook at boot", String::as_str);
                    self.report.failures.push(io_error("remove", first, &error));
                }
            }
        }
    }

    fn launched(&mut self, running: &mut RunningPrograms, is_meant: impl Fn(&Launch) -> bool) {
        let Some(header) = self.journal.history().header.clone() else { return };
        for entry in self.outstanding().into_iter().rev() {
            let Action::Launch(launch) = &entry.action else { continue };
            if !is_meant(launch) {
                continue;
            }
            if let Err(error) = self.stop(&entry, launch, &header, running.remove(&entry.n)) {
                self.report.failures.push(error);
            }
        }
    }

    /// Stops a launched program; its files need no undo after that, as nobody uses them any more.
    fn stop(
        &mut self,
        entry: &Entry,
        launch: &Launch,
        header: &Header,
        running: Option<Box<dyn Running>>,
    ) -> Result<()> {
        // After a boot nothing of it runs, and its pids are others' by now.
        let mut stopped = false;
        if self.is_same_boot() {
            stopped = self.tools.system.stop_launched(launch, entry.launched, header.agent)?;
            stopped |= running.is_some_and(|mut running| running.end());
        }
        let program = launch.command.first().map_or("a program", String::as_str);
        let message = format!("stopped {program}, which was started for this session");
        self.report.lines.extend(stopped.then_some(message));
        if let Some(folder) = &launch.folder {
            self.tools.state.remove_shadow(self.tools.disk.as_ref(), Path::new(folder))?;
            self.report.lines.push(format!("removed the shadow instance of {program}"));
        }
        let is_its_own =
            |other: &Entry| served(&other.action).is_some_and(|served| served.port == launch.port);
        let all = self.journal.history().outstanding(entry.n);
        let its_own: Vec<u64> = all.filter(|other| is_its_own(other)).map(|other| other.n).collect();
        for n in its_own.into_iter().chain([entry.n]) {
            self.note(Record::Undone { n, control: None });
        }
        Ok(())
    }
}

/// Goes back through the writes of a file from what it holds now. Gives the write whose old file is to be reverted
/// with that file's hash (`None` when what is there is nobody's we know), and whether that is the original.
///
/// Usually that is the first write, reached through all. When somebody changed the file between two of our writes, it
/// ends at his version.
fn follow<'a>(chain: &'a Chain, now: Option<&'a str>) -> (Option<(&'a WriteFile, Option<&'a str>)>, bool) {
    let mut at = now;
    let mut target = None;
    for (_, write) in chain {
        let before = write.before.as_ref().map(|file| file.sha256.as_str());
        if at == Some(write.after_sha256.as_str()) || at == before {
            at = before;
            target = Some((write, before));
        }
    }
    let original = chain.last().map(|(_, write)| write.before.as_ref().map(|file| file.sha256.as_str()));
    (target, original == Some(at))
}

impl Report {
    /// The error that tells what could not be undone; `None` when all is well.
    pub fn error(&self) -> Option<UserError> {
        let mut text: Vec<String> = self.conflicts.clone();
        text.extend(self.failures.iter().map(|error| error.message.clone()));
        let first = text.first()?.clone();
        let mut hints: Vec<String> = text.into_iter().skip(1).collect();
        hints.extend(self.failures.iter().filter_map(|error| error.hint.clone()));
        if !self.conflicts.is_empty() {
            hints.push("compare it with the saved original, and take over what you want".into());
        }
        let error = UserError::cannot_run(first);
        Some(if hints.is_empty() { error } else { error.hint(hints.join("\n")) })
    }
}

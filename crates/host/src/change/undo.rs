//! Undoing: files in reverse order, then each service once, then the programs that were launched.
//!
//! Idempotent at every step. What a file holds now decides: what was there before means that nothing is to do, what we
//! wrote is put back, and anything else is somebody's work that is left alone and told, with a saved copy of the
//! original. Undoing never depends on being able to write the journal: it goes on, and says so afterwards.

use crate::change::action::{Action, Activate, Launch, OldFile, WriteFile};
use crate::change::boot;
use crate::change::file::{self, Replaced};
use crate::change::history::{Entry, Header, Record, served};
use crate::change::journal::Journal;
use crate::change::live;
use crate::change::moved::{self, CHANGED, Known, REMOVED, left_alone};
use crate::change::state::private_directory;
use crate::change::tools::Tools;
use crate::change::world::Running;
use crate::services::Activation;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use webdyno_model::change::ApplyClass;
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
    /// Whether time has passed since: somebody else may have reloaded the service with our files meanwhile.
    pub later: bool,
    /// Whether others use the services now; for what was done while they did, it holds anyway.
    pub live_traffic: bool,
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

/// A service whose files were put back.
#[derive(Debug, Default)]
struct Touched {
    /// The most disruptive way in which our change was to take effect; `None` when it never came to that.
    class: Option<ApplyClass>,
    /// The activations that are outstanding.
    activations: Vec<(u64, Activate)>,
    /// Files that are as they were before.
    restored_count: usize,
    /// Files that this run wrote.
    written_count: usize,
    /// Files that are not, and will not be.
    conflicts_count: usize,
    /// Files that could not be put back.
    failed_count: usize,
}

/// Undoes what is outstanding in a journal, from an action on.
pub fn undo(journal: &mut Journal, tools: &Tools, scope: Scope, running: &mut RunningPrograms) -> Report {
    let mut undo = Undo::new(journal, tools, scope);
    undo.ask();
    undo.files();
    undo.temporaries();
    undo.services();
    if scope.launched {
        undo.launched(running, |_| true);
    }
    undo.boot_hook();
    undo.report
}

/// Removes the hook at boot when nothing is left for it to put back.
pub fn remove_boot_hook(journal: &mut Journal, tools: &Tools) -> Report {
    let scope = Scope { from_n: 1, launched: false, later: false, live_traffic: false };
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
    let scope = Scope { from_n: 1, launched: true, later: false, live_traffic: false };
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
        self.journal.history().is_same_boot(self.tools.world.as_ref())
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

    /// The outstanding activations of each service.
    fn activations(&self) -> BTreeMap<(String, u16), Vec<(u64, Activate)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in self.outstanding() {
            let Action::Activate(activate) = entry.action else { continue };
            let key = (activate.served.service.clone(), activate.served.port);
            all.entry(key).or_default().push((entry.n, activate));
        }
        all
    }

    /// Asks each service whether it can be put back without harm to those who use it; else it is left as it is, and stays
    /// to be undone.
    fn ask(&mut self) {
        for ((name, port), activations) in self.activations() {
            let is_live = self.scope.live_traffic || live::is_live(&activations);
            let Some(service) = self.tools.programs.service(&name).filter(|_| is_live) else { continue };
            let key = (name, port);
            let Some(control) = self.journal.history().controls.get(&key) else { continue };
            if !self.tools.programs.is_alive(control) {
                continue;
            }
            if let Some(error) = live::refusal(service, control, port, &activations) {
                self.report.failures.push(error);
                self.left_alone.insert(key);
            }
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
        let told = |error: io::Error| io_error("restore", path.display(), &error);
        let found = moved::find(self.tools.disk.as_ref(), path, &Known::of(chain)).map_err(told)?;
        let mut is_original = found.lost.is_none();
        for (path, now) in &found.files {
            let (target, is_back) = follow(chain, now.as_deref());
            is_original &= is_back;
            if target.is_some_and(|(_, sha256)| sha256 != now.as_deref()) {
                let (write, _) = target.unwrap_or((first, None));
                if self.write(path, *first_n, write.before.as_ref(), now.as_deref())? == Replaced::Changed {
                    return self.conflict(path, chain, CHANGED);
                }
                self.touched(first).written_count += 1;
            }
        }
        if let Some(link) = found.link.filter(|_| first.before.is_none()) {
            self.write(&link, *first_n, None, None)?;
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
        let told = |error: io::Error| {
            io_error("restore", path.display(), &error).hint("remove the cause, then run `webdyno rollback`")
        };
        let disk = self.tools.disk.as_ref();
        let Some(before) = before else {
            disk.remove(path).and_then(|()| disk.sync_directory(file::folder_of(path))).map_err(told)?;
            self.report.lines.push(format!("removed {}, which was not there before", path.display()));
            return Ok(Replaced::Done);
        };
        let temporary = file::temporary(path, &self.journal.id(), n);
        // What a killed session left there would be in the way.
        disk.remove(&temporary).map_err(told)?;
        let (replaced, without) = file::restore(disk, path, before, now, &temporary).map_err(told)?;
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
        let told = |error: io::Error| io_error("keep the original as", saved.display(), &error);
        let folder = file::folder_of(&saved);
        let disk = self.tools.disk.as_ref();
        private_directory(disk, folder)?;
        let create = |file: &OldFile| disk.remove(&saved).and_then(|()| disk.create(&saved, file));
        let plain = OldFile { attributes: BTreeMap::new(), ..before.clone() };
        match create(before) {
            Err(error) if file::is_refused(&error) => create(&plain),
            other => other,
        }
        .map_err(told)?;
        disk.sync_directory(folder).map_err(told)?;
        Ok(saved)
    }

    /// Removes temporary files of this session from the directories that it wrote to.
    fn temporaries(&mut self) {
        let id = self.journal.id();
        let entries = self.journal.history().entries.iter();
        let path = |entry: &Entry| match &entry.action {
            Action::WriteFile(write) => Some(file::folder_of(Path::new(&write.path)).to_owned()),
            _ => None,
        };
        for folder in entries.filter_map(path).collect::<BTreeSet<_>>() {
            match file::remove_temporaries(self.tools.disk.as_ref(), &folder, &id) {
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

    fn services(&mut self) {
        for (key, activations) in self.activations() {
            if self.left_alone.contains(&key) {
                continue;
            }
            let touched = self.touched.entry(key).or_default();
            touched.class = activations.iter().map(|(_, activate)| activate.class).max();
            touched.activations = activations;
        }
        for ((service, port), touched) in std::mem::take(&mut self.touched) {
            if let Err(error) = self.service(&service, port, &touched) {
                self.report.failures.push(error);
            }
        }
    }

    /// As long as something could not be put back, the next boot is to try it.
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

    /// Lets one service take over the files that were put back.
    fn service(&mut self, service: &str, port: u16, touched: &Touched) -> Result<()> {
        let launched_here = self.journal.history().is_launched_here(port);
        if launched_here && self.scope.launched {
            return Ok(());
        }
        if touched.failed_count > 0 {
            // The next attempt puts the rest back first.
            return Ok(());
        }
        let class = match touched.class {
            Some(class) => class,
            // It was never told to reload by us; but a log rotation may have done it since.
            None if self.scope.later && touched.written_count > 0 => ApplyClass::Reload,
            None => return Ok(()),
        };
        let activation = if touched.conflicts_count > 0 && touched.restored_count == 0 {
            self.report
                .lines
                .push(format!("{service} was not reloaded: none of its files could be put back"));
            None
        } else {
            let is_live = self.scope.live_traffic || live::is_live(&touched.activations);
            self.activate(service, port, (class, is_live), touched)?
        };
        let control = activation.map(|activation| {
            self.report.outage_us = self.report.outage_us.max(activation.outage_us);
            activation.control
        });
        for (n, _) in &touched.activations {
            self.note(Record::Undone { n: *n, control: control.clone() });
        }
        Ok(())
    }

    /// Validates and activates what is on disk now, starting the service again if it died of our change.
    /// `Ok(None)` when there is nothing to activate any more.
    fn activate(
        &mut self,
        service: &str,
        port: u16,
        (class, is_live): (ApplyClass, bool),
        touched: &Touched,
    ) -> Result<Option<Activation>> {
        let (ours, as_planned) = (touched.class.is_some(), class);
        let class = if is_live { live::class(class) } else { class };
        let programs = Arc::clone(&self.tools.programs);
        let Some(known) = programs.service(service) else {
            return Err(UserError::cannot_run(format!("this webdyno does not know the service `{service}`"))
                .hint("use the webdyno that made the change"));
        };
        let Some(control) = self.journal.history().controls.get(&(service.to_owned(), port)).cloned() else {
            return Ok(None);
        };
        let same_boot = self.is_same_boot();
        let running = match programs.is_alive(&control) && same_boot {
            true => Some(control.clone()),
            false => programs.on_port(service, port),
        };
        let pid = |activation: &Activation| activation.control.pid;
        if running.is_none() && (!ours || !same_boot) {
            self.report.lines.push(format!("{service} does not run, and was left so"));
            return Ok(None);
        }
        let Some(present) = known.locate(running.as_ref().unwrap_or(&control)) else {
            let gone = &control.executable;
            self.report.lines.push(format!("{service} was left as it is: its program {gone} is gone"));
            return Ok(None);
        };
        if running.is_none() {
            known.validate(&present)?;
            let started = known.start(&present, port)?;
            self.report.lines.push(format!("started {service} again (pid {})", pid(&started)));
            return Ok(Some(started));
        }
        let running = present;
        known.validate(&running)?;
        let activated = match known.activate(&running, class, port) {
            Err(_) if !programs.is_alive(&running) && programs.on_port(service, port).is_none() => {
                let started = known.start(&running, port)?;
                self.report.lines.push(format!("started {service} again (pid {})", pid(&started)));
                return Ok(Some(started));
            }
            other => other?,
        };
        let how = match class {
            ApplyClass::Restart => "restarted",
            _ => "reloaded",
        };
        let unsettled = activated.unsettled.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let outage = missed(activated.outage_us);
        self.report.lines.push(format!("{how} {service} (pid {}){outage}{unsettled}", pid(&activated)));
        if class != as_planned {
            let left = live::left(known, &running, &touched.activations);
            self.report.lines.extend(left.iter().cloned());
            self.report.left.extend(left);
        }
        Ok(Some(activated))
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
            stopped = self.tools.world.stop_launched(launch, entry.launched, header)?;
            stopped |= running.is_some_and(|mut running| running.end());
        }
        let program = launch.command.first().map_or("a program", String::as_str);
        let told = format!("stopped {program}, which was started for this session");
        self.report.lines.extend(stopped.then_some(told));
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

/// The outage that an activation was seen to have, as the end of its line.
fn missed(outage_us: Option<u64>) -> String {
    match outage_us {
        None | Some(0) => String::new(),
        Some(us) => format!("; nobody was answered for {}.{} ms", us / 1000, us / 100 % 10),
    }
}

/// Goes back through the writes of a file from what it holds now. Gives the write whose old file is to be put back
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
        let mut told: Vec<String> = self.conflicts.clone();
        told.extend(self.failures.iter().map(|error| error.message.clone()));
        let first = told.first()?.clone();
        let mut hints: Vec<String> = told.into_iter().skip(1).collect();
        hints.extend(self.failures.iter().filter_map(|error| error.hint.clone()));
        if !self.conflicts.is_empty() {
            hints.push("compare it with the saved original, and take over what you want".into());
        }
        let error = UserError::cannot_run(first);
        Some(if hints.is_empty() { error } else { error.hint(hints.join("\n")) })
    }
}

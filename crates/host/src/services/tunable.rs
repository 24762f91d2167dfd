//! What a target can do whose settings webdyno changes: render a change, prove it, make it take effect, and undo it.

use super::{Observe, recognise};
use crate::visibility::listeners;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, FileEdit, Preparation, SettingChange};
use webdyno_model::service::{Control, Inherited, ServiceSnapshot, SettingValue};

/// A service whose settings can be changed. Only [`crate::change`] may call `activate` and `start`.
pub trait Tunable: Observe {
    /// Renders changes to file contents and a diff. Settings that are right already are left out. Writes nothing. What
    /// this service cannot change is no error.
    fn prepare(&self, snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation>;

    /// Lets the program test the configuration as it is on disk now.
    fn validate(&self, control: &Control) -> Result<()>;

    /// Lets the requests under way finish where taking over a configuration would cut them off; then those who come wait
    /// until what is given is dropped. An error leaves all as it was. `None` where it is not needed.
    fn quiesce(&self, control: &Control) -> Result<Option<Box<dyn Quiet>>> {
        let _ = control;
        Ok(None)
    }

    /// Lets a service go on that waits because whoever made it wait was killed.
    fn resume(&self, control: &Control) {
        let _ = control;
    }

    /// Makes the configuration on disk take effect, waits until the service answers on `port` again, and gives the
    /// control of what runs now (a restart changes the pid) with the outage seen from outside.
    fn activate(&self, control: &Control, class: ApplyClass, port: u16) -> Result<Activation>;

    /// The same whatever is under way: the way back, where [`Tunable::activate`] would not cut requests off. `None` where that is
    /// never why it fails.
    fn activate_at_once(&self, control: &Control, port: u16) -> Option<Result<Activation>> {
        let _ = (control, port);
        None
    }

    /// Starts the service again after its main process ended, as it was started before, and waits until it answers on
    /// `port`. An error when it still runs.
    fn start(&self, control: &Control, port: u16) -> Result<Activation>;

    /// What a reload would put in force although it is not ours: configuration, modules, certificates that are newer than
    /// what runs, an executable that was replaced. `own` are files and directories that this session wrote. Reads only.
    fn pending_changes(&self, control: &Control, port: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        let _ = (control, port, own);
        Ok(vec![])
    }

    /// Renders a private copy of the service as it would be with these files: ports, pid file and logs of its own in
    /// `folder`. `None` where that is not possible for this program, an error when it is not for this configuration.
    /// Writes nothing.
    fn shadow(
        &self,
        control: &Control,
        edits: &[FileEdit],
        port: u16,
        folder: &Path,
    ) -> Result<Option<Shadow>> {
        let _ = (control, edits, port, folder);
        Ok(None)
    }

    /// The control with the program and unit that stand for those of a given one now, which packages may have moved or
    /// renamed; `None` when the program is not installed any more. Reads only.
    fn locate(&self, control: &Control) -> Option<Control> {
        Some(control.clone())
    }

    /// The control of what runs now in the place of a main process that ended; `None` when nothing does. Reads only.
    fn find_again(&self, before: &Control, port: u16) -> Option<Control> {
        let _ = before;
        let listener = listeners::listener(port).ok()?;
        let service = recognise(listener.executable.as_deref()?, &listener.arguments)?;
        (service.name() == self.name()).then(|| service.snapshot(listener.main_pid, port).ok()?.control)?
    }

    /// The names under which init systems may know it, without a suffix.
    fn init_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Why a start failed, in one line, from its standard error and its log; empty when they hold nothing.
    fn start_failure(&self, stderr: &str, log: &str) -> String {
        const CHARACTERS_MAX: usize = 1000;
        let lines = stderr.lines().chain(log.lines()).map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("; ").chars().take(CHARACTERS_MAX).collect()
    }

    /// Whether the running program keeps the value of a setting until it is started anew, also when it reloads a lower one.
    fn keeps_until_restart(&self, setting: &str) -> bool {
        let _ = setting;
        true
    }

    /// Why reverting a setting would drop connections that are in use now, in words (`70000 connections are tracked, and
    /// those above the limit are dropped`); `None` when it would not. Used before a change is undone while others use
    /// the service, in the way that [`crate::change::live_traffic_policy`] undoes it then; what it names is not reverted. `back` is
    /// `None` when the value of before is not known. Reads only.
    fn undo_drops(&self, control: &Control, port: u16, change: &SettingRevert<'_>) -> Option<String> {
        let _ = (control, port, change);
        None
    }

    /// Whether the running program may have read its configuration since a time; `None` when that is not known.
    /// `Some(false)` only when it surely has not. Reads only.
    fn read_since(&self, control: &Control, time: SystemTime) -> Option<bool> {
        let _ = (control, time);
        None
    }

    /// The values that the running program shows.
    fn running_values(&self, snapshot: &ServiceSnapshot) -> BTreeMap<String, SettingValue> {
        let _ = snapshot;
        BTreeMap::new()
    }
}

/// A service that has nothing under way, as long as this lives.
pub trait Quiet {}

/// What making a change take effect did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// How to control what runs now.
    pub control: Control,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
    /// What was still on its way to the new state when waiting for it ended; `None` when all is as it should be.
    pub unsettled: Option<String>,
}

/// A setting that is to be reverted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingRevert<'a> {
    /// `MaxRequestWorkers`.
    pub setting: &'a str,
    /// The value that we gave it.
    pub now: &'a SettingValue,
    /// The value of before; `None` when it is not known.
    pub back: Option<&'a SettingValue>,
}

/// Something that waits for the next reload, and is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingChange {
    /// The file.
    pub path: PathBuf,
    /// What about it, in words: `was changed 12 min after Apache last read its configuration`.
    pub why: String,
}

impl std::fmt::Display for PendingChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path.display(), self.why)
    }
}

/// A private copy of a service, rendered and not yet started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// The directories that it needs, each after the one it is in.
    pub folders: Vec<ShadowFolder>,
    /// Absolute path and content of each file to be written.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Starts it; absolute path first.
    pub command: Vec<String>,
    /// The environment to start it in.
    pub environment: BTreeMap<String, String>,
    /// The directory to start it in.
    pub directory: String,
    /// The user and group to start it as; `None` for our own.
    pub user: Option<(u32, u32)>,
    /// What the original was started with besides: umask, limits.
    pub inherited: Option<Inherited>,
    /// It writes its pid here.
    pub pid_file: PathBuf,
    /// Where it stands for the port of the original, on 127.0.0.1.
    pub port: u16,
    /// Where it says what is wrong once it has left its terminal.
    pub log: PathBuf,
    /// Paths that it may speak of, and what the original calls them.
    pub names: Vec<(String, String)>,
}

/// A directory of a shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowFolder {
    /// Absolute.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// User and group of the directory that it stands for, where it can be given away.
    pub owner: Option<(u32, u32)>,
}

impl Shadow {
    /// What it said, with the names that the original's files have.
    pub fn translated(&self, said: &str) -> String {
        self.names.iter().fold(said.to_owned(), |said, (own, original)| said.replace(own, original))
    }
}

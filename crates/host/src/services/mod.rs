//! Services: one file (or folder) per program. Discover, read settings, render a change, validate it, activate it.
//!
//! To add one: a file here that implements [`Service`], and a line in [`all`]. A test fails when the line is missing.

pub mod apache;
pub mod lighttpd;
pub mod mariadb;
pub mod nginx;
pub mod php_fpm;

use crate::harm_guard::others::AccessLogs;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use webdyno_model::change::{ApplyClass, FileEdit, RenderedPlan, Wish};
use webdyno_model::service::{Control, Inherited, ServiceSnapshot, SettingValue};
use webdyno_model::topology::Access;
use webdyno_model::{Result, UserError};

/// A program that webdyno knows how to read and to change. Only [`crate::change`] may call `activate` and `start`.
pub trait Service: Sync {
    /// Its name in snapshots and changes: `apache`.
    fn name(&self) -> &'static str;

    /// Whether the executable of a process is this program (by path and, where in doubt, by asking it).
    fn recognises(&self, executable: &str, arguments: &[String]) -> bool;

    /// Reads version, mode, settings, status page and control of the service whose main process is `pid`. Reads only.
    /// Of a process that we may not look into, what anyone may read: without its control, and with a warning.
    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot>;

    /// Whether a process, which we may not look into, is to listen on a port by what anyone may read of it; `None` when
    /// that does not tell. Reads only.
    fn listens_on(&self, pid: u32, port: u16) -> Option<bool> {
        let _ = (pid, port);
        None
    }

    /// Reads a service that others talk to: of a pool or a database there is no port that is under load. Reads only.
    /// `None` when it cannot be told without a port.
    fn backend(&self, pid: u32) -> Option<Result<ServiceSnapshot>> {
        let _ = pid;
        None
    }

    /// Adds what the program itself tells to those who may ask it. Reads only; what cannot be had is told in the snapshot.
    fn with_access(&self, snapshot: &mut ServiceSnapshot, access: &Access) {
        let _ = (snapshot, access);
    }

    /// The backends that its configuration names, as addresses: `127.0.0.1:9000`, `unix:/run/php/php8.2-fpm.sock`. Reads
    /// only.
    fn configured_backends(&self, snapshot: &ServiceSnapshot) -> Vec<String> {
        let _ = snapshot;
        vec![]
    }

    /// Renders wishes to file contents and a diff. Settings that are right already are left out. Writes nothing.
    fn prepare(&self, snapshot: &ServiceSnapshot, wishes: &[Wish]) -> Result<RenderedPlan> {
        let _ = (snapshot, wishes);
        Err(self.only_read())
    }

    /// Lets the program test the configuration as it is on disk now.
    fn validate(&self, control: &Control) -> Result<()> {
        let _ = control;
        Err(self.only_read())
    }

    /// Makes the configuration on disk take effect, waits until the service answers on `port` again, and gives the
    /// control of what runs now (a restart changes the pid) with the outage seen from outside.
    fn activate(&self, control: &Control, class: ApplyClass, port: u16) -> Result<Activation> {
        let _ = (control, class, port);
        Err(self.only_read())
    }

    /// The error of a service that is read and never changed.
    fn only_read(&self) -> UserError {
        UserError::cannot_run(format!("webdyno reads {} and does not change it", self.name()))
            .hint("change it by hand; what webdyno observes says which setting limits")
    }

    /// Starts the service again after its main process ended, as it was started before, and waits until it answers on
    /// `port`. An error when it still runs.
    fn start(&self, control: &Control, port: u16) -> Result<Activation> {
        let _ = control;
        Err(UserError::cannot_run(format!("webdyno does not know how to start {}", self.name()))
            .hint(format!("start it by hand; port {port} must answer")))
    }

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

    /// The names under which init systems may know it, without a suffix.
    fn init_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// The logs in which it writes down each request, those of `port` first. Reads only.
    fn access_logs(&self, control: &Control, port: u16) -> Result<AccessLogs> {
        let (_, name) = ((control, port), self.name());
        Ok(AccessLogs {
            files: vec![],
            unread: vec![format!("webdyno does not know where {name} writes its access log")],
        })
    }

    /// Where a client on this machine reaches the port, the best address first.
    fn addresses(&self, control: &Control, port: u16) -> Vec<SocketAddr> {
        let _ = control;
        vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))]
    }

    /// What it says of a start that failed, in one line, from its standard error and its log; empty when that is nothing.
    fn said(&self, complaint: &str, log: &str) -> String {
        const CHARACTERS_MAX: usize = 1000;
        let lines = complaint.lines().chain(log.lines()).map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("; ").chars().take(CHARACTERS_MAX).collect()
    }

    /// Whether the running program keeps the value of a setting until it is started anew, also when it reloads a lower one.
    fn keeps_until_restart(&self, setting: &str) -> bool {
        let _ = setting;
        true
    }

    /// Why putting a setting back would drop connections that are in use now, in words (`70000 connections are tracked, and
    /// those above the limit are dropped`); `None` when it would not. Asked before a change is undone while others use
    /// the service, in the way that [`crate::change::apply::live`] undoes it then; what it names is not put back. `back` is
    /// `None` when the value of before is not known. Reads only.
    fn undo_drops(&self, control: &Control, port: u16, change: &Undoing<'_>) -> Option<String> {
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

/// A setting that is to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undoing<'a> {
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

/// The service of a snapshot whose program webdyno does not know.
pub const UNKNOWN: &str = "unknown";

/// All services that webdyno knows.
#[rustfmt::skip] // a list, one a line
pub fn all() -> &'static [&'static dyn Service] {
    &[
        &apache::Apache,
        &lighttpd::Lighttpd,
        &mariadb::Mariadb,
        &nginx::Nginx,
        &php_fpm::PhpFpm,
    ]
}

/// A service by its name in snapshots.
pub fn by_name(name: &str) -> Option<&'static dyn Service> {
    all().iter().copied().find(|service| service.name() == name)
}

/// The service that a process belongs to, by its executable and arguments.
pub fn recognise(executable: &str, arguments: &[String]) -> Option<&'static dyn Service> {
    all().iter().copied().find(|service| service.recognises(executable, arguments))
}

/// The snapshot of a program that webdyno does not know: it can be loaded and watched, and nothing of it can be changed.
pub fn snapshot_unknown(pid: u32, port: u16, executable: Option<String>) -> ServiceSnapshot {
    let name = executable.as_deref().unwrap_or("the program");
    let known: Vec<_> = all().iter().map(|service| service.name()).collect();
    let warning = format!(
        "{name} serves port {port}, and webdyno knows only {}: it sees processes and sockets, and cannot read or change settings",
        known.join(", ")
    );
    ServiceSnapshot {
        service: UNKNOWN.into(),
        pid,
        executable,
        port,
        warnings: vec![warning],
        ..ServiceSnapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_service_is_missing_from_the_list() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/services");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .filter(|name| name != "mod")
            .collect();
        files.sort();
        let mut names: Vec<_> = all().iter().map(|service| service.name()).collect();
        names.sort_unstable();
        assert_eq!(files, names);
        for name in names {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert!(by_name(UNKNOWN).is_none());
    }

    #[test]
    fn programs_are_recognised_by_their_executable() {
        for (executable, expected) in [
            ("/usr/sbin/apache2", Some("apache")),
            ("/usr/sbin/httpd", Some("apache")),
            ("/usr/sbin/apache2 (deleted)", Some("apache")),
            ("/usr/sbin/nginx", Some("nginx")),
            ("/usr/sbin/lighttpd", Some("lighttpd")),
            ("/usr/bin/python3.11", None),
            ("/bin/busybox", None),
            ("", None),
        ] {
            assert_eq!(recognise(executable, &[]).map(Service::name), expected, "{executable}");
        }
    }

    #[test]
    fn an_unknown_program_is_still_a_snapshot() {
        let snapshot = snapshot_unknown(7, 80, Some("/usr/sbin/caddy".into()));
        assert_eq!((snapshot.service.as_str(), snapshot.pid, snapshot.port), ("unknown", 7, 80));
        assert_eq!(snapshot.executable.as_deref(), Some("/usr/sbin/caddy"));
        assert!(snapshot.warnings[0].contains("caddy") && snapshot.control.is_none());
    }
}

//! Services: a folder per program. All are observed: discover, read settings. Some are tunable as well: render a change,
//! validate it, activate it.
//!
//! To add one: a folder here that implements [`Observe`], and a line in [`all`]. A test fails when the line is missing.

pub mod apache;
pub(crate) mod common;
pub mod lighttpd;
pub mod listen_backlog;
pub mod mariadb;
pub mod nginx;
pub mod php_fpm;
pub mod process_limit;
pub mod resource_control;
pub mod sysctl;

mod tunable;
pub mod value_holder;

pub use tunable::{Activation, PendingChange, Quiet, SettingRevert, Shadow, ShadowFolder, Tunable};

use crate::logs::AccessLogs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use webdyno_model::Result;
use webdyno_model::change::Preparation;
use webdyno_model::service::{Control, ServiceSnapshot};
use webdyno_model::topology::Access;

/// A program that webdyno knows how to read. What can be changed is [`Tunable`] as well.
pub trait Observe: Sync {
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

    /// The same service as one whose settings can be changed; `None` when it is only observed.
    fn tunable(&self) -> Option<&dyn Tunable> {
        None
    }
}

/// The service of a snapshot whose program webdyno does not know.
pub const UNKNOWN: &str = "unknown";

/// All services that webdyno knows.
#[rustfmt::skip] // a list, one a line
pub fn all() -> &'static [&'static dyn Observe] {
    &[
        &apache::Apache,
        &lighttpd::Lighttpd,
        &mariadb::Mariadb,
        &nginx::Nginx,
        &php_fpm::PhpFpm,
    ]
}

/// A service by its name in snapshots.
pub fn by_name(name: &str) -> Option<&'static dyn Observe> {
    all().iter().copied().find(|service| service.name() == name)
}

/// A service by its name, if its settings can be changed.
pub fn tunable(name: &str) -> Option<&'static dyn Tunable> {
    by_name(name)?.tunable()
}

/// The answer for changes of a service that is observed and never changed.
pub fn only_observed(name: &str) -> Preparation {
    Preparation::NotPreparable {
        why: format!("webdyno reads {name} and does not change it"),
        hint: Some("change it by hand; what webdyno observes says which setting limits".into()),
    }
}

/// The service that a process belongs to, by its executable and arguments.
pub fn recognise(executable: &str, arguments: &[String]) -> Option<&'static dyn Observe> {
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
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/services");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .filter(|name| {
                ![
                    "mod",
                    "tunable",
                    "common",
                    "sysctl",
                    "process_limit",
                    "listen_backlog",
                    "resource_control",
                    "value_holder",
                ]
                .contains(&name.as_str())
            })
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
            assert_eq!(recognise(executable, &[]).map(Observe::name), expected, "{executable}");
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

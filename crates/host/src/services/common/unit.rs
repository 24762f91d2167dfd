//! Who looks after a main process: a unit of systemd, or another supervisor.
//!
//! Facts: systemctl(1), cgroups(7).

use crate::os::program::{self, Invocation};
use crate::os::{procfs, timeouts};
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::{Result, UserError};

/// Programs that start their children again when they end.
const SUPERVISORS: [&str; 9] = [
    "supervisord",
    "runsv",
    "s6-supervise",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "containerd-shim",
    "conmon",
];

/// The systemd unit whose main process this is. A process that merely lives in the control group of another service
/// (a CI runner's, say) does not make that service its unit: reloading it would hit a stranger.
pub fn unit(pid: u32) -> Option<String> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let unit = unit_of(&procfs::read_text(format!("/proc/{pid}/cgroup")).ok()?)?;
    (main_pid(&unit)? == pid).then_some(unit)
}

/// The main process of a unit now.
pub fn main_pid(unit: &str) -> Option<u32> {
    properties(unit, &["MainPID"]).get("MainPID")?.parse().ok().filter(|pid| *pid > 0)
}

/// What systemd says of a unit, by the names of its properties (systemctl(1)); nothing where it does not answer.
pub fn properties(unit: &str, names: &[&str]) -> BTreeMap<String, String> {
    let asked = systemctl(&["show", &format!("--property={}", names.join(",")), "--", unit]);
    let shown = program::run(&asked, timeouts::QUERY).map(|finished| finished.stdout).unwrap_or_default();
    let property = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    shown.lines().filter_map(property).collect()
}

/// Whether a file adds to a unit: systemd knows what is in it once it was reloaded (systemd.unit(5)).
pub fn is_drop_in(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| folder.to_string_lossy().ends_with(".service.d"));
    folder.and_then(Path::parent).is_some_and(|units| units.ends_with("systemd/system"))
}

/// Has systemd read its units again, where it runs. What runs goes on.
pub fn reload_manager() -> Result<()> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Ok(());
    }
    let finished = program::run(&systemctl(&["daemon-reload"]), timeouts::QUERY)?;
    let failed = || {
        UserError::cannot_run(format!(
            "systemctl daemon-reload failed: {}",
            program::summary(&finished.stderr)
        ))
    };
    if finished.success {
        Ok(())
    } else {
        Err(failed().hint("remove the cause, then run `webdyno rollback`"))
    }
}

/// The unit that a control group belongs to: the last element of its path, when that is a service.
fn unit_of(cgroup: &str) -> Option<String> {
    let named = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        (id == "0" || controllers == "name=systemd").then(|| path.to_owned())
    };
    let last = |path: String| path.rsplit('/').next().map(str::to_owned);
    cgroup.lines().filter_map(named).filter_map(last).find(|name| name.ends_with(".service"))
}

/// A systemctl command.
pub fn systemctl(arguments: &[&str]) -> Invocation<'static> {
    Invocation {
        executable: "systemctl",
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        environment: None,
        directory: None,
    }
}

/// Whether something else would start the process again, or end with it.
pub fn supervised(pid: u32, parent: u32, foreground: bool) -> bool {
    let name = procfs::stat(parent).map(|stat| stat.name).unwrap_or_default();
    is_supervised(pid, parent, &name, foreground)
}

fn is_supervised(pid: u32, parent: u32, parent_name: &str, foreground: bool) -> bool {
    let by_name = parent != 1 && SUPERVISORS.iter().any(|name| parent_name.starts_with(name));
    pid == 1 || by_name || (foreground && parent_name != "systemd")
}

/// Runs systemctl; the error carries its words.
///
/// systemd counts the starts of a unit, also those of administrators, and refuses one too many (StartLimitBurst of
/// systemd.unit(5)). By then it has stopped the unit for a restart, and would refuse the start of an undo as well: the count
/// begins anew (reset-failed of systemctl(1)).
pub fn unit_command(arguments: &[&str]) -> Result<()> {
    if let ["start" | "restart", unit] = arguments {
        // Where that fails the start says why, if it matters.
        let _ = program::run(&systemctl(&["reset-failed", unit]), timeouts::QUERY);
    }
    let finished = program::run(&systemctl(arguments), timeouts::UNIT)?;
    if finished.success {
        return Ok(());
    }
    let command = arguments.join(" ");
    Err(UserError::cannot_run(format!("systemctl {command} failed: {}", program::summary(&finished.stderr)))
        .hint(format!("journalctl -u {} says why", arguments.last().copied().unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervision_is_told_from_parent_and_options() {
        for (pid, parent, name, foreground, expected) in [
            (100, 1, "systemd", false, false),
            (100, 1, "systemd", true, false),
            (100, 1, "tini", false, false),
            (100, 1, "tini", true, true),
            (1, 0, "", true, true),
            (100, 50, "supervisord", false, true),
            (100, 50, "bash", true, true),
            (100, 50, "bash", false, false),
        ] {
            assert_eq!(
                is_supervised(pid, parent, name, foreground),
                expected,
                "{pid} {parent} {name} {foreground}"
            );
        }
    }

    #[test]
    fn files_that_add_to_a_unit_are_told_by_their_folder() {
        for (path, expected) in [
            ("/etc/systemd/system/apache2.service.d/zzz-webdyno.conf", true),
            ("/run/systemd/system/mariadb@a.service.d/x.conf", true),
            ("/etc/systemd/system/apache2.service", false),
            ("/etc/systemd/system/multi-user.target.d/x.conf", false),
            ("/etc/apache2.service.d/x.conf", false),
        ] {
            assert_eq!(is_drop_in(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn the_unit_is_the_innermost_service() {
        for (cgroup, expected) in [
            ("0::/system.slice/apache2.service\n", Some("apache2.service")),
            ("9:pids:/x\n1:name=systemd:/system.slice/httpd.service\n", Some("httpd.service")),
            ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
            ("0::/user.slice/user@1000.service/app.slice/x.scope", None),
            ("4:memory:/system.slice/apache2.service\n0::/\n", None),
            ("", None),
        ] {
            assert_eq!(unit_of(cgroup).as_deref(), expected, "{cgroup}");
        }
    }
}

//! Who looks after a main process: a unit of systemd, or another supervisor.
//!
//! Facts: systemctl(1), cgroups(7).

use crate::os::program::{self, Invocation};
use crate::os::{procfs, timeouts};
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
    let asked = systemctl(&["show", "--property=MainPID", "--value", &unit]);
    let finished = crate::os::program::run(&asked, timeouts::QUERY).ok()?;
    (finished.stdout.trim() == pid.to_string()).then_some(unit)
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

/// The hard limit of open files that a unit grants what it starts (systemd.exec(5)).
pub fn open_files(unit: &str) -> Option<u64> {
    let asked = systemctl(&["show", "--property=LimitNOFILE", "--value", unit]);
    let finished = program::run(&asked, timeouts::QUERY).ok()?;
    match finished.stdout.trim() {
        "infinity" => Some(u64::MAX),
        number => number.parse().ok(),
    }
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

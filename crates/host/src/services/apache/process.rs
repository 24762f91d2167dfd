//! What /proc tells about one process, as far as operating Apache needs it.
//!
//! https://docs.kernel.org/filesystems/proc.html (stat, cmdline, environ, cgroup) and proc(5).

use crate::procfs;
pub use crate::procfs::Stat;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::time::{Duration, SystemTime};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Longest file of /proc that is read.
const PROC_BYTES_MAX: u64 = 4 << 20;

/// Reads a file of a process, bounded.
fn read(pid: u32, name: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(format!("/proc/{pid}/{name}"))?.take(PROC_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The stat of a process; `None` when there is none.
pub fn stat(pid: u32) -> Option<Stat> {
    procfs::stat(pid).ok()
}

/// Whether this very process lives. A zombie does not.
pub fn lives(pid: u32, start_ticks: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.start_ticks == start_ticks && !matches!(stat.state, 'Z' | 'X'))
}

/// The executable of a process, and whether its file was replaced since it started.
pub fn executable(pid: u32) -> Result<(String, bool)> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link).map_err(|error| io_error("read", &link, &error))?;
    let path = path.to_string_lossy();
    match path.strip_suffix(" (deleted)") {
        Some(path) => Ok((path.to_owned(), true)),
        None => Ok((path.into_owned(), false)),
    }
}

/// The command line of a process.
pub fn arguments(pid: u32) -> Result<Vec<String>> {
    let bytes =
        read(pid, "cmdline").map_err(|error| io_error("read", format!("/proc/{pid}/cmdline"), &error))?;
    Ok(strings(&bytes))
}

/// The environment that a process was started with.
pub fn environment(pid: u32) -> Result<BTreeMap<String, String>> {
    let bytes =
        read(pid, "environ").map_err(|error| io_error("read", format!("/proc/{pid}/environ"), &error))?;
    let pair = |text: String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(strings(&bytes).into_iter().filter_map(pair).collect())
}

/// The working directory of a process.
pub fn directory(pid: u32) -> Result<String> {
    let link = format!("/proc/{pid}/cwd");
    let path = fs::read_link(&link).map_err(|error| io_error("read", &link, &error))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The text of /proc/PID/cgroup.
pub fn cgroup(pid: u32) -> Option<String> {
    Some(String::from_utf8_lossy(&read(pid, "cgroup").ok()?).into_owned())
}

/// The unit that a control group belongs to: the last element of its path, when that is a service.
pub fn unit_of(cgroup: &str) -> Option<String> {
    let named = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        (id == "0" || controllers == "name=systemd").then(|| path.to_owned())
    };
    let last = |path: String| path.rsplit('/').next().map(str::to_owned);
    cgroup.lines().filter_map(named).filter_map(last).find(|name| name.ends_with(".service"))
}

/// Processes whose parent is `pid`, with their start times.
pub fn children(pid: u32) -> Vec<(u32, u64)> {
    let timed = |child: u32| Some((child, stat(child)?.start_ticks));
    procfs::children_of(pid).into_iter().filter_map(timed).collect()
}

/// When a process started, by the wall clock; right to a second or so.
pub fn started_at(start_ticks: u64) -> Option<SystemTime> {
    let text = procfs::read_text("/proc/stat").ok()?;
    let boot_s: u64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let since_boot_ms = start_ticks.saturating_mul(1000) / procfs::clock_ticks_per_s().max(1);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(boot_s) + Duration::from_millis(since_boot_ms))
}

/// Sends a signal to the one process that has this pid and this start time, and to no other.
pub fn signal(pid: u32, start_ticks: u64, signal: Signal) -> Result<()> {
    let gone = || {
        UserError::cannot_run(format!(
            "process {pid} is not the Apache that was found: it ended, or another one has its id"
        ))
        .hint("run the command again: webdyno looks for the server anew")
    };
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let refused = |error: rustix::io::Errno| io_error("signal", format!("process {pid}"), &error.into());
    // With the descriptor open the id cannot go to another process between the check and the signal.
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(process) if lives(pid, start_ticks) => pidfd_send_signal(process, signal).map_err(refused),
        Ok(_) | Err(rustix::io::Errno::SRCH) => Err(gone()),
        // Kernels before 5.3 have no process descriptors.
        Err(_) if lives(pid, start_ticks) => rustix::process::kill_process(id, signal).map_err(refused),
        Err(_) => Err(gone()),
    }
}

/// Strings that end in NUL.
fn strings(bytes: &[u8]) -> Vec<String> {
    let mut strings: Vec<_> =
        bytes.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    if strings.last().is_some_and(String::is_empty) {
        strings.pop();
    }
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn this_process_is_found() {
        let pid = std::process::id();
        let stat = stat(pid).unwrap();
        assert!(lives(pid, stat.start_ticks) && !lives(pid, stat.start_ticks + 1));
        assert!(children(stat.ppid).contains(&(pid, stat.start_ticks)));
        assert_eq!(executable(pid).unwrap().0, std::env::current_exe().unwrap().to_str().unwrap());
        assert!(!arguments(pid).unwrap().is_empty());
        let age = started_at(stat.start_ticks).unwrap().elapsed().unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn a_signal_reaches_only_the_process_that_was_meant() {
        let mut child = std::process::Command::new("/bin/sleep").arg("30").spawn().unwrap();
        let pid = child.id();
        let ticks = stat(pid).unwrap().start_ticks;
        let error = signal(pid, ticks + 1, Signal::TERM).unwrap_err();
        assert!(error.message.contains("not the Apache"), "{error}");
        assert!(lives(pid, ticks));
        signal(pid, ticks, Signal::TERM).unwrap();
        child.wait().unwrap();
        assert!(!lives(pid, ticks));
    }
}

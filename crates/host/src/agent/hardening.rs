//! The guardian leaves its parent's session and makes itself hard to end: it must outlive the tool, the terminal, and a
//! server that runs out of memory.
//!
//! What is not allowed is left: that is normal without root. Nothing of it may go to the programs that the guardian
//! starts, an Apache that it starts again least of all: memory locks end at exec (mlockall(2)), the OOM score is given
//! back by [`crate::os::spawn`], handled signals are as by default after exec (signal(7)), and descriptors that the tool was
//! started with are closed there (a lock file of flock(1) would stay locked as long as the Apache runs).

use crate::os::{procfs, spawn};
use nix::sys::signal::SigSet;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Resource, getppid, getrlimit, setpgid, setsid};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{FORBIDDEN, SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use webdyno_model::{Result, UserError};

/// OOM scores to have, the first one that is allowed. Not -1000: should the guardian itself be what eats the memory, it
/// must end. Who may not go below zero (that needs CAP_SYS_RESOURCE) may still come down to it.
const OOM_SCORES: [i32; 2] = [-900, 0];

/// The user namespace that the kernel begins with (include/linux/proc_ns.h): capabilities that are not of this one do
/// not lift resource limits.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Leaves the terminal and its signals to the tool, and makes this process hard to end. `terminated` is set by SIGTERM.
/// To be called before the process has other threads.
pub fn detach(terminated: &Arc<AtomicBool>) -> Result<()> {
    handle_signals(terminated)?;
    lead_a_session();
    close_fds::set_fds_cloexec(3, &[]);
    spawn::lower_oom_score(&OOM_SCORES);
    // Locked pages count against whoever is not spared when memory runs out, and cannot be given back before that.
    if spawn::own_oom_score().is_some_and(|score| score < 0) {
        lock_memory();
    }
    Ok(())
}

/// Leaves the session of the terminal, whose end, or whose `stty tostop`, would else be the guardian's (setsid(2)).
fn lead_a_session() {
    if setsid().is_ok() {
        return;
    }
    // The leader of a group may not begin a session: for a moment it joins the group of its parent. That is told as 0, and
    // cannot be joined, when its leader is outside of our pid namespace (pid_namespaces(7)).
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    let group = parent.and_then(|parent| crate::os::process::group_of(u32::try_from(parent).ok()?));
    let group = group.and_then(|group| Pid::from_raw(i32::try_from(group).ok()?));
    if let Some(group) = group
        && setpgid(None, Some(group)).is_ok()
    {
        let _ = setsid();
    }
}

fn handle_signals(terminated: &Arc<AtomicBool>) -> Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    // A signal that we were started to ignore stays ignored after exec; one that we handle does not. Both do nothing.
    let inherited = procfs::read_text("/proc/self/status").map(|status| parse_ignored(&status));
    // Who handles the terminal's signals to stop, instead of ignoring them, can never write to it (tty_ioctl(4)).
    let left = |signal: &i32| FORBIDDEN.contains(signal) || [SIGTSTP, SIGTTIN, SIGTTOU].contains(signal);
    let inherited = inherited.unwrap_or_default().into_iter().filter(|signal| !left(signal));
    let unheard: Vec<i32> =
        inherited.filter(|signal| *signal != SIGTERM).chain([SIGINT, SIGHUP, SIGPIPE]).collect();
    for (signal, flag) in
        [(SIGTERM, terminated)].into_iter().chain(unheard.into_iter().map(|n| (n, &ignored)))
    {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|error| UserError::cannot_run(format!("cannot handle signal {signal}: {error}")))?;
    }
    // Blocked ones would stay blocked as well, and SIGTERM would not be heard.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|error| UserError::cannot_run(format!("cannot unblock signals: {error}")))
}

/// Keeps all memory of this process from being swapped out, where that cannot hurt: with a limit on locked memory, later
/// allocations would fail.
fn lock_memory() {
    let is_initial = std::fs::read_link("/proc/self/ns/user")
        .is_ok_and(|link| link.to_str() == Some(INITIAL_USER_NAMESPACE));
    let is_capable = crate::os::process::has_capability(CapabilitySet::IPC_LOCK);
    if is_initial && is_capable || getrlimit(Resource::Memlock).current.is_none() {
        // On use: the stacks of threads are reserved far larger than they get. Kernels before 4.4 do not know that.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
}

/// The signals 1 to 31 that are ignored by `/proc/PID/status`: bit n-1 of `SigIgn` is signal n.
fn parse_ignored(status: &str) -> Vec<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let mask = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
    (1..=31).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGQUIT;

    #[test]
    fn ignored_signals_parse() {
        for (text, expected) in [
            ("SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001004\nSigCgt:\t1\n", vec![SIGQUIT, SIGPIPE]),
            ("SigIgn:\tffffffff00000000\n", vec![]),
            ("SigIgn:\tx\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(parse_ignored(text), expected, "{text}");
        }
    }
}

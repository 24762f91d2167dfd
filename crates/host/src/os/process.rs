//! Naming a process for ever, and ending one: pid and start time, checked before every signal.
//!
//! Facts: proc_pid_stat(5) (start time in clock ticks since boot), `/proc/sys/kernel/random/boot_id` (random(4)),
//! pid_namespaces(7), kill(2), setpgid(2), pidfd_open(2), capabilities(7).

use crate::os::{procfs, timeouts};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// How often a process is looked at while it is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process, named for as long as the machine is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessName {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl From<&Control> for ProcessName {
    /// The main process of a service.
    fn from(control: &Control) -> Self {
        Self { pid: control.pid, start_ticks: control.start_ticks }
    }
}

impl ProcessName {
    /// The process that has this pid now; `None` when there is none, or it has ended and only waits to be reaped.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = procfs::stat(pid).ok()?;
        (!stat.has_ended()).then_some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// This process.
    pub fn this() -> Result<Self> {
        let pid = std::process::id();
        Self::of(pid).ok_or_else(|| {
            UserError::cannot_run(format!("cannot read /proc/{pid}/stat"))
                .hint("mount /proc: without it no process can be told from another")
        })
    }

    /// The process that started this one; `None` when it is not visible here.
    pub fn parent() -> Option<Self> {
        let pid = rustix::process::getppid()?;
        Self::of(u32::try_from(pid.as_raw_nonzero().get()).ok()?)
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Whether it runs, or has ended and its parent has not taken note of it yet.
    pub fn exists(self) -> bool {
        procfs::stat(self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Waits until it has ended, at most that long. True when it has.
    pub fn wait_for_end(self, at_most: Duration) -> bool {
        wait_until(at_most, || !self.is_alive())
    }

    /// Sends a signal if it still is this process: false when it is gone. An error when we may not.
    pub fn signal(self, signal: Signal) -> Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        // With the descriptor open the id cannot go to another process between the check and the signal.
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) if self.is_alive() => pidfd_send_signal(process, signal),
            Ok(_) | Err(Errno::SRCH) => Err(Errno::SRCH),
            // Kernels before 5.3 have no process descriptors.
            Err(_) if self.is_alive() => kill_process(pid, signal),
            Err(_) => Err(Errno::SRCH),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(io_error("signal", format!("process {}", self.pid), &error.into())),
        }
    }

    /// Its process group if it leads one: only then is the group its own.
    pub fn led_group(self) -> Option<u32> {
        (group_of(self.pid)? == self.pid && self.is_alive()).then_some(self.pid)
    }

    /// Its living children.
    pub fn children(self) -> Vec<Self> {
        procfs::children_of(self.pid).into_iter().filter_map(Self::of).collect()
    }
}

/// Whether this thread has a capability in effect (capabilities(7)).
pub fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// What was done to a process; that it has ended meanwhile is no failure.
pub fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
        done => done,
    }
}

/// Which boot of which machine this is, and which pid namespace: pids of two processes can be compared only when
/// this is the same for both. `None` where it cannot be read.
pub fn pid_space() -> Option<String> {
    let boot = boot_id()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{boot} {}", space.display()))
}

/// Changes with every boot; `None` where it cannot be read.
pub fn boot_id() -> Option<String> {
    procfs::read_text("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// Which installation this is (machine-id(5)); `None` where there is none, as in most containers.
pub fn machine_id() -> Option<String> {
    let id = procfs::read_text("/etc/machine-id").ok()?.trim().to_owned();
    // What an image has that was never booted says nothing.
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// Ends a process kindly, then with force: SIGTERM to it alone, so that it ends its children itself; after `patience`
/// SIGKILL, to the whole group where it is known to be its own. Waits until nothing of the group is left.
pub fn stop(main: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()> {
    let members = || own_group.map(|group| members_of(group, main)).unwrap_or_default();
    let gone = || !main.is_alive() && members().is_empty();
    match main.is_alive() {
        true => drop(main.signal(Signal::TERM)?),
        // It left children behind that nobody else will end.
        false => signal_group(own_group.filter(|_| !members().is_empty()), Signal::TERM),
    }
    if wait_until(patience, gone) {
        return Ok(());
    }
    main.signal(Signal::KILL)?;
    signal_group(own_group.filter(|_| !members().is_empty()), Signal::KILL);
    if wait_until(timeouts::KILL, gone) {
        return Ok(());
    }
    Err(UserError::cannot_run(format!("process {} does not end, not even by SIGKILL", main.pid))
        .hint(format!("`ps -o pid,stat,wchan,cmd -p {}` shows what it waits for", main.pid)))
}

/// That a group ended between looking and signalling is what was wanted.
fn signal_group(group: Option<u32>, signal: Signal) {
    if let Some(group) = group.and_then(|group| Pid::from_raw(i32::try_from(group).ok()?)) {
        let _ = kill_process_group(group, signal);
    }
}

/// The living members of a process group that are not older than its leader: a group number that was given away
/// again is not taken for ours.
fn members_of(group: u32, leader: ProcessName) -> Vec<u32> {
    // While a group has members its number is given to no new process: another leader means that ours is gone.
    if ProcessName::of(group).is_some_and(|found| found != leader) {
        return vec![];
    }
    let in_group = |pid: &u32| {
        group_of(*pid) == Some(group)
            && ProcessName::of(*pid).is_some_and(|found| found.start_ticks >= leader.start_ticks)
    };
    procfs::pids().into_iter().filter(in_group).collect()
}

/// The process group of a process. Not by getpgid(2), whose 0 for kernel threads and for groups of another pid namespace is
/// no group.
pub fn group_of(pid: u32) -> Option<u32> {
    procfs::stat(pid).ok().map(|stat| stat.group).filter(|group| *group != 0)
}

/// Asks until it is true or the time is up; the last answer.
pub fn wait_until(at_most: Duration, is_true: impl FnMut() -> bool) -> bool {
    wait_polling(POLL_INTERVAL, at_most, is_true)
}

/// [`wait_until`] with a given pause between looks.
pub fn wait_polling(pause: Duration, at_most: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_true() {
            return true;
        }
        if start.elapsed() >= at_most {
            return false;
        }
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_means_one_process_only() {
        let this = ProcessName::this().unwrap();
        assert!(this.is_alive());
        let earlier = ProcessName { start_ticks: this.start_ticks - 1, ..this };
        assert!(!earlier.is_alive(), "the same pid with another start is another process");
        assert!(!earlier.signal(Signal::KILL).unwrap());
    }

    #[test]
    fn a_signal_reaches_only_the_process_that_was_meant() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let ours = ProcessName::of(child.id()).unwrap();
        let other = ProcessName { start_ticks: ours.start_ticks + 1, ..ours };
        let reached = other.signal(Signal::TERM);
        let spared = ours.is_alive() && ProcessName::this().unwrap().children().contains(&ours);
        assert_eq!(ours.signal(Signal::TERM), Ok(true));
        child.wait().unwrap();
        assert_eq!((reached, spared, ours.signal(Signal::TERM)), (Ok(false), true, Ok(false)));
    }

    #[test]
    fn a_stubborn_group_is_ended_and_a_zombie_counts_as_ended() {
        let script = "trap '' TERM; sleep 60 & while :; do sleep 60; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let main = ProcessName::of(child.id()).unwrap();
        let all_run = wait_until(Duration::from_secs(5), || members_of(main.pid, main).len() >= 3);
        stop(main, main.led_group(), Duration::from_millis(200)).unwrap();
        assert_eq!(members_of(main.pid, main), Vec::<u32>::new());
        assert!(!main.is_alive());
        child.wait().unwrap();
        assert!(all_run);
    }

    #[test]
    fn a_group_number_that_another_process_has_now_is_not_ours() {
        let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let theirs = ProcessName::of(child.id()).unwrap();
        let ours = ProcessName { start_ticks: theirs.start_ticks - 1, ..theirs };
        let stopped = stop(ours, Some(theirs.pid), Duration::from_millis(50));
        let alive = theirs.is_alive();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((stopped, alive), (Ok(()), true));
    }
}

//! Reading processes from `/proc`: what the collectors, the discovery and the services share.
//!
//! Facts: `proc_pid_stat(5)`, `proc_pid_status(5)`, `proc_pid_fd(5)`, `proc_pid_limits(5)`, `proc_pid_environ(5)` and
//! the kernel's Documentation/filesystems/proc.rst; clock_getcpuclockid(3). Processes end while
//! one looks: every function says so as an error or leaves the process out, and none takes a missing value for zero.
//!
//! Anyone may read stat, status, cmdline, cgroup, the clocks and the list of children; exe, environ, cwd, fd and ns only
//! the process's own user and root.

mod parsing;

use nix::time::{ClockId as ClockOf, clock_gettime as clock_gettime_of};
use parsing::{
    DELETED, parse_depth, parse_effective, parse_limit, parse_pids, parse_replaced_libraries,
    parse_socket_link, parse_strings, parse_uid,
};
pub use parsing::{Stat, parse_environment, parse_stat};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// The most that is read of any one file: a bound, far above what the kernel writes into those that we read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most processes of one tree that are looked at.
pub const TREE_PROCESSES_MAX: usize = 20_000;

/// A process as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its parent.
    pub ppid: u32,
    /// Name of the executable as the kernel keeps it: at most 15 bytes.
    pub name: String,
    /// The file that it runs, ending in ` (deleted)` when that was replaced; `None` when we may not see it.
    pub exe: Option<String>,
    /// Its arguments, the program's name first; empty for kernel threads and for processes that ended.
    pub argv: Vec<String>,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// User and system time of the process itself, in clock ticks.
    pub cpu_ticks: u64,
    /// The real user id it runs as; `None` when it could not be read.
    pub uid: Option<u32>,
}

/// Clock ticks in a second: the unit of `/proc/stat` and `/proc/PID/stat` (100 on all common systems).
pub fn clock_ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Reads a process. An error when there is none with that pid.
pub fn process(pid: u32) -> Result<Process> {
    let stat = stat(pid).map_err(|error| io_error("read", format!("/proc/{pid}/stat"), &error))?;
    let status = read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    Ok(Process {
        pid,
        ppid: stat.ppid,
        name: stat.name,
        exe: link(pid, "exe").ok(),
        // An unreadable command line is that of a process that just ended: what stat said still holds.
        argv: arguments(pid).unwrap_or_default(),
        start_ticks: stat.start_ticks,
        cpu_ticks: stat.cpu_ticks,
        uid: parse_uid(&status),
    })
}

/// Reads `/proc/PID/stat`.
pub fn stat(pid: u32) -> io::Result<Stat> {
    let text = read_text(format!("/proc/{pid}/stat"))?;
    parse_stat(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not the format of proc_pid_stat(5)"))
}

/// Whether we may look into a process: its executable, environment, working directory and descriptors. Also true
/// when it ended.
pub fn may_inspect(pid: u32) -> bool {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    !link.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether a process has another pid namespace than us, below ours: it has a pid in each (`NSpid`), and most likely
/// files of its own.
pub fn is_in_a_container(pid: u32) -> bool {
    let depth = |pid: &str| Some(parse_depth(&read_text(format!("/proc/{pid}/status")).ok()?));
    depth(&pid.to_string()) > depth("self")
}

/// The file that a process runs, and whether it was replaced or removed since. An error when we may not see it.
pub fn executable(pid: u32) -> Result<(String, bool)> {
    let path = link(pid, "exe")?;
    Ok(match path.strip_suffix(DELETED) {
        Some(path) => (path.to_owned(), true),
        None => (path, false),
    })
}

/// The arguments of a process, the program's name first. An error when it ended.
pub fn arguments(pid: u32) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/cmdline");
    read_bytes(&path).map(|bytes| parse_strings(&bytes)).map_err(|error| io_error("read", path, &error))
}

/// The environment that a process was started with. An error when we may not see it.
pub fn environment(pid: u32) -> Result<BTreeMap<String, String>> {
    let path = format!("/proc/{pid}/environ");
    read_bytes(&path).map(|bytes| parse_environment(&bytes)).map_err(|error| io_error("read", path, &error))
}

/// The working directory of a process. An error when we may not see it.
pub fn directory(pid: u32) -> Result<String> {
    link(pid, "cwd")
}

/// The user and group as which a process acts; `None` when it ended.
pub fn acts_as(pid: u32) -> Option<(u32, u32)> {
    let status = read_text(format!("/proc/{pid}/status")).ok()?;
    Some((parse_effective(&status, "Uid:")?, parse_effective(&status, "Gid:")?))
}

/// When a process started, by the wall clock, from its start in clock ticks since boot: up to one tick early. The wall
/// clock is the one of now: it is another one than that of then when it was set meanwhile.
pub fn started_at(start_ticks: u64) -> Option<SystemTime> {
    // Start times count from boot with the time asleep in them (proc_pid_stat(5)), as CLOCK_BOOTTIME does.
    let since_boot = clock_gettime(ClockId::Boottime);
    let since_boot = Duration::new(since_boot.tv_sec.try_into().ok()?, since_boot.tv_nsec.try_into().ok()?);
    let start_ms = start_ticks.saturating_mul(1000) / clock_ticks_per_s().max(1);
    SystemTime::now().checked_sub(since_boot)?.checked_add(Duration::from_millis(start_ms))
}

/// How long ago a process started, from its start in clock ticks since boot.
pub fn age_s(start_ticks: u64) -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    let now_s = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    (now_s - start_ticks as f64 / clock_ticks_per_s().max(1) as f64).max(0.0)
}

/// The libraries whose code a process runs although their files were replaced or removed since. An error when we may
/// not look.
pub fn replaced_libraries(pid: u32) -> io::Result<Vec<String>> {
    Ok(parse_replaced_libraries(&read_text(format!("/proc/{pid}/maps"))?))
}

/// Where a link of a process points to.
fn link(pid: u32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    let found = std::fs::read_link(&path).map_err(|error| io_error("read", path, &error))?;
    Ok(found.to_string_lossy().into_owned())
}

/// All process ids there are now, rising. Empty only when `/proc` is not mounted.
pub fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// The children of a process, rising; empty when it has none or has ended.
pub fn children_of(pid: u32) -> Vec<u32> {
    listed_children(pid).unwrap_or_else(|_| all_children().remove(&pid).unwrap_or_default())
}

/// A process and all its descendants, each parent before its children. Empty when the process has ended.
pub fn tree_of(pid: u32) -> Vec<u32> {
    if !Path::new(&format!("/proc/{pid}/stat")).exists() {
        return vec![];
    }
    if listed_children(pid).is_ok() {
        return walk(pid, |parent| listed_children(parent).unwrap_or_default());
    }
    // Kernels without CONFIG_PROC_CHILDREN: one pass over all processes.
    let mut children = all_children();
    walk(pid, |parent| children.remove(&parent).unwrap_or_default())
}

/// The inodes of the sockets that a process holds. An error when it ended, or we may not look at its descriptors
/// (only its own user and root may).
pub fn socket_inodes(pid: u32) -> io::Result<Vec<u64>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    // A descriptor closed between listing and reading is no longer held.
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Ok(links.filter_map(|link| parse_socket_link(&link.to_string_lossy())).collect())
}

/// How many descriptors a process has open. An error when it ended or we may not look.
pub fn open_files_count(pid: u32) -> io::Result<u64> {
    let path = format!("/proc/{pid}/fd");
    // Since Linux 6.2 the size of the directory is their number (Documentation/filesystems/proc.rst, 3.2).
    match std::fs::metadata(&path)?.len() {
        0 => Ok(std::fs::read_dir(&path)?.count() as u64),
        count => Ok(count),
    }
}

/// The soft limit on the descriptors of a process; `Ok(None)` when it is unlimited or not told.
pub fn open_files_limit(pid: u32) -> io::Result<Option<u64>> {
    Ok(limits(pid)?.open_files)
}

/// The time that all threads of a process ran on processors, also those that ended, in nanoseconds; of children nothing.
/// `None` when it is gone.
///
/// Facts: clock_getcpuclockid(3); the number of the clock is made as in include/linux/posix-timers_types.h,
/// `MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)`. Anyone may read it, for a tenth of what any file of `/proc/PID` costs.
pub fn run_time_ns(pid: u32) -> Option<u64> {
    const CPUCLOCK_SCHED: i32 = 2;
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0 && *pid < 1 << 28)?;
    let time = clock_gettime_of(ClockOf::from_raw((!pid << 3) | CPUCLOCK_SCHED)).ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec()).ok()?)
}

/// Limits of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of open descriptors; `None` is unlimited.
    pub open_files: Option<u64>,
    /// Of processes and threads of its user; `None` is unlimited.
    pub tasks: Option<u64>,
}

/// The soft limits of a process. An error when it ended.
pub fn limits(pid: u32) -> io::Result<Limits> {
    let text = read_text(format!("/proc/{pid}/limits"))?;
    let of = |label| parse_limit(&text, label);
    Ok(Limits { open_files: of("Max open files"), tasks: of("Max processes") })
}

/// The real user id of a process; `None` when it ended.
pub fn real_user(pid: u32) -> Option<u32> {
    parse_uid(&read_text(format!("/proc/{pid}/status")).ok()?)
}

/// The network namespace of a process, as an opaque name to compare. An error when we may not look.
pub fn net_namespace(pid: u32) -> io::Result<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net"))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Reads a whole small file as text; bytes that are not UTF-8 become U+FFFD. At most 4 MiB are read.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

fn read_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Breadth first, so that parents come before their children.
fn walk(root: u32, mut children_of: impl FnMut(u32) -> Vec<u32>) -> Vec<u32> {
    let mut found = vec![];
    let mut queue = VecDeque::from([root]);
    while let Some(pid) = queue.pop_front() {
        found.push(pid);
        if found.len() >= TREE_PROCESSES_MAX {
            break;
        }
        queue.extend(children_of(pid));
    }
    found
}

/// The children that the first thread of a process started, rising: all children of one that has no other thread. An
/// error where the kernel does not list them.
pub fn listed_by_first_thread(pid: u32) -> io::Result<Vec<u32>> {
    Ok(parse_pids(&read_text(format!("/proc/{pid}/task/{pid}/children"))?))
}

/// The children that each thread of a process started, rising; an error where the kernel does not list them.
pub fn listed_children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = listed_by_first_thread(pid)?;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        if task.file_name().to_str() != Some(&pid.to_string()) {
            // A thread that ended meanwhile gave its children to another one.
            children.extend(parse_pids(&read_text(task.path().join("children")).unwrap_or_default()));
        }
    }
    children.sort_unstable();
    children.dedup();
    Ok(children)
}

/// The threads of a process; none of one that has ended.
pub fn threads_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Children by parent, of all processes.
pub fn all_children() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for stat in pids().into_iter().filter_map(|pid| stat(pid).ok()) {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn libraries_of_living_processes_are_read() {
        assert!(replaced_libraries(std::process::id()).is_ok() && replaced_libraries(u32::MAX).is_err());
    }

    // What a process writes is not older than the process itself.
    #[test]
    fn the_start_of_a_process_is_told_by_the_wall_clock() {
        let before = SystemTime::now();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let after = SystemTime::now();
        let started = started_at(stat(child.id()).unwrap().start_ticks).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let tick = Duration::from_millis(1000 / clock_ticks_per_s() + 1);
        assert!(started + tick >= before && started <= after, "{started:?} in {before:?}..{after:?}");
    }

    /// A shell with a child of its own; both end when the pipe to the shell is closed.
    fn family() -> Child {
        Command::new("sh")
            .args(["-c", "sh -c 'read -r _' & read -r _; kill $!"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn processes_are_read_and_vanish() {
        let mut child = family();
        let found = process(child.id()).unwrap();
        assert_eq!(found.ppid, std::process::id());
        assert!(children_of(std::process::id()).contains(&child.id()));
        let tree = tree_of(std::process::id());
        let position = |pid: u32| tree.iter().position(|&known| known == pid);
        assert!(position(std::process::id()) < position(child.id()) && position(child.id()).is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        let error = process(child.id()).unwrap_err();
        assert_eq!(
            error.message,
            format!("cannot read /proc/{}/stat: no such file or directory", child.id())
        );
        assert_eq!((tree_of(child.id()), children_of(child.id())), (vec![], vec![]));
        assert!(socket_inodes(child.id()).is_err() && open_files_count(child.id()).is_err());
    }

    #[test]
    fn descriptors_are_seen() {
        use std::os::fd::AsRawFd;
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = parse_socket_link(&link.to_string_lossy()).unwrap();
        let own = std::process::id();
        assert!(socket_inodes(own).unwrap().contains(&inode));
        assert!(open_files_count(own).unwrap() > 3);
        assert!(open_files_limit(own).unwrap().is_none_or(|limit| limit > 3));
    }

    // A ring cannot be, but pids are reused while one reads: the walk must end.
    #[test]
    fn a_ring_ends() {
        assert_eq!(walk(1, |pid| vec![3 - pid]).len(), TREE_PROCESSES_MAX);
    }
}

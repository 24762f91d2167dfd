//! Who waits for a lock on a file: requests that lock the same file are served one after the other, and nothing else shows it.
//!
//! Facts: proc_locks(5): a line for each lock, and behind it one with `->` for each who waits for it, with the process and
//! `MAJOR:MINOR:INODE` of the file; the process has the file open (proc_pid_fd(5)). PHP's own handler of sessions keeps each in
//! a file `sess_ID` and locks it with flock(2) from session_start() to the end of the request
//! (<https://www.php.net/manual/en/session.configuration.php#ini.session.save-handler>). The name of a session lets who knows it
//! be its user: it is never told, only its folder. CodeIgniter does the same with `ci_sessionID`, and others name files by the id alone.

use crate::collectors::secrets::without_secrets;
use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

/// Waiters that are looked at in one reading.
const WAITERS_MAX: usize = 512;
/// Files that are told one by one.
const FILES_MAX: usize = 4;
/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 1_024;
/// Parents between a worker and the main process of its program.
const PARENTS_MAX: usize = 8;
/// How PHP names the file of a session, and CodeIgniter.
const SESSION: &str = "sess_";
const OTHER_SESSION: &str = "ci_session";
/// Letters of a name that may be the id of a session: they tell one file from another.
const LETTERS_TOLD: usize = 4;

const WAITING: &str = "locks.waiting_count";
const SESSIONS: &str = "locks.session_waiting_count";

/// The collector.
#[derive(Debug, Default)]
pub struct Locks {
    /// Files that were waited for: told as zero when nobody does any more.
    known: BTreeSet<String>,
}

/// One that waits, and the file's device and inode.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiter {
    pid: u32,
    file: (u64, u64),
}

/// The waiters in the text of `/proc/locks`. Processes of other namespaces have no number there.
fn waiters(text: &str) -> Vec<Waiter> {
    let lines = text.lines().filter_map(|line| line.split_once("-> ").map(|(_, rest)| rest));
    lines.filter_map(waiter).take(WAITERS_MAX).collect()
}

/// `FLOCK  ADVISORY  WRITE 3151 fe:00:933945 0 EOF`.
fn waiter(line: &str) -> Option<Waiter> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let pid = words.next()?.parse::<u32>().ok().filter(|pid| *pid > 0)?;
    let mut file = words.next()?.split(':');
    let major = u64::from_str_radix(file.next()?, 16).ok()?;
    let minor = u64::from_str_radix(file.next()?, 16).ok()?;
    let device = rustix::fs::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    Some(Waiter { pid, file: (device, file.next()?.parse().ok()?) })
}

/// Whether a process is one of these or descends from one.
fn is_of(pid: u32, mains: &BTreeSet<u32>) -> bool {
    let parent = |pid: &u32| procfs::stat(*pid).ok().map(|stat| stat.ppid).filter(|pid| *pid > 1);
    std::iter::successors(Some(pid), parent).take(PARENTS_MAX).any(|pid| mains.contains(&pid))
}

/// The path of a file that a process has open.
fn path_of(waiter: &Waiter) -> Option<String> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", waiter.pid)).ok()?;
    let is_it = |entry: &std::fs::DirEntry| {
        let file = std::fs::metadata(entry.path());
        // The device of a file on overlayfs or btrfs is not the one in the table.
        file.is_ok_and(|file| file.ino() == waiter.file.1 && file.is_file())
    };
    let entry = entries.flatten().take(DESCRIPTORS_MAX).find(is_it)?;
    Some(std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned())
}

/// How a file is told: a session's without what names it. `None` where it has no name that a metric may have.
fn instance_name(path: &str) -> Option<(String, bool)> {
    let path = path.trim_end_matches(" (deleted)");
    let (folder, name) = path.rsplit_once('/')?;
    let is_session = name.starts_with(SESSION) || name.starts_with(OTHER_SESSION);
    let name = if is_session { SESSION.to_owned() } else { without_secrets(name, LETTERS_TOLD) };
    let told = format!("{folder}/{name}");
    let is_plain = told.chars().all(|letter| letter.is_ascii_graphic() && letter != '*');
    is_plain.then_some((told, is_session))
}

impl Collector for Locks {
    fn name(&self) -> &'static str {
        "locks"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "/proc/locks";
        let inode = "$(stat -c %i INSTANCE)";
        vec![
            gauge(WAITING, SOURCE, "grep -c -e '->' /proc/locks"),
            gauge(
                SESSIONS,
                "/proc/locks, /proc/PID/fd",
                format!(
                    "for p in $(awk '$2==\"->\" {{print $6}}' /proc/locks); do ls -l /proc/$p/fd | grep -m 1 -e {SESSION} -e {OTHER_SESSION}; done | wc -l"
                ),
            ),
            gauge(
                "locks.*.waiting_count",
                "/proc/locks, /proc/PID/fd",
                format!("grep -e '->' /proc/locks | grep -c \":{inode} \""),
            ),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mains: BTreeSet<u32> =
            target.service_pid.into_iter().chain(target.backends.iter().map(|one| one.pid)).collect();
        if target.service_pid.is_none() {
            return Reading::without_service(self.name(), target);
        }
        let mut reading = Reading::default();
        reading.take("/proc/locks", |text, reading| {
            let ours: Vec<Waiter> =
                waiters(text).into_iter().filter(|waiter| is_of(waiter.pid, &mains)).collect();
            reading.push(WAITING, ours.len() as f64);
            let mut files: BTreeMap<(u64, u64), (Waiter, u64)> = BTreeMap::new();
            for waiter in ours {
                files.entry(waiter.file).or_insert_with(|| (waiter.clone(), 0)).1 += 1;
            }
            let mut told: BTreeMap<String, u64> = self.known.iter().map(|file| (file.clone(), 0)).collect();
            let mut sessions = 0;
            for (waiter, count) in files.into_values() {
                let Some((name, is_session)) = path_of(&waiter).and_then(|path| instance_name(&path)) else {
                    continue;
                };
                sessions += if is_session { count } else { 0 };
                if told.contains_key(&name) || told.len() < FILES_MAX {
                    *told.entry(name).or_default() += count;
                }
            }
            reading.push(SESSIONS, sessions as f64);
            for (name, count) in &told {
                reading.push(format!("locks.{name}.waiting_count"), *count as f64);
            }
            self.known = told.into_keys().collect();
        });
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const TABLE: &str = "1: FLOCK  ADVISORY  WRITE 3150 fe:00:933945 0 EOF\n\
        1: -> FLOCK  ADVISORY  WRITE 3151 fe:00:933945 0 EOF\n\
        1: -> FLOCK  ADVISORY  WRITE 3152 fe:00:933945 0 EOF\n\
        2: POSIX  ADVISORY  READ 77 08:1a:12 0 EOF\n\
        2: -> POSIX  ADVISORY  WRITE 0 08:1a:12 0 EOF\n";

    #[test]
    fn who_waits_is_read_and_who_holds_is_not() {
        let found = waiters(TABLE);
        assert_eq!(found.iter().map(|waiter| waiter.pid).collect::<Vec<_>>(), [3151, 3152]);
        assert_eq!(found[0].file, (rustix::fs::makedev(0xfe, 0), 933_945));
        assert_eq!(waiters("1: -> FLOCK\n2: -> FLOCK  ADVISORY  WRITE 7 x:0:1 0 EOF\n\n"), []);
    }

    #[test]
    fn a_session_is_told_without_its_name() {
        for (path, told) in [
            ("/var/lib/php/sessions/sess_4711secret", Some(("/var/lib/php/sessions/sess_", true))),
            ("/srv/app/writable/session/ci_session8f3b0c77", Some(("/srv/app/writable/session/sess_", true))),
            ("/srv/app/sessions/Zk3vXq81LmPo47TyQw2e", Some(("/srv/app/sessions/Zk3v...", false))),
            ("/srv/x-0123456789abcdef0123.lock", Some(("/srv/x-0123....lock", false))),
            ("/srv/20261127131500000000.lock", Some(("/srv/20261127131500000000.lock", false))),
            ("/srv/app/counter.lock", Some(("/srv/app/counter.lock", false))),
            ("/srv/app/counter (deleted)", Some(("/srv/app/counter", false))),
            ("/srv/my app/x", None),
            ("pipe:[1]", None),
        ] {
            let expected = told.map(|(name, is_session): (&str, bool)| (name.to_owned(), is_session));
            assert_eq!(instance_name(path), expected, "{path}");
        }
    }

    // Two processes lock a real file, and the second one waits.
    #[test]
    fn a_real_waiter_is_found_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sess_abc").display().to_string();
        let script = format!("flock {path} sleep 20 & sleep 0.2; flock {path} true & wait");
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let target = Target { service_pid: Some(child.id()), ..Target::default() };
        let mut locks = Locks::default();
        let waits = || locks.read(&target).value(SESSIONS) == Some(1.0);
        let found = crate::os::process::wait_until(std::time::Duration::from_secs(5), waits);
        let reading = Locks::default().read(&target);
        for pid in procfs::tree_of(child.id()) {
            crate::os::process::ProcessName::of(pid).map(|it| it.signal(rustix::process::Signal::KILL));
        }
        child.wait().unwrap();
        assert!(found, "{reading:?}");
        let told = format!("locks.{}/sess_.waiting_count", folder.path().display());
        assert_eq!(reading.value(&told), Some(1.0), "{reading:?}");
    }
}

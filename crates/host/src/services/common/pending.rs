//! What waits for the next reload of a service and is not ours: files that are newer than the configuration that runs.
//!
//! A main process that writes its pid file at every start and at every reload tells by that file's time when it had read its
//! configuration, by the same clock that stamps the files themselves, so it needs no slack; what was changed while it read is
//! missed. Its children tell it worse: old ones may go on for hours. They are asked only where there is no believable pid
//! file: the configuration was read no later than the start of the oldest. Their start is known up to a clock tick; a file
//! that is newer by less than [`START_SLACK`] counts as read then.
//!
//! A file is newer by its mtime or its ctime, whichever is later: dpkg, rsync and `cp -p` keep old mtimes, and nothing
//! keeps an old ctime (inode(7)). An mtime that lies in the future is nobody's time of change and does not count.
//! Symbolic links on the way count by themselves, as `a2ensite` changes nothing else. What was removed leaves no newer
//! file, but a newer directory.

use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::services::PendingChange;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How much newer than the start of a worker a file must be.
const START_SLACK: Duration = Duration::from_millis(20);

/// How far the time of a pid file may lie outside of the life of its process and still be believed.
const PID_FILE_SLACK: Duration = Duration::from_secs(1);

/// Symbolic links that are followed on the way to one file, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a reload would put in force although it is not ours, first what matters most. `service` is its name as
/// people write it; `read_at` tells when its main process had read its configuration; `own` are files and directories as this
/// session left them.
pub fn pending(
    service: &str,
    sources: &Sources,
    (main, read_at): (ProcessName, Option<SystemTime>),
    own: &[PathBuf],
) -> Vec<PendingChange> {
    let mut found = replaced(service, main.pid);
    let Some(read_at) = read_at else { return found };
    let newer = sources.newer(service, read_at, SystemTime::now(), own);
    let is_known = |change: &PendingChange| found.iter().any(|known| known.path == real(&change.path));
    let newer: Vec<_> = newer.into_iter().filter(|change| !is_known(change)).collect();
    found.extend(newer);
    found
}

/// The program and the libraries that run although their files are gone. Empty where we may not look.
fn replaced(service: &str, pid: u32) -> Vec<PendingChange> {
    let executable = procfs::executable(pid).ok().filter(|(_, replaced)| *replaced).map(|(path, _)| {
        let why = format!(
            "was replaced since {service} started it, and a reload would load modules into the old one"
        );
        PendingChange { path: path.into(), why }
    });
    let libraries =
        procfs::replaced_libraries(pid).unwrap_or_default().into_iter().map(|path| PendingChange {
            path: path.into(),
            why: format!(
                "was replaced since {service} loaded it: only a restart is sure to take the new one"
            ),
        });
    executable.into_iter().chain(libraries).collect()
}

/// When the running generation had read its configuration: no file that is newer is in force.
pub fn read_at(main: ProcessName, pid_file: Option<&Path>) -> Option<SystemTime> {
    let started = procfs::started_at(main.start_ticks)?;
    time_of_pid_file(main, started, pid_file).or_else(|| {
        let oldest = main.children().into_iter().map(|child| child.start_ticks).min();
        Some(procfs::started_at(oldest.unwrap_or(main.start_ticks))? + START_SLACK)
    })
}

/// The same of a service whose children come and go without reading anything anew: without a pid file nothing newer than its
/// start counts as read.
pub fn read_at_start(main: ProcessName, pid_file: Option<&Path>) -> Option<SystemTime> {
    let started = procfs::started_at(main.start_ticks)?;
    Some(time_of_pid_file(main, started, pid_file).unwrap_or(started + START_SLACK))
}

/// Whether the configuration may have been read since a time. Only a pid file tells that: workers tell no more than that
/// it was read before they began. A reload that has read its files and not yet written its pid file is not seen.
pub fn read_since(main: ProcessName, pid_file: Option<&Path>, time: SystemTime) -> Option<bool> {
    // A clock that was set back since tells nothing.
    if !main.is_alive() || time > SystemTime::now() {
        return None;
    }
    let started = procfs::started_at(main.start_ticks)?;
    // Files are stamped in ticks of the kernel's clock: the stamp may be older than what it stands for.
    time_of_pid_file(main, started, pid_file).map(|read_at| read_at + START_SLACK >= time)
}

/// When the configuration was read, by a pid file that is believable.
fn time_of_pid_file(main: ProcessName, started: SystemTime, pid_file: Option<&Path>) -> Option<SystemTime> {
    let lives =
        |time: &SystemTime| *time + PID_FILE_SLACK >= started && *time <= SystemTime::now() + PID_FILE_SLACK;
    pid_file.and_then(|path| written_for(path, main.pid)).filter(lives)
}

/// When a pid file was written, if it is that of this process.
fn written_for(path: &Path, pid: u32) -> Option<SystemTime> {
    let message: u32 = procfs::read_text(path).ok()?.trim().parse().ok()?;
    fs::metadata(path).ok()?.modified().ok().filter(|_| message == pid)
}

/// What a service reads when it reloads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Configuration, and whatever else is read.
    pub files: BTreeSet<PathBuf>,
    /// Their entries decide which files are read.
    pub directories: BTreeSet<PathBuf>,
}

impl Sources {
    /// Those that were changed after a time.
    pub fn newer(
        &self,
        service: &str,
        read_at: SystemTime,
        now: SystemTime,
        own: &[PathBuf],
    ) -> Vec<PendingChange> {
        let look = FileTimes { service, read_at, now, own };
        let files = self.files.iter().filter_map(|path| look.file(path));
        let mut found: Vec<PendingChange> = files.collect();
        for path in &self.directories {
            // A file that was written by way of a temporary one touched its directory, too: one of them says it.
            let message = found.iter().any(|change| change.path.parent() == Some(path));
            found.extend(look.directory(path).filter(|_| !message));
        }
        found
    }
}

struct FileTimes<'a> {
    service: &'a str,
    read_at: SystemTime,
    now: SystemTime,
    own: &'a [PathBuf],
}

impl FileTimes<'_> {
    /// What about a file is newer: the file, or a link on the way to it.
    fn file(&self, path: &Path) -> Option<PendingChange> {
        let (links, end) = links_of_path(path);
        let link = |link: &PathBuf| {
            let found = fs::symlink_metadata(link).ok().filter(|_| !self.is_own(link))?;
            self.after(ctime(&found)?).map(|after| format!("was linked to another file {after}"))
        };
        let of_file = || {
            // Devices such as /dev/null are no configuration that somebody changes.
            let found = fs::metadata(&end).ok().filter(|found| found.is_file() && !self.is_own(&end))?;
            let changed = found.modified().ok().and_then(|time| self.after(time));
            changed.map(|after| format!("was changed {after}")).or_else(|| {
                let after = self.after(ctime(&found)?)?;
                Some(format!("was replaced, or its owner or mode was changed, {after}"))
            })
        };
        let why = of_file().or_else(|| links.iter().find_map(link))?;
        Some(PendingChange { path: path.to_owned(), why })
    }

    fn directory(&self, path: &Path) -> Option<PendingChange> {
        let found = fs::metadata(path).ok().filter(|found| found.is_dir() && !self.is_own(&real(path)))?;
        let times = [found.modified().ok(), ctime(&found)];
        let after = times.into_iter().flatten().max().and_then(|time| self.after(time))?;
        Some(PendingChange { path: path.to_owned(), why: format!("got or lost files {after}") })
    }

    /// How long after the reading a time was, in words; `None` when it was before, or never.
    fn after(&self, time: SystemTime) -> Option<String> {
        let since = time.duration_since(self.read_at).ok().filter(|since| !since.is_zero())?;
        (time <= self.now)
            .then(|| format!("{} after {} last read its configuration", age_text(since), self.service))
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| own == path)
    }
}

/// When the inode was changed last. That of a file is never older than its content.
fn ctime(found: &Metadata) -> Option<SystemTime> {
    let since = Duration::new(found.ctime().try_into().ok()?, found.ctime_nsec().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// The symbolic links on the way to a file, and the file behind them.
fn links_of_path(path: &Path) -> (Vec<PathBuf>, PathBuf) {
    let mut links = vec![];
    let mut at = PathBuf::new();
    let mut left: Vec<_> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            _ => at.push(&part),
        }
        if let Ok(target) = fs::read_link(&at)
            && links.len() < LINKS_MAX
        {
            links.push(at.clone());
            at.pop();
            left.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
        }
    }
    (links, at)
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    links_of_path(path).1
}

/// A time in the unit in which people would tell it.
fn age_text(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = time.as_secs();
    // From twice a unit on it is told in that unit: 90 min are no `1 h`.
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= 2 * length);
    match unit {
        Some((length, name)) => format!("{} {name}", seconds / length),
        None if seconds == 1 => "1 s".into(),
        None => "less than 1 s".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_ring_of_links_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert_eq!(links_of_path(&root.join("a")).0.len(), LINKS_MAX);
    }

    #[test]
    fn times_are_told_as_people_do() {
        for (seconds, expected) in [
            (0, "less than 1 s"),
            (1, "1 s"),
            (59, "59 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (86_400 * 2 - 1, "47 h"),
            (86_400 * 9, "9 days"),
        ] {
            assert_eq!(age_text(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_pid_file_is_believed_only_within_the_life_of_its_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let main = ProcessName::of(child.id()).unwrap();
        let started = procfs::started_at(main.start_ticks).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let check = |text: String, time: SystemTime| {
            fs::write(&path, text).unwrap();
            fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
            read_at(main, Some(&path)).unwrap() == time
        };
        let now = SystemTime::now();
        let verdicts = [
            check(format!("{}\n", main.pid), now),
            check(format!("{}\n", main.pid + 1), now),
            check(String::new(), now),
            check(format!("{}\n", main.pid), started - Duration::from_secs(60)),
            check(format!("{}\n", main.pid), now + Duration::from_secs(3600)),
        ];
        let without = read_at(main, None).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(verdicts, [true, false, false, false, false]);
        assert!(without.duration_since(started).unwrap() < Duration::from_secs(1));
    }
}

//! The logs of one kind that services write, followed together: which they are changes with the services, and each may be
//! there later, be rotated, removed, or not be a file at all.
//!
//! A log that is there when it is met is read from its end on; one that comes later is new, and read from its beginning.
//! Of more than can be followed those are taken that were written to last. The path of a log is one in the mount
//! namespace of the service: in another one than ours it is reached through `/proc/PID/root` (proc_pid_root(5)), and its
//! standard error through `/proc/PID/fd`.

use super::tail::{Part, Tail, TailRead};
use crate::visibility::mount_namespace;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use webdyno_model::error::io_error;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{LogFile, LogKind, ServiceSnapshot};

/// Most logs that are followed.
pub const LOGS_COUNT_MAX: usize = 64;

/// Most logs of which it is told one by one why they are not followed.
const REASONS_COUNT_MAX: usize = 8;

/// What a log may be read of that did not grow before, where there is not enough for all.
const SHARE_BYTES_MIN: u64 = 16 << 10;

/// A log of a service, and where we reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLocation {
    /// As the service names it.
    pub log: LogFile,
    /// The main process of the service.
    pub pid: u32,
    /// As we open it.
    pub path: PathBuf,
}

/// One log that is followed, with what its reader needs for its lines.
#[derive(Debug)]
pub struct FollowedLog<T> {
    /// Where it is.
    pub place: LogLocation,
    /// What its reader knows of it.
    pub with: T,
    tail: State,
    /// What the last look found added: its share of the next one follows from that.
    grown_bytes: u64,
}

#[derive(Debug)]
enum State {
    Open(Box<Tail>),
    /// It is not there yet, or may not be read; whether it was missing when it was looked for last.
    Closed {
        why: String,
        is_absent: bool,
    },
}

impl<T> FollowedLog<T> {
    /// Whether it is followed now.
    pub fn is_open(&self) -> bool {
        matches!(self.tail, State::Open(_))
    }
}

/// All logs of one kind.
#[derive(Debug)]
pub struct FollowedLogs<T> {
    kind: LogKind,
    known: Vec<(LogFile, u32)>,
    ones: Vec<FollowedLog<T>>,
    left_out_count: usize,
}

impl<T> FollowedLogs<T> {
    /// None yet.
    pub fn of(kind: LogKind) -> Self {
        Self { kind, known: vec![], ones: vec![], left_out_count: 0 }
    }

    /// All of them, also those that cannot be read.
    pub fn logs(&self) -> impl Iterator<Item = &FollowedLog<T>> {
        self.ones.iter()
    }

    /// How many are followed now.
    pub fn open_count(&self) -> usize {
        self.ones.iter().filter(|one| one.is_open()).count()
    }

    /// Takes up the logs of these services, and lets go of others. `choose` says which of them are wanted, `with` makes
    /// what goes with a new one, of which so many bytes were there before.
    pub fn follow_services<'a>(
        &mut self,
        services: impl Iterator<Item = &'a ServiceSnapshot>,
        choose: impl Fn(&[LogFile]) -> Vec<LogFile>,
        mut with: impl FnMut(&LogLocation, u64) -> T,
    ) {
        let kind = self.kind;
        let all: Vec<(LogFile, u32)> = services
            .flat_map(|service| {
                let own: Vec<LogFile> = service.logs.iter().filter(|log| log.kind == kind).cloned().collect();
                choose(&own).into_iter().map(|log| (log, service.pid))
            })
            .collect();
        if all == self.known {
            return;
        }
        let (mut places, mut paths): (Vec<LogLocation>, BTreeSet<PathBuf>) = Default::default();
        for (log, pid) in &all {
            let path = place(*pid, &log.path);
            if paths.insert(path.clone()) {
                places.push(LogLocation { log: log.clone(), pid: *pid, path });
            }
        }
        self.left_out_count = places.len().saturating_sub(LOGS_COUNT_MAX);
        if self.left_out_count > 0 {
            places.sort_by_key(|place| std::cmp::Reverse(written_at(&place.path)));
            places.truncate(LOGS_COUNT_MAX);
        }
        let mut before = std::mem::take(&mut self.ones);
        for place in places {
            let same = before.iter().position(|one| one.place.path == place.path);
            let one = match same.map(|index| before.swap_remove(index)) {
                // A reload may have changed how its lines are written.
                Some(one) if one.place.log.format != place.log.format => {
                    let with = with(&place, one.tail.position());
                    FollowedLog { place, with, ..one }
                }
                Some(one) => FollowedLog { place, ..one },
                None => {
                    let tail = State::of(Tail::of(&place.path), &place.path);
                    let with = with(&place, tail.position());
                    FollowedLog { place, with, tail, grown_bytes: 0 }
                }
            };
            self.ones.push(one);
        }
        self.known = all;
    }

    /// Looks at all logs, reading so many bytes at most: more of those that grew more. `see` gets what goes with a log, and
    /// each of its lines, then what the look found.
    pub fn read(&mut self, bytes_max: u64, part: Part, mut see: impl FnMut(&mut T, Event<'_>)) {
        let wants = |one: &FollowedLog<T>| SHARE_BYTES_MIN + one.grown_bytes.saturating_mul(2).min(bytes_max);
        let wanted: u64 = self.ones.iter().map(wants).sum();
        for one in &mut self.ones {
            one.tail.open_again(&one.place.path);
            let wants = wants(one);
            let State::Open(tail) = &mut one.tail else { continue };
            let share = u128::from(bytes_max) * u128::from(wants) / u128::from(wanted.max(1));
            let with = &mut one.with;
            let line = |line: &[u8]| see(with, Event::Line(line));
            let looked = tail.read_within(u64::try_from(share).unwrap_or(bytes_max), part, line);
            one.grown_bytes = looked.grown_bytes;
            see(&mut one.with, Event::Read(looked));
        }
    }

    /// Which logs are not followed, and why; `none` is the reason when there are none at all.
    pub fn missing(&self, signal: &str, none: &str) -> Vec<MissingSignal> {
        let lacks = |why: String, how: &str| MissingSignal::new(signal, why, how);
        if self.ones.is_empty() {
            return vec![lacks(none.into(), HOW_TO_NAME)];
        }
        let closed = self.ones.iter().filter_map(|one| match &one.tail {
            State::Open(_) => None,
            State::Closed { why, .. } => Some(why),
        });
        let each = closed.clone().take(REASONS_COUNT_MAX);
        let mut missing: Vec<_> = each.map(|why| lacks(why.clone(), how_to_read(why))).collect();
        let more = closed.count().saturating_sub(REASONS_COUNT_MAX);
        if more > 0 {
            missing.push(lacks(format!("{more} more logs cannot be read"), HOW_TO_NAME));
        }
        if self.left_out_count > 0 {
            let why = format!(
                "{} logs are left out: the {LOGS_COUNT_MAX} that were written to last are followed",
                self.left_out_count
            );
            missing.push(lacks(why, "let virtual hosts share a log, with %v in its format"));
        }
        missing
    }
}

const HOW_TO_NAME: &str = "let the service write its log to a file that webdyno may read";

fn how_to_read(why: &str) -> &'static str {
    match why {
        _ if why.contains("ermission denied") => "run webdyno with sudo, or as a member of the group adm",
        _ => HOW_TO_NAME,
    }
}

/// What a look gives.
#[derive(Debug)]
pub enum Event<'a> {
    /// A line, without its end.
    Line(&'a [u8]),
    /// All lines of a log were given.
    Read(TailRead),
}

impl State {
    fn of(opened: io::Result<Tail>, path: &Path) -> Self {
        match opened {
            Ok(tail) => Self::Open(Box::new(tail)),
            Err(error) => Self::Closed {
                why: why_not(path, &error),
                is_absent: error.kind() == io::ErrorKind::NotFound,
            },
        }
    }

    /// Up to where it was read.
    fn position(&self) -> u64 {
        match self {
            Self::Open(tail) => tail.position(),
            Self::Closed { .. } => 0,
        }
    }

    /// Tries again what could not be opened.
    fn open_again(&mut self, path: &Path) {
        let Self::Closed { is_absent, .. } = self else { return };
        *self = match is_absent {
            true => Self::of(Tail::from_begin(path), path),
            false => Self::of(Tail::of(path), path),
        };
    }
}

fn why_not(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    let named = shown.to_string();
    // Of what is no path the command line of a program may be in the configuration, with arguments that are nobody's business.
    if named.contains("|") {
        return "a log is written to a program (piped log), which keeps the lines for itself".into();
    }
    if !named.starts_with('/') {
        return "a log is not written to a file (syslog, the journal, or another provider)".into();
    }
    io_error("follow", shown, error).message
}

fn written_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// Links at the end of a path that are followed: `error.log -> /dev/stderr -> /proc/self/fd/2`, as images of containers
/// have it.
const LINKS_COUNT_MAX: usize = 8;

/// Where we reach a file of a process. What means an open file of whoever asks is one of that process.
pub fn place(pid: u32, path: &str) -> PathBuf {
    let named = Path::new(path);
    let Some(folder) = named.parent().filter(|_| named.is_absolute()) else {
        return named.to_owned();
    };
    let is_elsewhere = mount_namespace::has_other_root(pid) || mount_namespace::differs(pid, folder);
    let root = PathBuf::from(if is_elsewhere { format!("/proc/{pid}/root") } else { "/".to_owned() });
    let mut at = named.to_owned();
    for _ in 0..LINKS_COUNT_MAX {
        if let Some(number) = descriptor(&at) {
            return PathBuf::from(format!("/proc/{pid}/fd/{number}"));
        }
        let (Some(folder), Some(name)) = (at.parent(), at.file_name()) else { break };
        let Ok(target) = std::fs::read_link(mount_namespace::in_root(&root, folder).join(name)) else {
            break;
        };
        at = folder.join(target);
    }
    mount_namespace::in_root(&root, named)
}

/// The number of the open file that a path stands for (proc_pid_fd(5)).
fn descriptor(path: &Path) -> Option<u32> {
    let path = path.to_str()?;
    let number = match path {
        "/dev/stdin" => "0",
        "/dev/stdout" => "1",
        "/dev/stderr" => "2",
        path => ["/proc/self/fd/", "/dev/fd/"].into_iter().find_map(|begin| path.strip_prefix(begin))?,
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::ServiceSnapshot;

    // Images of containers write their logs so: it is the standard error of the service, and never ours.
    #[test]
    fn an_open_file_is_that_of_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("error.log");
        std::os::unix::fs::symlink("/dev/stderr", &link).unwrap();
        let (pid, link) = (std::process::id(), link.to_string_lossy().into_owned());
        for (path, expected) in [
            ("/dev/stderr", format!("/proc/{pid}/fd/2")),
            ("/proc/self/fd/1", format!("/proc/{pid}/fd/1")),
            (link.as_str(), format!("/proc/{pid}/fd/2")),
            ("/var/log/x", "/var/log/x".to_owned()),
            ("|/usr/bin/rotatelogs /x", "|/usr/bin/rotatelogs /x".to_owned()),
            ("/dev/fd/x", "/dev/fd/x".to_owned()),
        ] {
            assert_eq!(place(pid, path), Path::new(&expected), "{path}");
        }
        let log = folder.path().join("out");
        let file = std::fs::File::create(&log).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stderr(file).spawn().unwrap();
        let followed = Tail::of(&place(child.id(), "/dev/stderr"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(followed.is_ok(), "{followed:?}");
    }

    #[test]
    fn a_reload_that_changes_the_format_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "").unwrap();
        let service = |format: &str| ServiceSnapshot {
            pid: std::process::id(),
            logs: vec![LogFile {
                path: path.to_string_lossy().into_owned(),
                kind: LogKind::Access,
                format: Some(format.into()),
                ..LogFile::default()
            }],
            ..ServiceSnapshot::default()
        };
        let mut followed = FollowedLogs::of(LogKind::Access);
        for format in ["common", "combined"] {
            let service = service(format);
            followed.follow_services([&service].into_iter(), <[LogFile]>::to_vec, |place, _| {
                place.log.format.clone()
            });
            let known: Vec<_> = followed.logs().map(|one| one.with.as_deref()).collect();
            assert_eq!(known, [Some(format)]);
            assert_eq!(followed.open_count(), 1);
        }
    }
}

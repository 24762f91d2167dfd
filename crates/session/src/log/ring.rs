//! A log that keeps only the last while on disk: segments of which the oldest go.
//!
//! Each segment is a log of its own: it begins with what explains it (session, servers, topology, what was lacking, wall
//! clock), so that the others may go. Its length is measured by the recording's own clock: somebody who sets the clock of
//! the machine makes nothing go and nothing stay. One tool at a time writes a ring: it holds a lock on a file in it, which
//! its end releases, however it ends.

use super::context::LogContext;
use super::lines;
use rustix::fs::{FlockOperation, flock};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::event::{Event, VERSION};
use webdyno_model::{Result, UserError};

/// The folder of the segments in a run directory.
pub const FOLDER: &str = "ring";
/// The file that whoever writes holds a lock on.
const LOCK: &str = "lock";
const SUFFIX: &str = ".jsonl";
/// A ring is so many segments long: what is kept is longer by at most one of them.
const SEGMENTS_COUNT: u64 = 12;
/// The shortest segment.
const SEGMENT_US_MIN: u64 = 5_000_000;
/// The most that a second may take on disk, on average over a segment; beyond that the ring is shorter than was asked for.
const BYTES_PER_S_MAX: u64 = 64_000;
/// The most segments, also when many sessions followed upon each other.
const FILES_COUNT_MAX: usize = 100;

/// The ring of one session.
pub struct LogRing {
    folder: PathBuf,
    length_us: u64,
    /// Older segments, the oldest first.
    older: VecDeque<Segment>,
    /// The number of the segment that is written.
    number: u64,
    file: BufWriter<File>,
    seq: u64,
    bytes: u64,
    /// First and last time in it.
    extent_us: Option<(u64, u64)>,
    head: LogContext,
    _lock: File,
}

/// A segment that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    number: u64,
    length_us: u64,
    bytes: u64,
}

impl LogRing {
    /// Opens the ring in a run directory, or goes on with the one that is there, in a segment of its own. An error when it
    /// cannot be written, or somebody else writes it.
    pub fn open(directory: &Path, length_us: u64) -> Result<Self> {
        let folder = directory.join(FOLDER);
        std::fs::create_dir_all(&folder).map_err(|error| io_error("create", folder.display(), &error))?;
        let lock = lock(&folder)?;
        let mut older = VecDeque::new();
        for number in numbers(&folder).map_err(|error| io_error("read", folder.display(), &error))? {
            let path = path(&folder, number);
            let length_us = extent_us(&path).map_or(0, |(first, last)| last - first);
            let bytes = path.metadata().map_or(0, |found| found.len());
            older.push_back(Segment { number, length_us, bytes });
        }
        let number = older.back().map_or(1, |last| last.number + 1);
        let file = create(&folder, number).map_err(|error| failed(&folder, number, &error))?;
        let head = LogContext::default();
        Ok(Self {
            folder,
            length_us,
            older,
            number,
            file,
            seq: 0,
            bytes: 0,
            extent_us: None,
            head,
            _lock: lock,
        })
    }

    /// Appends an event, in a new segment when the one that is written is long enough. On a full disk the oldest segments
    /// go; an error when that does not help.
    pub fn append(&mut self, event: &mut Event) -> Result<()> {
        if self.is_storage_full(event.t_us) {
            self.next_segment(event.t_us)?;
        }
        self.head.update(event);
        let written = self.write(event);
        match written {
            Err(error) if is_storage_full(&error) => self.make_room(event),
            other => other.map_err(|error| self.failed(&error)),
        }
    }

    /// Hands everything to the kernel. On a full disk the oldest segments go, and what was not taken is handed over again;
    /// an error when that does not help.
    pub fn flush(&mut self) -> Result<()> {
        loop {
            match self.file.flush() {
                Err(error) if is_storage_full(&error) && self.remove_oldest()? => {}
                other => return other.map_err(|error| self.failed(&error)),
            }
        }
    }

    /// Whether the segment that is written is long enough.
    fn is_storage_full(&self, t_us: u64) -> bool {
        let segment_us = segment_us(self.length_us);
        let lasts_us = self.extent_us.map_or(0, |(first, _)| t_us.saturating_sub(first));
        lasts_us >= segment_us || self.bytes >= segment_us / 1_000_000 * BYTES_PER_S_MAX
    }

    fn next_segment(&mut self, t_us: u64) -> Result<()> {
        // What cannot be written any more is a torn end, as after a crash.
        let flushed = self.file.flush();
        let length_us = self.extent_us.map_or(0, |(first, last)| last.max(t_us) - first);
        self.older.push_back(Segment { number: self.number, length_us, bytes: self.bytes });
        self.prune()?;
        self.number += 1;
        self.file = create(&self.folder, self.number).map_err(|error| self.failed(&error))?;
        (self.seq, self.bytes, self.extent_us) = (0, 0, None);
        for body in self.head.events(t_us) {
            self.write(&mut Event { v: VERSION, seq: 0, t_us, body }).map_err(|error| self.failed(&error))?;
        }
        match flushed {
            Err(error) if !is_storage_full(&error) => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }

    /// Removes the oldest segments as long as those after them are enough, or all take too much room.
    fn prune(&mut self) -> Result<()> {
        let after_oldest =
            |ring: &Self| ring.older.iter().skip(1).map(|segment| segment.length_us).sum::<u64>();
        let bytes = |ring: &Self| ring.older.iter().map(|segment| segment.bytes).sum::<u64>();
        let seconds = self.length_us.max(SEGMENT_US_MIN * SEGMENTS_COUNT) / 1_000_000;
        while after_oldest(self) >= self.length_us
            || self.older.len() >= FILES_COUNT_MAX
            || (bytes(self) > seconds * BYTES_PER_S_MAX && self.older.len() > 1)
        {
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Removes the oldest segment. Gives whether there was one.
    fn remove_oldest(&mut self) -> Result<bool> {
        let Some(oldest) = self.older.pop_front() else { return Ok(false) };
        let gone = path(&self.folder, oldest.number);
        match std::fs::remove_file(&gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("remove", gone.display(), &error))
            }
            _ => Ok(true),
        }
    }

    /// The disk is full: the rest of this segment is torn, so a new one is begun in the room of the oldest.
    fn make_room(&mut self, event: &mut Event) -> Result<()> {
        let full = |ring: &Self| ring.failed(&io::ErrorKind::StorageFull.into());
        while self.remove_oldest()? {
            if self.next_segment(event.t_us).is_ok() && self.write(event).is_ok() && self.file.flush().is_ok()
            {
                return Ok(());
            }
        }
        Err(full(self))
    }

    fn write(&mut self, event: &mut Event) -> io::Result<()> {
        event.seq = self.seq;
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.seq += 1;
        self.bytes += line.len() as u64;
        let (first, last) = self.extent_us.unwrap_or((event.t_us, event.t_us));
        self.extent_us = Some((first.min(event.t_us), last.max(event.t_us)));
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> UserError {
        failed(&self.folder, self.number, error)
    }
}

/// Whether there is no room left, or none for this user.
fn is_storage_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn failed(folder: &Path, number: u64, error: &io::Error) -> UserError {
    io_error("write", path(folder, number).display(), error)
}

/// Takes the ring for this process.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| io_error("write", path.display(), &error))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => {
            UserError::cannot_run(format!("another session writes the ring in {}", folder.display()))
                .hint("choose another place with --out DIR")
        }
        error => io_error("lock", path.display(), &error.into()),
    })?;
    Ok(file)
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}{SUFFIX}"))
}

fn create(folder: &Path, number: u64) -> io::Result<BufWriter<File>> {
    OpenOptions::new().write(true).create_new(true).open(path(folder, number)).map(BufWriter::new)
}

/// The numbers of the segments in a folder, in order.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = vec![];
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        numbers.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The segments of a run directory's ring, in order; `None` when it has none.
pub fn segments(directory: &Path) -> Option<Vec<PathBuf>> {
    let folder = directory.join(FOLDER);
    let numbers = numbers(&folder).ok()?;
    Some(numbers.into_iter().map(|number| path(&folder, number)).collect())
}

/// The segments of a ring of this length that hold the last `window_us` of it, in order.
pub fn last_segments(directory: &Path, length_us: u64, window_us: u64) -> Vec<PathBuf> {
    let all = segments(directory).unwrap_or_default();
    // One is being written, and one may be torn between the others.
    let enough = usize::try_from(window_us / segment_us(length_us)).unwrap_or(usize::MAX).saturating_add(3);
    all[all.len().saturating_sub(enough)..].to_vec()
}

fn segment_us(length_us: u64) -> u64 {
    (length_us / SEGMENTS_COUNT).max(SEGMENT_US_MIN)
}

/// First and last time in a segment; `None` when there is nothing whole in it.
fn extent_us(path: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read(path).ok()?;
    let times: Vec<u64> = lines::times_us(&text).collect();
    Some((times.iter().copied().min()?, times.iter().copied().max()?))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;

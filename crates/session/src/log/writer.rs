//! Writes the event log: one writer, flushed each second, so that a crash loses at most the last second.

use super::FILE_NAME;
use super::lines;
use super::ring::LogRing;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::{Result, UserError};

const FLUSH_EVERY_US: u64 = 1_000_000;
/// Longer than nearly any line: what is not written yet stays whole in the buffer when the disk is full, and goes on where it stopped.
const BUFFER_BYTES: usize = 1 << 20;

/// Sees every event right after it was written: live output is made from events and nothing else.
pub type EventObserver = Box<dyn FnMut(&Event) + Send>;

/// The writer of one session's log.
pub struct EventLog {
    directory: PathBuf,
    storage: Storage,
    seq: u64,
    flushed_at_us: u64,
    watchers: Vec<EventObserver>,
}

/// Where the events go.
enum Storage {
    /// Into one file that has them all.
    Whole(BufWriter<File>),
    /// Into segments of which the oldest go.
    Ring(Box<LogRing>),
}

impl EventLog {
    /// Creates the run directory and its log. An error when it cannot be created or holds a log already.
    pub fn create(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .map_err(|error| io_error("create the run directory", directory.display(), &error))?;
        let path = directory.join(FILE_NAME);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                UserError::usage(format!("{} holds a recording already", directory.display()))
                    .hint("choose another place with --out DIR; recordings are never overwritten")
            } else {
                io_error("create", path.display(), &error)
            }
        })?;
        // Whoever would go on with it sees that its session is there; a file system without locks has no such protection.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(Self::of(directory, Storage::Whole(buffered(file))))
    }

    /// Goes on with the log of a session that was cut off, and gives what it has. A torn last line is cut off. An error when the session
    /// still runs.
    pub fn resume(directory: &Path) -> Result<(Self, Vec<Event>)> {
        let path = directory.join(FILE_NAME);
        let cannot = |doing: &str, error: &std::io::Error| io_error(doing, path.display(), error);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let mut file = file.map_err(|error| {
            cannot("read", &error).hint("give the directory of a run, as `webdyno run` prints it")
        })?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(UserError::cannot_run(format!("the session in {} still runs", directory.display()))
                .hint("wait for its end, or end it: a process that is stopped is one that runs"));
        }
        let mut text = vec![];
        file.read_to_end(&mut text).map_err(|error| cannot("read", &error))?;
        let events = lines::parse(&text).map_err(|(line, why)| lines::damage_error(&path, line, &why))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
        let cut = file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map_err(|error| cannot("write", &error))?;
        let mut log = Self::of(directory, Storage::Whole(buffered(file)));
        log.seq = events.last().map_or(0, |event| event.seq + 1);
        Ok((log, events))
    }

    /// Creates the run directory with a log that keeps only the last while of it, or goes on with the one that is there.
    /// An error when it cannot be written, holds another recording, or somebody else writes it.
    pub fn ring(directory: &Path, length_us: u64) -> Result<Self> {
        if directory.join(FILE_NAME).exists() {
            return Err(UserError::usage(format!("{} holds a recording already", directory.display()))
                .hint("choose another place with --out DIR; recordings are never overwritten"));
        }
        Ok(Self::of(directory, Storage::Ring(Box::new(LogRing::open(directory, length_us)?))))
    }

    fn of(directory: &Path, storage: Storage) -> Self {
        Self { directory: directory.to_owned(), storage, seq: 0, flushed_at_us: 0, watchers: vec![] }
    }

    /// The run directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Shows every later event to `watcher`.
    pub fn set_observer(&mut self, watcher: EventObserver) {
        self.watchers.push(watcher);
    }

    /// Lets go of all who see events.
    pub fn remove_observers(&mut self) {
        self.watchers.clear();
    }

    /// Appends one event. An error (a full disk) must end the session: what is not written was not measured.
    pub fn append(&mut self, t_us: u64, body: EventBody) -> Result<()> {
        // What is decided and done must be on disk before the next thing happens; readings may wait for their second.
        let decides = !matches!(body, EventBody::Interval { .. } | EventBody::Sample { .. });
        let mut event = Event { v: VERSION, seq: self.seq, t_us, body };
        match &mut self.storage {
            Storage::Ring(ring) => ring.append(&mut event)?,
            Storage::Whole(file) => {
                write_line(file, &event).map_err(|error| self.failed(&error))?;
            }
        }
        self.seq += 1;
        if decides || t_us.saturating_sub(self.flushed_at_us) >= FLUSH_EVERY_US {
            self.flush()?;
            self.flushed_at_us = t_us;
        }
        self.watchers.iter_mut().for_each(|watcher| watcher(&event));
        Ok(())
    }

    /// Hands everything to the kernel.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.storage {
            Storage::Ring(ring) => ring.flush(),
            Storage::Whole(file) => file.flush().map_err(|error| self.failed(&error)),
        }
    }

    fn failed(&self, error: &std::io::Error) -> UserError {
        io_error("write", self.directory.join(FILE_NAME).display(), error)
    }
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(BUFFER_BYTES, file)
}

/// All of the event or nothing: a part of one in the middle of a log would make the whole of it unreadable.
fn write_line(file: &mut BufWriter<File>, event: &Event) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl Drop for EventLog {
    fn drop(&mut self) {
        // The last chance: an error has no one left to hear it, and readers tolerate a torn end.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_event(text: &str) -> EventBody {
        EventBody::Note { text: text.into() }
    }

    #[test]
    fn a_recording_is_never_overwritten() {
        let place = tempfile::tempdir().unwrap();
        EventLog::create(place.path()).unwrap().append(0, note_event("first")).unwrap();
        let error = EventLog::create(place.path()).err().unwrap();
        assert_eq!(error.exit_code(), 2);
        assert!(std::fs::read_to_string(place.path().join(FILE_NAME)).unwrap().contains("first"));
    }

    #[test]
    fn a_second_of_events_is_on_disk_and_watchers_see_all() {
        let place = tempfile::tempdir().unwrap();
        let observed = std::sync::Arc::new(std::sync::Mutex::new(vec![]));
        let mut log = EventLog::create(place.path()).unwrap();
        let sink = observed.clone();
        log.set_observer(Box::new(move |event| sink.lock().unwrap().push(event.seq)));
        log.append(0, note_event("a")).unwrap();
        log.append(1_000_000, note_event("b")).unwrap();
        let on_disk = std::fs::read_to_string(place.path().join(FILE_NAME)).unwrap();
        assert_eq!(on_disk.lines().count(), 2);
        assert_eq!(*observed.lock().unwrap(), [0, 1]);
    }

    #[test]
    fn a_log_goes_on_behind_its_last_whole_line_when_nobody_writes_it() {
        let place = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(place.path()).unwrap();
        log.append(5, note_event("first")).unwrap();
        assert!(EventLog::resume(place.path()).err().unwrap().to_string().contains("still runs"));
        drop(log);
        let path = place.path().join(FILE_NAME);
        let mut torn = std::fs::read(&path).unwrap();
        torn.extend(b"{\"v\":1,\"seq\":1,\"t_us\":9,\"ki");
        std::fs::write(&path, torn).unwrap();
        let (mut log, events) = EventLog::resume(place.path()).unwrap();
        assert_eq!(events.len(), 1);
        log.append(9, note_event("second")).unwrap();
        let read = super::super::reader::read(place.path()).unwrap();
        let numbers: Vec<(u64, u64)> = read.iter().map(|event| (event.seq, event.t_us)).collect();
        assert_eq!(numbers, [(0, 5), (1, 9)]);
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let directory = PathBuf::from("/nowhere");
        let mut log = EventLog::of(&directory, Storage::Whole(buffered(file)));
        let error = log.append(2_000_000, note_event("x")).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nowhere/events.jsonl: no space left on the disk");
    }

    /// A pipe that nobody reads stands for a disk that is full for a while.
    #[test]
    fn a_disk_that_was_full_for_a_while_leaves_no_torn_line_in_the_middle() {
        let (input, output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let mut reader = File::from(input);
        let mut log = EventLog::of(Path::new("/nowhere"), Storage::Whole(buffered(File::from(output))));
        assert!(log.append(0, note_event(&"x".repeat(300_000))).is_err());
        let mut text = vec![];
        let mut read_some = || {
            let mut part = vec![0; 8192];
            let count = reader.read(&mut part).unwrap();
            text.extend_from_slice(&part[..count]);
        };
        while log.flush().is_err() {
            read_some();
        }
        read_some();
        log.append(1, note_event("last")).unwrap();
        drop(log);
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(lines::parse(&text).unwrap().len(), 2);
    }
}

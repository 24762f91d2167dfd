//! The journal of a session: the file that holds the undo of everything before it is done.
//!
//! Each record is appended and brought to the disk before the caller goes on (fsync(2)), and the directory once, when
//! the file is created. A record that could not be written whole is cut off again, so that the next one fits. With each
//! intent room is reserved for the records of its completion and of its undo (fallocate(2)): a disk that fills up
//! between them must not keep a session from its end.

pub mod claim;
pub mod history;
pub mod lines;
pub mod lock;

use crate::change::action::{Action, Served};
use crate::change::journal::history::{Header, History, Record};
use crate::change::journal::lines::Damage;
use crate::change::seams::Tools;
use crate::change::seams::disk::Disk;
use crate::change::seams::state_dir::state_error;
use crate::os::process::ProcessName;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The longest journal that is read: 4 MiB files in base64, some forty times.
const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// How many settled journals are kept to look at.
const SETTLED_COUNT_MAX: usize = 50;

/// Room for one record without a text of its own, and its line around it.
const RECORD_BYTES_MAX: u64 = 512;

/// An open journal: its file, and what it says.
pub struct Journal {
    path: PathBuf,
    whole_bytes: u64,
    next_sequence: u64,
    /// A failed write could not be cut off again: nothing more can be written.
    broken: bool,
    disk: Arc<dyn Disk>,
    history: History,
}

/// Whose session it is.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The process that gives the orders.
    pub tool: Option<ProcessName>,
    /// What it is about: `webdyno tune`.
    pub what: String,
}

impl Journal {
    /// Begins the journal of a new session. The caller holds the lock, so that no other one begins at the same time.
    pub fn create(tools: &Tools, owner: &Owner) -> Result<Self> {
        let Tools { state, disk, system, .. } = tools;
        let all = read_all(tools)?;
        prune(&all, disk.as_ref());
        let newest =
            all.iter().filter_map(|(_, read)| read.as_ref().ok()?.header.as_ref().map(|header| header.order));
        let now = jiff::Timestamp::from_microsecond(system.now_us()).unwrap_or_default();
        let agent = system.this_process()?;
        let header = Header {
            id: format!("{}-{}", now.strftime("%Y%m%dT%H%M%S%.6fZ"), agent.pid),
            order: newest.max().unwrap_or(0) + 1,
            started_at_us: u64::try_from(now.as_microsecond()).unwrap_or(0),
            boot_id: system.boot_id(),
            machine_id: system.machine_id(),
            tool: owner.tool,
            agent,
            what: owner.what.clone(),
            location: system.location(state.root(), tools.server.as_deref()),
        };
        let path = state.journal(&header.id);
        let message = |error: io::Error| state_error("write the journal", &path, &error);
        disk.create_private(&path).map_err(message)?;
        let disk = Arc::clone(disk);
        let history = History::default();
        let mut journal =
            Self { path: path.clone(), whole_bytes: 0, next_sequence: 0, broken: false, disk, history };
        let begun = journal.append(Record::Header(header));
        if let Err(error) =
            begun.and_then(|()| journal.disk.sync_directory(&state.journals()).map_err(message))
        {
            // A journal without a header says nothing; it only would lie about.
            let _ = journal.disk.remove(&path);
            return Err(error);
        }
        Ok(journal)
    }

    /// Opens one that exists, to go on in it. A torn last record is cut off. Errors: it cannot be read, is damaged, or
    /// was written by a newer version.
    pub fn open(path: &Path, disk: &Arc<dyn Disk>) -> Result<Self> {
        let message = |error: io::Error| io_error("open the journal", path.display(), &error);
        let bytes = read_bounded(path, disk.as_ref())?;
        let (history, next_sequence, whole_bytes) = parse(path, &bytes)?;
        if bytes.len() as u64 != whole_bytes {
            disk.truncate(path, whole_bytes).map_err(message)?;
        }
        let (path, disk) = (path.to_owned(), Arc::clone(disk));
        Ok(Self { path, whole_bytes, next_sequence, broken: false, disk, history })
    }

    /// Writes a record to the disk, then takes it in. When it fails nothing was recorded, and the caller must not go on
    /// with what it announces.
    pub fn append(&mut self, record: Record) -> Result<()> {
        self.put(record, true)
    }

    /// [`Journal::append`] for the records of undoing: their room was reserved with what they undo.
    pub fn append_in_room(&mut self, record: Record) -> Result<()> {
        self.put(record, false)
    }

    fn put(&mut self, record: Record, reserves: bool) -> Result<()> {
        let path = self.path.clone();
        let message = |error: io::Error| state_error("write the journal", &path, &error);
        if self.broken {
            return Err(message(io::Error::other("an earlier write failed")));
        }
        let line = lines::encode(self.next_sequence, &record).map_err(|error| message(error.into()))?;
        if let Err(error) = self.write(&record, &line, reserves) {
            let message = message(error);
            let hint = message.hint.clone().unwrap_or_else(|| "make it writable".to_owned());
            let message = message.hint(format!("{hint}; without its undo on disk nothing is changed"));
            return Err(message);
        }
        self.whole_bytes += line.len() as u64;
        self.next_sequence += 1;
        self.remember(record)
    }

    /// Writes a line; when that fails it is cut off again.
    fn write(&mut self, record: &Record, line: &[u8], reserves: bool) -> io::Result<()> {
        let length_bytes = line.len() as u64;
        match record {
            Record::Intent { action, .. } if reserves => self.reserve(length_bytes + room_for(action))?,
            Record::Header(_) | Record::Kept { made_for: Some(_), .. } => self.reserve(length_bytes)?,
            // It has its room.
            _ => {}
        }
        let written = self.disk.append(&self.path, self.whole_bytes, line);
        if written.is_err() {
            self.broken = self.disk.truncate(&self.path, self.whole_bytes).is_err();
            // The cut gave back what was reserved; as it was free a moment ago, it is likely to be free still.
            let _ = self.reserve(0);
        }
        written
    }

    /// Reserves room behind the last record: so many bytes, what outstanding actions will need, and the end, with a
    /// rollback after it.
    fn reserve(&self, length_bytes: u64) -> io::Result<()> {
        let outstanding = self.history.outstanding(1).map(|entry| room_for(&entry.action));
        let room_bytes = outstanding.fold(length_bytes + 3 * RECORD_BYTES_MAX, u64::saturating_add);
        self.disk.reserve(&self.path, self.whole_bytes, room_bytes)
    }

    /// Like [`Journal::append_in_room`], for what has happened already: it is taken in also when it could not be written.
    /// Undoing twice is harmless, not undoing because the disk is full is not.
    pub fn note(&mut self, record: Record) -> Result<()> {
        match self.append_in_room(record.clone()) {
            Ok(()) => Ok(()),
            Err(error) => self.remember(record).and(Err(error)),
        }
    }

    /// Takes a record in without writing it: the journal on disk then asks for more undoing than is needed.
    pub fn remember(&mut self, record: Record) -> Result<()> {
        self.history.absorb(record).map_err(|what| {
            UserError::cannot_run(format!("{}: a record does not fit: {what}", self.path.display()))
        })
    }

    /// What it says.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The session's id.
    pub fn id(&self) -> String {
        let name = self.path.file_stem().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_default()
    }
}

/// Room for the records that follow on an intent: what it led to, its completion and its undo. Those of an activation
/// hold the service's control; and undoing a file may need an activation that nobody intended before.
fn room_for(action: &Action) -> u64 {
    let control_bytes = |served: &Served| serde_json::to_vec(&served.control).map_or(0, |text| text.len());
    let (records_count, text_bytes) = match action {
        Action::WriteFile(write) => (6, 2 * write.path.len() + 3 * control_bytes(&write.served)),
        Action::Activate(activate) => (3, 2 * control_bytes(&activate.served)),
        Action::Launch(_) | Action::BootHook(_) | Action::WriteValue(_) => (3, 0),
    };
    records_count * RECORD_BYTES_MAX + text_bytes as u64
}

/// Reads what a journal says, without changing it. Errors as in [`Journal::open`].
pub fn read(path: &Path, disk: &dyn Disk) -> Result<History> {
    parse(path, &read_bounded(path, disk)?).map(|(history, _, _)| history)
}

/// Reads all journals, the oldest first; each with what it says, or why it cannot be read.
pub fn read_all(tools: &Tools) -> Result<Vec<(PathBuf, Result<History>)>> {
    let disk = tools.disk.as_ref();
    let files = tools.state.journal_files(disk)?;
    let mut all: Vec<_> = files.into_iter().map(|path| (path.clone(), read(&path, disk))).collect();
    let order = |read: &Result<History>| read.as_ref().ok()?.header.as_ref().map(|header| header.order);
    all.sort_by_key(|(path, read)| (order(read), path.clone()));
    Ok(all)
}

/// [`read_all`] without the journals of other machines.
pub fn read_here(tools: &Tools) -> Result<Vec<(PathBuf, Result<History>)>> {
    let mut all = read_all(tools)?;
    all.retain(|(_, read)| {
        !read.as_ref().is_ok_and(|history| history.is_of_other_machine(tools.system.as_ref()))
    });
    Ok(all)
}

fn read_bounded(path: &Path, disk: &dyn Disk) -> Result<Vec<u8>> {
    let read = disk.read_start(path, JOURNAL_BYTES_MAX + 1);
    let bytes = read.map_err(|error| io_error("read the journal", path.display(), &error))?;
    if bytes.len() as u64 > JOURNAL_BYTES_MAX {
        return Err(UserError::cannot_run(format!("the journal {} is larger than 256 MiB", path.display()))
            .hint("it cannot be one of ours: move it away"));
    }
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<(History, u64, u64)> {
    let path = path.display();
    lines::read(bytes).map_err(|damage| match damage {
        Damage::Line(line) => UserError::cannot_run(format!("the journal {path} is damaged in line {line}"))
            .hint(
                "nothing of it was undone; its other lines hold the originals in base64, then move it away",
            ),
        Damage::Version(version) => UserError::cannot_run(format!(
            "the journal {path} has version {version}, and this webdyno knows versions up to {}",
            lines::VERSION
        ))
        .hint("nothing of it was undone; use the webdyno that wrote it"),
        Damage::Record(line, what) => UserError::cannot_run(format!(
            "the journal {path} has a record in line {line} that this webdyno does not know: `{what}`"
        ))
        .hint("nothing of it was undone; use the webdyno that wrote it"),
    })
}

/// Removes the oldest journals in which nothing can be undone any more. That it fails harms nobody.
fn prune(all: &[(PathBuf, Result<History>)], disk: &dyn Disk) {
    let is_over = |history: &History| {
        history.closed.is_some()
            && history.is_settled()
            && (history.closed != Some(history::ClosedBy::Guardian) || history.reported)
    };
    let settled: Vec<_> = all.iter().filter(|(_, read)| read.as_ref().is_ok_and(is_over)).collect();
    for (path, _) in settled.iter().take(settled.len().saturating_sub(SETTLED_COUNT_MAX)) {
        let _ = disk.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::journal::history::ClosedBy;
    use crate::change::seams::disk::RealDisk;
    use crate::change::seams::state_dir::StateDir;
    use std::os::unix::fs::MetadataExt;

    fn owner() -> Owner {
        Owner { tool: None, what: "webdyno test".into() }
    }

    fn disk() -> Arc<dyn Disk> {
        Arc::new(RealDisk)
    }

    #[test]
    fn a_journal_is_private_and_goes_on_after_a_torn_record() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path().join("state"));
        state.create(&RealDisk).unwrap();
        let mut journal = Journal::create(&Tools::of_this_machine(state.clone()), &owner()).unwrap();
        journal.append(Record::Kept { through: 0, made_for: None }).unwrap();
        let path = journal.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(state.journals()).unwrap().mode() & 0o777, 0o700);
        drop(journal);
        let mut torn = std::fs::read(&path).unwrap();
        // Longer than the record that follows, which must not only cover its beginning.
        torn.extend_from_slice(b"{\"v\":1,\"seq\":2,\"su");
        torn.resize(torn.len() + 4096, b'x');
        std::fs::write(&path, torn).unwrap();
        let mut journal = Journal::open(&path, &disk()).unwrap();
        journal.append(Record::Closed { by: ClosedBy::Rollback }).unwrap();
        assert_eq!(read(&path, &RealDisk).unwrap(), *journal.history());
        assert_eq!(read(&path, &RealDisk).unwrap().closed, Some(ClosedBy::Rollback));
        assert!(std::fs::read(&path).unwrap().ends_with(b"\n"), "nothing of the torn record is left");
    }

    #[test]
    fn damage_is_told_with_the_file_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for (text, expected) in [
            ("{}\n{}\n", "is damaged in line 1"),
            ("{\"v\":9,\"later\":true}\n", "has version 9, and this webdyno knows versions up to 1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Journal::open(&path, &disk()).err().unwrap();
            assert!(error.message.contains(expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn journals_are_ordered_even_when_the_clock_goes_back_and_old_settled_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path());
        let tools = Tools::of_this_machine(state.clone());
        state.create(&RealDisk).unwrap();
        for _ in 0..SETTLED_COUNT_MAX + 5 {
            let mut journal = Journal::create(&tools, &owner()).unwrap();
            journal.append(Record::Closed { by: ClosedBy::Tool }).unwrap();
            // As if the clock had been set back before the next one.
            let renamed = state
                .journal(&format!("2000-{:05}", 99_999 - journal.history().header.as_ref().unwrap().order));
            std::fs::rename(journal.path(), renamed).unwrap();
        }
        let orders: Vec<_> = read_all(&tools)
            .unwrap()
            .into_iter()
            .map(|(_, read)| read.unwrap().header.unwrap().order)
            .collect();
        assert!(orders.is_sorted() && orders.len() == SETTLED_COUNT_MAX + 1, "{orders:?}");
        assert_eq!(orders.last(), Some(&(SETTLED_COUNT_MAX as u64 + 5)));
    }
}

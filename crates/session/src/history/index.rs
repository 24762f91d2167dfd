//! The index of the sessions below a directory: an SQLite database, `.webdyno-index`, with a row for each. It can be removed at any
//! time. One that cannot be read is no index: all recordings are read again.

use super::SessionSummary;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use webdyno_model::{Result, UserError};

/// The index in the directory that sessions lie in.
const FILE_NAME: &str = ".webdyno-index";
/// What another version has read is read anew.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// So long another list may take to write it.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// It can be made anew: what a crash of the machine spoils is not worth waiting for the disk.
const TABLE: &str = "PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, modified_us INTEGER NOT NULL,
        webdyno TEXT NOT NULL, summary TEXT NOT NULL) WITHOUT ROWID;";

/// By what it is known that an event log has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStamp {
    size_bytes: i64,
    modified_us: i64,
}

impl LogStamp {
    /// That of these files together; `None` where there is none of them.
    pub(super) fn of(files: &[PathBuf]) -> Option<Self> {
        let of = |file: &PathBuf| {
            let found = file.metadata().ok()?;
            let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let as_stored = |value: u128| i64::try_from(value).unwrap_or(i64::MAX);
            let (size_bytes, modified_us) = (as_stored(found.len().into()), as_stored(modified.as_micros()));
            Some(Self { size_bytes, modified_us })
        };
        files.iter().filter_map(of).reduce(|all, one| Self {
            size_bytes: all.size_bytes.saturating_add(one.size_bytes),
            modified_us: all.modified_us.max(one.modified_us),
        })
    }
}

/// A session as it was read; `summary.directory` is its name below the directory of the index.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexEntry {
    pub(super) stamp: LogStamp,
    pub(super) summary: SessionSummary,
}

/// What is known of the sessions below a directory, by their names.
pub(super) fn read(directory: &Path) -> BTreeMap<String, IndexEntry> {
    rows(&directory.join(FILE_NAME)).unwrap_or_default()
}

fn rows(path: &Path) -> rusqlite::Result<BTreeMap<String, IndexEntry>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(BUSY_MAX)?;
    let mut query = connection
        .prepare("SELECT name, size_bytes, modified_us, summary FROM sessions WHERE webdyno = ?1")?;
    let found = query.query_map([VERSION], |row| {
        let stamp = LogStamp { size_bytes: row.get(1)?, modified_us: row.get(2)? };
        Ok((row.get::<_, String>(0)?, stamp, row.get::<_, String>(3)?))
    })?;
    let entry = |(name, stamp, summary): (String, LogStamp, String)| {
        Some((name, IndexEntry { stamp, summary: serde_json::from_str(&summary).ok()? }))
    };
    Ok(found.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().filter_map(entry).collect())
}

/// Writes the index anew, in one transaction: whoever reads it meanwhile has the one of before.
pub(super) fn write(directory: &Path, entries: &[IndexEntry]) -> Result<()> {
    let path = directory.join(FILE_NAME);
    let written = replace(&path, entries).or_else(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            let _ = std::fs::remove_file(&path);
            replace(&path, entries)
        }
        _ => Err(error),
    });
    written.map_err(|error| UserError::cannot_run(format!("cannot write {}: {error}", path.display())))
}

fn replace(path: &Path, entries: &[IndexEntry]) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.execute_batch(TABLE)?;
    let transaction = connection.transaction()?;
    transaction.execute("DELETE FROM sessions", [])?;
    for IndexEntry { stamp, summary } in entries {
        let text = serde_json::to_string(summary).unwrap_or_default();
        let row = params![summary.directory, stamp.size_bytes, stamp.modified_us, VERSION, text];
        transaction.execute("INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5)", row)?;
    }
    transaction.commit()
}

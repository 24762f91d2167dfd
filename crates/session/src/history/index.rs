//! The index of the sessions below a directory: JSON lines in `.webdyno-index`, one for each session, below one that names the
//! format. It can be removed at any time. One that cannot be read is no index: all recordings are read again.

use super::SessionSummary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// The index in the directory that sessions lie in.
const FILE_NAME: &str = ".webdyno-index";
/// The first line: what another version wrote is read anew.
const HEAD: &str =
    concat!("{\"schema\":\"webdyno/index/v1\",\"webdyno\":\"", env!("CARGO_PKG_VERSION"), "\"}");

/// By what it is known that an event log has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogStamp {
    size_bytes: u64,
    modified_us: u64,
}

impl LogStamp {
    /// That of these files together; `None` where there is none of them.
    pub(super) fn of(files: &[PathBuf]) -> Option<Self> {
        let of = |file: &PathBuf| {
            let found = file.metadata().ok()?;
            let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified_us = u64::try_from(modified.as_micros()).unwrap_or(u64::MAX);
            Some(Self { size_bytes: found.len(), modified_us })
        };
        files.iter().filter_map(of).reduce(|all, one| Self {
            size_bytes: all.size_bytes + one.size_bytes,
            modified_us: all.modified_us.max(one.modified_us),
        })
    }
}

/// A session as it was read; `summary.directory` is its name below the directory of the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub(super) stamp: LogStamp,
    pub(super) summary: SessionSummary,
}

/// What is known of the sessions below a directory, by their names.
pub(super) fn read(directory: &Path) -> BTreeMap<String, IndexEntry> {
    let text = std::fs::read_to_string(directory.join(FILE_NAME)).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return BTreeMap::new();
    }
    let entries = lines.filter_map(|line| serde_json::from_str::<IndexEntry>(line).ok());
    entries.map(|entry| (entry.summary.directory.clone(), entry)).collect()
}

/// Writes the index anew. Whoever reads it meanwhile has the one of before.
pub(super) fn write(directory: &Path, entries: &[IndexEntry]) -> Result<()> {
    let lines = entries.iter().filter_map(|entry| serde_json::to_string(entry).ok());
    let text: String = std::iter::once(HEAD.to_owned()).chain(lines).map(|line| line + "\n").collect();
    let path = directory.join(FILE_NAME);
    let new = directory.join(format!("{FILE_NAME}.{}", std::process::id()));
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&new);
        io_error("write", path.display(), &error)
    })
}

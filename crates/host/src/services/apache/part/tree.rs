//! What lies below a folder, as far as it may be looked at: links, who can put some there, files of rules.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most files and folders that are looked at.
const ENTRIES_MAX: usize = 200_000;

/// Looks at all that lies below a folder, links not followed. The error says what could not be looked at.
pub fn each(
    folder: &Path,
    mut look: impl FnMut(&Path, FileType) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |at: &Path, error: std::io::Error| format!("cannot look into {}: {error}", at.display());
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let mut count = 0;
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).map_err(|error| failed(&at, error))? {
            let entry = entry.map_err(|error| failed(&at, error))?;
            let kind = entry.file_type().map_err(|error| failed(&at, error))?;
            count += 1;
            if count > ENTRIES_MAX {
                return Err(format!("more than {ENTRIES_MAX} files lie below {}", folder.display()));
            }
            let path = entry.path();
            look(&path, kind)?;
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Whether no link lies below a folder, and nobody but the superuser and `trusted` can put one there. The error says who can, or
/// which link there is.
pub fn has_no_links_of_others(folder: &Path, trusted: u32) -> Result<(), String> {
    let failed = |at: &Path, error: std::io::Error| format!("cannot look at {}: {error}", at.display());
    let info = |at: &Path| fs::symlink_metadata(at).map_err(|error| failed(at, error));
    let folder = fs::canonicalize(folder).map_err(|error| failed(folder, error))?;
    for (index, at) in folder.ancestors().enumerate() {
        // Who may write beside a folder can put another in its place, unless the sticky bit keeps it its owner's.
        is_closed(at, &info(at)?, trusted, index > 0)?;
    }
    each(&folder, |path, kind| match kind {
        kind if kind.is_symlink() => Err(format!("{} is a link, which would be followed", path.display())),
        kind if kind.is_dir() => is_closed(path, &info(path)?, trusted, false),
        _ => Ok(()),
    })
}

/// Whether nobody else may write to a folder.
fn is_closed(path: &Path, found: &Metadata, trusted: u32, may_be_sticky: bool) -> Result<(), String> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let path = path.display();
    if found.uid() != 0 && found.uid() != trusted {
        return Err(format!("{path} belongs to user {}, who can put links there", found.uid()));
    }
    let is_kept = may_be_sticky && found.mode() & STICKY != 0;
    if found.mode() & WRITABLE_BY_OTHERS != 0 && !is_kept {
        return Err(format!("others than its owner may write to {path}, and put links there"));
    }
    Ok(())
}

/// The files of these names in a folder and below.
pub fn named(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![];
    each(folder, |path, kind| {
        let is_named = path.file_name().is_some_and(|name| names.iter().any(|known| name == *known));
        if is_named && !kind.is_dir() {
            found.push(path.to_owned());
        }
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

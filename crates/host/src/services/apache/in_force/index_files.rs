//! The files that stand for a DirectoryIndex without an ending: MultiViews finds them by reading the whole folder.
//!
//! `read_types_multi` in modules/mappers/mod_negotiation.c of httpd: those whose name goes on with a dot.

use std::io;
use std::path::Path;

/// Most files of a folder that are looked at.
const ENTRIES_MAX: usize = 200_000;

/// The name that a DirectoryIndex tries first, if it is one without an ending.
pub fn bare(index: &str) -> Option<&str> {
    let first = index.split_whitespace().next()?;
    (!first.contains(['.', '/']) && !first.eq_ignore_ascii_case("disabled")).then_some(first)
}

/// The first of the files in a folder that stand for a name without an ending, in order.
pub fn choices(folder: &Path, bare: &str, count_max: usize) -> io::Result<Vec<String>> {
    let prefix = format!("{bare}.");
    let mut found = vec![];
    for entry in std::fs::read_dir(folder)?.take(ENTRIES_MAX) {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) {
            found.push(name);
        }
    }
    found.sort();
    found.truncate(count_max);
    Ok(found)
}

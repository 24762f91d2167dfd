//! Where a file is that a session wrote, after packages and operators were at work: it may have become a link, its
//! directory may have another name, or a package manager may have set it aside.
//!
//! Only content decides: a file of the same name elsewhere is ours if it holds, to the byte, what we wrote or what we
//! found. What cannot be found is told, with a saved original; it is never a failure for ever.
//!
//! Facts: dpkg(1) and ucf(1) (`.dpkg-old` is the operator's version that made room for the package's, `.dpkg-dist` the
//! package's that waits beside it), rpm(8) (`.rpmsave`, `.rpmorig`, `.rpmnew`), pacman(8) (`.pacsave`, `.pacorig`).

use crate::change::action::WriteFile;
use crate::change::seams::disk::{Disk, Kind, folder_of};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The ends of names under which package managers set the file of an operator aside.
const SET_ASIDE: [&str; 9] = [
    ".dpkg-old",
    ".dpkg-bak",
    ".dpkg-backup",
    ".dpkg-remove",
    ".ucf-old",
    ".rpmsave",
    ".rpmorig",
    ".pacsave",
    ".pacorig",
];

/// Entries that are looked at while a file is searched whose directory is gone.
const ENTRIES_COUNT_MAX: usize = 20_000;

/// Directories below the first one that still exists that are searched.
const DEPTH_MAX: usize = 5;

/// What a session knows of a file, in SHA-256.
#[derive(Debug, Clone, Default)]
pub struct Known<'a> {
    /// What it wrote.
    pub written: Vec<&'a str>,
    /// What it found; `None` where there was no file.
    pub found: Vec<Option<&'a str>>,
    /// What was there before everything; `None` when there was no file.
    pub original: Option<&'a str>,
}

/// Where a file is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The files that stand for it, with the SHA-256 of what they hold; `None` when there is none.
    pub files: Vec<(PathBuf, Option<String>)>,
    /// The link at its path. Where there was no file before it goes as well.
    pub link: Option<PathBuf>,
    /// What became of it, in words, when there is nothing to revert.
    pub lost: Option<String>,
}

/// What became of a file that nobody can put back, when nothing better is known.
pub const CHANGED: &str = "was changed by someone else meanwhile";

/// The same for one that is gone.
pub const REMOVED: &str = "was removed by someone else meanwhile";

/// The line that tells of a file that was left to the operator.
pub fn left_alone(path: &str, what: &str, saved: Option<&str>) -> String {
    let original = match saved {
        Some(saved) => format!("its original is {saved}"),
        None => "there was no such file before".to_owned(),
    };
    format!("{path} {what} and is left alone; {original}")
}

impl<'a> Known<'a> {
    /// By the writes of a file that are outstanding, the last one first.
    pub fn of(writes: &'a [(u64, WriteFile)]) -> Self {
        fn before(write: &WriteFile) -> Option<&str> {
            write.before.as_ref().map(|file| file.sha256.as_str())
        }
        Self {
            written: writes.iter().map(|(_, write)| write.after_sha256.as_str()).collect(),
            found: writes.iter().map(|(_, write)| before(write)).collect(),
            original: writes.last().and_then(|(_, write)| before(write)),
        }
    }
}

impl Known<'_> {
    fn is_ours(&self, sha256: &str) -> bool {
        self.written.contains(&sha256)
    }

    fn is_known(&self, sha256: Option<&str>) -> bool {
        sha256.is_some_and(|sha256| self.is_ours(sha256)) || self.found.contains(&sha256)
    }
}

/// Looks for the file of a path. An error when the disk cannot be read.
pub fn find(disk: &dyn Disk, path: &Path, known: &Known<'_>) -> io::Result<Found> {
    match disk.path_info(path)?.map(|seen| seen.kind) {
        Some(Kind::SymbolicLink) => return behind_link(disk, path, known),
        Some(Kind::File) | None => {}
        Some(Kind::Directory | Kind::Other) => return Ok(lost("is no file any more")),
    }
    let now = match disk.read(path) {
        Ok(file) => file.map(|file| file.sha256),
        Err(error) if is_strange(&error) => return Ok(lost("was changed by someone else meanwhile")),
        Err(error) => return Err(error),
    };
    let here = Found { files: vec![(path.to_owned(), now.clone())], ..Found::default() };
    if now.is_none() && disk.path_info(folder_of(path))?.is_none() {
        return find_relocated(disk, path, known).map(|moved| moved.unwrap_or(here));
    }
    if known.is_known(now.as_deref()) {
        return Ok(here);
    }
    let what = if now.is_some() { "was replaced by a package" } else { "was removed with its package" };
    Ok(set_aside(disk, path, known)?
        .map_or(here, |aside| lost(&format!("{what}, which kept webdyno's version as {},", aside.display()))))
}

/// The path is a link now: what we wrote may have been moved and linked to.
fn behind_link(disk: &dyn Disk, path: &Path, known: &Known<'_>) -> io::Result<Found> {
    let link = Some(path.to_owned());
    let Some(target) = disk.resolve(path)? else {
        return Ok(match known.original {
            // Its target was ours, and is removed already.
            None => Found { link, ..Found::default() },
            Some(_) => lost("is a link that leads nowhere"),
        });
    };
    let now = match disk.read(&target) {
        Ok(file) => file.map(|file| file.sha256),
        Err(error) if is_strange(&error) => None,
        Err(error) => return Err(error),
    };
    match known.is_known(now.as_deref()) && now.is_some() {
        true => Ok(Found { files: vec![(target, now)], link, lost: None }),
        false => Ok(lost(&format!("is a link to {} now", target.display()))),
    }
}

/// The directory is gone: it may have another name, or be a part of another one. All files of the same name that hold what
/// we wrote stand for it; else one that holds the original, which then is restored already.
fn find_relocated(disk: &dyn Disk, path: &Path, known: &Known<'_>) -> io::Result<Option<Found>> {
    let (Some(start), Some(name)) = (existing(disk, path)?, path.file_name()) else { return Ok(None) };
    let mut queue = VecDeque::from([(start, 0)]);
    let (mut ours, mut restored) = (vec![], vec![]);
    let mut entries_count = 0;
    while let Some((folder, depth)) = queue.pop_front() {
        let mut names: Vec<OsString> = disk.list(&folder).ok().flatten().unwrap_or_default();
        names.sort();
        for entry in names {
            entries_count += 1;
            let here = folder.join(&entry);
            let Some(seen) = disk.path_info(&here).ok().flatten() else { continue };
            if seen.kind == Kind::Directory && depth < DEPTH_MAX {
                queue.push_back((here, depth + 1));
                continue;
            }
            let is_named = seen.kind == Kind::File && entry == name;
            let Some(file) = is_named.then(|| disk.read(&here).ok().flatten()).flatten() else { continue };
            if known.is_ours(&file.sha256) {
                ours.push((here, Some(file.sha256)));
            } else if known.original == Some(file.sha256.as_str()) {
                restored.push((here, Some(file.sha256)));
            }
        }
        if entries_count > ENTRIES_COUNT_MAX {
            break;
        }
    }
    let files = if ours.is_empty() { restored } else { ours };
    Ok((!files.is_empty()).then(|| Found { files, ..Found::default() }))
}

/// The innermost directory of a path that is still there. Not the root: who lost all of `/etc` is not searched for.
fn existing(disk: &dyn Disk, path: &Path) -> io::Result<Option<PathBuf>> {
    for folder in path.ancestors().skip(1) {
        if disk.path_info(folder)?.is_some_and(|seen| seen.kind == Kind::Directory) {
            return Ok((folder.parent().is_some()).then(|| folder.to_owned()));
        }
    }
    Ok(None)
}

/// The file in which a package manager keeps what we wrote.
fn set_aside(disk: &dyn Disk, path: &Path, known: &Known<'_>) -> io::Result<Option<PathBuf>> {
    for end in SET_ASIDE {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let aside = PathBuf::from(name);
        let is_file = disk.path_info(&aside)?.is_some_and(|seen| seen.kind == Kind::File);
        if is_file && disk.read(&aside).ok().flatten().is_some_and(|file| known.is_ours(&file.sha256)) {
            return Ok(Some(aside));
        }
    }
    Ok(None)
}

fn lost(what: &str) -> Found {
    Found { lost: Some(what.to_owned()), ..Found::default() }
}

/// What is there is somebody's, and trying again would not change that.
fn is_strange(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge | io::ErrorKind::IsADirectory
    )
}

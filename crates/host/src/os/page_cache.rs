//! The page cache of files: dropped, so that a load begins with a cold one. Nothing of the files is changed, and nothing else is dropped.
//!
//! Facts: posix_fadvise(2): `POSIX_FADV_DONTNEED` frees the pages of a file that are neither dirty nor mapped, for whoever may open
//! it; preadv2(2): `RWF_NOWAIT` reads what is in memory and starts no reading from the disk (EAGAIN; EOPNOTSUPP where a file
//! system has it not); tmpfs(5): its files are nowhere but in memory.

use crate::os::timeouts::DROP_PAGES as TIME_MAX;
use rustix::fs::{Advice, FileType, Mode, OFlags, fadvise, fstat, fstatfs, open};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde::{Deserialize, Serialize};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use webdyno_model::{Result, UserError};

/// More files are not looked at, and no longer than [`TIME_MAX`].
const FILES_MAX: u64 = 1_000_000;
/// Of a file this many places are looked at, evenly spread.
const PLACES: u64 = 8;
/// Pages that were just written or read may stay a moment: then once more.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of statfs(2).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// What became of the pages of some files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DroppedPages {
    /// Files that were found.
    pub files_count: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Files of which something is in memory still.
    pub kept_count: u64,
    /// Files that could not be opened.
    pub unreadable_count: u64,
    /// Whether it can be seen at all what is in memory.
    pub is_verified: bool,
}

/// Drops what the page cache holds of these files and of all below these directories; links are not followed.
/// `only_look` drops nothing. An error for a path that is not there, or whose files are in memory only.
pub fn drop_pages(paths: &[PathBuf], only_look: bool) -> Result<DroppedPages> {
    let began = Instant::now();
    let mut dropped = DroppedPages { is_verified: true, ..DroppedPages::default() };
    let mut waiting = vec![];
    for path in paths {
        check_root(path)?;
        waiting.push(path.clone());
    }
    let mut kept = vec![];
    while let Some(path) = waiting.pop() {
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
        } else if found.is_file() {
            let is_kept = one_file(&path, only_look, &mut dropped);
            kept.extend(is_kept.then_some(path));
        }
        if dropped.files_count > FILES_MAX || began.elapsed() > TIME_MAX {
            return Err(UserError::cannot_run(format!(
                "the page cache of more than {} files, or of more than {} s, is not dropped",
                FILES_MAX,
                TIME_MAX.as_secs()
            ))
            .hint("name the files that the load asks for: page_cache_paths"));
        }
    }
    for _ in 1..TRIES {
        if only_look || kept.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
        kept.retain(|path| one_file(path, only_look, &mut DroppedPages::default()));
    }
    dropped.kept_count = kept.len() as u64;
    Ok(dropped)
}

fn check_root(path: &Path) -> Result<()> {
    const HINT: &str = "page_cache_paths are absolute paths on the server, of files on a disk";
    let wrong = |why: String| UserError::usage(format!("{}: {why}", path.display())).hint(HINT);
    if !path.is_absolute() {
        return Err(wrong("the path is not absolute".into()));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty()).map_err(|error| wrong(error.to_string()))?;
    let system = fstatfs(&opened).map_err(|error| wrong(error.to_string()))?;
    if IN_MEMORY.contains(&(system.f_type as i64)) {
        return Err(wrong("its files are in memory only, and have no cold state".into()));
    }
    Ok(())
}

/// Drops the pages of a file, and counts it. Whether something of it is in memory still.
fn one_file(path: &Path, only_look: bool, dropped: &mut DroppedPages) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOATIME;
    // Without atime where it is ours, or we are root.
    let opened = open(path, flags, Mode::empty())
        .or_else(|_| open(path, flags.difference(OFlags::NOATIME), Mode::empty()));
    let found = opened.and_then(|file| fstat(&file).map(|found| (file, found)));
    let Ok((file, found)) = found else {
        dropped.unreadable_count += 1;
        return false;
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return false;
    }
    let size = u64::try_from(found.st_size).unwrap_or(0);
    dropped.files_count += 1;
    dropped.bytes += size;
    if only_look {
        return false;
    }
    if fadvise(&file, 0, None, Advice::DontNeed).is_err() {
        return true;
    }
    let is_held = is_in_memory(&file, size);
    dropped.is_verified &= is_held.is_some();
    is_held.unwrap_or(false)
}

/// Whether one of some places of a file is in memory; `None` where that cannot be seen.
fn is_in_memory(file: &OwnedFd, size: u64) -> Option<bool> {
    let mut byte = [0u8; 1];
    for place in 0..PLACES.min(size) {
        let at = size / PLACES.min(size) * place;
        match preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => return Some(true),
            Err(Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder on a disk: where tests are built.
    fn on_disk() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn what_was_read_is_dropped_and_not_changed() {
        let folder = on_disk();
        let inner = folder.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let files = [inner.join("1"), inner.join("2"), folder.path().join("3")];
        for (at, path) in files.iter().enumerate() {
            std::fs::write(path, vec![at as u8; 100_000]).unwrap();
            rustix::fs::fsync(std::fs::File::open(path).unwrap()).unwrap();
        }
        // A link that leads out is not followed.
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        let paths = [folder.path().to_owned()];
        let looked = drop_pages(&paths, true).unwrap();
        assert_eq!((looked.files_count, looked.bytes), (3, 300_000));
        let held = |path: &PathBuf| {
            let file = open(path, OFlags::RDONLY, Mode::empty()).unwrap();
            is_in_memory(&file, 100_000)
        };
        let dropped = drop_pages(&paths, false).unwrap();
        assert_eq!((dropped.files_count, dropped.unreadable_count), (3, 0));
        // Where the file system tells: nothing is left, and a read brings it back.
        if dropped.is_verified {
            assert_eq!((dropped.kept_count, held(&files[0])), (0, Some(false)));
        }
        assert_eq!(std::fs::read(&files[1]).unwrap(), vec![1; 100_000]);
        assert_ne!(held(&files[1]), Some(false));
    }

    #[test]
    fn what_has_no_cold_state_is_refused() {
        for (path, why) in
            [("/dev/shm", "in memory only"), ("/nowhere", "No such file"), ("relative", "not absolute")]
        {
            let error = drop_pages(&[PathBuf::from(path)], false).unwrap_err();
            assert!(error.message.contains(why) && error.exit_code() == 2, "{error:?}");
        }
    }
}

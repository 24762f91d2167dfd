//! The page cache of files: dropped, so that a load begins with a cold one. Nothing of the files is changed, and nothing else is dropped.
//!
//! Facts: posix_fadvise(2): `POSIX_FADV_DONTNEED` frees the pages of a file that are neither dirty nor mapped, for whoever may open
//! it; preadv2(2): `RWF_NOWAIT` reads what is in memory and waits for no disk (EAGAIN; EOPNOTSUPP where a file system has it not), but
//! has the kernel read ahead (seen with 6.18: one byte of each file brought all of them back), so that only a few files are looked at,
//! with `POSIX_FADV_RANDOM`, which reads a page; tmpfs(5): its files are nowhere but in memory.

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
/// Of so many files it is seen whether something of them is in memory still.
const SAMPLE: usize = 64;
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
    /// Files that could not be opened.
    pub unreadable_count: u64,
    /// Files that were looked at afterwards; none where the file system does not tell what is in memory.
    pub sample_count: u64,
    /// Those of them of which something is in memory still.
    pub kept_count: u64,
}

/// Drops what the page cache holds of these files and of all below these directories; links are not followed.
/// `only_look` drops nothing. An error for a path that is not there, or whose files are in memory only.
pub fn drop_pages(paths: &[PathBuf], only_look: bool) -> Result<DroppedPages> {
    let began = Instant::now();
    paths.iter().try_for_each(|path| check_root(path))?;
    let mut dropped = DroppedPages::default();
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let files = drop_once(paths, only_look, began, &mut dropped)?;
        if only_look {
            break;
        }
        let each = files.len().div_ceil(SAMPLE).max(1);
        let looked: Vec<bool> = files.iter().step_by(each).filter_map(|file| is_in_memory(file)).collect();
        dropped.sample_count = looked.len() as u64;
        dropped.kept_count = looked.into_iter().filter(|is_kept| *is_kept).count() as u64;
        if dropped.kept_count == 0 {
            break;
        }
    }
    Ok(dropped)
}

/// Drops the pages of all files once. Gives the files.
fn drop_once(
    paths: &[PathBuf],
    only_look: bool,
    began: Instant,
    dropped: &mut DroppedPages,
) -> Result<Vec<PathBuf>> {
    *dropped = DroppedPages::default();
    let (mut waiting, mut files) = (paths.to_vec(), vec![]);
    while let Some(path) = waiting.pop() {
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
        } else if found.is_file() {
            match opened(&path) {
                Ok((file, size)) => {
                    (dropped.files_count, dropped.bytes) = (dropped.files_count + 1, dropped.bytes + size);
                    if !only_look {
                        // What is left is seen afterwards.
                        let _ = fadvise(&file, 0, None, Advice::DontNeed);
                    }
                    files.push(path);
                }
                Err(_) => dropped.unreadable_count += 1,
            }
        }
        if dropped.files_count > FILES_MAX || began.elapsed() > TIME_MAX {
            let most = TIME_MAX.as_secs();
            return Err(UserError::cannot_run(format!(
                "the page cache of more than {FILES_MAX} files, or for longer than {most} s, is not dropped"
            ))
            .hint("name the files that the load asks for: page_cache_paths"));
        }
    }
    Ok(files)
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

/// A regular file, with its size.
fn opened(path: &Path) -> rustix::io::Result<(OwnedFd, u64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Without atime where it is ours, or we are root.
    let file =
        open(path, flags | OFlags::NOATIME, Mode::empty()).or_else(|_| open(path, flags, Mode::empty()))?;
    let found = fstat(&file)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok((file, u64::try_from(found.st_size).unwrap_or(0))),
        _ => Err(Errno::INVAL),
    }
}

/// Whether the middle of a file is in memory; `None` where that cannot be seen. The look brings that page in, and no other, as
/// random access reads nothing ahead; it is dropped again unless it is still being read.
fn is_in_memory(path: &Path) -> Option<bool> {
    is_held_at(path, |size| size / 2)
}

/// Whether the page at a place of a file is in memory.
fn is_held_at(path: &Path, place: impl Fn(u64) -> u64) -> Option<bool> {
    let (file, size) = opened(path).ok().filter(|(_, size)| *size > 0)?;
    fadvise(&file, 0, None, Advice::Random).ok()?;
    let mut byte = [0u8; 1];
    let looked = preadv2(&file, &mut [IoSliceMut::new(&mut byte)], place(size), ReadWriteFlags::NOWAIT);
    let is_held = match looked {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    };
    if is_held == Some(false) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
    is_held
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
        // Where the file system tells: nothing is left, and a read brings it back. Others who flush and reclaim hold pages for a while.
        let dropped = (0..50).map(|_| drop_pages(&paths, false).unwrap());
        let dropped = dropped.filter(|dropped| dropped.kept_count == 0 || dropped.sample_count < 3);
        let is_gone_as_a_whole = |_: &DroppedPages| is_held_at(&files[0], |_| 0) != Some(true);
        let dropped = dropped.take(10).find(is_gone_as_a_whole);
        let dropped =
            dropped.expect("pages are left, or looking brought more back than the page it looked at");
        assert_eq!((dropped.files_count, dropped.unreadable_count), (3, 0));
        assert_eq!(std::fs::read(&files[1]).unwrap(), vec![1; 100_000]);
        assert!(dropped.sample_count < 3 || is_in_memory(&files[1]) == Some(true));
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

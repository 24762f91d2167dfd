//! `webdyno workload make-tree`: a tree of files to be served, by a seed.

use crate::cli::tree::MakeTreeArgs;
use crate::process::interrupt_flag;
use crate::terminal;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use webdyno_load::workload::tree::{Content, Filler, Spread, sizes, spread};
use webdyno_model::error::io_error;
use webdyno_model::number::prose::format_binary_bytes;
use webdyno_model::{ErrorKind, Result, UserError};

/// What is written at once; a multiple of 8, see [`Filler`].
const PIECE_BYTES: usize = 256 * 1024;
/// What a file takes in its directory, about.
const ENTRY_BYTES: u64 = 64;

/// The files that are to be written.
struct PlannedTree<'a> {
    root: &'a Path,
    sizes: Vec<u64>,
    per_directory: u64,
    content: Content,
    seed: u64,
}

/// Makes the tree. Gives the exit code.
pub fn make_tree(arguments: &MakeTreeArgs) -> Result<u8> {
    let sizes = sizes(arguments.sizes()?, arguments.total, arguments.mean_size, arguments.seed)?;
    let tree = PlannedTree {
        root: &arguments.directory,
        sizes,
        per_directory: arguments.files_per_directory,
        content: arguments.content(),
        seed: arguments.seed,
    };
    check_empty(tree.root)?;
    let interrupted = interrupt_flag()?;
    check_disk_space(&tree, disk_space(nearest_existing(tree.root))?)?;
    std::fs::create_dir_all(tree.root).map_err(|error| io_error("create", tree.root.display(), &error))?;
    let begun = Instant::now();
    tree.write(&interrupted)?;
    terminal::print(&tree.summary(begun.elapsed().as_secs_f64()))?;
    Ok(0)
}

/// What is there is not ours to write over.
fn check_empty(root: &Path) -> Result<()> {
    let displayed = root.display();
    let reported = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => UserError { kind: ErrorKind::Usage, ..io_error("look into", displayed, &error) },
        Ok(mut entries) => match entries.next() {
            None => return Ok(()),
            Some(_) => {
                UserError::usage(format!("{displayed} is not empty, and nothing in it is written over"))
            }
        },
    };
    let hint = reported.hint.clone().unwrap_or_else(|| "give a directory that is new or empty".into());
    Err(reported.hint(hint))
}

/// The nearest directory that is there.
fn nearest_existing(root: &Path) -> &Path {
    let there = root.ancestors().find(|folder| folder.is_dir());
    there.unwrap_or(Path::new("."))
}

/// What a file system has room for.
struct DiskSpace {
    free_bytes: u64,
    block_bytes: u64,
    /// `None` where files take no place of their own.
    free_files: Option<u64>,
}

fn disk_space(folder: &Path) -> Result<DiskSpace> {
    let state = rustix::fs::statvfs(folder)
        .map_err(|errno| io_error("look at the file system of", folder.display(), &errno.into()))?;
    Ok(DiskSpace {
        free_bytes: state.f_bavail.saturating_mul(state.f_frsize),
        block_bytes: state.f_frsize.max(1),
        free_files: (state.f_files > 0).then_some(state.f_favail),
    })
}

/// Refuses what the disk cannot hold.
fn check_disk_space(tree: &PlannedTree<'_>, room: DiskSpace) -> Result<()> {
    let folder = nearest_existing(tree.root).display();
    let directories = tree.directories();
    let count = tree.sizes.len() as u64;
    let of_files: u64 = tree.sizes.iter().map(|size| size.next_multiple_of(room.block_bytes)).sum();
    let needed = of_files + (directories * room.block_bytes).max(count * ENTRY_BYTES);
    let reported = if needed > room.free_bytes {
        format!(
            "{count} files take {}, and {folder} has room for {}",
            format_binary_bytes(needed as f64),
            format_binary_bytes(room.free_bytes as f64)
        )
    } else {
        match room.free_files {
            Some(free) if count + directories > free => {
                format!(
                    "{count} files in {directories} directories are to be made, and {folder} has room for {free}"
                )
            }
            _ => return Ok(()),
        }
    };
    Err(UserError::cannot_run(reported)
        .hint("make a smaller tree, or make it elsewhere: df -h shows the room, df -i that for files"))
}

impl PlannedTree<'_> {
    fn directories(&self) -> u64 {
        (self.sizes.len() as u64).div_ceil(self.per_directory)
    }

    fn directory(&self, number: u64) -> PathBuf {
        self.root.join(format!("{number:04}"))
    }

    /// Writes all files, on every core. What was written stays when it ends early, and is told.
    fn write(&self, interrupted: &AtomicBool) -> Result<()> {
        let (next, written) = (AtomicU64::new(0), AtomicU64::new(0));
        let failed: Mutex<Option<UserError>> = Mutex::new(None);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let take = || next.fetch_add(1, Ordering::Relaxed);
        let stopped = || interrupted.load(Ordering::Relaxed);
        let work = || {
            let mut piece = vec![0; PIECE_BYTES];
            for directory in std::iter::repeat_with(take).take_while(|number| *number < self.directories()) {
                let done = self.write_directory(directory, &mut piece, &stopped, &written);
                if let Err(error) = done {
                    next.store(u64::MAX / 2, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                }
                if stopped() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let reported = match failed {
            Some(error) => error,
            None if stopped() => UserError::interrupted(),
            None => return Ok(()),
        };
        let state =
            format!("{} of {} files are in {}", written.into_inner(), self.sizes.len(), self.root.display());
        Err(UserError { message: format!("{}: {state}", reported.message), ..reported }
            .hint(format!("remove it and begin again: rm -r {}", self.root.display())))
    }

    fn write_directory(
        &self,
        directory: u64,
        piece: &mut [u8],
        stopped: &dyn Fn() -> bool,
        written: &AtomicU64,
    ) -> Result<()> {
        let folder = self.directory(directory);
        std::fs::create_dir(&folder).map_err(|error| io_error("create", folder.display(), &error))?;
        let first = directory * self.per_directory;
        let last = (first + self.per_directory).min(self.sizes.len() as u64);
        for number in first..last {
            if stopped() {
                return Ok(());
            }
            let path = folder.join(format!("{number:07}.{}", self.content.ending()));
            let file = self.write_file(&path, number, piece);
            file.map_err(|error| io_error("write", path.display(), &error))?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_file(&self, path: &Path, number: u64, piece: &mut [u8]) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        let mut filler = Filler::new(self.content, self.seed, number);
        let mut left = self.sizes[number as usize];
        while left > 0 {
            let part = left.min(piece.len() as u64) as usize;
            filler.fill(&mut piece[..part]);
            file.write_all(&piece[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    fn summary(&self, elapsed_s: f64) -> String {
        let (count, total) = (self.sizes.len(), self.sizes.iter().sum::<u64>());
        let mut text = format!(
            "{}: {} in {}, {} bytes ({}), in {elapsed_s:.1} s\n",
            self.root.display(),
            count_with_noun(count as u64, "file", "files"),
            count_with_noun(self.directories(), "directory", "directories"),
            total,
            format_binary_bytes(total as f64),
        );
        if let Some(spread) = spread(&self.sizes, &vec![1.0; count]) {
            text.push_str(&format!("  {}\n", line(&spread)));
        }
        text
    }
}

/// So many of them: `1 file`, `2 files`.
pub(super) fn count_with_noun(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A distribution in a line.
pub(super) fn line(spread: &Spread) -> String {
    let [_, _, median, _, p90, p99] = spread.percentiles.map(|bytes| format_binary_bytes(bytes as f64));
    format!(
        "mean {}, median {median}, p90 {p90}, p99 {p99}, largest {}",
        format_binary_bytes(spread.mean),
        format_binary_bytes(spread.max as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_none_of_several() {
        for (count, reported) in [(0, "0 files"), (1, "1 file"), (2, "2 files")] {
            assert_eq!(count_with_noun(count, "file", "files"), reported);
        }
    }

    #[test]
    fn room_is_counted_in_blocks_and_files() {
        let root = Path::new("/");
        let tree =
            PlannedTree { root, sizes: vec![1; 1000], per_directory: 100, content: Content::Random, seed: 1 };
        let check = |free_bytes, free_files| {
            check_disk_space(&tree, DiskSpace { free_bytes, block_bytes: 4096, free_files })
        };
        assert!(check(5 << 20, None).is_ok() && check(5 << 20, Some(1010)).is_ok());
        let reported = check(1 << 20, None).unwrap_err();
        assert_eq!(reported.message, "1000 files take 4.0 MiB, and / has room for 1.0 MiB");
        assert_eq!(reported.exit_code(), 1);
        let reported = check(5 << 20, Some(1009)).unwrap_err();
        assert_eq!(reported.message, "1000 files in 10 directories are to be made, and / has room for 1009");
    }
}

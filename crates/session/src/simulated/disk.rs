//! The seam to the modelled disk, and the promise that is checked at every write to the configuration: its undo is on the
//! disk already.

use crate::simulated::faults::ActKind;
use crate::simulated::files::{Files, WriteProgress};
use crate::simulated::layout::STATE;
use crate::simulated::machine::{ActOutcome, MachineState, Process};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use webdyno_host::change::action::{Action, OldFile, WriteFile};
use webdyno_host::change::journal::lines;
use webdyno_host::change::seams::disk::{self, Disk, LockedFile, PathInfo};
use webdyno_host::change::seams::tree::Tree;
use webdyno_host::os::process::ProcessName;

impl ActOutcome {
    /// What the act answers, when it did as much as it could.
    fn result<T>(self, done: io::Result<T>) -> io::Result<T> {
        match self.error {
            Some(error) => Err(error.into()),
            None => done,
        }
    }
}

impl Process {
    fn write_disk<T>(
        &self,
        kind: ActKind,
        what: &str,
        path: &Path,
        perform: impl FnOnce(&mut MachineState, WriteProgress) -> io::Result<T>,
    ) -> io::Result<T> {
        let name = || format!("{what} {}", path.display());
        self.act(kind, name, |state, outcome| {
            state.prove(what, path);
            outcome.result(perform(state, outcome.progress))
        })
    }

    fn read_disk<T>(
        &self,
        what: &str,
        path: &Path,
        perform: impl FnOnce(&Files) -> io::Result<T>,
    ) -> io::Result<T> {
        let name = || format!("{what} {}", path.display());
        self.act(ActKind::Read, name, |state, outcome| outcome.result(perform(&state.files)))
    }
}

impl MachineState {
    /// A write to the configuration whose undo would not survive a power loss now is a violation.
    fn prove(&mut self, what: &str, path: &Path) {
        if !path.starts_with("/etc") || what == "sync directory" {
            return;
        }
        if !self.has_undo_on_disk(path) {
            let reported = format!("{what} {} without its undo on disk", path.display());
            self.trace(|| format!("  ## {reported}"));
            self.violations.push(reported);
        }
    }

    fn has_undo_on_disk(&self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let now = self.files.read(path).map(|file| file.sha256.as_str());
        let sum = |file: &Option<OldFile>| file.as_ref().map(|file| file.sha256.clone());
        let journals = self.files.durable_in(&Path::new(STATE).join("journals"));
        journals.into_iter().any(|(journal, bytes)| {
            let Ok((history, _, _)) = lines::read(bytes) else { return false };
            let id = journal.trim_end_matches(".jsonl");
            let is_temporary = name.starts_with(&format!(".webdyno-{id}-"));
            let mut entries = history.entries.iter();
            entries.any(|entry| {
                let displayed = path.to_string_lossy();
                if let Action::BootHook(hook) = &entry.action {
                    return !entry.undone
                        && hook.files.iter().chain(&hook.folders).any(|part| *part == displayed);
                }
                let Action::WriteFile(write) = &entry.action else { return false };
                if is_temporary {
                    return Path::new(&write.path).parent() == path.parent();
                }
                let is_covered = |write: &WriteFile| {
                    now == Some(&write.after_sha256) || now == sum(&write.before).as_deref()
                };
                !entry.undone && Path::new(&write.path) == path && is_covered(write)
            })
        })
    }
}

impl Disk for Process {
    fn read(&self, path: &Path) -> io::Result<Option<OldFile>> {
        self.read_disk("read", path, |files| Ok(files.read(path).cloned()))
    }

    fn create(&self, path: &Path, file: &OldFile) -> io::Result<()> {
        self.write_disk(ActKind::Write, "create", path, |state, progress| {
            state.files.create(path, file, progress)
        })
    }

    fn rename(&self, from: &Path, to: &Path, may_replace: bool) -> io::Result<()> {
        self.write_disk(ActKind::Swap, "rename to", to, |state, progress| {
            state.files.rename(from, to, may_replace, progress)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.write_disk(ActKind::Swap, "remove", path, |state, progress| state.files.remove(path, progress))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.write_disk(ActKind::Write, "sync directory", path, |state, progress| match progress {
            WriteProgress::Whole => state.files.sync_directory(path),
            _ => Ok(()),
        })
    }

    fn plant(&self, tree: &Tree<'_>) -> io::Result<()> {
        self.write_disk(ActKind::Write, "plant", tree.root, |state, progress| match progress {
            WriteProgress::None => Ok(()),
            _ => state.files.create_tree(tree, progress),
        })
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.write_disk(ActKind::Write, "remove all of", path, |state, progress| match progress {
            WriteProgress::None => Ok(()),
            _ => state.files.remove_tree(path, progress),
        })
    }

    fn remove_empty_directory(&self, path: &Path) -> io::Result<bool> {
        self.write_disk(ActKind::Write, "remove directory", path, |state, progress| match progress {
            WriteProgress::None => Ok(false),
            _ => state.files.remove_empty_directory(path),
        })
    }

    fn path_info(&self, path: &Path) -> io::Result<Option<PathInfo>> {
        self.read_disk("look at", path, |files| {
            let kind = match files.read(path) {
                Some(_) => disk::Kind::File,
                None if files.is_directory(path) => disk::Kind::Directory,
                None => return Ok(None),
            };
            Ok(Some(PathInfo { kind, links_count: 1 }))
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Option<Vec<OsString>>> {
        self.read_disk("list", folder, |files| {
            Ok(files.list(folder).map(|names| names.into_iter().map(OsString::from).collect()))
        })
    }

    fn owner_of_new(&self, folder: &Path) -> io::Result<(u32, u32)> {
        self.read_disk("look at", folder, |_| Ok((0, 0)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.write_disk(ActKind::Write, "create directory", path, |state, progress| match progress {
            WriteProgress::None => Ok(()),
            _ => state.files.create_directory(path),
        })
    }

    fn create_private(&self, path: &Path) -> io::Result<()> {
        self.write_disk(ActKind::Write, "create", path, |state, progress| {
            let empty = crate::simulated::files::new_file(vec![], 0o600);
            // Nothing brings it to the disk yet.
            let progress =
                if progress == WriteProgress::None { progress } else { WriteProgress::Part(65536) };
            state.files.create(path, &empty, progress)
        })
    }

    fn read_start(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.read_disk("read", path, |files| {
            let file = files.read(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(file.content.iter().copied().take(bytes_max as usize).collect())
        })
    }

    fn append(&self, path: &Path, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let name = || {
            let text = String::from_utf8_lossy(bytes);
            let record = text.split_once("\"record\":").map_or("", |(_, record)| record.trim_end());
            format!("append {}", record.chars().take(90).collect::<String>())
        };
        self.act(ActKind::Write, name, |state, outcome| {
            outcome.result(state.files.append(path, offset_bytes, bytes, outcome.progress))
        })
    }

    fn reserve(&self, path: &Path, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.write_disk(ActKind::Write, "reserve", path, |state, progress| match progress {
            WriteProgress::Whole => state.files.reserve(path, offset_bytes + length_bytes),
            _ => Ok(()),
        })
    }

    fn truncate(&self, path: &Path, length_bytes: u64) -> io::Result<()> {
        self.write_disk(ActKind::Write, "truncate", path, |state, progress| match progress {
            WriteProgress::None => Ok(()),
            _ => state.files.truncate(path, length_bytes),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockedFile>>> {
        let taken = self.write_disk(ActKind::Write, "lock", path, |state, _| {
            if state.files.read(path).is_none() {
                state.files.write_volatile(path, &[])?;
            }
            Ok(state.lock(path, self.name))
        });
        Ok(taken?.then(|| Box::new(HeldLock::new(self, path)) as Box<dyn LockedFile>))
    }
}

/// A lock that is held.
pub struct HeldLock {
    process: Process,
    path: PathBuf,
    name: ProcessName,
}

impl HeldLock {
    /// One that was taken.
    pub fn new(process: &Process, path: &Path) -> Self {
        Self { process: process.clone(), path: path.to_owned(), name: process.name }
    }
}

impl LockedFile for HeldLock {
    fn write(&mut self, content: &[u8]) -> io::Result<()> {
        let path = &self.path;
        self.process.write_disk(
            ActKind::Write,
            "name the holder in",
            path,
            |state, progress| match progress {
                WriteProgress::None => Ok(()),
                _ => state.files.write_volatile(path, content),
            },
        )
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.process.machine().state().unlock(&self.path, self.name);
    }
}

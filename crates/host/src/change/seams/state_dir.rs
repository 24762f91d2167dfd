//! Where state that must outlive a run is kept: journals, the lock, saved copies of files.
//!
//! `WEBDYNO_STATE`, else `/var/lib/webdyno` as root (Filesystem Hierarchy Standard 3.0, 5.8), else
//! `$XDG_STATE_HOME/webdyno` (XDG Base Directory Specification 0.8), whose default is `~/.local/state`.

use crate::change::seams::disk::Disk;
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The most journals that are looked at: far more than anybody keeps.
const JOURNALS_MAX: usize = 10_000;

/// The variable that names the directory.
const STATE: &str = "WEBDYNO_STATE";

/// The directory of journals and lock. Nothing is created before it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// The one of this user and environment. An error when there is neither a home directory nor a setting.
    pub fn of_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let root = choose(variable, rustix::process::geteuid().is_root()).ok_or_else(|| {
            UserError::cannot_run("no directory is known for journals: neither HOME nor WEBDYNO_STATE is set")
                .hint("set WEBDYNO_STATE to a directory of yours")
        })?;
        if root.is_relative() {
            return Err(UserError::usage(format!(
                "WEBDYNO_STATE=`{}` is not an absolute path",
                root.display()
            ))
            .hint("set it to an absolute path: it must mean the same directory in every command"));
        }
        Ok(Self::at(root))
    }

    /// A given directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether a command finds it without `WEBDYNO_STATE`, given the same user and home directory.
    pub fn is_default(&self) -> bool {
        let variable = |name: &str| std::env::var_os(name).filter(|_| name != STATE).map(PathBuf::from);
        choose(variable, rustix::process::geteuid().is_root()).as_ref() == Some(&self.root)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the journals.
    pub fn journals(&self) -> PathBuf {
        self.root.join("journals")
    }

    /// The journal of a session.
    pub fn journal(&self, id: &str) -> PathBuf {
        self.journals().join(format!("{id}.jsonl"))
    }

    /// The file whose lock says that a session is at work.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Where the original of a file is kept that somebody else changed meanwhile.
    pub fn saved_copy(&self, id: &str, n: u64, path: &Path) -> PathBuf {
        let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
        self.root.join("originals").join(id).join(format!("{n}-{name}"))
    }

    /// Where the directories of shadow instances are.
    pub fn shadows(&self) -> PathBuf {
        self.root.join("shadow")
    }

    /// The directory of a shadow instance, by the process of its session and the number of its intent: short, as the
    /// paths of sockets in it may have 107 bytes (unix(7)).
    pub fn shadow(&self, agent_pid: u32, n: u64) -> PathBuf {
        self.shadows().join(format!("{agent_pid}-{n}"))
    }

    /// Removes the directory of a shadow instance, and never anything else.
    pub fn remove_shadow(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        if folder.parent() != Some(self.shadows().as_path()) || folder.file_name().is_none() {
            return Err(UserError::cannot_run(format!(
                "{} is no directory of a shadow instance in {}: it is left alone",
                folder.display(),
                self.root.display()
            )));
        }
        disk.remove_tree(folder).map_err(|error| io_error("remove", folder.display(), &error))
    }

    /// Creates the directories, those of journals readable by their owner only, and brings them to the disk: a journal in a
    /// directory that a power loss takes away is no journal. Others may pass through the root, as the workers of a shadow
    /// instance may be somebody else.
    pub fn create(&self, disk: &dyn Disk) -> Result<()> {
        if let Some(parent) = self.root.parent() {
            private_directory(disk, parent)?;
        }
        let message = |error: io::Error| state_error("create the directory", &self.root, &error);
        disk.passable_directory(&self.root).map_err(message)?;
        private_directory(disk, &self.journals())?;
        // A session that was killed may have created them, and not have come to this.
        sync(disk, &self.root)?;
        match disk.sync_directory(self.root.parent().unwrap_or(&self.root)) {
            // Of a directory that is not ours only its owner can say that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other.map_err(|error| state_error("synchronise", &self.root, &error)),
        }
    }

    /// The files of all journals, the oldest first (their names begin with the time). Empty when there is no state.
    pub fn journal_files(&self, disk: &dyn Disk) -> Result<Vec<PathBuf>> {
        let folder = self.journals();
        let listed = disk.list(&folder).map_err(|error| io_error("read", folder.display(), &error))?;
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
        let mut files: Vec<PathBuf> =
            listed.into_iter().flatten().map(|name| folder.join(name)).filter(is_journal).collect();
        files.sort();
        if files.len() > JOURNALS_MAX {
            return Err(UserError::cannot_run(format!(
                "{} holds more than {JOURNALS_MAX} journals",
                folder.display()
            ))
            .hint("move away the ones that you will never roll back"));
        }
        Ok(files)
    }
}

/// An error of the disk under the state directory, with the hint that helps there.
pub fn state_error(action: &str, path: &Path, error: &io::Error) -> UserError {
    let message = io_error(action, path.display(), error);
    match error.kind() {
        io::ErrorKind::StorageFull => {
            message.hint("free space there, or set WEBDYNO_STATE to a directory on another disk")
        }
        _ => message,
    }
}

/// Creates a directory with its parents, readable by its owner only, and brings them to the disk. Existing ones are left
/// as they are.
pub fn private_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    let message = |error: io::Error| state_error("create the directory", path, &error);
    let mut missing = vec![];
    for folder in path.ancestors() {
        if disk.path_info(folder).map_err(message)?.is_some() {
            break;
        }
        missing.push(folder);
    }
    for folder in missing.into_iter().rev() {
        disk.create_directory(folder).map_err(message)?;
        sync(disk, folder.parent().unwrap_or(folder))?;
    }
    Ok(())
}

/// Brings the entries of a directory to the disk.
fn sync(disk: &dyn Disk, folder: &Path) -> Result<()> {
    disk.sync_directory(folder).map_err(|error| state_error("synchronise", folder, &error))
}

/// Decides the directory from environment variables; empty ones count as not set.
fn choose(variable: impl Fn(&str) -> Option<PathBuf>, root: bool) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    if let Some(given) = set(STATE) {
        return Some(given);
    }
    if root {
        return Some("/var/lib/webdyno".into());
    }
    // The specification: a relative XDG_STATE_HOME is invalid and must be ignored.
    let base = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    Some(base.or_else(|| set("HOME").map(|home| home.join(".local/state")))?.join("webdyno"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::seams::disk::RealDisk;

    fn check(variables: &[(&str, &str)], root: bool, expected: Option<&str>) {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
        };
        assert_eq!(choose(variable, root), expected.map(PathBuf::from), "{variables:?} root={root}");
    }

    #[test]
    fn the_directory_follows_the_contract() {
        check(&[("WEBDYNO_STATE", "/s"), ("HOME", "/h")], true, Some("/s"));
        check(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")], true, Some("/var/lib/webdyno"));
        check(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")], false, Some("/x/webdyno"));
        check(&[("HOME", "/h"), ("XDG_STATE_HOME", "x")], false, Some("/h/.local/state/webdyno"));
        check(&[("HOME", "/h"), ("WEBDYNO_STATE", "")], false, Some("/h/.local/state/webdyno"));
        check(&[], false, None);
    }

    #[test]
    fn only_directories_of_shadows_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path());
        let (shadow, journals) = (state.shadow(7, 1), state.journals());
        for path in [&shadow, &journals] {
            std::fs::create_dir_all(path.join("x")).unwrap();
        }
        for other in [&journals, &state.shadows().join(".."), &state.shadows(), Path::new("/")] {
            assert!(state.remove_shadow(&RealDisk, other).is_err(), "{}", other.display());
        }
        state.remove_shadow(&RealDisk, &shadow).unwrap();
        state.remove_shadow(&RealDisk, &shadow).unwrap();
        assert!(!shadow.exists() && journals.join("x").exists());
    }
}

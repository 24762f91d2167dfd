//! One tuner per server: a lock on a file of the state directory (flock(2)), which the kernel drops with its holder.

use crate::change::journal::Owner;
use crate::change::seams::Tools;
use crate::change::seams::disk::LockedFile;
use crate::change::seams::state_dir::private_directory;
use crate::os::process::ProcessName;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The most that is read of the lock file.
const HOLDER_BYTES_MAX: u64 = 4096;

/// A lock that was given up is held for moments more by a child that its holder was just starting: between fork(2) and
/// execve(2) it has all of its descriptors.
pub const HANDOVER: Duration = Duration::from_secs(1);

/// Who holds the lock, as its file tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process that holds it.
    #[serde(flatten)]
    pub process: ProcessName,
    /// What it is about: `webdyno tune`.
    pub what: String,
    /// The tool that gives the orders, where it is known: its agents share the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ProcessName>,
}

/// The lock; it ends with this value, and with the process in any case.
pub struct Lock {
    file: Box<dyn LockedFile>,
}

impl Lock {
    /// Takes it, or says who has it.
    pub fn take(tools: &Tools, what: &str) -> Result<Self> {
        Self::wait(tools, what, HANDOVER)?.ok_or_else(|| held_by(holder(tools).as_ref()))
    }

    /// Takes it for a session, as agents of one tool share it: that of a network namespace and that of its machine have the
    /// same state directory. Everybody else finds it held until the last of them has ended.
    pub fn take_for(tools: &Tools, owner: &Owner) -> Result<Self> {
        if owner.tool.is_none() {
            return Self::take(tools, &owner.what);
        }
        let mut taken = Self::try_take_for(tools, owner)?;
        let mut failed = None;
        tools.system.wait_until(HANDOVER, &mut || {
            if taken.is_none() {
                match Self::try_take_for(tools, owner) {
                    Ok(lock) => taken = lock,
                    Err(error) => failed = Some(error),
                }
            }
            taken.is_some() || failed.is_some()
        });
        failed.map_or_else(|| taken.ok_or_else(|| held_by(holder(tools).as_ref())), Err)
    }

    fn try_take_for(tools: &Tools, owner: &Owner) -> Result<Option<Self>> {
        let path = tools.state.lock();
        let message = |error| io_error("lock", path.display(), &error);
        if let Some(lock) = Self::try_take_as(tools, &owner.what, owner.tool)? {
            return Ok(lock.file.share().map_err(message)?.then_some(lock));
        }
        let is_ours =
            || holder(tools).is_some_and(|holder| holder.tool.is_some() && holder.tool == owner.tool);
        if !is_ours() {
            return Ok(None);
        }
        let shared = tools.disk.lock_shared(&path).map_err(message)?;
        // Between the two looks it may have passed to somebody else.
        Ok(shared.filter(|_| is_ours()).map(|file| Self { file }))
    }

    /// Takes it as soon as it is free, within a time. `Ok(None)` when it still is held then.
    pub fn wait(tools: &Tools, what: &str, at_most: Duration) -> Result<Option<Self>> {
        let mut taken = Self::try_take(tools, what)?;
        let mut failed = None;
        tools.system.wait_until(at_most, &mut || {
            if taken.is_none() {
                match Self::try_take(tools, what) {
                    Ok(lock) => taken = lock,
                    Err(error) => failed = Some(error),
                }
            }
            taken.is_some() || failed.is_some()
        });
        failed.map_or(Ok(taken), Err)
    }

    /// Takes it, or `Ok(None)` when somebody has it.
    pub fn try_take(tools: &Tools, what: &str) -> Result<Option<Self>> {
        Self::try_take_as(tools, what, None)
    }

    fn try_take_as(tools: &Tools, what: &str, tool: Option<ProcessName>) -> Result<Option<Self>> {
        let path = tools.state.lock();
        private_directory(tools.disk.as_ref(), tools.state.root())?;
        let locked = tools.disk.lock(&path).map_err(|error| io_error("lock", path.display(), &error))?;
        let Some(mut file) = locked else { return Ok(None) };
        let holder = Holder { process: tools.system.this_process()?, what: what.to_owned(), tool };
        // The name of the holder is a courtesy: a full disk must not keep a rollback from its lock.
        if let Ok(text) = serde_json::to_string(&holder) {
            let _ = file.write(text.as_bytes());
        }
        Ok(Some(Self { file }))
    }
}

/// Who holds the lock, or held it last; `None` when that cannot be told.
pub fn holder(tools: &Tools) -> Option<Holder> {
    let text = tools.disk.read_start(&tools.state.lock(), HOLDER_BYTES_MAX).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The error that names the holder.
pub fn held_by(holder: Option<&Holder>) -> UserError {
    let (who, hint) = match holder {
        Some(Holder { process, what, .. }) => (
            format!("`{what}` (agent with pid {})", process.pid),
            "wait until it has ended, or stop it: it puts everything back by itself".to_owned(),
        ),
        None => ("another webdyno".to_owned(), "wait until it has ended".to_owned()),
    };
    UserError::cannot_run(format!("{who} is changing this server already")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::seams::state_dir::StateDir;

    /// As a child does between fork(2) and execve(2).
    #[test]
    fn a_lock_that_was_just_given_up_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::of_this_machine(StateDir::at(folder.path()));
        let first = Lock::take(&tools, "webdyno tune").unwrap();
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        assert!(Lock::take(&tools, "webdyno tune").is_ok());
        child.join().unwrap();
    }

    #[test]
    fn two_never_hold_it_and_the_second_hears_who_does() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::of_this_machine(StateDir::at(folder.path().join("new")));
        let first = Lock::take(&tools, "webdyno tune").unwrap();
        let refused = Lock::take(&tools, "webdyno sweep").err().unwrap();
        let pid = std::process::id();
        assert_eq!(
            refused.message,
            format!("`webdyno tune` (agent with pid {pid}) is changing this server already")
        );
        assert!(Lock::wait(&tools, "webdyno rollback", Duration::from_millis(50)).unwrap().is_none());
        drop(first);
        assert!(Lock::wait(&tools, "webdyno rollback", Duration::from_millis(50)).unwrap().is_some());
    }
}

//! One tuner per server: a lock on a file of the state directory (flock(2)), which the kernel drops with its holder.

use crate::change::state::{StateDir, private_directory};
use crate::process::{ProcessName, wait_until};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The most that is read of the lock file.
const HOLDER_BYTES_MAX: u64 = 4096;

/// Who holds the lock, as its file tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process that holds it.
    #[serde(flatten)]
    pub process: ProcessName,
    /// What it is about: `webdyno tune`.
    pub what: String,
}

/// The lock; it ends with this value, and with the process in any case.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it at once, or says who has it.
    pub fn take(state: &StateDir, what: &str) -> Result<Self> {
        Self::try_take(state, what)?.ok_or_else(|| held_by(holder(state).as_ref()))
    }

    /// Takes it as soon as it is free, within a time. `Ok(None)` when it still is held then.
    pub fn wait(state: &StateDir, what: &str, at_most: Duration) -> Result<Option<Self>> {
        let mut taken = Self::try_take(state, what)?;
        let mut failed = None;
        wait_until(at_most, || {
            if taken.is_none() {
                match Self::try_take(state, what) {
                    Ok(lock) => taken = lock,
                    Err(error) => failed = Some(error),
                }
            }
            taken.is_some() || failed.is_some()
        });
        failed.map_or(Ok(taken), Err)
    }

    /// Takes it, or `Ok(None)` when somebody has it.
    pub fn try_take(state: &StateDir, what: &str) -> Result<Option<Self>> {
        let path = state.lock();
        let told = |error: std::io::Error| io_error("lock", path.display(), &error);
        private_directory(state.root())?;
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(told)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(told(error.into())),
        }
        let holder = Holder { process: ProcessName::this()?, what: what.to_owned() };
        // The name of the holder is a courtesy: a full disk must not keep a rollback from its lock.
        if let Ok(text) = serde_json::to_string(&holder) {
            let _ =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
        }
        Ok(Some(Self { _file: file }))
    }
}

/// Who holds the lock, or held it last; `None` when that cannot be told.
pub fn holder(state: &StateDir) -> Option<Holder> {
    let mut text = String::new();
    File::open(state.lock()).ok()?.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The error that names the holder.
pub fn held_by(holder: Option<&Holder>) -> UserError {
    let (who, hint) = match holder {
        Some(Holder { process, what }) => (
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

    #[test]
    fn two_never_hold_it_and_the_second_hears_who_does() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path().join("new"));
        let first = Lock::take(&state, "webdyno tune").unwrap();
        let refused = Lock::take(&state, "webdyno sweep").unwrap_err();
        let pid = std::process::id();
        assert_eq!(
            refused.message,
            format!("`webdyno tune` (agent with pid {pid}) is changing this server already")
        );
        assert!(Lock::wait(&state, "webdyno rollback", Duration::from_millis(50)).unwrap().is_none());
        drop(first);
        assert!(Lock::wait(&state, "webdyno rollback", Duration::from_millis(50)).unwrap().is_some());
    }
}

//! Where a session was at work, and whether what it did can be undone from here: its files, its processes and its network
//! may be those of a container or of a network namespace. Decided before anything is touched.
//!
//! A journal is undone where its session was. Where that is not here it is entered, by a helper process of our own program
//! ([`Helper`]); where it cannot be entered nothing is touched, and the command is named that can.
//!
//! What counts as here (pure, [`standing`]): the *files* are those by device and inode of the directories that differ
//! between roots, and of the folders that were written to. *Process ids* mean something in their pid namespace, as long as
//! its first process is the same. The *network* is a namespace of which the inode number proves nothing alone, as it is
//! given away again: process 1 is in it then and now, or a process is in it that is as old as the session, or it still
//! has the name that it had (`/run/netns/NAME`). After a boot, or when a container was started anew, the same names and
//! process 1 tell which one took its place; where nothing did, only files are left to be put back.
//!
//! Facts: namespaces(7), mount_namespaces(7), pid_namespaces(7), network_namespaces(7), ip-netns(8), proc_pid_ns(5).

mod here;
mod standing;
#[cfg(test)]
mod tests;

pub use here::of_journal;
pub use standing::{Sight, Standing, standing};

use crate::change::undo::rollback::Interrupted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::Result;
use webdyno_model::service::FileId;

/// Where a session was at work. It changes only services of the same network and files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionLocation {
    /// The namespaces of the agent by their names in proc_pid_ns(5), as far as they could be seen.
    pub namespaces: BTreeMap<String, FileId>,
    /// Directories that tell one root from another.
    pub directories: BTreeMap<String, FileId>,
    /// When process 1 of its pid namespace started, in clock ticks since boot.
    pub first_process: Option<u64>,
    /// What it shared with process 1: names of namespaces, and `root`.
    pub with_first_process: BTreeSet<String>,
    /// Where its network namespace is mounted, as `ip netns` does it: `/run/netns/NAME`.
    pub network_file: Option<String>,
    /// The state directory, as it was called there.
    pub state: String,
    /// Which part of its file system is mounted as `/`, when the state directory is in the same: then the journal itself
    /// tells which root that is.
    pub root_of_journal: Option<String>,
    /// With which words of `--server` it was reached from where it was begun.
    pub server: Option<String>,
}

/// The way to a session's location. Each part with what it must be when it is entered: a process may have ended by then,
/// and its id be another one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entrance {
    /// A process in its namespaces and with its root, with its pid namespace; `None` when only the network is another one.
    pub process: Option<(u32, FileId)>,
    /// The namespace of its network as a file, where that is not ours.
    pub network: Option<(String, FileId)>,
    /// The state directory, as it is called there.
    pub state: String,
}

/// Undoes journals from where their sessions were.
pub trait Helper: Send + Sync {
    /// Undoes one journal there: all of it, or what was never kept. The caller does not hold the lock.
    fn undo(&self, entrance: &Entrance, journal: &str, only_unkept: bool) -> Result<Interrupted>;
}

impl SessionLocation {
    fn namespace(&self, name: &str) -> Option<FileId> {
        self.namespaces.get(name).copied()
    }

    /// The command that undoes it, as it can be typed where the session was begun.
    pub fn command(&self) -> String {
        const NAMED: &str = "/run/netns/";
        let network = self.network_file.as_deref().and_then(|path| path.strip_prefix(NAMED));
        match (self.server.as_deref().filter(|server| *server != "local"), network) {
            (Some(server), _) if may_be_shown(server) => {
                format!(
                    "run `webdyno rollback --server '{}'` where it was begun",
                    server.replace('\'', "'\\''")
                )
            }
            (Some(_), _) => "run `webdyno rollback` with the --server that it was begun with".into(),
            (None, Some(name)) => format!("run `ip netns exec {name} webdyno rollback`"),
            (None, None) => "run `webdyno rollback` in the container or the namespaces that it ran in".into(),
        }
    }
}

/// Whether a command is known to hold no secret: passwords and tokens stand in variables before the program, or are given
/// to sshpass and its like.
fn may_be_shown(server: &str) -> bool {
    let Some(command) = server.strip_prefix("exec:") else { return true };
    let mut words = command.split_whitespace();
    let starts_plainly = words.next().is_some_and(|word| !word.contains('='));
    let lowered = command.to_ascii_lowercase();
    starts_plainly && !["pass", "token", "secret", "key="].iter().any(|word| lowered.contains(word))
}

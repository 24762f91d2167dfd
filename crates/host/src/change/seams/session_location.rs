//! Where a session is at work: its namespaces, its files and its network, as this process sees its own.
//!
//! Facts: namespaces(7), mount_namespaces(7), ip-netns(8), proc_pid_ns(5), proc_pid_mountinfo(5).

use crate::os::control_group::unescape;
use crate::os::process_location::{file_id, namespace, namespaces};
use crate::os::procfs;
use crate::visibility::mount_namespace;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use webdyno_model::service::FileId;

/// Process 1 of our pid namespace.
const FIRST: u32 = 1;

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

impl SessionLocation {
    pub(crate) fn namespace(&self, name: &str) -> Option<FileId> {
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

impl SessionLocation {
    /// Where this process is.
    pub fn of_this_process(state: &Path, server: Option<&str>) -> Self {
        let (own, first) = (namespaces(std::process::id()), namespaces(FIRST));
        let mounts = procfs::read_text("/proc/self/mountinfo").unwrap_or_default();
        let shared = own.iter().filter(|(name, id)| first.get(*name) == Some(id));
        let mut with_first_process: BTreeSet<String> = shared.map(|(name, _)| name.clone()).collect();
        let root = file_id("/");
        if root.is_some() && root == file_id("/proc/1/root/") {
            with_first_process.insert("root".into());
        }
        // It may not be there yet.
        let device_of_state = state.ancestors().find_map(file_id).map(|found| found.device);
        let is_in_root = device_of_state.is_some() && device_of_state == root.map(|root| root.device);
        Self {
            directories: directories(Path::new("/")),
            first_process: procfs::stat(FIRST).ok().map(|stat| stat.start_ticks),
            with_first_process,
            network_file: own.get("net").and_then(|id| mounted(&mounts, "net", *id)),
            state: state.display().to_string(),
            root_of_journal: is_in_root.then(|| mounted_part(&mounts)).flatten(),
            server: server.map(str::to_owned),
            namespaces: own,
        }
    }
}

impl SessionLocation {
    /// Whether its process ids mean the same here: its pid namespace is ours, with the same process 1.
    pub fn has_our_pids(&self) -> bool {
        let first = || procfs::stat(FIRST).ok().map(|stat| stat.start_ticks);
        let own = namespace(std::process::id(), "pid");
        self.namespaces.get("pid").zip(own.as_ref()).is_none_or(|(then, now)| then == now)
            && self.first_process.is_none_or(|then| first() == Some(then))
    }
}

/// The directories that tell one root from another, below a root.
pub(crate) fn directories(root: &Path) -> BTreeMap<String, FileId> {
    let id = |path: &str| Some((path.to_owned(), file_id(mount_namespace::in_root(root, Path::new(path)))?));
    mount_namespace::TELLING.into_iter().filter_map(id).collect()
}

/// Where a namespace is mounted: lines of proc_pid_mountinfo(5) of the type nsfs, whose root is `net:[4026532281]`.
fn mounted(mounts: &str, name: &str, id: FileId) -> Option<String> {
    let root = format!("{name}:[{}]", id.inode);
    let path = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let is_it = fields.next() == Some(root.as_str()) && line.contains(" - nsfs ");
        fields.next().filter(|_| is_it).map(unescape)
    };
    // Each directory that is mounted in two places shows it twice: the usual name first.
    let mut all: Vec<String> = mounts.lines().filter_map(path).collect();
    all.sort_by_key(|path| (!path.starts_with("/run/netns/"), path.len()));
    all.into_iter().next()
}

/// Which part of its file system is mounted as `/`, by the last such line of proc_pid_mountinfo(5), which covers others.
fn mounted_part(mounts: &str) -> Option<String> {
    let part = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let root = fields.next()?;
        (fields.next() == Some("/")).then(|| unescape(root))
    };
    mounts.lines().filter_map(part).next_back()
}

//! A port in the other network namespaces of this machine: who listens on it there.
//!
//! Facts: network_namespaces(7), proc_pid_net(5). Which processes are in which namespace is seen with the rights to inspect
//! them only (proc_pid_ns(5)): who has none finds nobody in another one.

use super::{Found, found, listening_on};
use crate::os::procfs;
use crate::visibility::network_namespace::space_of;
use std::collections::BTreeMap;
use webdyno_model::{Result, UserError};

/// The most namespaces that are looked into.
const SPACES_COUNT_MAX: usize = 256;

/// The most processes that one namespace is looked at through: the first ones may end meanwhile.
const TRIES_COUNT_MAX: usize = 3;

/// Who listens on a port in each of the other namespaces where somebody does.
pub fn listening(port: u16) -> Vec<Result<Found>> {
    let own = space_of(std::process::id());
    let mut spaces: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (pid, space) in procfs::pids().into_iter().filter_map(|pid| Some((pid, space_of(pid)?))) {
        if Some(space) != own {
            spaces.entry(space).or_default().push(pid);
        }
    }
    let in_space = |pids: Vec<u32>| {
        let seen = |pid: &u32| listening_on(&format!("/proc/{pid}/net"), port).ok();
        let sockets = pids.iter().take(TRIES_COUNT_MAX).find_map(seen)?;
        (!sockets.is_empty()).then(|| found(port, &sockets))
    };
    spaces.into_values().take(SPACES_COUNT_MAX).filter_map(in_space).collect()
}

/// The error for a port that is served in several of them.
pub fn several(port: u16, all: Vec<Result<Found>>) -> UserError {
    let message = |found: Result<Found>| match found {
        Ok(Found::Process(listener)) => format!("{} (process {})", listener.name, listener.main_pid),
        _ => "a process that cannot be seen".into(),
    };
    let all: Vec<String> = all.into_iter().map(message).collect();
    UserError::cannot_run(format!(
        "nothing listens on port {port} in this network namespace, and in several other ones of this machine somebody does: {}",
        all.join(", ")
    ))
    .hint("say which one is meant by running the agent there, as with --server exec:'nsenter -t PID -n webdyno agent'")
}

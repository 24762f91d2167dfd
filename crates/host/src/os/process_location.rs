//! Where a process runs: its namespaces, its control groups, and as whom. A service that is started again is started
//! there, and never anywhere else.
//!
//! Facts: namespaces(7), setns(2) (moves the calling thread only; a mount namespace takes a thread with a root of its own; a
//! pid namespace holds for the children; a user namespace cannot be entered by one thread of several), cgroups(7) (a
//! written 0 moves the writer: its thread by `tasks` of version 1, its process by `cgroup.procs` of version 2), setresuid(2)
//! (of one thread, below the C library). A namespace exists as long as a process, a mount or a descriptor holds it, and its
//! inode number is given away again after that: one is taken for the same only when a process in it is as old as what was
//! recorded.

use crate::os::control_group::{self, Groups};
use crate::os::process::ProcessName;
use crate::os::procfs;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use webdyno_model::service::{Control, FileId, ProcessLocation, UserIds};

/// The namespaces of a process by their names below `/proc/PID/ns`, in the order in which they are entered: that of
/// mounts last, as the others are found by paths of ours.
const NAMESPACES: [(&str, LinkNameSpaceType); 6] = [
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("pid", LinkNameSpaceType::ProcessID),
    ("mnt", LinkNameSpaceType::Mount),
];

/// The one that says which users its ids mean.
const USERS: &str = "user";

/// Identifies a file, directory or namespace; `None` when it cannot be seen.
pub fn file_id(path: impl AsRef<Path>) -> Option<FileId> {
    let found = std::fs::metadata(path).ok()?;
    Some(FileId { device: found.dev(), inode: found.ino() })
}

/// A namespace of a process; `None` when it may not be seen.
pub fn namespace(pid: u32, name: &str) -> Option<FileId> {
    file_id(format!("/proc/{pid}/ns/{name}"))
}

/// The namespaces of a process that may be seen, by their names.
pub fn namespaces(pid: u32) -> BTreeMap<String, FileId> {
    let all = NAMESPACES.iter().map(|(name, _)| *name).chain([USERS]);
    all.filter_map(|name| Some((name.to_owned(), namespace(pid, name)?))).collect()
}

/// Where a process runs, as far as that is not where we are; `None` when nothing of it may be seen.
pub fn read(pid: u32) -> Option<ProcessLocation> {
    let own = std::process::id();
    let (mut namespaces, ours) = (namespaces(pid), namespaces(own));
    if namespaces.is_empty() {
        return None;
    }
    namespaces.retain(|name, id| ours.get(name) != Some(id));
    let groups = |pid| control_group::of(pid).map(|groups| directories(&groups)).unwrap_or_default();
    let ours = groups(own);
    let control_groups = groups(pid).into_iter().filter(|folder| !ours.contains(folder));
    let user = user_ids(pid).filter(|user| Some(user) != user_ids(own).as_ref());
    Some(ProcessLocation {
        namespaces,
        control_groups: control_groups.map(|folder| folder.display().to_string()).collect(),
        user,
    })
}

/// The directory of each hierarchy that a process is in.
fn directories(groups: &Groups) -> Vec<PathBuf> {
    use control_group::Controller::{Cpu, Cpuacct, Cpuset, Memory, Pids};
    let v1 = [Memory, Cpu, Cpuacct, Pids, Cpuset].map(|controller| groups.v1(controller));
    let mut found: Vec<PathBuf> = v1
        .into_iter()
        .chain([groups.unified.as_ref()])
        .flatten()
        .map(|group| group.directory.clone())
        .collect();
    found.dedup();
    found
}

fn user_ids(pid: u32) -> Option<UserIds> {
    let (user, group) = procfs::acts_as(pid)?;
    Some(UserIds {
        user,
        group,
        others: parse_groups(&procfs::read_text(format!("/proc/{pid}/status")).ok()?),
    })
}

/// The numbers behind `Groups:` of `/proc/PID/status`.
fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// A living process in a namespace that is as old as `since_ticks`, or is one of `known`: then the namespace is the one
/// that was meant, as it has had a process ever since.
pub fn witness(name: &str, id: FileId, since_ticks: u64, known: &[ProcessName]) -> Option<u32> {
    let is_old = |process: &ProcessName| process.start_ticks <= since_ticks || known.contains(process);
    let holds = |pid: &u32| {
        namespace(*pid, name) == Some(id) && ProcessName::of(*pid).is_some_and(|found| is_old(&found))
    };
    procfs::pids().into_iter().find(holds)
}

/// Where a service ran, as far as that was recorded.
pub fn location(control: &Control) -> Option<&ProcessLocation> {
    control.inherited.as_ref()?.location.as_ref()
}

/// What a program is started in, held open: it exists as long as this does.
#[derive(Debug, Default)]
pub struct HeldLocation {
    namespaces: Vec<(File, LinkNameSpaceType)>,
    /// Control groups of version 1, to which a thread can be moved.
    thread_groups: Vec<File>,
    /// The control group of version 2, with the one that we are in: a whole process is moved there and back.
    process_group: Option<(File, File)>,
    user: Option<UserIds>,
}

/// Holds what a service ran in, to start it there again: to be called before it is stopped. An error when that is gone or
/// may not be entered, and the service would be another one elsewhere. Without it none of its pid namespace would be seen
/// there; names and control groups that are gone are no reason not to start a web server.
pub fn hold(control: &Control) -> io::Result<HeldLocation> {
    let Some(location) = location(control) else { return Ok(HeldLocation::default()) };
    let process = ProcessName::from(control);
    let mut held = HeldLocation { user: location.user.clone(), ..HeldLocation::default() };
    let own = namespaces(std::process::id());
    if location.namespaces.get(USERS).is_some_and(|users| own.get(USERS) != Some(users)) {
        return Err(io::Error::other("it runs in a user namespace of its own, which webdyno cannot enter"));
    }
    for (name, kind) in NAMESPACES {
        let Some(id) = location.namespaces.get(name).filter(|id| own.get(name) != Some(id)) else { continue };
        // Where it had its network is decided for the whole session: that is where we are.
        if name == "net" {
            continue;
        }
        let opened = witness(name, *id, process.start_ticks, &[process])
            .and_then(|pid| File::open(format!("/proc/{pid}/ns/{name}")).ok())
            .filter(|file| file.metadata().is_ok_and(|found| found.ino() == id.inode));
        match opened {
            Some(file) => held.namespaces.push((file, kind)),
            None if name == "pid" => {
                return Err(io::Error::other(format!(
                    "the pid namespace that it ran in (pid:[{}]) is gone, or may not be entered",
                    id.inode
                )));
            }
            None => {}
        }
    }
    held.hold_groups(location);
    Ok(held)
}

impl HeldLocation {
    fn hold_groups(&mut self, location: &ProcessLocation) {
        let own = control_group::of(std::process::id()).unwrap_or_default();
        let file = |folder: &Path, name: &str| File::options().write(true).open(folder.join(name)).ok();
        for folder in location.control_groups.iter().map(PathBuf::from) {
            let back = own.unified.as_ref().filter(|group| group.directory != folder);
            if folder.join("tasks").exists() {
                self.thread_groups.extend(file(&folder, "tasks"));
            } else if let Some(back) = back {
                self.process_group = file(&folder, "cgroup.procs").zip(file(&back.directory, "cgroup.procs"));
            }
        }
    }

    /// Whether what is started goes where we are.
    pub fn is_here(&self) -> bool {
        self.namespaces.is_empty()
            && self.thread_groups.is_empty()
            && self.process_group.is_none()
            && self.user.is_none()
    }

    /// Runs `start` on a thread that goes there and ends: what it starts stays there.
    pub fn run<T: Send>(&self, start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        if self.is_here() {
            return start();
        }
        let moved = self.process_group.as_ref().map(|(there, back)| (write_zero(there).is_ok(), back));
        let done = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                self.enter()?;
                start()
            })?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
        });
        if let Some((true, back)) = moved {
            // Whoever stays there harms nobody.
            let _ = write_zero(back);
        }
        done
    }

    /// Moves the calling thread, which must end after it.
    fn enter(&self) -> io::Result<()> {
        for group in &self.thread_groups {
            // A group that is gone by now is no reason not to start.
            let _ = write_zero(group);
        }
        if self.namespaces.iter().any(|(_, kind)| *kind == LinkNameSpaceType::Mount) {
            unshare(CloneFlags::CLONE_FS)?;
        }
        for (file, kind) in &self.namespaces {
            move_into_link_name_space(file.as_fd(), Some(*kind))?;
        }
        let Some(user) = &self.user else { return Ok(()) };
        let others: Vec<Gid> = user.others.iter().map(|group| Gid::from_raw(*group)).collect();
        let own = user_ids(std::process::id());
        let is_same = own.is_some_and(|own| (own.user, own.group) == (user.user, user.group));
        match set_thread_groups(&others) {
            // Who may not choose groups starts it with ours, as the same user.
            Err(_) if is_same => return Ok(()),
            chosen => chosen?,
        }
        let (user, group) = (Uid::from_raw(user.user), Gid::from_raw(user.group));
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        Ok(())
    }
}

fn write_zero(mut file: &File) -> io::Result<()> {
    use std::io::Write;
    file.write_all(b"0")
}

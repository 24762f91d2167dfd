//! All processes of the machine with the sockets that they hold, read once: whose is a socket, and who is its main process.
//!
//! Facts: proc_pid_fd(5), proc_pid_stat(5), network_namespaces(7). Processes come and go while one reads: who vanished is
//! left out, and a child that is older than its parent is none of it, as its real parent's number was given away.

use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::visibility::listeners::{climb, main_process};
use crate::visibility::network_namespace::space_of;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// The most processes that are looked at.
const PROCESSES_COUNT_MAX: usize = 50_000;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessSample {
    /// Its parent.
    pub ppid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// The inode of its network namespace; `None` when we may not see it.
    pub space: Option<u64>,
    /// The inodes of the sockets that it holds.
    pub sockets: Vec<u64>,
    /// Whether we may not look at its descriptors.
    pub refused: bool,
}

/// The processes of this machine.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    all: BTreeMap<u32, ProcessSample>,
    holders: HashMap<u64, Vec<u32>>,
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    /// Reads them.
    pub fn read() -> Self {
        let pids = procfs::pids().into_iter().take(PROCESSES_COUNT_MAX);
        Self::of(pids.filter_map(|pid| Some((pid, sample(pid)?))))
    }

    /// These.
    pub fn of(all: impl IntoIterator<Item = (u32, ProcessSample)>) -> Self {
        let mut processes = Self::default();
        all.into_iter().for_each(|(pid, seen)| processes.add(pid, seen));
        processes
    }

    fn add(&mut self, pid: u32, seen: ProcessSample) {
        self.remove(pid);
        self.children.entry(seen.ppid).or_default().push(pid);
        for inode in &seen.sockets {
            let holders = self.holders.entry(*inode).or_default();
            if !holders.contains(&pid) {
                holders.push(pid);
            }
        }
        self.all.insert(pid, seen);
    }

    fn remove(&mut self, pid: u32) {
        let Some(former) = self.all.remove(&pid) else { return };
        if let Some(children) = self.children.get_mut(&former.ppid) {
            children.retain(|child| *child != pid);
        }
        for inode in former.sockets {
            if let Some(holders) = self.holders.get_mut(&inode) {
                holders.retain(|holder| *holder != pid);
            }
        }
    }

    /// One of them.
    pub fn get(&self, pid: u32) -> Option<&ProcessSample> {
        self.all.get(&pid)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &ProcessSample)> {
        self.all.iter().map(|(pid, seen)| (*pid, seen))
    }

    /// Whether somebody was seen to hold a socket.
    pub fn is_held(&self, inode: u64) -> bool {
        self.holders.get(&inode).is_some_and(|holders| !holders.is_empty())
    }

    /// The main process of those that hold one of these sockets.
    pub fn main_of(&self, inodes: &[u64]) -> Option<u32> {
        let holders = inodes.iter().filter_map(|inode| self.holders.get(inode)).flatten();
        let parent = |pid: &u32| Some((*pid, self.all.get(pid)?.ppid));
        let parents: BTreeMap<u32, u32> = holders.filter_map(parent).collect();
        main_process(&parents).map(climb)
    }

    /// A process and all its descendants. Empty when it was not seen.
    pub fn tree(&self, root: u32) -> Vec<u32> {
        let mut found = BTreeSet::new();
        let mut queue = VecDeque::from([root]);
        while let Some(pid) = queue.pop_front() {
            let Some(parent) = self.all.get(&pid).filter(|_| found.insert(pid)) else { continue };
            let younger = |child: &&u32| {
                self.all.get(child).is_some_and(|child| child.start_ticks >= parent.start_ticks)
            };
            queue.extend(self.children.get(&pid).into_iter().flatten().filter(younger));
        }
        found.into_iter().collect()
    }

    /// Reads a process and its descendants anew, those that came since included.
    pub fn refresh(&mut self, root: u32) {
        for pid in procfs::tree_of(root) {
            match sample(pid) {
                Some(seen) => self.add(pid, seen),
                None => self.remove(pid),
            }
        }
    }

    /// Whether a process still is the one that was seen: numbers are given away again.
    pub fn is_still(&self, pid: u32) -> bool {
        let name = self.all.get(&pid).map(|seen| ProcessName { pid, start_ticks: seen.start_ticks });
        name.is_some_and(ProcessName::is_alive)
    }

    /// The network namespaces, each with a process in it.
    pub fn spaces(&self) -> BTreeMap<u64, u32> {
        let mut spaces = BTreeMap::new();
        for (pid, space) in self.all.iter().filter_map(|(pid, seen)| Some((*pid, seen.space?))) {
            spaces.entry(space).or_insert(pid);
        }
        spaces
    }
}

/// Reads a process; `None` when it has ended.
fn sample(pid: u32) -> Option<ProcessSample> {
    let stat = procfs::stat(pid).ok().filter(|stat| !stat.has_ended())?;
    let (sockets, refused) = match procfs::socket_inodes(pid) {
        Ok(sockets) => (sockets, false),
        Err(error) => (vec![], error.kind() == ErrorKind::PermissionDenied),
    };
    Some(ProcessSample {
        ppid: stat.ppid,
        start_ticks: stat.start_ticks,
        space: space_of(pid),
        sockets,
        refused,
    })
}

/// The user that a process acts as: the owner of its directory (proc(5)). `None` when it ended.
pub fn user_of(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample_of(ppid: u32, start_ticks: u64, sockets: &[u64]) -> ProcessSample {
        ProcessSample { ppid, start_ticks, sockets: sockets.to_vec(), ..ProcessSample::default() }
    }

    #[test]
    fn families_are_told_by_parents_that_are_older() {
        let processes = Processes::of([
            (10, sample_of(1, 5, &[100])),
            (11, sample_of(10, 6, &[100, 101])),
            (12, sample_of(11, 7, &[])),
            // Its parent ended, and the number 10 went to another one later.
            (13, sample_of(10, 4, &[100])),
            (20, sample_of(1, 5, &[200])),
        ]);
        assert_eq!(processes.tree(10), [10, 11, 12]);
        assert_eq!((processes.tree(99), processes.main_of(&[999])), (vec![], None));
        assert_eq!((processes.main_of(&[101]), processes.main_of(&[200])), (Some(11), Some(20)));
        assert_eq!(processes.main_of(&[100]), Some(10));
        assert!(processes.is_held(101) && !processes.is_held(102));
    }

    #[test]
    fn this_machine_is_read() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = std::process::id();
        let processes = Processes::read();
        let inode = {
            use std::os::fd::AsRawFd;
            let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
            link.to_string_lossy().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
        };
        assert_eq!(processes.main_of(&[inode]), Some(own));
        assert!(processes.is_still(own) && !processes.is_still(u32::MAX));
        let space = processes.get(own).unwrap().space.unwrap();
        assert!(processes.spaces().contains_key(&space));
        assert_eq!(user_of(own), Some(rustix::process::geteuid().as_raw()));
    }

    proptest! {
        // Whatever parents are told, rings included: the walk ends, and is of what was seen.
        #[test]
        fn any_family_ends(parents in prop::collection::btree_map(1u32..30, (0u32..30, 0u64..5), 0..30)) {
            let processes = Processes::of(parents.iter().map(|(pid, (ppid, start))| (*pid, sample_of(*ppid, *start, &[7]))));
            for pid in 0..30 {
                prop_assert!(processes.tree(pid).iter().all(|pid| parents.contains_key(pid)));
            }
            prop_assert_eq!(processes.main_of(&[7]).is_some(), !parents.is_empty());
        }
    }
}

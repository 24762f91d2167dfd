//! Whether a session's location is here, can be entered, or neither; pure, over what is seen of the machine.

use crate::change::seams::helper::Entrance;
use crate::change::seams::session_location::SessionLocation;
use std::collections::BTreeMap;
use webdyno_model::service::FileId;

/// The pid namespace that the kernel begins with (include/linux/proc_ns.h): it lasts as long as the boot.
const INITIAL_PIDS: u64 = 4_026_531_836;

/// What a session's location is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationMatch {
    /// We are there.
    Here,
    /// Its files are here; the network that its service ran in is gone, and so is the service.
    FilesOnly,
    /// It can be entered.
    There(Box<Entrance>),
    /// It cannot be reached from here: which part of it, in words.
    Unreachable(&'static str),
}

/// What can be seen of the machine.
pub trait MachineView {
    /// The living processes that were there before the session began, and those of its services.
    fn old_processes(&self) -> &[u32];
    /// A namespace of a process; `None` when it may not be seen.
    fn namespace(&self, pid: u32, name: &str) -> Option<FileId>;
    /// The directories of [`SessionLocation::directories`], as a process sees them.
    fn directories(&self, pid: u32) -> BTreeMap<String, FileId>;
    /// The file, directory or namespace that a path of ours leads to.
    fn file(&self, path: &str) -> Option<FileId>;
    /// Whether we may look into the processes of others.
    fn has_full_view(&self) -> bool;
}

/// Decides for a session that was at work `then`, when we are `now`. `folders` are those that it wrote to, as they were.
pub fn location_match(
    then: &SessionLocation,
    now: &SessionLocation,
    same_boot: bool,
    folders: &[(String, FileId)],
    sight: &dyn MachineView,
) -> LocationMatch {
    let question = Comparison { then, now, same_boot, folders, sight };
    question.processes_and_files().unwrap_or_else(|| question.network())
}

struct Comparison<'a> {
    then: &'a SessionLocation,
    now: &'a SessionLocation,
    same_boot: bool,
    folders: &'a [(String, FileId)],
    sight: &'a dyn MachineView,
}

impl Comparison<'_> {
    fn is_same(&self, name: &str) -> bool {
        let pair = self.then.namespace(name).zip(self.now.namespace(name));
        pair.is_none_or(|(then, now)| then == now)
    }

    /// Whether process 1 had and has it: it is the machine's own, or the container's.
    fn are_with_first(&self, names: &[&str]) -> bool {
        let has = |location: &SessionLocation, name: &str| location.with_first_process.contains(name);
        names.iter().all(|name| has(self.then, name) && has(self.now, name))
    }

    /// Whether process ids mean the same as then.
    fn is_same_life(&self) -> bool {
        self.same_boot && self.is_same("pid") && self.then.first_process == self.now.first_process
    }

    fn old_process(&self, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.sight.old_processes().iter().copied().find(|pid| is_meant(*pid))
    }

    fn is_in(&self, pid: u32, name: &str) -> bool {
        let wanted = self.then.namespace(name);
        wanted.is_some() && self.sight.namespace(pid, name) == wanted
    }

    /// Whether paths mean the files that they meant.
    fn has_the_files(&self) -> bool {
        let (then, now) = (&self.then.directories, &self.now.directories);
        let inodes = |all: &BTreeMap<String, FileId>| all.values().map(|file| file.inode).collect::<Vec<_>>();
        let is_root_of_journal = self.then.root_of_journal.is_some()
            && self.then.root_of_journal == self.now.root_of_journal
            && self.then.state == self.now.state;
        let has_inodes = then.len() == now.len() && inodes(then) == inodes(now);
        match self.same_boot {
            true if then == now => self.is_same("mnt") || self.has_the_folders(),
            // A container that was started anew: its disk is mounted again, with another number.
            true => has_inodes && is_root_of_journal,
            false => has_inodes || self.is_same_machine(),
        }
    }

    /// A part of one root may be covered in a mount namespace.
    fn has_the_folders(&self) -> bool {
        self.folders.iter().all(|(path, then)| self.sight.file(path).is_none_or(|now| now == *then))
    }

    /// After a boot: whether both are the machine itself, whose disks may have other numbers by now. One container is not
    /// another one.
    fn is_same_machine(&self) -> bool {
        self.are_with_first(&["mnt", "root", "pid"])
            && has_initial_pids(self.then)
            && has_initial_pids(self.now)
    }

    /// Says where its processes and files are when that is not here; `None` when it is.
    fn processes_and_files(&self) -> Option<LocationMatch> {
        let has_files = self.has_the_files();
        if !self.same_boot {
            return (!has_files).then_some(LocationMatch::Unreachable("its files are those of another root"));
        }
        let is_initial = self.then.namespace("pid").is_some_and(|pids| pids.inode == INITIAL_PIDS);
        let pids_are_gone =
            has_files && !is_initial && self.old_process(|pid| self.is_in(pid, "pid")).is_none();
        if has_files && (self.is_same_life() || pids_are_gone) && self.is_same("user") {
            return None;
        }
        // Where only a folder is covered, the directories are the same everywhere.
        let is_other_root = self.then.directories != self.now.directories;
        let is_there = |pid: u32| {
            let has_root = self.sight.directories(pid) == self.then.directories;
            has_root
                && self.is_in(pid, "pid")
                && self.is_in(pid, "user")
                && (is_other_root || self.is_in(pid, "mnt"))
        };
        Some(match self.old_process(is_there) {
            Some(pid) => self.enter(Some(pid)),
            None if !has_files => LocationMatch::Unreachable("its files are those of another root"),
            None => LocationMatch::Unreachable("its processes are those of another pid or user namespace"),
        })
    }

    /// Where its network is, when all else is here.
    fn network(&self) -> LocationMatch {
        if self.then.namespace("net").is_none() {
            return LocationMatch::Here;
        }
        let is_proved = || {
            self.is_same_life() && self.are_with_first(&["net"])
                || self.named_network() == self.then.namespace("net")
                || self.old_process(|pid| self.is_in(pid, "net")).is_some()
                // Who may not look into other processes cannot be in another network than his own either.
                || !self.sight.has_full_view()
        };
        if self.same_boot && self.is_same("net") && is_proved() {
            return LocationMatch::Here;
        }
        if self.same_boot && self.network_path().is_some() {
            return self.enter(None);
        }
        // After a boot, who may not look at process 1 has the number alone: that of the first network is the same in each.
        let is_unseen = [self.then, self.now].iter().all(|location| location.with_first_process.is_empty());
        let has_number = !self.same_boot && is_unseen && self.is_same("net");
        if !self.is_same_life() && (self.are_with_first(&["net"]) || has_number) {
            return LocationMatch::Here;
        }
        // The one that has its name now.
        match self.named_network() {
            Some(named) if Some(named) == self.now.namespace("net") => LocationMatch::Here,
            Some(_) => self.enter(None),
            None if self.same_boot && !self.sight.has_full_view() => {
                LocationMatch::Unreachable("its network is another namespace")
            }
            None => LocationMatch::FilesOnly,
        }
    }

    /// The namespace that has the name of the session's network; `None` when there is none, or it had no name.
    fn named_network(&self) -> Option<FileId> {
        let named = self.sight.file(self.then.network_file.as_deref()?)?;
        // Without the namespace on it there is a file of its own.
        let device = self.then.namespace("net")?.device;
        (named.device == device).then_some(named)
    }

    /// The session's own network as a file: through a process in it, or by its name.
    fn network_path(&self) -> Option<String> {
        let process = self.old_process(|pid| self.is_in(pid, "net"));
        let by_name = || self.named_network().filter(|named| Some(*named) == self.then.namespace("net"));
        match process {
            Some(pid) => Some(format!("/proc/{pid}/ns/net")),
            None => by_name().and(self.then.network_file.clone()),
        }
    }

    fn enter(&self, process: Option<u32>) -> LocationMatch {
        let through_it =
            process.filter(|pid| self.is_in(*pid, "net")).map(|pid| format!("/proc/{pid}/ns/net"));
        let named = || self.named_network().and(self.then.network_file.clone());
        let path = through_it.or_else(|| self.network_path()).or_else(named);
        let found = path.and_then(|path| Some((self.sight.file(&path)?, path)));
        let network = found.filter(|(id, _)| self.now.namespace("net") != Some(*id));
        let expected = network.as_ref().map(|(id, _)| *id);
        LocationMatch::There(Box::new(Entrance {
            process: process.and_then(|pid| Some((pid, self.sight.namespace(pid, "pid")?))),
            network: network.map(|(_, path)| path).zip(expected),
            state: self.then.state.clone(),
        }))
    }
}

/// Whether its pid namespace is the first one of the kernel.
fn has_initial_pids(location: &SessionLocation) -> bool {
    location.namespace("pid").is_some_and(|pids| pids.inode == INITIAL_PIDS)
}

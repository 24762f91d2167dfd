//! The groups of one scenario as they really are: made, limited, emptied, removed.

mod group;

pub use group::write_all;

use super::{
    FOLDER, Hierarchy, HostLimits, builder_group, host_group, parse_hierarchies, process_group,
    scenario_group, service_group,
};
use crate::journal::Act;
use group::{kill, make_group, pids_below, raise_cpu_weight, remove_tree};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// How long processes that were killed may take to go.
const EMPTY_WAIT: Duration = Duration::from_secs(5);

/// How long, and at least how often, it is tried to make groups that somebody else removes: one try may take longer than
/// that where the machine is busy.
const MAKE_WAIT: Duration = Duration::from_millis(500);
const MAKE_TRIES_MIN: usize = 100;

/// The limits that services have of their own.
const OF_SERVICES: [&str; 3] = ["cpu", "memory", "pids"];

/// The control groups of one scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTree {
    /// Where groups are.
    pub hierarchies: Vec<Hierarchy>,
    name: String,
}

impl GroupTree {
    /// Those of this machine.
    pub fn of_machine(name: &str) -> Result<Self> {
        let path = "/proc/self/mountinfo";
        let mounts = std::fs::read_to_string(path).map_err(|error| io_error("read", path, &error))?;
        let controllers =
            |top: &Path| std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
        Ok(Self::of(parse_hierarchies(&mounts, controllers), name))
    }

    /// Given ones.
    pub fn of(hierarchies: Vec<Hierarchy>, name: &str) -> Self {
        Self { hierarchies, name: name.to_owned() }
    }

    /// An error when a limit cannot be set here.
    pub fn check(&self, controllers: &BTreeSet<&str>) -> Result<()> {
        if self.hierarchies.is_empty() {
            return Err(UserError::cannot_run("no control groups are mounted")
                .hint("mount -t cgroup2 none /sys/fs/cgroup"));
        }
        let has = |controller: &str| {
            let also = if controller == "io" { "blkio" } else { controller };
            self.hierarchies.iter().any(|one| one.has(controller) || one.has(also))
        };
        match controllers.iter().find(|controller| !has(controller)) {
            Some(lacking) => Err(UserError::cannot_run(format!(
                "the control groups of this machine have no `{lacking}`, which a limit of this scenario needs"
            ))
            .hint("/proc/cgroups lists the kernel's controllers; `enabled` must be 1, and one hierarchy must have it")),
            None => Ok(()),
        }
    }

    /// The group that building programs run in: in one hierarchy, which suffices to find them.
    fn builders(&self) -> Option<(&Hierarchy, String)> {
        let simple = |one: &&Hierarchy| one.unified || !one.has("cpuset");
        let hierarchy = self
            .hierarchies
            .iter()
            .find(|one| one.unified)
            .or_else(|| self.hierarchies.iter().find(simple))?;
        Some((hierarchy, builder_group(&self.name)))
    }

    /// The folder of that group.
    pub fn builders_folder(&self) -> Option<PathBuf> {
        self.builders().map(|(hierarchy, group)| hierarchy.top.join(group))
    }

    /// Makes the groups of the scenario itself. Whoever removes the last one meanwhile takes the folder of all with it: then
    /// it is made again.
    pub fn make(
        &self,
        controllers: &BTreeSet<&str>,
        progress: &mut impl FnMut(&Act) -> Result<()>,
    ) -> Result<()> {
        let until = Instant::now() + MAKE_WAIT;
        let mut tries = 0;
        loop {
            tries += 1;
            let made = self.make_once(controllers, progress);
            let is_gone = || self.tops().iter().any(|top| !top.exists());
            let is_tried = tries >= MAKE_TRIES_MIN && Instant::now() > until;
            if made.is_ok() || !is_gone() || is_tried {
                return made;
            }
        }
    }

    fn make_once(
        &self,
        controllers: &BTreeSet<&str>,
        progress: &mut impl FnMut(&Act) -> Result<()>,
    ) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let of_this = needed_controllers(hierarchy, controllers);
            make_group(hierarchy, FOLDER, &of_this, progress)?;
            raise_cpu_weight(hierarchy)?;
            make_group(hierarchy, &scenario_group(&self.name), &of_this, progress)?;
        }
        match self.builders() {
            Some((hierarchy, group)) => make_group(hierarchy, &group, &[], progress),
            None => Ok(()),
        }
    }

    /// Makes those of a host; `services` are the numbers of its services with limits of their own, with these.
    pub fn make_host(
        &self,
        host: &str,
        controllers: &BTreeSet<&str>,
        services: &[(usize, HostLimits)],
        progress: &mut impl FnMut(&Act) -> Result<()>,
    ) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let group = host_group(&self.name, host);
            make_group(hierarchy, &group, &needed_controllers(hierarchy, controllers), progress)?;
            let of_services = needed_controllers(
                hierarchy,
                &OF_SERVICES.into_iter().filter(|name| controllers.contains(name)).collect(),
            );
            let processes = process_group(hierarchy, &self.name, host, !services.is_empty());
            if processes != group {
                make_group(hierarchy, &processes, &of_services, progress)?;
            }
            for (index, limits) in services {
                if self.has_service_group(hierarchy) {
                    let group = service_group(&self.name, host, *index);
                    make_group(hierarchy, &group, &of_services, progress)?;
                    write_all(&limits.writes(hierarchy, &group))?;
                }
            }
        }
        Ok(())
    }

    fn has_service_group(&self, hierarchy: &Hierarchy) -> bool {
        hierarchy.unified || OF_SERVICES.iter().any(|name| hierarchy.has(name))
    }

    /// Writes the limits of a host.
    pub fn limit(&self, host: &str, limits: &HostLimits) -> Result<()> {
        let group = host_group(&self.name, host);
        self.hierarchies.iter().try_for_each(|hierarchy| write_all(&limits.writes(hierarchy, &group)))
    }

    /// The folders that a process of a host joins, or of a service with limits of its own.
    pub fn folders(&self, host: &str, has_services: bool, service: Option<usize>) -> Vec<PathBuf> {
        let group = |hierarchy: &Hierarchy| match service {
            Some(index) if self.has_service_group(hierarchy) => service_group(&self.name, host, index),
            _ => process_group(hierarchy, &self.name, host, has_services),
        };
        self.hierarchies.iter().map(|hierarchy| hierarchy.top.join(group(hierarchy))).collect()
    }

    /// The tops of all groups of the scenario.
    fn tops(&self) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|one| one.top.join(scenario_group(&self.name))).collect()
    }

    /// All processes in them.
    pub fn pids(&self) -> BTreeSet<i32> {
        self.tops().iter().flat_map(|top| pids_below(top)).collect()
    }

    /// Kills all processes of a host.
    pub fn kill_host(&self, host: &str) {
        let group = host_group(&self.name, host);
        kill(&self.hierarchies.iter().flat_map(|one| pids_below(&one.top.join(&group))).collect());
    }

    /// The folder that they have their files from, if that is still there and is not `own`: then the scenario was built
    /// with another state directory. Paths in mountinfo begin at the top of a file system, wherever that is mounted: they
    /// are shown, and do not tell which folder is which.
    pub fn foreign_root(&self, own: &Path) -> Option<PathBuf> {
        let pids = self.pids();
        let ours = files_of_hosts(own);
        let has_ours = |pid: &i32| {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            PRESENT
                .iter()
                .filter_map(|file| device_and_inode(&root.join(file)))
                .any(|observed| ours.contains(&observed))
        };
        if pids.iter().any(has_ours) { None } else { self.folder_of(&pids) }
    }

    /// The folder that processes have their files from, as it is shown.
    fn folder_of(&self, pids: &BTreeSet<i32>) -> Option<PathBuf> {
        let mark = format!("/lab/{}/hosts/", self.name);
        let folder = |pid: &i32| {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
            mounts.lines().find_map(|line| source_up_to(line, &mark))
        };
        pids.iter().find_map(folder)
    }

    /// The folders of all scenarios but this one that run on this machine, whatever their state directory is.
    pub fn others(&self) -> Vec<PathBuf> {
        let all = self.hierarchies.iter().filter_map(|one| std::fs::read_dir(one.top.join(FOLDER)).ok());
        let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let names = all
            .flatten()
            .flatten()
            .filter(is_folder)
            .filter_map(|entry| entry.file_name().into_string().ok());
        let names: BTreeSet<String> = names.filter(|name| *name != self.name).collect();
        let folder = |name: &String| {
            let other = Self::of(self.hierarchies.clone(), name);
            other.folder_of(&other.pids())
        };
        names.iter().filter_map(folder).collect()
    }

    /// Whether any of them is there.
    pub fn exists(&self) -> bool {
        self.tops().iter().any(|top| top.exists())
    }

    /// Kills everything in them and removes them, as well as the folder above if nobody else has groups in it. An error
    /// when something does not end.
    pub fn remove(&self) -> Result<()> {
        let until = Instant::now() + EMPTY_WAIT;
        loop {
            let pids = self.pids();
            kill(&pids);
            let left: Vec<(PathBuf, io::Error)> =
                self.tops().iter().filter_map(|top| remove_tree(top).err()).collect();
            match left.first() {
                None => break,
                Some((path, error)) if Instant::now() > until => {
                    let displayed = path.display();
                    let text = match pids.first() {
                        Some(pid) => format!("process {pid} in {displayed} was killed and does not end"),
                        None => io_error("remove", displayed, error).message,
                    };
                    return Err(UserError::cannot_run(text).hint(
                        "`ps -o pid,stat,wchan:30,args` shows what it waits for; repeat the command then",
                    ));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        for hierarchy in &self.hierarchies {
            let _ = std::fs::remove_dir(hierarchy.top.join(FOLDER));
        }
        Ok(())
    }
}

/// What of a host's own files is seen in its place: of the clients' host only the names.
const PRESENT: [&str; 2] = ["etc", "etc/hosts"];

/// Which files of hosts are in the folder of a scenario.
fn files_of_hosts(own: &Path) -> BTreeSet<(u64, u64)> {
    let hosts = std::fs::read_dir(own.join("hosts")).into_iter().flatten().flatten();
    hosts.flat_map(|host| PRESENT.map(|file| device_and_inode(&host.path().join(file)))).flatten().collect()
}

/// Device and number of a file, whatever leads to it.
fn device_and_inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The part of a line of mountinfo's source up to a mark, with the mark's own folder; `None` where it was removed.
fn source_up_to(line: &str, mark: &str) -> Option<PathBuf> {
    let source = super::unescaped(line.split(' ').nth(3)?);
    let (before, _) = source.split_once(mark).filter(|_| !source.ends_with("//deleted"))?;
    Some(Path::new(before).join(mark.trim_start_matches('/').trim_end_matches("/hosts/")))
}

/// The controllers of a hierarchy of version 2 that groups need.
fn needed_controllers(hierarchy: &Hierarchy, controllers: &BTreeSet<&str>) -> Vec<String> {
    let is_wanted = |own: &&String| hierarchy.unified && controllers.contains(own.as_str());
    hierarchy.controllers.iter().filter(is_wanted).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with version 2 alone: folders as the kernel has them.
    fn fake(top: &Path) -> GroupTree {
        std::fs::write(top.join("cgroup.subtree_control"), "cpu pids\n").unwrap();
        let mounts = format!("29 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", top.display());
        GroupTree::of(parse_hierarchies(&mounts, |_| "cpuset cpu io memory pids".into()), "x")
    }

    #[test]
    fn version_2_has_its_controllers_enabled_from_the_top_down() {
        let top = tempfile::tempdir().unwrap();
        let tree = fake(top.path());
        let mut acts = vec![];
        let mut progress = |act: &Act| -> Result<()> {
            acts.push(act.clone());
            Ok(())
        };
        let controllers = BTreeSet::from(["cpu", "memory", "pids"]);
        let own = HostLimits { processes: Some(30), cpus: Some(0.25), ..HostLimits::default() };
        tree.check(&controllers).unwrap();
        tree.make(&controllers, &mut progress).unwrap();
        tree.make_host("server", &controllers, &[(1, own)], &mut progress).unwrap();
        tree.limit("server", &HostLimits { memory_bytes: Some(4096), ..HostLimits::default() }).unwrap();
        let read = |path: &str| std::fs::read_to_string(top.path().join(path)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+memory\n");
        assert_eq!(read("webdyno-lab/cgroup.subtree_control"), "+cpu +memory +pids\n");
        assert_eq!(read("webdyno-lab/x/cgroup.subtree_control"), "+cpu +memory +pids\n");
        assert_eq!(read("webdyno-lab/x/server/cgroup.subtree_control"), "+cpu +memory +pids\n");
        assert_eq!(read("webdyno-lab/x/server/service-1/pids.max"), "30\n");
        assert_eq!(read("webdyno-lab/x/server/service-1/cpu.max"), "25000 100000\n");
        assert_eq!(read("webdyno-lab/x/server/memory.max"), "4096\n");
        assert_eq!(
            tree.folders("server", true, None),
            [top.path().join("webdyno-lab/x/server/main")],
            "no process stands beside a group with controllers"
        );
        assert_eq!(
            tree.folders("server", true, Some(1)),
            [top.path().join("webdyno-lab/x/server/service-1")]
        );
        let path = top.path().join("cgroup.subtree_control");
        assert_eq!(acts[0], Act::Controllers { path, added: "memory".into() });
        assert!(acts[1..].iter().all(|act| matches!(act, Act::Group { .. })), "{acts:?}");
    }

    #[test]
    fn whoever_removes_the_last_scenario_does_not_end_one_that_begins() {
        let top = tempfile::tempdir().unwrap();
        let folders = ["1", "2", "3"].map(|name| top.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let of = |folder: &PathBuf| Hierarchy {
            top: folder.clone(),
            unified: false,
            controllers: vec!["pids".into()],
        };
        let tree = GroupTree::of(folders.iter().map(of).collect(), "x");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let remove = || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                folders.iter().for_each(|folder| drop(std::fs::remove_dir(folder.join(FOLDER))));
                // Without a pause nobody else would ever get between two of them on a busy machine.
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(remove);
            let make = |_| {
                let made = tree.make(&BTreeSet::new(), &mut |_| Ok(()));
                let all = tree.tops().iter().all(|top| top.is_dir());
                tree.remove().unwrap();
                made.map(|()| all)
            };
            let made: Vec<_> = (0..300).map(make).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(made.iter().all(|made| *made == Ok(true)), "{made:?}");
        });
    }

    #[test]
    fn a_limit_that_the_kernel_does_not_know_is_told_before_anything_is_made() {
        let top = tempfile::tempdir().unwrap();
        let mut tree = fake(top.path());
        tree.hierarchies[0].controllers.retain(|name| name != "memory");
        let reported = tree.check(&BTreeSet::from(["memory"])).unwrap_err();
        assert!(reported.message.contains("no `memory`"), "{reported}");
        assert!(GroupTree::of(vec![], "x").check(&BTreeSet::new()).is_err());
    }

    #[test]
    fn files_of_a_host_tell_where_it_was_built() {
        let line = |source: &str| format!("156 129 254:0 {source} /etc rw,relatime - ext4 /dev/vda rw");
        let found = |source: &str| source_up_to(&line(source), "/lab/x/hosts/");
        assert_eq!(
            found("/var/lib/web\\040dyno/lab/x/hosts/server/etc"),
            Some("/var/lib/web dyno/lab/x".into())
        );
        assert_eq!(found("/webdyno/lab/x/hosts/server/etc"), Some("/webdyno/lab/x".into()));
        assert_eq!(found("/var/lib/webdyno/lab/x/hosts/server/etc//deleted"), None);
        assert_eq!(found("/var/lib/webdyno/lab/y/hosts/server/etc"), None);
        assert_eq!(found("/"), None);
    }

    #[test]
    fn hosts_do_not_wait_for_the_programs_of_the_machine() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join(FOLDER)).unwrap();
        let shares = top.path().join(FOLDER).join("cpu.shares");
        std::fs::write(&shares, "1024\n").unwrap();
        let mounts = format!("29 1 0:26 / {} rw - cgroup cgroup rw,cpu\n", top.path().display());
        let tree = GroupTree::of(parse_hierarchies(&mounts, |_| String::new()), "x");
        tree.make(&BTreeSet::new(), &mut |_| Ok(())).unwrap();
        assert_eq!(std::fs::read_to_string(shares).unwrap(), "4096\n");
    }

    #[test]
    fn groups_of_another_scenario_stay() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("webdyno-lab/other")).unwrap();
        std::fs::create_dir_all(top.path().join("webdyno-lab/x/server/main")).unwrap();
        let tree = fake(top.path());
        assert!(tree.exists());
        tree.remove().unwrap();
        assert!(!tree.exists());
        assert!(top.path().join("webdyno-lab/other").is_dir());
    }
}

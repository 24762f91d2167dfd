//! The control group of a process, found without guessing: its path in each hierarchy (`/proc/PID/cgroup`) put onto
//! the place where that hierarchy is mounted (`/proc/self/mountinfo`).
//!
//! Facts: cgroups(7), proc_pid_mountinfo(5), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. In a
//! container the mount shows a part of the hierarchy only (its root field), and paths outside of the reader's own
//! cgroup namespace start with `/..`: they cannot be reached, and the group counts as unknown. What is only read may be
//! reached through process 1 all the same (proc_pid_root(5)).

use crate::os::procfs;
use std::io;
use std::path::{Path, PathBuf};

/// From here on a limit of bytes of version 1 means none: it shows the highest number of whole pages.
pub const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The most levels of a hierarchy that are climbed.
const LEVELS_MAX: usize = 64;

/// Where a process is in a hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The directory of the group.
    pub directory: PathBuf,
    /// Where its hierarchy is mounted.
    pub mount: PathBuf,
}

impl Group {
    /// The group and those above it, up to the mount.
    pub fn levels(&self) -> impl Iterator<Item = &Path> {
        let within = |path: &&Path| path.starts_with(&self.mount);
        self.directory.ancestors().take_while(within).take(LEVELS_MAX)
    }

    /// Whether it is the machine itself: the top of the hierarchy. In a container the top of what is mounted is the
    /// container's own group: in the unified hierarchy it has a file that the machine's top has not.
    pub fn is_machine(&self) -> bool {
        self.is_root() && !self.directory.join("cgroup.type").exists()
    }

    /// Whether it is the whole hierarchy, as far as it is mounted here.
    pub fn is_root(&self) -> bool {
        self.directory == self.mount
    }
}

/// A controller of version 1 that has a hierarchy of its own, or shares one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Quota and throttling.
    Cpu,
    /// Used processor time.
    Cpuacct,
    /// Memory and swap.
    Memory,
    /// Processes and threads.
    Pids,
    /// Which processors are used.
    Cpuset,
}

impl Controller {
    /// As it stands in `/proc/PID/cgroup`, in the options of its mount, and in the names of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpuset => "cpuset",
        }
    }
}

/// The groups of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the unified hierarchy (version 2).
    pub unified: Option<Group>,
    /// In the hierarchy of the memory controller (version 1).
    pub memory_v1: Option<Group>,
    /// In the hierarchies of the other controllers (version 1).
    others_v1: [Option<Group>; 4],
}

impl Groups {
    /// The group in the hierarchy of a controller of version 1. A hierarchy of version 1 that has a controller takes it
    /// from the unified one.
    pub fn v1(&self, controller: Controller) -> Option<&Group> {
        let [cpu, cpuacct, pids, cpuset] = &self.others_v1;
        match controller {
            Controller::Cpu => cpu.as_ref(),
            Controller::Cpuacct => cpuacct.as_ref(),
            Controller::Memory => self.memory_v1.as_ref(),
            Controller::Pids => pids.as_ref(),
            Controller::Cpuset => cpuset.as_ref(),
        }
    }

    /// The group in which a controller acts on the process, in whichever version.
    pub fn of_controller(&self, controller: Controller) -> Option<&Group> {
        self.v1(controller).or(self.unified.as_ref())
    }
}

/// The processes in a group; those that ended meanwhile may be among them.
pub fn members(directory: &Path) -> Vec<u32> {
    let text = procfs::read_text(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The processes in a group and in those below it.
pub fn all_members(directory: &Path) -> Vec<u32> {
    members_within(directory, LEVELS_MAX)
}

fn members_within(directory: &Path, levels: usize) -> Vec<u32> {
    let mut found = members(directory);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| levels > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()));
    found.extend(below.flat_map(|entry| members_within(&entry.path(), levels - 1)));
    found
}

/// The groups of a process. An error when it ended.
pub fn of(pid: u32) -> io::Result<Groups> {
    let membership = procfs::read_text(format!("/proc/{pid}/cgroup"))?;
    let mounts = procfs::read_text("/proc/self/mountinfo")?;
    Ok(locate(&membership, &mounts))
}

/// Process 1, which has the machine's mounts where it is the machine's.
const FIRST_MOUNTS: &str = "/proc/1/mountinfo";
const FIRST_ROOT: &str = "/proc/1/root";

/// The groups as they can be read: where none is mounted here (below `ip netns exec`, in a container that sees the machine's
/// processes), by the mounts of process 1, if these may be seen.
fn readable(membership: &str) -> io::Result<Groups> {
    let groups = locate(membership, &procfs::read_text("/proc/self/mountinfo")?);
    let is_known = groups != Groups::default();
    Ok(if is_known { groups } else { of_first(membership).unwrap_or_default() })
}

fn of_first(membership: &str) -> Option<Groups> {
    let mounts = procfs::read_text(FIRST_MOUNTS).ok()?;
    std::fs::read_dir(FIRST_ROOT).ok()?;
    Some(locate_below(Path::new(FIRST_ROOT), membership, &mounts))
}

/// Finds the groups of a process again and again, to read them. The list of mounts is long where containers run, and is read
/// again only now and then.
#[derive(Debug, Default)]
pub struct Finder {
    membership: String,
    groups: Groups,
    checks_count: u64,
}

impl Finder {
    /// So many look-ups are answered from one reading of the mounts.
    const CHECKS_PER_READING: u64 = 60;

    /// The groups of a process. An error when it ended.
    pub fn of(&mut self, pid: u32) -> io::Result<&Groups> {
        let membership = procfs::read_text(format!("/proc/{pid}/cgroup"))?;
        if self.checks_count.is_multiple_of(Self::CHECKS_PER_READING) || membership != self.membership {
            self.groups = readable(&membership)?;
            self.membership = membership;
        }
        self.checks_count += 1;
        Ok(&self.groups)
    }
}

/// Puts the paths of `/proc/PID/cgroup` onto the mounts of `/proc/self/mountinfo`.
pub fn locate(membership: &str, mountinfo: &str) -> Groups {
    locate_below(Path::new("/"), membership, mountinfo)
}

/// The same of mounts that are seen below another root.
fn locate_below(root: &Path, membership: &str, mountinfo: &str) -> Groups {
    let mounts: Vec<Mount> =
        mountinfo.lines().filter_map(parse_mount).map(|mount| mount.below(root)).collect();
    let find = |wanted: Hierarchy| {
        let path = membership.lines().find_map(|line| membership_path(line, wanted))?;
        mounts.iter().filter(|mount| mount.is_of(wanted)).find_map(|mount| mount.place(path))
    };
    let others = [Controller::Cpu, Controller::Cpuacct, Controller::Pids, Controller::Cpuset];
    Groups {
        unified: find(Hierarchy::Unified),
        memory_v1: find(Hierarchy::Of(Controller::Memory)),
        others_v1: others.map(|controller| find(Hierarchy::Of(controller))),
    }
}

/// The command that writes files of the service's group and of each group above it, from the inside: `v1` in the
/// hierarchy of the controller where that is of version 1, else `v2`. A level without a file writes nothing for it.
pub fn repro_command(controller: Controller, v1: &str, v2: &str) -> String {
    let name = controller.name();
    format!(
        "g=$(sed -nE 's/^[1-9][0-9]*:([^:]*,)?{name}(,[^:]*)?://p' /proc/PID/cgroup); f='{v1}'; \
         m=$(awk '$3==\"cgroup\" && $4~/(^|,){name}(,|$)/ {{print $2; exit}}' /proc/mounts); \
         [ \"$m\" ] || {{ g=$(sed -n 's/^0:://p' /proc/PID/cgroup); f='{v2}'; \
         m=$(awk '$3==\"cgroup2\" {{print $2; exit}}' /proc/mounts); }}; d=$m${{g%/}}; \
         while :; do for x in $f; do cat $d/$x 2>/dev/null; done; [ ${{#d}} -le ${{#m}} ] && break; d=${{d%/*}}; done"
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    Unified,
    Of(Controller),
}

#[derive(Debug)]
struct Mount<'a> {
    /// The options of a hierarchy of version 1, which hold its controllers; `None` for the unified one.
    options: Option<&'a str>,
    /// Which part of the hierarchy is mounted.
    root: PathBuf,
    point: PathBuf,
}

impl Mount<'_> {
    fn is_of(&self, wanted: Hierarchy) -> bool {
        match (wanted, self.options) {
            (Hierarchy::Unified, options) => options.is_none(),
            (Hierarchy::Of(_), None) => false,
            (Hierarchy::Of(controller), Some(options)) => {
                options.split(',').any(|option| option == controller.name())
            }
        }
    }

    fn below(self, root: &Path) -> Self {
        let point = root.join(self.point.strip_prefix("/").unwrap_or(&self.point));
        Self { point, ..self }
    }

    fn place(&self, path: &str) -> Option<Group> {
        let relative = Path::new(path).strip_prefix(&self.root).ok()?;
        let climbs = relative.components().any(|part| part == std::path::Component::ParentDir);
        let directory = self.point.join(relative);
        (!climbs).then(|| Group { directory: directory.components().collect(), mount: self.point.clone() })
    }
}

/// The path in a line `9:memory:/a/b` or `0::/a/b`, if it is of the wanted hierarchy.
fn membership_path(line: &str, wanted: Hierarchy) -> Option<&str> {
    let (id, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let is = match wanted {
        Hierarchy::Unified => id == "0" && controllers.is_empty(),
        Hierarchy::Of(wanted) => controllers.split(',').any(|controller| controller == wanted.name()),
    };
    is.then_some(path)
}

/// A line of mountinfo: `id parent device root point options.. - type source super-options`.
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let options = match right.next()? {
        "cgroup2" => None,
        "cgroup" => Some(right.nth(1)?),
        _ => return None,
    };
    Some(Mount { options, root: unescape(root).into(), point: unescape(point).into() })
}

/// Blanks in paths of mountinfo are written as octal escapes.
pub fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const CONTAINER: &str = "9 8 0:2 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    fn check(membership: &str, mounts: &str, unified: Option<&str>, memory_v1: Option<&str>) {
        let groups = locate(membership, mounts);
        let shown = |group: &Option<Group>| group.as_ref().map(|group| group.directory.display().to_string());
        assert_eq!(shown(&groups.unified).as_deref(), unified, "{membership}");
        assert_eq!(shown(&groups.memory_v1).as_deref(), memory_v1, "{membership}");
    }

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let web = Some("/sys/fs/cgroup/system.slice/apache2.service");
        check("0::/system.slice/apache2.service\n", UNIFIED, web, None);
        let memory = Some("/sys/fs/cgroup/memory/web");
        check("9:cpu,memory:/web\n0::/\n", HYBRID, Some("/sys/fs/cgroup/unified"), memory);
        check("9:memory:/docker/abc/x\n", CONTAINER, None, Some("/sys/fs/cgroup/memory/x"));
        // Out of reach: another container's group, and one above our own namespace.
        check("9:memory:/docker/other\n", CONTAINER, None, None);
        check("0::/../other\n", UNIFIED, None, None);
        check("", UNIFIED, None, None);
    }

    #[test]
    fn controllers_of_version_1_share_hierarchies() {
        let mounts = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
";
        let groups = locate("4:cpu,cpuacct:/web\n3:cpuset:/\n2:pids:/web\n1:name=systemd:/web\n", mounts);
        let shown = |controller| groups.v1(controller).map(|group| group.directory.display().to_string());
        for (controller, expected) in [
            (Controller::Cpu, Some("/sys/fs/cgroup/cpu,cpuacct/web")),
            (Controller::Cpuacct, Some("/sys/fs/cgroup/cpu,cpuacct/web")),
            (Controller::Cpuset, Some("/sys/fs/cgroup/cpuset")),
            // Not mounted here.
            (Controller::Pids, None),
            (Controller::Memory, None),
        ] {
            assert_eq!(shown(controller).as_deref(), expected, "{controller:?}");
        }
        assert_eq!(groups.unified, None);
    }

    // As an agent below `ip netns exec`, and one in a container with the machine's processes, sees the machine's hierarchy.
    #[test]
    fn what_is_not_mounted_here_is_found_through_process_1() {
        let outside = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (membership, mounts, expected) in [
            ("0::/web\n", UNIFIED, Some("/proc/1/root/sys/fs/cgroup/web")),
            ("0::/../../web\n", outside, Some("/proc/1/root/sys/fs/cgroup/web")),
            ("0::/../other\n", UNIFIED, None),
        ] {
            let group = locate_below(Path::new(FIRST_ROOT), membership, mounts).unified;
            assert_eq!(group.as_ref().and_then(|group| group.directory.to_str()), expected, "{membership}");
            let mount = group.map(|group| group.mount);
            assert!(mount.is_none_or(|mount| mount == Path::new("/proc/1/root/sys/fs/cgroup")));
        }
    }

    #[test]
    fn a_finder_says_what_one_look_does() {
        let mut finder = Finder::default();
        let own = of(std::process::id()).unwrap();
        for _ in 0..2 {
            let found = finder.of(std::process::id()).unwrap();
            assert!(*found == own || own == Groups::default(), "{found:?}");
        }
        assert!(finder.of(u32::MAX).is_err());
    }

    #[test]
    fn levels_end_at_the_mount() {
        let group = locate("0::/a/b\n", UNIFIED).unified.unwrap();
        let levels: Vec<_> = group.levels().map(|level| level.display().to_string()).collect();
        assert_eq!(levels, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert!(!group.is_root() && locate("0::/\n", UNIFIED).unified.unwrap().is_root());
    }

    proptest! {
        // Whatever the kernel writes, a group found lies inside of a mount.
        #[test]
        fn groups_lie_inside_their_mount(path in "[a-z/.]{0,20}", root in "(/|/[a-z]{1,3})") {
            let mounts = format!("30 23 0:26 {root} /cg rw - cgroup2 cgroup2 rw");
            if let Some(group) = locate(&format!("0::{path}"), &mounts).unified {
                prop_assert!(group.directory.starts_with("/cg"));
                prop_assert!(group.levels().count() >= 1);
            }
        }
    }
}

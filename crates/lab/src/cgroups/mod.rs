//! Control groups of hosts: where they are, and what is written into which file for a limit, in both versions.
//!
//! Facts: Documentation/admin-guide/cgroup-v1 (memory.rst: `memsw` is memory and swap together and never below the limit
//! of memory; cpusets.rst: processors and memory nodes are set before a process may join; pids.rst;
//! blkio-controller.rst), Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst (a group whose
//! children have controllers holds no processes itself), proc_pid_mountinfo(5).

mod tree;

pub use tree::{GroupTree, write_all};

use crate::scenario::ScenarioHost;
use crate::units;
use std::path::{Path, PathBuf};
use webdyno_model::Result;

/// Below the top of each hierarchy.
pub const FOLDER: &str = "webdyno-lab";

/// Controllers of version 1 that hosts are put under. The others say nothing that a host could have of its own.
const CONTROLLERS: [&str; 7] = ["memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "freezer"];

/// Controllers of version 2 that limits are written to.
const UNIFIED: [&str; 5] = ["memory", "cpu", "cpuset", "pids", "io"];

/// The period of a quota of processor time.
const PERIOD_US: f64 = 100_000.0;

/// One tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub top: PathBuf,
    /// Whether it is the one of version 2.
    pub unified: bool,
    /// What it controls, of those that matter here.
    pub controllers: Vec<String>,
}

impl Hierarchy {
    /// Whether it has a controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|own| own == controller)
    }

    /// A file in a group and what is written into it.
    fn write(&self, group: &str, file: &str, value: impl ToString) -> GroupWrite {
        GroupWrite { path: self.top.join(group).join(file), value: value.to_string() }
    }
}

/// All trees that are mounted, from the text of `/proc/self/mountinfo`; `unified` reads cgroup.controllers of one.
pub fn parse_hierarchies(mountinfo: &str, unified: impl Fn(&Path) -> String) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = vec![];
    for line in mountinfo.lines() {
        let Some((place, system)) = line.split_once(" - ") else { continue };
        let (mut place, mut system) = (place.split(' '), system.split(' '));
        let (Some(top), Some(kind), Some(options)) = (place.nth(4), system.next(), system.nth(1)) else {
            continue;
        };
        let top = PathBuf::from(unescaped(top));
        let wanted = |names: &str, separator: char, known: &[&str]| -> Vec<String> {
            names
                .split(separator)
                .map(str::trim)
                .filter(|name| known.contains(name))
                .map(str::to_owned)
                .collect()
        };
        let (is_unified, controllers) = match kind {
            "cgroup2" => (true, wanted(&unified(&top), ' ', &UNIFIED)),
            "cgroup" => (false, wanted(options, ',', &CONTROLLERS)),
            _ => continue,
        };
        let known =
            |had: &Hierarchy| had.unified == is_unified && (is_unified || had.controllers == controllers);
        if (is_unified || !controllers.is_empty()) && !found.iter().any(known) {
            found.push(Hierarchy { top, unified: is_unified, controllers });
        }
    }
    found
}

/// Blanks in paths are written as `\040`.
pub(crate) fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// A value for a file of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupWrite {
    /// The file.
    pub path: PathBuf,
    /// What is written.
    pub value: String,
}

/// The path of a scenario's group below the top of a hierarchy.
pub fn scenario_group(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Of a host.
pub fn host_group(name: &str, host: &str) -> String {
    format!("{FOLDER}/{name}/{host}")
}

/// Of a service with limits of its own.
pub fn service_group(name: &str, host: &str, index: usize) -> String {
    format!("{FOLDER}/{name}/{host}/service-{index}")
}

/// Of the programs that build a scenario, so that none of them outlives its end.
pub fn builder_group(name: &str) -> String {
    format!("{FOLDER}/{name}/+build")
}

/// Where the processes of a host are: version 2 allows none beside groups of services.
pub fn process_group(hierarchy: &Hierarchy, name: &str, host: &str, has_services: bool) -> String {
    match hierarchy.unified && has_services {
        true => format!("{}/main", host_group(name, host)),
        false => host_group(name, host),
    }
}

/// The scenario and the host of a process, from the text of its `/proc/PID/cgroup`; `None` outside of the lab.
pub fn host_of(text: &str) -> Option<(String, String)> {
    let parts = |line: &str| -> Option<(String, String)> {
        let mut parts = line.splitn(3, ':').nth(2)?.split('/').skip_while(|part| *part != FOLDER).skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    text.lines().find_map(parts)
}

/// What a host may use, in numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostLimits {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Swap; `None` is none as long as there is a limit of memory.
    pub swap_bytes: Option<u64>,
    /// Processors' time.
    pub cpus: Option<f64>,
    /// As `0-1`.
    pub cores: Option<String>,
    /// Most processes.
    pub processes: Option<u32>,
}

impl HostLimits {
    /// Those of a host.
    pub fn of(host: &ScenarioHost) -> Result<Self> {
        Ok(Self {
            memory_bytes: host.memory.as_deref().map(units::bytes).transpose()?,
            swap_bytes: host.swap.as_deref().map(units::bytes).transpose()?,
            cpus: host.cpus,
            cores: host.cores.clone(),
            processes: host.processes,
        })
    }

    /// The same with what is given of others.
    #[must_use]
    pub fn merged_with(self, by: Self) -> Self {
        Self {
            memory_bytes: by.memory_bytes.or(self.memory_bytes),
            swap_bytes: by.swap_bytes.or(self.swap_bytes),
            cpus: by.cpus.or(self.cpus),
            cores: by.cores.or(self.cores),
            processes: by.processes.or(self.processes),
        }
    }

    /// What is written for them into a group of a hierarchy, in this order.
    pub fn writes(&self, hierarchy: &Hierarchy, group: &str) -> Vec<GroupWrite> {
        let put = |file: &str, value: String| hierarchy.write(group, file, value);
        let mut writes = vec![];
        if let Some(memory) = self.memory_bytes.filter(|_| hierarchy.has("memory")) {
            let swap = self.swap_bytes.unwrap_or(0);
            writes.extend(match hierarchy.unified {
                true => vec![put("memory.max", memory.to_string()), put("memory.swap.max", swap.to_string())],
                // Open first: neither may pass the other on its way.
                false => vec![
                    put("memory.memsw.limit_in_bytes", "-1".into()),
                    put("memory.limit_in_bytes", memory.to_string()),
                    put("memory.memsw.limit_in_bytes", memory.saturating_add(swap).to_string()),
                ],
            });
        }
        if let Some(cpus) = self.cpus.filter(|_| hierarchy.has("cpu")) {
            let quota = (cpus * PERIOD_US).round().max(1000.0);
            writes.extend(match hierarchy.unified {
                true => vec![put("cpu.max", format!("{quota} {PERIOD_US}"))],
                false => vec![
                    put("cpu.cfs_period_us", PERIOD_US.to_string()),
                    put("cpu.cfs_quota_us", quota.to_string()),
                ],
            });
        }
        if let Some(cores) = self.cores.as_ref().filter(|_| hierarchy.has("cpuset")) {
            writes.push(put("cpuset.cpus", cores.clone()));
        }
        if let Some(processes) = self.processes.filter(|_| hierarchy.has("pids")) {
            writes.push(put("pids.max", processes.to_string()));
        }
        writes
    }

    /// The controllers that a limit needs.
    pub fn controllers(&self) -> Vec<&'static str> {
        let needed = [
            (self.memory_bytes.is_some(), "memory"),
            (self.cpus.is_some(), "cpu"),
            (self.cores.is_some(), "cpuset"),
            (self.processes.is_some(), "pids"),
        ];
        needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, name)| name).collect()
    }
}

/// How fast a disk of a host is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// Reads a second.
    pub reads_per_s: Option<u64>,
    /// Writes a second.
    pub writes_per_s: Option<u64>,
    /// Bytes read a second.
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second.
    pub write_bytes_per_s: Option<u64>,
}

impl DiskLimits {
    /// What is written for them; `device` is `MAJOR:MINOR`.
    pub fn writes(&self, hierarchy: &Hierarchy, group: &str, device: &str) -> Vec<GroupWrite> {
        let limits = [
            (self.reads_per_s, "riops", "read_iops_device"),
            (self.writes_per_s, "wiops", "write_iops_device"),
            (self.read_bytes_per_s, "rbps", "read_bps_device"),
            (self.write_bytes_per_s, "wbps", "write_bps_device"),
        ];
        let given = limits.into_iter().filter_map(|(limit, key, file)| Some((limit?, key, file)));
        match hierarchy.unified {
            true if hierarchy.has("io") => given
                .map(|(limit, key, _)| hierarchy.write(group, "io.max", format!("{device} {key}={limit}")))
                .collect(),
            false if hierarchy.has("blkio") => given
                .map(|(limit, _, file)| {
                    hierarchy.write(group, &format!("blkio.throttle.{file}"), format!("{device} {limit}"))
                })
                .collect(),
            _ => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 cgroup2 rw
42 31 0:32 / /elsewhere/memory rw,relatime - cgroup cgroup rw,memory
43 27 254:0 / / rw,relatime - ext4 /dev/vda rw
";

    fn both() -> (Hierarchy, Hierarchy) {
        let one = ["memory", "cpu", "cpuset", "pids", "blkio"].map(str::to_owned).to_vec();
        let two = UNIFIED.map(str::to_owned).to_vec();
        (
            Hierarchy { top: "/1".into(), unified: false, controllers: one },
            Hierarchy { top: "/2".into(), unified: true, controllers: two },
        )
    }

    fn shown(writes: &[GroupWrite]) -> String {
        writes.iter().map(|write| format!("{}={}\n", write.path.display(), write.value)).collect()
    }

    #[test]
    fn trees_are_found_where_they_are_mounted_first() {
        let found = parse_hierarchies(MOUNTS, |_| "cpuset cpu io memory hugetlb pids rdma\n".into());
        let displayed: Vec<String> = found
            .iter()
            .map(|one| format!("{} {} {}", one.top.display(), one.unified, one.controllers.join(" ")))
            .collect();
        assert_eq!(
            displayed,
            [
                "/sys/fs/cgroup/cpu,cpuacct false cpu cpuacct",
                "/sys/fs/cgroup/memory false memory",
                "/sys/fs/cgroup/uni fied true cpuset cpu io memory pids",
            ]
        );
    }

    #[test]
    fn limits_are_written_in_both_versions() {
        let limits = HostLimits {
            memory_bytes: Some(1 << 20),
            swap_bytes: None,
            cpus: Some(0.5),
            cores: Some("0-1".into()),
            processes: Some(40),
        };
        let (one, two) = both();
        assert_eq!(
            shown(&limits.writes(&one, "webdyno-lab/x/server")),
            "/1/webdyno-lab/x/server/memory.memsw.limit_in_bytes=-1\n\
             /1/webdyno-lab/x/server/memory.limit_in_bytes=1048576\n\
             /1/webdyno-lab/x/server/memory.memsw.limit_in_bytes=1048576\n\
             /1/webdyno-lab/x/server/cpu.cfs_period_us=100000\n\
             /1/webdyno-lab/x/server/cpu.cfs_quota_us=50000\n\
             /1/webdyno-lab/x/server/cpuset.cpus=0-1\n\
             /1/webdyno-lab/x/server/pids.max=40\n"
        );
        let with_swap = HostLimits { swap_bytes: Some(1 << 21), ..limits };
        assert_eq!(
            shown(&with_swap.writes(&two, "g")),
            "/2/g/memory.max=1048576\n/2/g/memory.swap.max=2097152\n/2/g/cpu.max=50000 100000\n\
             /2/g/cpuset.cpus=0-1\n/2/g/pids.max=40\n"
        );
        assert_eq!(HostLimits::default().writes(&one, "g"), []);
    }

    #[test]
    fn disks_are_limited_in_both_versions() {
        let limits =
            DiskLimits { writes_per_s: Some(20), read_bytes_per_s: Some(4096), ..DiskLimits::default() };
        let (one, two) = both();
        assert_eq!(
            shown(&limits.writes(&one, "g", "7:3")),
            "/1/g/blkio.throttle.write_iops_device=7:3 20\n/1/g/blkio.throttle.read_bps_device=7:3 4096\n"
        );
        assert_eq!(
            shown(&limits.writes(&two, "g", "7:3")),
            "/2/g/io.max=7:3 wiops=20\n/2/g/io.max=7:3 rbps=4096\n"
        );
    }

    #[test]
    fn a_process_is_on_a_host_or_not() {
        let on = "5:memory:/webdyno-lab/a-b/server/service-0\n0::/user.slice\n";
        assert_eq!(host_of(on), Some(("a-b".into(), "server".into())));
        assert_eq!(host_of("0::/docker/1/webdyno-lab/x/client/main\n"), Some(("x".into(), "client".into())));
        for outside in ["", "0::/\n", "0::/webdyno-lab\n", "3:cpu,cpuacct:/webdyno-lab-x/a/b\nnonsense"] {
            assert_eq!(host_of(outside), None, "{outside}");
        }
    }

    #[test]
    fn what_is_given_replaces_what_was() {
        let first = HostLimits { memory_bytes: Some(5), processes: Some(7), ..HostLimits::default() };
        let second = HostLimits { memory_bytes: Some(6), cpus: Some(1.0), ..HostLimits::default() };
        let both = first.merged_with(second);
        assert_eq!((both.memory_bytes, both.processes, both.cpus), (Some(6), Some(7), Some(1.0)));
    }

    #[test]
    fn processes_of_version_2_stand_beside_services_not_above_them() {
        let (one, two) = both();
        assert_eq!(process_group(&one, "x", "server", true), "webdyno-lab/x/server");
        assert_eq!(process_group(&two, "x", "server", false), "webdyno-lab/x/server");
        assert_eq!(process_group(&two, "x", "server", true), "webdyno-lab/x/server/main");
        assert_eq!(service_group("x", "server", 2), "webdyno-lab/x/server/service-2");
    }

    proptest::proptest! {
        /// Any text: never a panic.
        #[test]
        fn any_text_is_a_list_of_mounts(text in ".*( - )?.*(cgroup2?)?.*") {
            parse_hierarchies(&text, |_| String::new());
        }
    }
}

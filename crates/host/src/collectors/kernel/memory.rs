//! Memory: the machine's (`/proc/meminfo`, `/proc/vmstat`) and that of the service's control group.
//!
//! Facts: proc_meminfo(5), proc_vmstat(5), Documentation/admin-guide/cgroup-v2.rst (memory.max, memory.current,
//! memory.stat, memory.events) and cgroup-v1/memory.rst (memory.limit_in_bytes, memory.usage_in_bytes,
//! memory.oom_control). A group is limited by each group above it as well: the smallest limit binds, and usage is
//! read where that limit is. `/proc/vmstat` counts pages.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::control_group::{Controller, Finder, Group, repro_command};
use crate::os::key_values::{meminfo_bytes, value_of};
use crate::os::procfs;
use std::path::Path;

const MEMINFO: &str = "/proc/meminfo";
const VMSTAT: &str = "/proc/vmstat";

/// Metrics that are single lines of `/proc/meminfo`.
const LEVELS: [(&str, &str); 12] = [
    ("memory.total_bytes", "MemTotal"),
    ("memory.available_bytes", "MemAvailable"),
    ("memory.free_bytes", "MemFree"),
    ("memory.swap_total_bytes", "SwapTotal"),
    ("memory.swap_free_bytes", "SwapFree"),
    ("memory.cached_bytes", "Cached"),
    ("memory.dirty_bytes", "Dirty"),
    ("memory.writeback_bytes", "Writeback"),
    ("memory.anonymous_bytes", "AnonPages"),
    ("memory.shared_bytes", "Shmem"),
    ("memory.kernel_bytes", "SUnreclaim"),
    ("memory.page_tables_bytes", "PageTables"),
];

/// Metrics of `/proc/vmstat`, with the lines that are summed. The refault counter was split in Linux 5.9, and stalls in
/// allocating are counted for each zone since 4.10.
const TOTALS: [(&str, &[&str]); 8] = [
    ("memory.swapped_in_pages", &["pswpin"]),
    ("memory.swapped_out_pages", &["pswpout"]),
    ("memory.major_faults_count", &["pgmajfault"]),
    ("memory.refaults_count", &["workingset_refault", "workingset_refault_anon", "workingset_refault_file"]),
    ("memory.file_refaults_count", &["workingset_refault", "workingset_refault_file"]),
    ("memory.faults_count", &["pgfault"]),
    (
        "memory.allocation_stalls_count",
        &[
            "allocstall",
            "allocstall_dma",
            "allocstall_dma32",
            "allocstall_normal",
            "allocstall_movable",
            "allocstall_device",
        ],
    ),
    ("memory.oom_kills_count", &["oom_kill"]),
];

/// File pages in bytes: `Buffers + Cached` without shared memory, which cannot be dropped.
fn page_cache_bytes(meminfo: &str) -> Option<u64> {
    let files = meminfo_bytes(meminfo, "Buffers")?.checked_add(meminfo_bytes(meminfo, "Cached")?)?;
    Some(files.saturating_sub(meminfo_bytes(meminfo, "Shmem").unwrap_or(0)))
}

/// The sum of those lines that are there; `None` when none is.
fn sum_of(text: &str, keys: &[&str]) -> Option<u64> {
    let present = keys.iter().filter_map(|key| value_of(text, key));
    present.fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0).saturating_add(value)))
}

/// What a group's files are called in a version, and how its usage is told.
struct Files {
    limit: &'static str,
    usage: &'static str,
    oom: &'static str,
    /// Lines of memory.stat that are page cache which can be dropped.
    reclaimable: [&'static str; 2],
    /// Lines of memory.stat with the pages of files, and with those of programs, that were needed again after they had been
    /// given up (since Linux 5.9).
    refaults: [&'static str; 2],
}

const UNIFIED: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    oom: "memory.events",
    reclaimable: ["active_file", "inactive_file"],
    refaults: ["workingset_refault_file", "workingset_refault_anon"],
};

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    oom: "memory.oom_control",
    reclaimable: ["total_active_file", "total_inactive_file"],
    refaults: ["total_workingset_refault_file", "total_workingset_refault_anon"],
};

/// The limit that binds a group, and how much of it is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupMemory {
    /// The smallest limit of the group and those above it; `None` when there is none.
    pub limit_bytes: Option<u64>,
    /// What is used where that limit is, without page cache that can be dropped.
    pub used_bytes: Option<u64>,
    /// Processes of the group that the kernel killed for want of memory.
    pub oom_kills_count: Option<u64>,
    /// Pages of files that the group needed again after they had been given up.
    pub file_refaults_count: Option<u64>,
    /// The same of pages of programs, which were swapped.
    pub anonymous_refaults_count: Option<u64>,
}

/// Reads the memory of a group. `machine_bytes` is the memory of the machine: a limit not below it is none (version 1
/// writes a huge number for "no limit").
fn group_memory(group: &Group, files: &Files, machine_bytes: u64) -> GroupMemory {
    let read = |level: &Path, file: &str| procfs::read_text(level.join(file)).ok();
    let limit_of = |level: &Path| read(level, files.limit)?.trim().parse::<u64>().ok();
    let limited = group.levels().filter_map(|level| Some((limit_of(level)?, level)));
    let binding = limited.filter(|&(limit, _)| limit < machine_bytes).min_by_key(|&(limit, _)| limit);
    let used = |level: &Path| {
        let usage: u64 = read(level, files.usage)?.trim().parse().ok()?;
        let cache = sum_of(&read(level, "memory.stat")?, &files.reclaimable)?;
        Some(usage.saturating_sub(cache))
    };
    // The top of a hierarchy tells of the whole machine.
    let stat = (!group.is_machine()).then(|| read(&group.directory, "memory.stat")).flatten();
    let [of_files, of_programs] = files.refaults.map(|key| value_of(stat.as_deref()?, key));
    GroupMemory {
        limit_bytes: binding.map(|(limit, _)| limit),
        used_bytes: binding.and_then(|(_, level)| used(level)),
        oom_kills_count: read(&group.directory, files.oom).and_then(|text| value_of(&text, "oom_kill")),
        file_refaults_count: of_files,
        anonymous_refaults_count: of_programs,
    }
}

/// `awk` that reads limit, usage and memory.stat of each level, and prints usage without the files that can be dropped where
/// the limit is smallest. In version 1 `total_` is what holds the groups below, too.
const USED: &str = "function level() {if (n && (m==\"\" || l<m)) {m=l; r=u-(t ? f : a)}} \
    NF==1 && !w {level(); n++; l=($1==\"max\" ? 1e30 : $1); a=f=t=0; w=1; delete s; next} NF==1 {u=$1; w=0; next} \
    $1 in s {next} {s[$1]} /^(active|inactive)_file / {a+=$2} /^total_(active|inactive)_file / {t=1; f+=$2} \
    END {level(); printf \"%.0f\\n\", r}";

/// `awk` that prints a line of memory.stat of the group itself, the first one read; in version 1 with those below.
fn of_group(key: &str) -> String {
    format!(
        "$1==\"{key}\" && v==\"\" {{v=$2}} $1==\"total_{key}\" && t==\"\" {{t=$2}} END {{print (t==\"\" ? v : t)}}"
    )
}

/// The collector.
#[derive(Debug, Default)]
pub struct Memory {
    finder: Finder,
}

impl Memory {
    fn group(&mut self, pid: u32, machine_bytes: u64) -> std::io::Result<GroupMemory> {
        let groups = self.finder.of(pid)?;
        // A hierarchy of version 1 that has the memory controller takes it from the unified one.
        Ok(match (&groups.memory_v1, &groups.unified) {
            (Some(group), _) => group_memory(group, &VERSION_1, machine_bytes),
            (None, Some(group)) => group_memory(group, &UNIFIED, machine_bytes),
            (None, None) => GroupMemory::default(),
        })
    }
}

fn machine_values(meminfo: &str, reading: &mut Reading) {
    for (name, key) in LEVELS {
        reading.push_some(name, meminfo_bytes(meminfo, key).map(|bytes| bytes as f64));
    }
    reading.push_some("memory.page_cache_bytes", page_cache_bytes(meminfo).map(|bytes| bytes as f64));
}

fn totals(vmstat: &str, reading: &mut Reading) {
    for (name, keys) in TOTALS {
        reading.push_some(name, sum_of(vmstat, keys).map(|count| count as f64));
    }
}

/// Adds the group's values. The kills of the group stand in for the machine's where `/proc/vmstat` does not count
/// them (before Linux 4.13).
fn group_values(group: GroupMemory, machine_bytes: u64, reading: &mut Reading) {
    reading.push("memory.limit_bytes", group.limit_bytes.unwrap_or(machine_bytes) as f64);
    reading.push_some("memory.used_in_limit_bytes", group.used_bytes.map(|bytes| bytes as f64));
    let kills = group.oom_kills_count.map(|count| count as f64);
    reading.push_some("memory.group_oom_kills_count", kills);
    if reading.value("memory.oom_kills_count").is_none() {
        reading.push_some("memory.oom_kills_count", kills);
    }
    for (name, count) in [
        ("memory.group_file_refaults_count", group.file_refaults_count),
        ("memory.group_anonymous_refaults_count", group.anonymous_refaults_count),
    ] {
        reading.push_some(name, count.map(|count| count as f64));
    }
}

impl Collector for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn metrics(&self) -> Vec<Metric> {
        let kilobytes = |key: &str| format!("awk '$1==\"{key}:\" {{print $2*1024}}' {MEMINFO}");
        let mut metrics: Vec<Metric> =
            LEVELS.iter().map(|(name, key)| gauge(*name, MEMINFO, kilobytes(key))).collect();
        let cache = format!(
            "awk '/^(Buffers|Cached):/ {{s+=$2}} /^Shmem:/ {{s-=$2}} END {{print s*1024}}' {MEMINFO}"
        );
        metrics.push(gauge("memory.page_cache_bytes", MEMINFO, cache));
        metrics.extend(TOTALS.iter().map(|(name, keys)| {
            let lines = keys.join("|");
            counter(*name, VMSTAT, format!("awk '$1~/^({lines})$/ {{s+=$2}} END {{print s}}' {VMSTAT}"))
        }));
        // PID is the service's main process; systemd-cgls shows the same group as a tree.
        let files = |v1: &str, v2: &str| repro_command(Controller::Memory, v1, v2);
        let smallest = format!(
            "(awk '/^MemTotal:/ {{printf \"%.0f\\n\", $2*1024}}' {MEMINFO}; {}) | grep -v max | sort -g | head -n 1",
            files("memory.limit_in_bytes", "memory.max")
        );
        metrics.extend([
            gauge("memory.limit_bytes", "/proc/meminfo and the service's control group", smallest),
            gauge(
                "memory.used_in_limit_bytes",
                "the service's control group and those above it",
                format!(
                    "({}) | awk '{USED}'",
                    files(
                        "memory.limit_in_bytes memory.usage_in_bytes memory.stat",
                        "memory.max memory.current memory.stat"
                    )
                ),
            ),
            counter(
                "memory.group_oom_kills_count",
                "the service's control group",
                format!(
                    "({}) | awk '$1==\"oom_kill\" {{print $2; exit}}'",
                    files("memory.oom_control", "memory.events")
                ),
            ),
        ]);
        let refaults = [("file", "workingset_refault_file"), ("anonymous", "workingset_refault_anon")];
        metrics.extend(refaults.map(|(of, key)| {
            let repro_command =
                format!("({}) | awk '{}'", files("memory.stat", "memory.stat"), of_group(key));
            counter(format!("memory.group_{of}_refaults_count"), "the service's control group", repro_command)
        }));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        reading.take(MEMINFO, machine_values);
        reading.take(VMSTAT, totals);
        let Some(total) = reading.value("memory.total_bytes").map(|total| total as u64) else {
            return reading;
        };
        match target.service_pid.map_or(Ok(GroupMemory::default()), |pid| self.group(pid, total)) {
            Ok(group) => group_values(group, total, &mut reading),
            // Without its group the limit is not known: the machine's would be a guess.
            Err(error) => reading.problem(io_error_text("read", "the control group of the service", &error)),
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    const MODERN: &str = "\
MemTotal:       24684096 kB
MemFree:        24004684 kB
MemAvailable:   24313612 kB
Buffers:           16260 kB
Cached:           462032 kB
SwapCached:            0 kB
SwapTotal:          1024 kB
SwapFree:              0 kB
Shmem:              8788 kB
HugePages_Total:       0
";
    /// Made by hand like Linux 2.6.32: no MemAvailable.
    const OLD: &str = "MemTotal: 1000 kB\nMemFree: 10 kB\nBuffers: 1 kB\nCached: 2 kB\n";
    const MACHINE_BYTES: u64 = 16 << 30;

    fn machine(meminfo: &str, vmstat: &str) -> Reading {
        let mut reading = Reading::default();
        machine_values(meminfo, &mut reading);
        totals(vmstat, &mut reading);
        reading
    }

    #[test]
    fn levels_are_bytes_and_what_is_not_told_is_missing() {
        for (meminfo, name, expected) in [
            (MODERN, "memory.total_bytes", Some(24_684_096.0 * 1024.0)),
            (MODERN, "memory.available_bytes", Some(24_313_612.0 * 1024.0)),
            (MODERN, "memory.page_cache_bytes", Some((16_260.0 + 462_032.0 - 8_788.0) * 1024.0)),
            (MODERN, "memory.swap_free_bytes", Some(0.0)),
            (OLD, "memory.available_bytes", None),
            (OLD, "memory.swap_total_bytes", None),
            (OLD, "memory.page_cache_bytes", Some(3.0 * 1024.0)),
            ("", "memory.total_bytes", None),
        ] {
            assert_eq!(machine(meminfo, "").value(name), expected, "{name}");
        }
    }

    #[test]
    fn refaults_are_summed_across_kernels() {
        let new = "workingset_refault_anon 3\nworkingset_refault_file 4\npswpin 5\npswpout 6\noom_kill 1\n";
        for (vmstat, name, expected) in [
            (new, "memory.refaults_count", Some(7.0)),
            ("workingset_refault 9\nworkingset_activate 1\n", "memory.refaults_count", Some(9.0)),
            (new, "memory.swapped_out_pages", Some(6.0)),
            (new, "memory.oom_kills_count", Some(1.0)),
            ("pswpin 5\n", "memory.oom_kills_count", None),
        ] {
            assert_eq!(machine(MODERN, vmstat).value(name), expected, "{name}");
        }
    }

    /// Writes `(path, text)` under a directory that stands for the mount, and reads the group `a/b` in it.
    fn check_group(files: &[(&str, &str)], version: &Files, expected: GroupMemory) {
        let mount = tempfile::tempdir().unwrap();
        let directory = mount.path().join("a/b");
        std::fs::create_dir_all(&directory).unwrap();
        for (path, text) in files {
            std::fs::write(mount.path().join(path), text).unwrap();
        }
        let group = Group { directory, mount: PathBuf::from(mount.path()) };
        assert_eq!(group_memory(&group, version, MACHINE_BYTES), expected, "{files:?}");
    }

    #[test]
    fn the_smallest_limit_binds_and_its_usage_leaves_the_page_cache_out() {
        let stat = "anon 5\nfile 90\nactive_file 30\ninactive_file 50\n";
        let above = [
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "7\n"),
            ("a/b/memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "200\n"),
            ("a/memory.stat", stat),
        ];
        let limited = |limit, used, kills| GroupMemory {
            limit_bytes: limit,
            used_bytes: used,
            oom_kills_count: kills,
            ..GroupMemory::default()
        };
        check_group(&above, &UNIFIED, limited(Some(1000), Some(120), Some(1)));
        let own = [("a/b/memory.max", "500"), ("a/memory.max", "1000"), ("a/b/memory.current", "100")];
        // Without memory.stat the page cache is not known, and so is what is used.
        check_group(&own, &UNIFIED, limited(Some(500), None, None));
        let version_1 = [
            ("a/b/memory.limit_in_bytes", "9223372036854771712"),
            ("a/memory.limit_in_bytes", "4096"),
            ("a/memory.usage_in_bytes", "100"),
            ("a/memory.stat", "active_file 1\ntotal_active_file 20\ntotal_inactive_file 30\n"),
            ("a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        ];
        check_group(&version_1, &VERSION_1, limited(Some(4096), Some(50), Some(4)));
        check_group(&[], &UNIFIED, GroupMemory::default());
    }

    #[test]
    fn what_is_read_again_is_the_groups_own_with_those_below() {
        let read_again = |of_files, of_programs| GroupMemory {
            file_refaults_count: of_files,
            anonymous_refaults_count: of_programs,
            ..GroupMemory::default()
        };
        let above = ("a/memory.stat", "workingset_refault_file 900\ntotal_workingset_refault_file 900\n");
        let own = "workingset_refault_anon 1\nworkingset_refault_file 2\n";
        check_group(&[above, ("a/b/memory.stat", own)], &UNIFIED, read_again(Some(2), Some(1)));
        let below = format!("{own}total_workingset_refault_anon 3\ntotal_workingset_refault_file 4\n");
        check_group(&[above, ("a/b/memory.stat", &below)], &VERSION_1, read_again(Some(4), Some(3)));
        check_group(
            &[above, ("a/b/memory.stat", "workingset_refault 7\n")],
            &UNIFIED,
            read_again(None, None),
        );
    }

    #[test]
    fn the_limit_is_the_machine_unless_a_group_is_smaller() {
        for (limit, expected) in [(None, MACHINE_BYTES), (Some(4096), 4096)] {
            let mut reading = machine("", "");
            let group =
                GroupMemory { limit_bytes: limit, oom_kills_count: Some(2), ..GroupMemory::default() };
            group_values(group, MACHINE_BYTES, &mut reading);
            assert_eq!(reading.value("memory.limit_bytes"), Some(expected as f64));
            assert_eq!(reading.value("memory.used_in_limit_bytes"), None);
            assert_eq!(reading.value("memory.oom_kills_count"), Some(2.0), "the group's stand in");
        }
    }

    #[test]
    fn an_unknown_group_gives_no_limit() {
        let target = Target { service_pid: Some(u32::MAX), ..Target::default() };
        let reading = Memory::default().read(&target);
        assert_eq!(reading.value("memory.limit_bytes"), None);
        assert!(reading.value("memory.total_bytes").is_some());
        assert!(reading.error.unwrap().contains("control group"));
    }

    proptest! {
        // A torn or strange file gives fewer values, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..MODERN.len(), noise in "[A-Za-z:]{0,9} {0,3}-?[0-9]{0,22}( kB)?") {
            machine(&format!("{noise}\n{}", &MODERN[..cut]), &noise);
        }
    }
}

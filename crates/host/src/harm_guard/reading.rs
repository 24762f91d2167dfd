//! One reading of everything that the harm guard looks at: counters of the machine and of the service's control group.
//!
//! Facts: proc_vmstat(5) (`pswpin`, `pswpout`, `oom_kill`: pages and processes since boot),
//! Documentation/accounting/psi.rst (`full total=`, microseconds since boot, brought up to date by reading it),
//! Documentation/admin-guide/cgroup-v2.rst (memory.events, memory.pressure), cgroup-v1/memory.rst (memory.oom_control).
//! Swapping is read of the machine alone: its counters hold what groups swap, too.

use super::kernel_log::KernelLog;
use crate::collectors::kernel::pressure::parse_total_us;
use crate::os::control_group::{self, Group};
use crate::os::key_values::value_of;
use crate::os::procfs;
use std::path::{Path, PathBuf};

/// Counters that only rise, of the machine or of a control group. What cannot be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages that came in from swap.
    pub swapped_in_pages: Option<u64>,
    /// Pages that went out to swap.
    pub swapped_out_pages: Option<u64>,
    /// Time in which nothing could run for want of memory, in microseconds.
    pub memory_full_us: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills_count: Option<u64>,
    /// Pages that the machine looked through for some to free. Those of a group that is at its own limit are not among them
    /// (mm/vmscan.c; seen with 6.18).
    pub scanned_pages: Option<u64>,
}

/// What the probe of the site knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteState {
    /// Attempts in a row that were refused.
    pub refused_count: u32,
    /// For how long nothing has answered, in microseconds.
    pub silent_us: u64,
    /// How long it may not answer, in microseconds.
    pub silent_max_us: u64,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// CLOCK_MONOTONIC, in microseconds.
    pub at_us: u64,
    /// The machine.
    pub machine: Counters,
    /// The control group of the service; all `None` where it has none of its own.
    pub group: Counters,
    /// Answers 500 to 599 to other clients since the watch began.
    pub others_failed_count: Option<u64>,
    /// The site, while it is probed.
    pub site: Option<SiteState>,
}

/// Where counters of memory are read.
#[derive(Debug)]
pub struct MemorySource {
    /// Its memory.events, or memory.oom_control.
    group_kills: Option<PathBuf>,
    group_pressure: Option<PathBuf>,
    kernel_log: KernelLog,
    /// Kills that the machine counted, and how many of them hit strangers within limits of their own.
    kills_seen: Option<u64>,
    kills_of_strangers: u64,
}

impl MemorySource {
    /// For the machine, and the control group of a process.
    pub fn of(service_pid: Option<u32>) -> Self {
        let groups = service_pid.and_then(|pid| control_group::of(pid).ok()).unwrap_or_default();
        let own = |group: Option<Group>| group.filter(is_own);
        let file = |group: &Option<Group>, name: &str| {
            group.as_ref().map(|group| group.directory.join(name)).filter(|path| path.exists())
        };
        let (memory_v1, unified) = (own(groups.memory_v1), own(groups.unified));
        // A hierarchy of version 1 that has the memory controller takes it from the unified one.
        let limited = memory_v1.clone().or_else(|| unified.clone());
        let group_kills = file(&memory_v1, "memory.oom_control").or_else(|| file(&unified, "memory.events"));
        Self {
            group_kills,
            group_pressure: file(&unified, "memory.pressure"),
            kernel_log: KernelLog::open(limited.as_ref()),
            kills_seen: None,
            kills_of_strangers: 0,
        }
    }

    /// Counters of the machine and of the group, now.
    pub fn read(&mut self) -> (Counters, Counters) {
        let text = |path: &Path| procfs::read_text(path).ok();
        let vmstat = text(Path::new("/proc/vmstat")).unwrap_or_default();
        let full = |path: &Path| text(path).and_then(|text| parse_total_us(&text, "full"));
        let mut machine = machine_counters(&vmstat);
        machine.memory_full_us = full(Path::new("/proc/pressure/memory"));
        machine.oom_kills_count = machine.oom_kills_count.map(|count| self.kills_that_count(count));
        let kills = self.group_kills.as_deref().and_then(text);
        let group = Counters {
            memory_full_us: self.group_pressure.as_deref().and_then(full),
            oom_kills_count: kills.and_then(|text| value_of(&text, "oom_kill")),
            ..Counters::default()
        };
        (machine, group)
    }

    /// Without the kills of which the kernel log says that another group had reached its own limit.
    fn kills_that_count(&mut self, count: u64) -> u64 {
        let new = count.saturating_sub(self.kills_seen.unwrap_or(count));
        self.kills_seen = Some(count);
        if new > 0 {
            self.kills_of_strangers += self.kernel_log.new_kills_of_others().min(new);
        }
        count.saturating_sub(self.kills_of_strangers)
    }
}

/// Whether a group is not the machine itself. In a container the top of what is mounted is the container's own group: it
/// has the file that the machine's top has not (version 2), or a limit (version 1, where none is a huge number).
fn is_own(group: &Group) -> bool {
    const NO_LIMIT_BYTES: u64 = 1 << 60;
    let limit = procfs::read_text(group.directory.join("memory.limit_in_bytes")).ok();
    let limited =
        limit.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|bytes| bytes < NO_LIMIT_BYTES);
    !group.is_root() || group.directory.join("memory.events").exists() || limited
}

/// The counters in the text of `/proc/vmstat`.
fn machine_counters(vmstat: &str) -> Counters {
    Counters {
        swapped_in_pages: value_of(vmstat, "pswpin"),
        swapped_out_pages: value_of(vmstat, "pswpout"),
        memory_full_us: None,
        oom_kills_count: value_of(vmstat, "oom_kill"),
        scanned_pages: value_of(vmstat, "pgscan_kswapd")
            .zip(value_of(vmstat, "pgscan_direct"))
            .map(|(a, b)| a + b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18, shortened.
    const VMSTAT: &str = "nr_free_pages 5006203\npswpin 17\npswpout 4096\nswap_ra 3\npgscan_kswapd 40\npgscan_direct 2\noom_kill 2\nunevictable_pgs_culled 0\n";

    #[test]
    fn counters_are_read_and_what_is_not_told_is_unknown() {
        let counters = machine_counters(VMSTAT);
        assert_eq!(
            (counters.swapped_in_pages, counters.swapped_out_pages, counters.oom_kills_count),
            (Some(17), Some(4096), Some(2))
        );
        // Before Linux 4.13 kills are not counted; without CONFIG_SWAP swapping is not.
        assert_eq!(machine_counters("nr_free_pages 5\n"), Counters::default());
    }

    #[test]
    fn the_top_of_a_container_is_a_group_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let top = Group { directory: folder.path().into(), mount: folder.path().into() };
        assert!(!is_own(&top), "the machine's");
        let file = folder.path().join("memory.limit_in_bytes");
        for (limit, own) in [("9223372036854771712\n", false), ("1073741824\n", true)] {
            std::fs::write(&file, limit).unwrap();
            assert_eq!(is_own(&top), own, "{limit}");
        }
        std::fs::remove_file(file).unwrap();
        std::fs::write(folder.path().join("memory.events"), "oom_kill 0\n").unwrap();
        assert!(is_own(&top));
        assert!(is_own(&Group { directory: folder.path().join("web"), mount: folder.path().into() }));
    }

    #[test]
    fn this_machine_is_read() {
        let mut source = MemorySource::of(Some(std::process::id()));
        let (machine, _) = source.read();
        assert!(machine.oom_kills_count.is_some(), "{machine:?}");
        let (again, _) = source.read();
        assert!(again.oom_kills_count >= machine.oom_kills_count);
        assert_eq!(MemorySource::of(Some(u32::MAX)).read().1, Counters::default());
    }

    proptest! {
        // A torn or strange file gives fewer counters, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..VMSTAT.len(), noise in "[a-z_ ]{0,12}-?[0-9]{0,22}") {
            machine_counters(&format!("{noise}\n{}", &VMSTAT[..cut]));
        }
    }
}

//! Reads the files of a control group and of those above it, in both versions.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, Documentation/scheduler/sched-bwc.rst,
//! cgroup-v1/pids.rst, proc_pid_status(5). In version 1 a limit that is not set is a huge number for memory and -1 for
//! the quota; in version 2 the word `max`. The top of a hierarchy has no limits.

use crate::os::control_group::{Group, NO_LIMIT_BYTES};
use crate::os::key_values::value_of;
use crate::os::processors::Processors;
use crate::os::procfs;
use std::collections::BTreeSet;
use std::path::Path;

/// Which files a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// The unified hierarchy.
    Two,
}

impl Version {
    fn pick<T>(self, one: T, two: T) -> T {
        match self {
            Self::One => one,
            Self::Two => two,
        }
    }
}

fn text(level: &Path, file: &str) -> Option<String> {
    procfs::read_text(level.join(file)).ok()
}

/// The only number of a file; `None` for `max`, and where there is none.
fn number(level: &Path, file: &str) -> Option<u64> {
    text(level, file)?.trim().parse().ok()
}

fn line(level: &Path, file: &str, key: &str) -> Option<u64> {
    value_of(&text(level, file)?, key)
}

/// Quota and throttling.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// The cores' worth of time of the tightest quota; `None` without any.
    pub quota_cores: Option<f64>,
    /// Periods that passed while something ran in the groups with a quota.
    pub periods_count: Option<u64>,
    /// Those of them in which the quota was used up.
    pub throttled_count: Option<u64>,
    /// For how long the groups' processors stood still for it.
    pub throttled_s: Option<f64>,
}

impl Cpu {
    pub fn read(group: &Group, version: Version) -> Self {
        let mut cpu = Self::default();
        for level in group.levels() {
            let Some(cores) = quota_cores(level, version) else { continue };
            cpu.quota_cores = Some(cpu.quota_cores.map_or(cores, |tightest| tightest.min(cores)));
            let stat = text(level, "cpu.stat").unwrap_or_default();
            let add = |sum: &mut Option<u64>, key: &str| {
                if let Some(value) = value_of(&stat, key) {
                    *sum = Some(sum.unwrap_or(0).saturating_add(value));
                }
            };
            add(&mut cpu.periods_count, "nr_periods");
            add(&mut cpu.throttled_count, "nr_throttled");
            let (key, per_s) = version.pick(("throttled_time", 1e9), ("throttled_usec", 1e6));
            if let Some(time) = value_of(&stat, key) {
                cpu.throttled_s = Some(cpu.throttled_s.unwrap_or(0.0) + time as f64 / per_s);
            }
        }
        cpu
    }
}

fn quota_cores(level: &Path, version: Version) -> Option<f64> {
    let (quota, period) = match version {
        Version::One => (number(level, "cpu.cfs_quota_us")?, number(level, "cpu.cfs_period_us")?),
        Version::Two => parse_cpu_max(&text(level, "cpu.max")?)?,
    };
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// `50000 100000`: microseconds in each period; `max 100000` is no quota.
fn parse_cpu_max(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The processor time that the group used, in seconds.
pub fn cpu_used_s(group: &Group, version: Version) -> Option<f64> {
    match version {
        Version::One => Some(number(&group.directory, "cpuacct.usage")? as f64 / 1e9),
        Version::Two => Some(line(&group.directory, "cpu.stat", "usage_usec")? as f64 / 1e6),
    }
}

/// Processors that are online.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Those that a process may use.
    pub usable: BTreeSet<u32>,
    online_count: usize,
}

impl Cpus {
    /// Whether it may not use all of them.
    pub fn are_some(&self) -> bool {
        self.usable.len() < self.online_count
    }
}

/// The processors that are online, and those of them that a process may use.
pub fn usable_cpus(pid: u32) -> Option<Cpus> {
    let status = procfs::read_text(format!("/proc/{pid}/status")).ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let Processors(allowed) = Processors::parse(allowed)?;
    // Without it the allowed ones may include some that could be plugged in one day.
    let Processors(online) = Processors::online()?;
    Some(Cpus { usable: allowed.intersection(&online).copied().collect(), online_count: online.len() })
}

/// Memory and swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The smallest limit.
    pub limit_bytes: Option<u64>,
    /// What is used where that limit is, or in the group itself without any: with the page cache of its files.
    pub used_bytes: Option<u64>,
    /// The smallest limit above which the group is slowed down (version 2).
    pub high_bytes: Option<u64>,
    /// The smallest limit of what may be swapped.
    pub swap_limit_bytes: Option<u64>,
    /// What is swapped.
    pub swap_used_bytes: Option<u64>,
    /// How often the limit was hit.
    pub limit_hits_count: Option<u64>,
    /// How often the limit of swap was hit; of version 1 that of memory and swap together.
    pub swap_limit_hits_count: Option<u64>,
    /// How often processes were slowed down above the high limit (version 2).
    pub high_hits_count: Option<u64>,
    /// Processes of the group that were killed for want of memory.
    pub oom_kills_count: Option<u64>,
}

impl Memory {
    pub fn read(group: &Group, version: Version) -> Self {
        let own = group.directory.as_path();
        let (limit, limit_at) = tightest(group, version.pick("memory.limit_in_bytes", "memory.max"));
        let mut memory = Self { limit_bytes: limit, ..Self::default() };
        let at = limit_at.unwrap_or(own);
        let events = |level, key| line(level, version.pick("memory.oom_control", "memory.events"), key);
        memory.oom_kills_count = events(own, "oom_kill");
        if group.is_machine() {
            // What the whole machine uses is told by others.
            return Self { oom_kills_count: None, ..memory };
        }
        match version {
            Version::One => {
                memory.used_bytes = number(at, "memory.usage_in_bytes");
                memory.limit_hits_count = number(at, "memory.failcnt");
                // Memory and swap together.
                let (both, at) = tightest(group, "memory.memsw.limit_in_bytes");
                memory.swap_limit_hits_count = at.and_then(|at| number(at, "memory.memsw.failcnt"));
                let memory_alone = at.and_then(|at| number(at, "memory.limit_in_bytes"));
                memory.swap_limit_bytes =
                    both.zip(memory_alone).map(|(both, memory)| both.saturating_sub(memory));
                let used = number(own, "memory.memsw.usage_in_bytes");
                let in_memory = number(own, "memory.usage_in_bytes");
                memory.swap_used_bytes = used.zip(in_memory).map(|(both, own)| both.saturating_sub(own));
            }
            Version::Two => {
                memory.used_bytes = number(at, "memory.current");
                memory.limit_hits_count = events(at, "max");
                let (high, high_at) = tightest(group, "memory.high");
                memory.high_bytes = high;
                memory.high_hits_count = high_at.and_then(|at| events(at, "high"));
                let (swap, swap_at) = tightest(group, "memory.swap.max");
                memory.swap_limit_bytes = swap;
                memory.swap_limit_hits_count = swap_at.and_then(|at| line(at, "memory.swap.events", "max"));
                memory.swap_used_bytes = number(own, "memory.swap.current");
            }
        }
        memory
    }
}

fn limit_of(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes < NO_LIMIT_BYTES)
}

/// The smallest limit of a group and those above it, and where it is.
fn tightest<'a>(group: &'a Group, file: &str) -> (Option<u64>, Option<&'a Path>) {
    let limits = group.levels().filter_map(|level| Some((limit_of(number(level, file)?)?, level)));
    limits.min_by_key(|(limit, _)| *limit).unzip()
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tasks {
    /// How many there are where the limit is that leaves least room, or in the group itself without any.
    pub count: Option<u64>,
    /// That limit.
    pub limit_count: Option<u64>,
    /// How often a new one was refused.
    pub refused_count: Option<u64>,
}

impl Tasks {
    pub fn read(group: &Group, _: Version) -> Self {
        let level = |level| Some((number(level, "pids.max")?, number(level, "pids.current")?));
        let limited = group.levels().filter_map(level);
        let least_room = limited.min_by_key(|(limit, count)| limit.saturating_sub(*count));
        // Counted where the task would have been, or where the limit is, or in both, by the kernel's age.
        let refused = group.levels().filter_map(|level| line(level, "pids.events", "max")).max();
        match least_room {
            Some((limit, count)) => {
                Self { count: Some(count), limit_count: Some(limit), refused_count: refused }
            }
            None => Self {
                count: number(&group.directory, "pids.current"),
                limit_count: None,
                refused_count: refused,
            },
        }
    }
}

#[cfg(test)]
mod tests;

//! Who else uses the machine: processes that are not the service's, its backends', the agent's or the load generator's,
//! by name.
//!
//! Facts: proc_pid_stat(5), proc_pid_statm(5), proc_pid_io(5) (root and the own user only), clock_getcpuclockid(3). Names
//! are those that the kernel keeps of the executable (comm), at most 15 bytes; arguments are never read.
//!
//! There may be thousands of processes. Every five seconds each of them is asked for its clock, which is one call; files
//! are read of new ones, and of some in turn. Totals begin with the observation: what a process had used before counts
//! for none. A process that came and went between two looks is not seen; `process.foreign_cpu_s` has its time.
//!
//! What the kernel's own threads use is told apart: most of it is caused by the load. Memory is what a process has of its
//! own, without what it may share with others.

mod table;

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::os::procfs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use table::{Group, Table, Used};

/// Names that are told for the time they used, and for the memory they have.
const NAMES_BY_TIME: usize = 4;
const NAMES_BY_MEMORY: usize = 2;

/// Names that are told at all: those that were told go on while there is room, so that their totals can be compared.
const NAMES_MAX: usize = 12;

/// A name is told for its time when it used this share of a core since the look before,
const TIME_SHARE_MIN: f64 = 0.01;

/// and for its memory when it has so much.
const MEMORY_MIN_BYTES: u64 = 32 << 20;

/// The collector.
#[derive(Debug, Default)]
pub struct OtherProcesses {
    table: Table,
    shown: BTreeSet<String>,
    /// The processor time of each name at the look before.
    before_ns: BTreeMap<String, u64>,
}

impl OtherProcesses {
    /// The roots of all trees that are not foreign.
    fn known_roots(target: &Target) -> BTreeSet<u32> {
        let backends = target.backends.iter().map(|backend| backend.pid).filter(|pid| *pid != 0);
        let ours = [target.service_pid, target.client_pid, Some(std::process::id())];
        backends.chain(ours.into_iter().flatten()).collect()
    }

    /// Chooses the names that are told.
    fn choose(&mut self, names: &BTreeMap<String, Used>) {
        let least_ns = (TIME_SHARE_MIN * f64::from(self.every_s()) * 1e9) as u64;
        let rise = |name: &String, used: &Used| {
            used.cpu_ns.saturating_sub(self.before_ns.get(name).copied().unwrap_or(0))
        };
        let best = |of: &dyn Fn(&String, &Used) -> u64, least: u64, count: usize| {
            let mut best: Vec<(u64, &String)> =
                names.iter().map(|(name, used)| (of(name, used), name)).collect();
            best.retain(|(value, _)| *value >= least.max(1));
            best.sort_by_key(|(value, name)| (Reverse(*value), *name));
            best.into_iter().take(count).map(|(_, name)| name.clone()).collect::<Vec<_>>()
        };
        let by_time = best(&rise, least_ns, NAMES_BY_TIME);
        let by_memory = best(&|_, used| used.memory_bytes, MEMORY_MIN_BYTES, NAMES_BY_MEMORY);
        let mut former: Vec<String> = std::mem::take(&mut self.shown).into_iter().collect();
        former.sort_by_key(|name| Reverse(names.get(name).map_or(0, |used| rise(name, used))));
        for name in by_time.into_iter().chain(by_memory).chain(former) {
            if self.shown.len() < NAMES_MAX {
                self.shown.insert(name);
            }
        }
        self.before_ns = names.iter().map(|(name, used)| (name.clone(), used.cpu_ns)).collect();
    }
}

fn push(reading: &mut Reading, prefix: &str, used: &Used) {
    reading.push(format!("foreign.{prefix}cpu_s"), used.cpu_ns as f64 / 1e9);
    reading.push(format!("foreign.{prefix}memory_bytes"), used.memory_bytes as f64);
    reading.push_some(format!("foreign.{prefix}disk_bytes"), used.disk_bytes.map(|bytes| bytes as f64));
    reading.push(format!("foreign.{prefix}processes_count"), used.processes_count as f64);
}

impl Collector for OtherProcesses {
    fn name(&self) -> &'static str {
        "foreign"
    }

    fn metrics(&self) -> Vec<Metric> {
        let page = rustix::param::page_size();
        let hertz = procfs::clock_ticks_per_s();
        let files = |pids: &str, file: &str, awk: &str| {
            format!("for p in {pids}; do cat /proc/$p/{file}; done 2>/dev/null | awk '{awk}'")
        };
        let mut metrics = vec![];
        // Of one name, and of all: there what is the service's, PID, has to be taken off by hand.
        for (prefix, pids) in [
            ("*.", "$(pgrep -x INSTANCE)"),
            ("", "$(pgrep -v -P 2 | grep -vxE \"2|$(echo PID $(pgrep -P PID) | tr ' ' '|')\")"),
        ] {
            let ticks = format!("{{sub(/.*\\) /, \"\"); t+=$12+$13}} END {{print t/{hertz}}}");
            let own = format!("{{s+=($2-$3)*{page}}} END {{printf \"%.0f\\n\", s}}");
            let disk = "/^(read|write)_bytes:/ {s+=$2} END {printf \"%.0f\\n\", s}";
            let name = |what: &str| format!("foreign.{prefix}{what}");
            metrics.extend([
                counter(name("cpu_s"), "clocks of the processes", files(pids, "stat", &ticks)),
                gauge(name("memory_bytes"), "/proc/PID/statm", files(pids, "statm", &own)),
                counter(name("disk_bytes"), "/proc/PID/io", files(pids, "io", disk)),
                gauge(name("processes_count"), "/proc", format!("echo {pids} | wc -w")),
            ]);
        }
        let kernel = format!("{{sub(/.*\\) /, \"\"); t+=$12+$13}} END {{print t/{hertz}}}");
        metrics.push(counter(
            "foreign.kernel_threads_cpu_s",
            "clocks of the kernel's threads",
            files("$(pgrep -P 2)", "stat", &kernel),
        ));
        metrics.push(gauge(
            "foreign.user_tasks_count",
            "/proc/PID/status",
            "ps -L -e -o ruid=,ppid= | awk -v u=\"$(ps -o ruid= --ppid PID | sort -n | tail -n 1)\" '$1==u+0 && $2!=PID' | wc -l",
        ));
        metrics
    }

    fn every_s(&self) -> u32 {
        5
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let look = self.table.sample(&Self::known_roots(target), target.service_pid);
        if look.groups_count(Group::Foreign) + look.groups_count(Group::Known) == 0 {
            reading.problem("no process is visible: is /proc mounted?");
            return reading;
        }
        self.choose(&look.names);
        push(&mut reading, "", &look.others);
        for name in &self.shown {
            // A name whose processes have all ended goes on with what they had used.
            push(&mut reading, &format!("{name}."), look.names.get(name).unwrap_or(&Used::default()));
        }
        reading.push_some("foreign.kernel_threads_cpu_s", look.kernel_ns.map(|ns| ns as f64 / 1e9));
        reading.push_some("foreign.user_tasks_count", look.user_tasks_count.map(|count| count as f64));
        if look.io_refused {
            let why = "what some of the others read and write may not be looked at";
            let how = match rustix::process::geteuid().is_root() {
                true => "nothing helps: these refuse also root, and have no part in the sums",
                false => "run as root",
            };
            reading.lacks("foreign.disk", why, how);
        }
        if look.hidden {
            let why = "only processes of the own user are visible (/proc is mounted with hidepid)";
            reading.lacks("foreign", why, "run as root, or mount /proc with hidepid=0");
        }
        reading
    }
}

#[cfg(test)]
mod tests;

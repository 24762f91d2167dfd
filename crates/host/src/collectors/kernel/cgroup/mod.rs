//! The limits of the service's control group and of those above it, what is used of them, and how often they were hit.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst (cpu.max, cpu.stat, memory.max, memory.high, memory.events, pids.max,
//! pids.events), Documentation/scheduler/sched-bwc.rst and cgroup-v1/{memory,pids,cpuacct}.rst; proc_pid_status(5) for
//! the processors that the main process may use, which a cpuset and an affinity mask narrow alike.
//!
//! A group is limited by each group above it as well: the limit that leaves least room counts, and what is used is read
//! where that limit is. Periods in which a group was held back are summed over all levels with a quota: each of them
//! stops the service.

mod read;

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::control_group::{Controller, Finder, Group, Groups, repro_command};
use read::{Cpu, Memory, Tasks};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The collector.
#[derive(Debug, Default)]
pub struct Cgroup {
    finder: Finder,
    /// Of the backends, by the main process.
    backends: BTreeMap<u32, Finder>,
}

impl Cgroup {
    /// Quota and throttling of each backend whose group is not the service's: containers and units have one each.
    fn backend_values(&mut self, target: &Target, own: Option<PathBuf>, reading: &mut Reading) {
        self.backends.retain(|pid, _| target.backends.iter().any(|backend| backend.pid == *pid));
        for (name, backend) in target.named_backends() {
            // Of one that has ended the collector of processes tells.
            let Ok(groups) = self.backends.entry(backend.pid).or_default().of(backend.pid) else { continue };
            let Some((group, version)) = group_of(groups, Controller::Cpu) else { continue };
            if own.as_ref() == Some(&group.directory) {
                continue;
            }
            let cpu = Cpu::read(group, version);
            let counts =
                [cpu.periods_count, cpu.throttled_count].map(|count| count.map(|count| count as f64));
            for (what, value) in BACKEND_VALUES.into_iter().zip([cpu.quota_cores, counts[0], counts[1]]) {
                reading.push_some(format!("cgroup.{name}.{what}"), value);
            }
        }
    }
}

/// What is read of each backend's group.
const BACKEND_VALUES: [&str; 3] = ["quota_cores_count", "periods_count", "throttled_periods_count"];

/// Cores that are named: a bound on the size of a sample.
const CORES_SHOWN_MAX: usize = 32;

/// What is said of a limit that is not there.
const NOTHING_MISSING: &str = "nothing is missing: without a limit there is nothing to hit";

/// The group that has a controller: a hierarchy of version 1 takes it from the unified one.
fn group_of(groups: &Groups, controller: Controller) -> Option<(&Group, read::Version)> {
    let v1 = groups.v1(controller).map(|group| (group, read::Version::One));
    v1.or_else(|| groups.unified.as_ref().map(|group| (group, read::Version::Two)))
}

fn lacks_group(reading: &mut Reading, controller: Controller) {
    reading.lacks(
        format!("cgroup.{}", controller.name()),
        format!("the control group of the service cannot be seen: no hierarchy with the {} controller is mounted here, or it is outside of this container", controller.name()),
        "observe as root, or from the machine itself with /sys/fs/cgroup mounted",
    );
}

fn cpu_values(groups: &Groups, pid: u32, reading: &mut Reading) {
    let quota = match group_of(groups, Controller::Cpu) {
        Some((group, version)) => {
            let cpu = Cpu::read(group, version);
            throttling(&cpu, reading);
            cpu.quota_cores
        }
        None => {
            lacks_group(reading, Controller::Cpu);
            None
        }
    };
    let usage = group_of(groups, Controller::Cpuacct).filter(|(group, _)| !group.is_machine());
    reading.push_some("cgroup.cpu_s", usage.and_then(|(group, version)| read::cpu_used_s(group, version)));
    let cpus = read::usable_cpus(pid);
    if let Some(cpus) = cpus.as_ref().filter(|cpus| cpus.are_some()) {
        for cpu in cpus.usable.iter().take(CORES_SHOWN_MAX) {
            reading.push(format!("cgroup.core{cpu}.usable_count"), 1.0);
        }
    }
    let usable = cpus.map(|cpus| cpus.usable.len() as f64);
    reading.push_some("cgroup.cpus_count", usable);
    // Without a quota that could be read, what is left of the machine is not known to be more.
    reading.push_some("cgroup.cores_count", usable.map(|cpus| quota.map_or(cpus, |quota| quota.min(cpus))));
}

fn throttling(cpu: &Cpu, reading: &mut Reading) {
    if cpu.quota_cores.is_none() {
        let why = "no CPU quota is set for the service's control group or one above it";
        reading.lacks("cgroup.throttled", why, NOTHING_MISSING);
        return;
    }
    reading.push_some("cgroup.quota_cores_count", cpu.quota_cores);
    reading.push_some("cgroup.periods_count", cpu.periods_count.map(|count| count as f64));
    reading.push_some("cgroup.throttled_periods_count", cpu.throttled_count.map(|count| count as f64));
    reading.push_some("cgroup.throttled_s", cpu.throttled_s);
}

fn memory_values(groups: &Groups, reading: &mut Reading) {
    let Some((group, version)) = group_of(groups, Controller::Memory) else {
        lacks_group(reading, Controller::Memory);
        return;
    };
    let memory = Memory::read(group, version);
    for (name, value) in [
        ("cgroup.memory_limit_bytes", memory.limit_bytes),
        ("cgroup.memory_used_bytes", memory.used_bytes),
        ("cgroup.memory_high_bytes", memory.high_bytes),
        ("cgroup.swap_limit_bytes", memory.swap_limit_bytes),
        ("cgroup.swap_used_bytes", memory.swap_used_bytes),
        ("cgroup.memory_limit_hits_count", memory.limit_hits_count),
        ("cgroup.swap_limit_hits_count", memory.swap_limit_hits_count),
        ("cgroup.memory_high_hits_count", memory.high_hits_count),
        ("cgroup.oom_kills_count", memory.oom_kills_count),
    ] {
        reading.push_some(name, value.map(|value| value as f64));
    }
    if memory.limit_bytes.is_none() {
        let why = "no memory limit is set for the service's control group or one above it";
        reading.lacks("cgroup.memory_limit", why, NOTHING_MISSING);
    }
    if memory.oom_kills_count.is_none() && !group.is_machine() {
        let why = "the control group does not count kills (before Linux 4.13)";
        reading.lacks("cgroup.oom_kills", why, "`kernel_log` counts them where it may be read");
    }
}

fn task_values(groups: &Groups, reading: &mut Reading) {
    let Some((group, version)) = group_of(groups, Controller::Pids) else {
        lacks_group(reading, Controller::Pids);
        return;
    };
    let tasks = Tasks::read(group, version);
    for (name, value) in [
        ("cgroup.tasks_count", tasks.count),
        ("cgroup.tasks_limit_count", tasks.limit_count),
        ("cgroup.tasks_refused_count", tasks.refused_count),
    ] {
        reading.push_some(name, value.map(|value| value as f64));
    }
    if tasks.limit_count.is_none() {
        let why = "no limit of tasks is set for the service's control group or one above it";
        reading.lacks("cgroup.tasks_limit", why, NOTHING_MISSING);
    }
}

impl Collector for Cgroup {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn metrics(&self) -> Vec<Metric> {
        [cpu_metrics(), backend_metrics(), memory_metrics(), task_metrics()].concat()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let Some(pid) = target.service_pid else {
            return Reading::without_service(self.name(), target);
        };
        match self.finder.of(pid) {
            Ok(groups) => {
                cpu_values(groups, pid, &mut reading);
                memory_values(groups, &mut reading);
                task_values(groups, &mut reading);
                let own = group_of(groups, Controller::Cpu).map(|(group, _)| group.directory.clone());
                self.backend_values(target, own, &mut reading);
            }
            Err(error) => reading.problem(io_error_text("read", &format!("/proc/{pid}/cgroup"), &error)),
        }
        reading
    }
}

const GROUP: &str = "the service's control group and those above it";

/// What `awk` makes of files of all levels, from the inside.
fn levels(controller: Controller, v1: &str, v2: &str, awk: &str) -> String {
    format!("({}) | awk '{awk}'", repro_command(controller, v1, v2))
}

/// `awk` that prints the smallest number; words such as `max`, and the huge number of version 1, are no limit.
const SMALLEST: &str =
    "$1+0>0 && $1<1e18 && (m==\"\" || $1<m) {m=$1} END {if (m!=\"\") printf \"%.0f\\n\", m}";

/// `awk` that reads a limit and a value of each level, and prints `value` of the one where `least` is smallest. Of
/// memory.events the value is that of `max`.
fn where_least(least: &str, value: &str) -> String {
    format!(
        "NF==1 && !w {{l=($1==\"max\" ? 1e30 : $1); w=1; next}} NF==1 || $1==\"max\" {{v=$NF; w=0; x={least}; \
         if (m==\"\" || x<m) {{m=x; r={value}}}}} END {{if (m!=\"\" && r<1e18) printf \"%.0f\\n\", r}}"
    )
}

fn cpu_metrics() -> Vec<Metric> {
    let cpu = |v1: &str, awk: &str| levels(Controller::Cpu, v1, "cpu.stat", awk);
    // Version 1 has quota and period in two files.
    let quota = levels(
        Controller::Cpu,
        "cpu.cfs_quota_us cpu.cfs_period_us",
        "cpu.max",
        "NF==1 {if (!w) {q=$1; w=1; next} w=0; $0=q \" \" $1} $1+0>0 {c=$1/$2; if (!m || c<m) m=c} \
         END {if (m) print m}",
    );
    let usable = "for i in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/PID/status | tr , ' '); do \
        seq ${i%-*} ${i#*-}; done | while read c; do grep -cx \"cpu$c .*\" /proc/stat; done | awk '{n+=$1} END {print n}'";
    // Told of a service on some of the cores only. INSTANCE is `core0`.
    let which = "for i in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/PID/status | tr , ' '); do \
        seq ${i%-*} ${i#*-}; done | sed 's/^/core/' | grep -cx INSTANCE";
    let used = levels(
        Controller::Cpuacct,
        "cpuacct.usage",
        "cpu.stat",
        "NF==1 {printf \"%.6f\\n\", $1/1e9; exit} $1==\"usage_usec\" {print $2/1e6; exit}",
    );
    vec![
        gauge("cgroup.quota_cores_count", GROUP, quota),
        gauge("cgroup.cpus_count", "/proc/PID/status", usable),
        gauge("cgroup.*.usable_count", "/proc/PID/status", which),
        gauge("cgroup.cores_count", "the tighter of cgroup.quota_cores_count and cgroup.cpus_count", usable),
        counter("cgroup.periods_count", GROUP, cpu("cpu.stat", "$1==\"nr_periods\" {n+=$2} END {print n}")),
        counter(
            "cgroup.throttled_periods_count",
            GROUP,
            cpu("cpu.stat", "$1==\"nr_throttled\" {n+=$2} END {print n}"),
        ),
        counter(
            "cgroup.throttled_s",
            GROUP,
            cpu(
                "cpu.stat",
                "$1==\"throttled_time\" {n+=$2/1e9} $1==\"throttled_usec\" {n+=$2/1e6} END {print n}",
            ),
        ),
        counter("cgroup.cpu_s", "the service's control group", used),
    ]
}

/// The same of a backend: INSTANCE is the name of its program.
fn backend_metrics() -> Vec<Metric> {
    let main = "$(pgrep -o $(echo INSTANCE | sed 's/_[0-9]$//; s/_/./g'))";
    let of_backend = |metric: Metric| {
        let what = metric.name.strip_prefix("cgroup.").filter(|what| BACKEND_VALUES.contains(what))?;
        Some(Metric {
            name: format!("cgroup.*.{what}"),
            source: "the control group of a backend, if it is not the service's, and those above it".into(),
            reproduce: metric.reproduce.replace("PID", main),
            ..metric
        })
    };
    cpu_metrics().into_iter().filter_map(of_backend).collect()
}

fn memory_metrics() -> Vec<Metric> {
    let memory = |v1: &str, v2: &str, awk: &str| levels(Controller::Memory, v1, v2, awk);
    let own = |v1: &str, v2: &str, key: &str| memory(v1, v2, &format!("$1==\"{key}\" {{print $2; exit}}"));
    let limit = memory("memory.limit_in_bytes", "memory.max", SMALLEST);
    let at_limit = |v1: &str, v2: &str| {
        let (v1, v2) = (format!("memory.limit_in_bytes {v1}"), format!("memory.max {v2}"));
        memory(&v1, &v2, &where_least("l", "v"))
    };
    // Version 1 tells memory and swap together. The second file of version 2 is a word, which counts as 0.
    let swap_limit = memory(
        "memory.memsw.limit_in_bytes memory.limit_in_bytes",
        "memory.swap.max cgroup.type",
        &where_least("l", "l-v"),
    );
    let swap_used = memory(
        "memory.memsw.usage_in_bytes memory.usage_in_bytes",
        "memory.swap.current cgroup.type",
        "NR==1 {a=$1} NR==2 {printf \"%.0f\\n\", a-$1}",
    );
    let swap_hits = memory(
        "memory.memsw.limit_in_bytes memory.memsw.failcnt",
        "memory.swap.max memory.swap.events",
        &where_least("l", "v"),
    );
    vec![
        gauge("cgroup.memory_limit_bytes", GROUP, limit),
        gauge("cgroup.memory_used_bytes", GROUP, at_limit("memory.usage_in_bytes", "memory.current")),
        gauge("cgroup.memory_high_bytes", GROUP, memory("memory.none", "memory.high", SMALLEST)),
        gauge("cgroup.swap_limit_bytes", GROUP, swap_limit),
        gauge("cgroup.swap_used_bytes", GROUP, swap_used),
        counter("cgroup.memory_limit_hits_count", GROUP, at_limit("memory.failcnt", "memory.events")),
        counter("cgroup.swap_limit_hits_count", GROUP, swap_hits),
        counter("cgroup.memory_high_hits_count", GROUP, own("memory.none", "memory.events", "high")),
        counter(
            "cgroup.oom_kills_count",
            "the service's control group",
            own("memory.oom_control", "memory.events", "oom_kill"),
        ),
    ]
}

fn task_metrics() -> Vec<Metric> {
    let pids = |file: &str, awk: &str| levels(Controller::Pids, file, file, awk);
    vec![
        gauge("cgroup.tasks_count", GROUP, pids("pids.max pids.current", &where_least("l-v", "v"))),
        gauge("cgroup.tasks_limit_count", GROUP, pids("pids.max", SMALLEST)),
        counter(
            "cgroup.tasks_refused_count",
            GROUP,
            pids("pids.events", "$1==\"max\" && $2>m {m=$2} END {print m+0}"),
        ),
    ]
}

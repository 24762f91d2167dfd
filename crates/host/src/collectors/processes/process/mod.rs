//! The processes of the service: how many, their threads and descriptors, and whose the processor time is.
//!
//! Facts: proc_pid_stat(5), proc_pid_fd(5), proc_pid_limits(5), proc_stat(5), clock_getcpuclockid(3), getrlimit(2) on
//! RLIMIT_NPROC, which counts the threads of a user and does not bind root. How a tree of many processes is read at a small
//! cost is told in `process/tree.rs`.
//!
//! Foreign time is what processes other than the service's and the load generator's used: user, nice and system time
//! of the machine without theirs. The machine's is counted by ticks: over a second or less it may be smaller than the
//! sum of nanoseconds, and the counter stands still then. Interrupts and the hypervisor's share are nobody's: on a
//! loaded server most of them are caused by the load. What the service hands to others (FPM, a database) counts as
//! foreign here, and is told of each backend besides.

mod tree;

use crate::collectors::kernel::cpu;
use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::collectors::{BACKENDS_MAX, Collector, Metric, Reading, Target, counter, gauge, io_error_text};
use crate::os::processors::Processors;
use crate::os::procfs;
use std::collections::BTreeMap;
use tree::{Tracker, Tree, cpu_ns, identity, ns_of};

const NS_PER_S: u64 = 1_000_000_000;

/// The collector.
#[derive(Debug, Default)]
pub struct Process {
    service: Tracker,
    service_cpu: MonotonicCounter,
    client_cpu: MonotonicCounter,
    other_cpu: MonotonicCounter,
    /// By the main process.
    backends: BTreeMap<u32, (Tracker, MonotonicCounter)>,
}

/// Processor time in nanoseconds, all read at one instant; `None` where there is no such process. Those of processes
/// come with what names them.
#[derive(Debug, Default, Clone, Copy)]
struct CpuTimes {
    machine_ns: Option<u64>,
    service_ns: Option<(u64, u64)>,
    client_ns: Option<(u64, u64)>,
}

/// What names a process and the time that it and its children used.
fn time_of(pid: u32) -> Option<(u64, u64)> {
    let stat = procfs::stat(pid).ok()?;
    let clock_ns = procfs::run_time_ns(pid);
    Some((identity(&stat), cpu_ns(&stat, clock_ns)))
}

impl Process {
    /// Adds the times. Foreign time is told only when all that is to be taken off is known.
    fn cpu_values(&mut self, target: &Target, times: CpuTimes, reading: &mut Reading) {
        // Counted in whole nanoseconds and shown in seconds, so that differences have no dust.
        let seconds = |ns: f64| ns / NS_PER_S as f64;
        let service = times.service_ns.map(|(id, ns)| self.service_cpu.update(id, ns as f64));
        let client = times.client_ns.map(|(id, ns)| self.client_cpu.update(id, ns as f64));
        reading.push_some("process.cpu_s", service.map(seconds));
        reading.push_some("process.client_cpu_s", client.map(seconds));
        let service = service.or(target.service_pid.is_none().then_some(0.0));
        let client = client.or(target.client_pid.is_none().then_some(0.0));
        if let (Some(machine), Some(service), Some(client)) = (times.machine_ns, service, client) {
            // Which processes are taken off names the source: with other ones it goes on where it was.
            let source = times.service_ns.map_or(0, |(id, _)| id) ^ times.client_ns.map_or(0, |(id, _)| !id);
            let foreign = self.other_cpu.update(source, machine as f64 - service - client);
            reading.push("process.foreign_cpu_s", seconds(foreign));
        }
    }

    fn service_values(tree: &Tree, main_pid: u32, reading: &mut Reading) {
        let mut push = |name: &str, value: Option<u64>| {
            reading.push_some(format!("process.{name}"), value.map(|value| value as f64));
        };
        push("count", Some(tree.count));
        push("threads_count", Some(tree.threads_count));
        push("running_count", Some(tree.running_count));
        push("disk_wait_count", Some(tree.disk_wait_count));
        push("open_files_max_count", tree.open_files_max);
        push("open_files_limit_count", procfs::open_files_limit(main_pid).ok().flatten());
        push("fullest_open_files_count", tree.fullest.map(|(open, _)| open));
        push("fullest_open_files_limit_count", tree.fullest.map(|(_, limit)| limit));
        push("user_tasks_count", tree.user.map(|user| user.tasks_count));
        push("user_tasks_limit_count", tree.user.and_then(|user| user.limit_count));
        if let Some(why) = &tree.refused {
            reading.problem(why);
            reading.lacks("process.open_files", why.as_str(), "run as root");
        }
    }

    /// Adds each backend under its name ([`Target::named_backends`]).
    fn backend_values(&mut self, target: &Target, reading: &mut Reading) {
        let backends = || target.backends.iter().filter(|backend| backend.pid != 0);
        self.backends.retain(|pid, _| backends().any(|backend| backend.pid == *pid));
        for (name, backend) in target.named_backends() {
            let (tracker, cpu) = self.backends.entry(backend.pid).or_default();
            let Some(tree) = tracker.read(backend.pid) else {
                reading.problem(format!("{name}, process {}, is gone", backend.pid));
                continue;
            };
            let cpu_s = cpu.update(tree.identity, tree.cpu_ns as f64) / NS_PER_S as f64;
            reading.push(format!("process.{name}.cpu_s"), cpu_s);
            reading.push(format!("process.{name}.count"), tree.count as f64);
            reading.push(format!("process.{name}.threads_count"), tree.threads_count as f64);
            let cpus = Processors::of_thread(backend.pid).ok().map(|cpus| cpus.count() as f64);
            reading.push_some(format!("process.{name}.cpus_count"), cpus);
            for (what, value) in [
                ("fullest_open_files_count", tree.fullest.map(|(open, _)| open)),
                ("fullest_open_files_limit_count", tree.fullest.map(|(_, limit)| limit)),
            ] {
                reading.push_some(format!("process.{name}.{what}"), value.map(|value| value as f64));
            }
        }
        let left_out = backends().count().saturating_sub(BACKENDS_MAX);
        if left_out > 0 {
            let why = format!("{left_out} backends have no values of their own, to keep samples small");
            reading.lacks("process.*", why, "`top` shows each process");
        }
    }
}

impl Collector for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn metrics(&self) -> Vec<Metric> {
        [count_metrics(), file_metrics(), cpu_metrics()].concat()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        // One after the other, with nothing slow in between: this is the instant.
        let machine = procfs::read_text("/proc/stat").ok().and_then(|text| cpu::parse_stat(&text).all);
        let tree = target.service_pid.map(|pid| self.service.read(pid));
        let client = target.client_pid.map(time_of);
        let times = CpuTimes {
            machine_ns: machine.map(|ticks| ns_of(ticks.of_processes())),
            service_ns: tree.as_ref().and_then(|tree| tree.as_ref().map(|tree| (tree.identity, tree.cpu_ns))),
            client_ns: client.flatten(),
        };
        self.cpu_values(target, times, &mut reading);
        if let (Some(None), Some(pid)) = (&client, target.client_pid) {
            reading.problem(format!("the load generator, process {pid}, is gone"));
        }
        match (tree, target.service_pid) {
            (Some(Some(tree)), Some(pid)) => {
                Self::service_values(&tree, pid, &mut reading);
            }
            (Some(None), Some(pid)) => reading.problem(format!("the service's main process {pid} is gone")),
            _ => reading.lacks_service(self.name(), target),
        }
        self.backend_values(target, &mut reading);
        // With nothing else to tell there is no reading.
        let own = procfs::run_time_ns(std::process::id()).filter(|_| !reading.values.is_empty());
        reading.push_some("process.agent_cpu_s", own.map(|ns| ns as f64 / NS_PER_S as f64));
        reading
    }
}

/// PID is the service's main process, as in all commands here.
const GROUP: &str = "$(pgrep -d, -P PID),PID";
const STAT: &str = "/proc/PID/stat of the service's processes";

/// The processes of a backend by their names: `php_fpm` are php-fpm8.2 and the like.
const BACKEND: &str = "$(pgrep $(echo INSTANCE | sed 's/_[0-9]$//; s/_/./g'))";

fn count_metrics() -> Vec<Metric> {
    let in_state = |state: &str| format!("ps -o s= -p {GROUP} | grep -c {state}");
    let backend = format!("echo {BACKEND} | wc -w");
    let backend_threads = format!("ps -L -o lwp= -p $(echo {BACKEND} | tr ' ' ,) | wc -l");
    let user = "$(ps -o ruid= --ppid PID | sort | uniq -c | sort -rn | awk 'NR==1 {print $2}')";
    vec![
        gauge("process.count", STAT, format!("ps -o pid= -p {GROUP} | wc -l")),
        gauge("process.threads_count", STAT, format!("ps -L -o lwp= -p {GROUP} | wc -l")),
        gauge("process.running_count", STAT, in_state("R")),
        gauge("process.disk_wait_count", STAT, in_state("D")),
        gauge("process.*.count", STAT, backend),
        gauge("process.*.threads_count", STAT, backend_threads),
        gauge("process.*.cpus_count", "sched_getaffinity(2)", "taskset -pc PID"),
        gauge(
            "process.user_tasks_count",
            STAT,
            format!("ps -L -o ruid= --ppid PID | grep -cxE \" *{user}\""),
        ),
        gauge(
            "process.user_tasks_limit_count",
            "/proc/PID/limits of the service's processes",
            "awk '/^Max processes/ {print $3}' /proc/$(pgrep -n -P PID)/limits",
        ),
    ]
}

fn file_metrics() -> Vec<Metric> {
    // Of each process: open descriptors, limit; the fullest one last.
    let fullest = |pids: &str, column: u32| {
        format!(
            "for p in {pids}; do echo $(ls /proc/$p/fd | wc -l) $(awk '/^Max open files/ {{print $4}}' \
             /proc/$p/limits); done | awk '$2>0 {{print $1/$2, $1, $2}}' | sort -g | tail -n 1 | cut -d' ' -f{column}"
        )
    };
    let own = "PID $(pgrep -P PID)";
    let source = "/proc/PID/fd and limits of the service's processes";
    let of_backend = "/proc/PID/fd and limits of the backend's processes";
    vec![
        gauge(
            "process.open_files_max_count",
            "/proc/PID/fd of the service's processes",
            "for p in PID $(pgrep -P PID); do ls /proc/$p/fd | wc -l; done | sort -n | tail -n 1",
        ),
        gauge(
            "process.open_files_limit_count",
            "/proc/PID/limits",
            "awk '/^Max open files/ {print $4}' /proc/PID/limits",
        ),
        gauge("process.fullest_open_files_count", source, fullest(own, 2)),
        gauge("process.fullest_open_files_limit_count", source, fullest(own, 3)),
        gauge("process.*.fullest_open_files_count", of_backend, fullest(BACKEND, 2)),
        gauge("process.*.fullest_open_files_limit_count", of_backend, fullest(BACKEND, 3)),
    ]
}

fn cpu_metrics() -> Vec<Metric> {
    let hertz = procfs::clock_ticks_per_s();
    let (cpu, files) = cpu_by_hand();
    vec![
        counter(
            "process.cpu_s",
            &format!("clocks of the service's processes and {files}"),
            cpu.replace("PIDS", "PID $(pgrep -P PID)"),
        ),
        counter(
            "process.*.cpu_s",
            &format!("clocks of the backend's processes and {files}"),
            cpu.replace("PIDS", BACKEND),
        ),
        counter("process.client_cpu_s", &files.replace("PID", "CLIENT"), cpu.replace("PIDS", "CLIENT")),
        counter(
            "process.foreign_cpu_s",
            "/proc/stat without the service's and the load generator's time",
            format!("awk '$1==\"cpu\" {{print ($2+$3+$4)/{hertz}}}' /proc/stat; top -b -n 1 | head -n 20"),
        ),
        counter(
            "process.agent_cpu_s",
            "the clock of the agent's process",
            "ps -o cputimes= -p $(pgrep -n -x webdyno) # PID",
        ),
    ]
}

/// The command that adds up the times of the processes `PIDS` as this kernel tells them, and the files that it reads:
/// nanoseconds of each thread and ticks of the children that ended, or ticks of both.
fn cpu_by_hand() -> (String, &'static str) {
    let hertz = procfs::clock_ticks_per_s();
    let stat = |fields: &str| {
        format!("cat $(printf '/proc/%s/stat ' PIDS) | sed 's/.*) //' | awk '{{print ({fields})/{hertz}}}'")
    };
    let add = "awk '{t+=$1} END {print t}'";
    // Three zeros where nothing is counted: this thread has run.
    let counted =
        procfs::read_text("/proc/thread-self/schedstat").is_ok_and(|text| !text.starts_with("0 0 0"));
    if !counted {
        return (format!("{} | {add}", stat("$12+$13+$14+$15")), "/proc/PID/stat");
    }
    let run = "for p in PIDS; do cat /proc/$p/task/*/schedstat; done | awk '{print $1/1e9}'";
    (format!("({run}; {}) | {add}", stat("$14+$15")), "/proc/PID/schedstat and /proc/PID/stat")
}

#[cfg(test)]
mod tests;

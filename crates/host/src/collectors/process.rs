//! The processes of the service: how many, their threads and descriptors, and whose the processor time is.
//!
//! Facts: proc_pid_stat(5), proc_pid_fd(5), proc_pid_limits(5), proc_stat(5). A process's time moves to its parent
//! when it ends and is waited for, so the tree's total is the time of those alive and of those they waited for.
//! Parents are read before their children: a worker that ends in between is missed until the next reading, and never
//! counted twice.
//!
//! Foreign time is what processes other than the service's and the load generator's used: user, nice and system time
//! of the machine without theirs. Interrupts and the hypervisor's share are nobody's: on a loaded server most of
//! them are caused by the load. What the service hands to others (FPM, a database) counts as foreign.

use super::rising::Rising;
use super::{Collector, Metric, Reading, Target, counter, cpu, gauge, told};
use crate::procfs;

/// Processes whose descriptors are counted in one reading at most.
const OPEN_FILES_PROCESSES_MAX: usize = 512;

/// The collector.
#[derive(Debug, Default)]
pub struct Process {
    service_cpu: Rising,
    client_cpu: Rising,
    foreign_cpu: Rising,
}

/// What was read of the service's tree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Tree {
    pids: Vec<u32>,
    threads_count: u64,
    cpu_ticks: u64,
    /// Names the main process for ever.
    identity: u64,
}

impl Tree {
    /// Sums up; `stats` has the main process first. `None` when that has ended.
    fn sum(main_pid: u32, stats: &[procfs::Stat]) -> Option<Self> {
        let main = stats.first().filter(|stat| stat.pid == main_pid)?;
        let add = |total: u64, stat: &procfs::Stat| {
            total.saturating_add(stat.cpu_ticks).saturating_add(stat.reaped_cpu_ticks)
        };
        // What ended and is not waited for yet has its time still, but is no process of the service any more.
        let alive = |stat: &&procfs::Stat| !matches!(stat.state, 'Z' | 'X');
        Some(Self {
            pids: stats.iter().filter(alive).map(|stat| stat.pid).collect(),
            threads_count: stats.iter().filter(alive).map(|stat| stat.threads_count).sum(),
            cpu_ticks: stats.iter().fold(0, add),
            identity: main.start_ticks ^ (u64::from(main.pid) << 40),
        })
    }

    fn read(main_pid: u32) -> Option<Self> {
        let tree = procfs::tree_of(main_pid);
        let stats: Vec<_> = tree.into_iter().filter_map(|pid| procfs::stat(pid).ok()).collect();
        Self::sum(main_pid, &stats)
    }
}

/// Processor time in clock ticks, all read at one instant; `None` where there is no such process.
#[derive(Debug, Default, Clone, Copy)]
struct CpuTicks {
    machine: Option<u64>,
    service: Option<(u64, u64)>,
    client: Option<(u64, u64)>,
}

impl Process {
    /// Adds the times. Foreign time is told only when all that is to be taken off is known.
    fn cpu_values(&mut self, target: &Target, ticks: CpuTicks, reading: &mut Reading) {
        // Counted in whole ticks and shown in seconds, so that differences have no dust.
        let seconds = |ticks: f64| ticks / procfs::clock_ticks_per_s() as f64;
        let service = ticks.service.map(|(id, ticks)| self.service_cpu.update(id, ticks as f64));
        let client = ticks.client.map(|(id, ticks)| self.client_cpu.update(id, ticks as f64));
        reading.push_some("process.cpu_s", service.map(seconds));
        reading.push_some("process.client_cpu_s", client.map(seconds));
        let service = service.or(target.service_pid.is_none().then_some(0.0));
        let client = client.or(target.client_pid.is_none().then_some(0.0));
        if let (Some(machine), Some(service), Some(client)) = (ticks.machine, service, client) {
            // Which processes are taken off names the source: with other ones it goes on where it was.
            let source = ticks.service.map_or(0, |(id, _)| id) ^ ticks.client.map_or(0, |(id, _)| !id);
            let foreign = self.foreign_cpu.update(source, machine as f64 - service - client);
            reading.push("process.foreign_cpu_s", seconds(foreign));
        }
    }

    fn open_files(tree: &Tree, reading: &mut Reading) {
        let mut most = None;
        let mut refused = None;
        for &pid in tree.pids.iter().take(OPEN_FILES_PROCESSES_MAX) {
            match procfs::open_files_count(pid) {
                Ok(count) => most = most.max(Some(count)),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    refused = refused.or_else(|| Some(told("read", &format!("/proc/{pid}/fd"), &error)));
                }
                // It ended meanwhile.
                Err(_) => {}
            }
        }
        if let Some(why) = refused {
            reading.problem(why);
        }
        reading.push_some("process.open_files_max_count", most.map(|count| count as f64));
    }
}

impl Collector for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn metrics(&self) -> Vec<Metric> {
        // PID is the service's main process, CLIENT the load generator.
        let hertz = procfs::clock_ticks_per_s();
        let group = "$(pgrep -d, -P PID),PID";
        let cpu = |pids: &str| {
            format!(
                "cat $(printf '/proc/%s/stat ' {pids}) | sed 's/.*) //' | \
                 awk '{{t+=$12+$13+$14+$15}} END {{print t/{hertz}}}'"
            )
        };
        let stat = "/proc/PID/stat of the service's processes";
        vec![
            gauge("process.count", stat, format!("ps -o pid= -p {group} | wc -l")),
            gauge("process.threads_count", stat, format!("ps -L -o lwp= -p {group} | wc -l")),
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
            counter("process.cpu_s", stat, cpu("PID $(pgrep -P PID)")),
            counter("process.client_cpu_s", "/proc/CLIENT/stat", cpu("CLIENT")),
            counter(
                "process.foreign_cpu_s",
                "/proc/stat without the service's and the load generator's time",
                format!(
                    "awk '$1==\"cpu\" {{print ($2+$3+$4)/{hertz}}}' /proc/stat; top -b -n 1 | head -n 20"
                ),
            ),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        // One after the other, with nothing slow in between: this is the instant.
        let machine = procfs::read_text("/proc/stat").ok().and_then(|text| cpu::parse_stat(&text).all);
        let tree = target.service_pid.map(Tree::read);
        let client = target.client_pid.map(|pid| procfs::stat(pid).ok());
        let identity = |stat: procfs::Stat| {
            (
                stat.start_ticks ^ (u64::from(stat.pid) << 40),
                stat.cpu_ticks.saturating_add(stat.reaped_cpu_ticks),
            )
        };
        let ticks = CpuTicks {
            machine: machine.map(|ticks| ticks.of_processes()),
            service: tree.as_ref().and_then(|tree| tree.as_ref().map(|tree| (tree.identity, tree.cpu_ticks))),
            client: client.clone().flatten().map(identity),
        };
        self.cpu_values(target, ticks, &mut reading);
        if let (Some(None), Some(pid)) = (&client, target.client_pid) {
            reading.problem(format!("the load generator, process {pid}, is gone"));
        }
        match (tree, target.service_pid) {
            (Some(Some(tree)), Some(pid)) => {
                reading.push("process.count", tree.pids.len() as f64);
                reading.push("process.threads_count", tree.threads_count as f64);
                Self::open_files(&tree, &mut reading);
                let limit = procfs::open_files_limit(pid).ok().flatten();
                reading.push_some("process.open_files_limit_count", limit.map(|limit| limit as f64));
            }
            (Some(None), Some(pid)) => reading.problem(format!("the service's main process {pid} is gone")),
            _ => reading.problem("no service was found: no processes to read"),
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, state: char, cpu_ticks: u64, reaped_cpu_ticks: u64) -> procfs::Stat {
        procfs::Stat {
            pid,
            name: "apache2".into(),
            state,
            ppid: 1,
            group: 0,
            cpu_ticks,
            reaped_cpu_ticks,
            threads_count: 2,
            start_ticks: 7,
        }
    }

    #[test]
    fn the_tree_counts_the_living_and_the_time_of_all() {
        let tree = Tree::sum(10, &[stat(10, 'S', 1, 20), stat(11, 'R', 300, 4000), stat(12, 'Z', 50_000, 0)]);
        let tree = tree.unwrap();
        assert_eq!((tree.pids, tree.threads_count, tree.cpu_ticks), (vec![10, 11], 4, 54_321));
        assert_eq!(Tree::sum(10, &[stat(11, 'S', 1, 1)]), None, "the main process is gone");
    }

    fn target(service_pid: Option<u32>, client_pid: Option<u32>) -> Target {
        Target { service_pid, client_pid, ..Target::default() }
    }

    #[test]
    fn foreign_time_is_told_only_when_what_is_taken_off_is_known() {
        let hertz = procfs::clock_ticks_per_s();
        let ticks = CpuTicks { machine: Some(10 * hertz), service: Some((1, 3 * hertz)), client: None };
        for (client_pid, expected) in [(None, Some(7.0)), (Some(5), None)] {
            let mut reading = Reading::default();
            Process::default().cpu_values(&target(Some(4), client_pid), ticks, &mut reading);
            assert_eq!(reading.value("process.foreign_cpu_s"), expected);
            assert_eq!(reading.value("process.cpu_s"), Some(3.0));
            assert_eq!(reading.value("process.client_cpu_s"), None);
        }
    }

    // A restarted service starts from nothing; its counter and the foreign one go on.
    #[test]
    fn counters_survive_a_restart_of_the_service() {
        let hertz = procfs::clock_ticks_per_s();
        let mut process = Process::default();
        let mut last = (0.0, 0.0);
        for (machine, service) in [(100, (1, 50)), (110, (1, 55)), (120, (2, 1)), (130, (2, 4))] {
            let ticks = CpuTicks {
                machine: Some(machine * hertz),
                service: Some((service.0, service.1 * hertz)),
                client: None,
            };
            let mut reading = Reading::default();
            process.cpu_values(&target(Some(4), None), ticks, &mut reading);
            let now =
                (reading.value("process.cpu_s").unwrap(), reading.value("process.foreign_cpu_s").unwrap());
            assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
            last = now;
        }
        assert_eq!(last, (58.0, 62.0), "3 s of the new service, and 5 + 7 s of others after the first 50");
    }

    #[test]
    fn a_vanished_service_is_named() {
        let reading = Process::default().read(&target(Some(u32::MAX), None));
        assert_eq!(reading.values, vec![]);
        assert_eq!(reading.error.unwrap(), format!("the service's main process {} is gone", u32::MAX));
    }

    #[test]
    fn this_process_can_be_read() {
        let reading = Process::default().read(&target(Some(std::process::id()), Some(std::process::id())));
        assert!(reading.value("process.count").unwrap() >= 1.0);
        assert!(reading.value("process.open_files_max_count").unwrap() >= 3.0);
        assert_eq!(reading.error, None);
    }
}

//! The processes of the service: how many, their threads and descriptors, and whose the processor time is.
//!
//! Facts: proc_pid_stat(5), proc_pid_fd(5), proc_pid_limits(5), proc_stat(5), Documentation/scheduler/sched-stats.rst.
//! A process's time moves to its parent when it ends and is waited for, so the tree's total is the time of those alive
//! and of those they waited for. Parents are read before their children: a worker that ends in between is missed until
//! the next reading, and never counted twice.
//!
//! `stat` tells whole ticks of 10 ms, rounded down for each process: hundreds of workers that each used 8 ms would
//! count as none, and their time as that of others. `schedstat` tells nanoseconds for each thread, without those that
//! ended. Both never tell more than was used, so the larger one counts. What many threads of one process lose in
//! `stat` is no more than what one loses: processes of many threads are left to it.
//!
//! Foreign time is what processes other than the service's and the load generator's used: user, nice and system time
//! of the machine without theirs. The machine's is counted by ticks: over a second or less it may be smaller than the
//! sum of nanoseconds, and the counter stands still then. Interrupts and the hypervisor's share are nobody's: on a
//! loaded server most of them are caused by the load. What the service hands to others (FPM, a database) counts as
//! foreign.

use super::rising::Rising;
use super::{Collector, Metric, Reading, Target, counter, cpu, gauge, told};
use crate::procfs;

/// Processes whose descriptors are counted in one reading at most.
const OPEN_FILES_PROCESSES_MAX: usize = 512;

/// The most threads of a process whose times are read one by one.
const THREADS_COUNT_MAX: u64 = 64;

/// The most threads whose times are read in one reading: some 5 us each.
const THREADS_READ_COUNT_MAX: u64 = 4096;

const NS_PER_S: u64 = 1_000_000_000;

/// The collector.
#[derive(Debug, Default)]
pub struct Process {
    service_cpu: Rising,
    client_cpu: Rising,
    foreign_cpu: Rising,
}

/// A process and the time that it ran, where the kernel tells that in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Used {
    stat: procfs::Stat,
    run_ns: Option<u64>,
}

impl Used {
    /// Reads a process; `threads_left` is how many threads may still be read one by one.
    fn read(pid: u32, threads_left: &mut u64) -> Option<Self> {
        let stat = procfs::stat(pid).ok()?;
        let threads_count = stat.threads_count;
        let is_read = threads_count <= THREADS_COUNT_MAX.min(*threads_left);
        *threads_left -= if is_read { threads_count } else { 0 };
        let run_ns = is_read.then(|| procfs::run_time_ns(pid, threads_count)).flatten();
        Some(Self { stat, run_ns })
    }

    /// The processor time of the process and of those that it waited for.
    fn cpu_ns(&self) -> u64 {
        let own = ns_of(self.stat.cpu_ticks).max(self.run_ns.unwrap_or(0));
        own.saturating_add(ns_of(self.stat.reaped_cpu_ticks))
    }

    /// Names the process for ever.
    fn identity(&self) -> u64 {
        self.stat.start_ticks ^ (u64::from(self.stat.pid) << 40)
    }
}

/// Clock ticks in nanoseconds.
fn ns_of(ticks: u64) -> u64 {
    ticks.saturating_mul(NS_PER_S / procfs::clock_ticks_per_s().max(1))
}

/// What was read of the service's tree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Tree {
    pids: Vec<u32>,
    threads_count: u64,
    cpu_ns: u64,
    /// Names the main process for ever.
    identity: u64,
}

impl Tree {
    /// Sums up; `used` has the main process first. `None` when that has ended.
    fn sum(main_pid: u32, used: &[Used]) -> Option<Self> {
        let main = used.first().filter(|used| used.stat.pid == main_pid)?;
        // What ended and is not waited for yet has its time still, but is no process of the service any more.
        let alive = || used.iter().map(|used| &used.stat).filter(|stat| !stat.has_ended());
        Some(Self {
            pids: alive().map(|stat| stat.pid).collect(),
            threads_count: alive().map(|stat| stat.threads_count).sum(),
            cpu_ns: used.iter().map(Used::cpu_ns).fold(0, u64::saturating_add),
            identity: main.identity(),
        })
    }

    fn read(main_pid: u32) -> Option<Self> {
        let tree = procfs::tree_of(main_pid);
        let mut threads_left = THREADS_READ_COUNT_MAX;
        let used: Vec<_> = tree.into_iter().filter_map(|pid| Used::read(pid, &mut threads_left)).collect();
        Self::sum(main_pid, &used)
    }
}

/// Processor time in nanoseconds, all read at one instant; `None` where there is no such process. Those of processes
/// come with what names them.
#[derive(Debug, Default, Clone, Copy)]
struct CpuTimes {
    machine_ns: Option<u64>,
    service_ns: Option<(u64, u64)>,
    client_ns: Option<(u64, u64)>,
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
        let stat = "/proc/PID/stat of the service's processes";
        let (cpu, files) = cpu_by_hand();
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
            counter(
                "process.cpu_s",
                &format!("{files} of the service's processes"),
                cpu.replace("PIDS", "PID $(pgrep -P PID)"),
            ),
            counter("process.client_cpu_s", &files.replace("PID", "CLIENT"), cpu.replace("PIDS", "CLIENT")),
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
        let client = target.client_pid.map(|pid| Used::read(pid, &mut { THREADS_COUNT_MAX }));
        let times = CpuTimes {
            machine_ns: machine.map(|ticks| ns_of(ticks.of_processes())),
            service_ns: tree.as_ref().and_then(|tree| tree.as_ref().map(|tree| (tree.identity, tree.cpu_ns))),
            client_ns: client
                .as_ref()
                .and_then(|used| used.as_ref().map(|used| (used.identity(), used.cpu_ns()))),
        };
        self.cpu_values(target, times, &mut reading);
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

/// The command that adds up the times of the processes `PIDS` as this kernel tells them, and the files that it reads:
/// nanoseconds of each thread and ticks of the children that ended, or ticks of both.
fn cpu_by_hand() -> (String, &'static str) {
    let hertz = procfs::clock_ticks_per_s();
    let stat = |fields: &str| {
        format!("cat $(printf '/proc/%s/stat ' PIDS) | sed 's/.*) //' | awk '{{print ({fields})/{hertz}}}'")
    };
    let add = "awk '{t+=$1} END {print t}'";
    // This thread has run.
    if procfs::run_time_ns(std::process::id(), 1).is_none() {
        return (format!("{} | {add}", stat("$12+$13+$14+$15")), "/proc/PID/stat");
    }
    let run = "for p in PIDS; do cat /proc/$p/task/*/schedstat; done | awk '{print $1/1e9}'";
    (format!("({run}; {}) | {add}", stat("$14+$15")), "/proc/PID/schedstat and /proc/PID/stat")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(pid: u32, state: char, cpu_ticks: u64, reaped_cpu_ticks: u64, run_ns: Option<u64>) -> Used {
        let stat = procfs::Stat {
            pid,
            name: "apache2".into(),
            state,
            ppid: 1,
            group: 0,
            cpu_ticks,
            reaped_cpu_ticks,
            threads_count: 2,
            start_ticks: 7,
        };
        Used { stat, run_ns }
    }

    #[test]
    fn the_tree_counts_the_living_and_the_time_of_all() {
        let all =
            [used(10, 'S', 1, 20, None), used(11, 'R', 300, 4000, None), used(12, 'Z', 50_000, 0, None)];
        let tree = Tree::sum(10, &all).unwrap();
        assert_eq!((tree.pids, tree.threads_count, tree.cpu_ns), (vec![10, 11], 4, ns_of(54_321)));
        assert_eq!(Tree::sum(10, &all[1..]), None, "the main process is gone");
    }

    /// 450 workers that each used 8 ms: `stat` says zero ticks of each.
    #[test]
    fn time_below_a_tick_is_not_lost() {
        let ms = 1_000_000;
        let check = |worker: Used, expected_ns: u64| {
            let mut all = vec![used(10, 'S', 1, 20, None)];
            all.extend(
                (0..450)
                    .map(|n| Used { stat: procfs::Stat { pid: 100 + n, ..worker.stat.clone() }, ..worker }),
            );
            assert_eq!(Tree::sum(10, &all).unwrap().cpu_ns - ns_of(21), 450 * expected_ns, "{worker:?}");
        };
        check(used(0, 'S', 0, 0, Some(8 * ms)), 8 * ms);
        check(used(0, 'S', 0, 0, None), 0);
        check(used(0, 'S', 3, 0, None), ns_of(3));
        // Threads that ended are in the ticks alone; children that ended come on top.
        check(used(0, 'S', 900, 0, Some(8 * ms)), ns_of(900));
        check(used(0, 'S', 0, 5, Some(8 * ms)), 8 * ms + ns_of(5));
    }

    fn target(service_pid: Option<u32>, client_pid: Option<u32>) -> Target {
        Target { service_pid, client_pid, ..Target::default() }
    }

    #[test]
    fn foreign_time_is_told_only_when_what_is_taken_off_is_known() {
        let times = CpuTimes {
            machine_ns: Some(10 * NS_PER_S),
            service_ns: Some((1, 3 * NS_PER_S)),
            client_ns: None,
        };
        for (client_pid, expected) in [(None, Some(7.0)), (Some(5), None)] {
            let mut reading = Reading::default();
            Process::default().cpu_values(&target(Some(4), client_pid), times, &mut reading);
            assert_eq!(reading.value("process.foreign_cpu_s"), expected);
            assert_eq!(reading.value("process.cpu_s"), Some(3.0));
            assert_eq!(reading.value("process.client_cpu_s"), None);
        }
    }

    /// Readings of machine and service as `(machine_s, (identity, service_s))`; the last values of the service's
    /// counter and the foreign one, which never fall on the way.
    fn check(readings: &[(f64, (u64, f64))], expected: (f64, f64)) {
        let mut process = Process::default();
        let mut last = (0.0, 0.0);
        let ns = |seconds: f64| (seconds * NS_PER_S as f64).round() as u64;
        for &(machine_s, (identity, service_s)) in readings {
            let service_ns = Some((identity, ns(service_s)));
            let times = CpuTimes { machine_ns: Some(ns(machine_s)), service_ns, client_ns: None };
            let mut reading = Reading::default();
            process.cpu_values(&target(Some(4), None), times, &mut reading);
            let now =
                (reading.value("process.cpu_s").unwrap(), reading.value("process.foreign_cpu_s").unwrap());
            assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
            last = now;
        }
        assert_eq!(last, expected, "{readings:?}");
    }

    #[test]
    fn counters_survive_a_restart_of_the_service() {
        // A restarted service starts from nothing: 3 s of the new one, and 5 + 7 s of others after the first 50.
        let restarted = [(100.0, (1, 50.0)), (110.0, (1, 55.0)), (120.0, (2, 1.0)), (130.0, (2, 4.0))];
        check(&restarted, (58.0, 62.0));
    }

    #[test]
    fn foreign_time_stands_still_while_ticks_lag_behind_nanoseconds() {
        check(&[(100.0, (1, 50.0)), (100.0, (1, 50.009)), (100.01, (1, 50.009))], (50.009, 50.001));
        check(&[(1.0, (1, 3.0)), (2.0, (1, 4.0))], (4.0, 0.0));
        // A machine that counts less for good: what comes on top later is seen at once.
        let less = [(100.0, (1, 50.0)), (101.0, (1, 52.0)), (102.0, (1, 54.0)), (103.0, (1, 56.0))];
        check(&[&less[..], &[(104.0, (1, 56.0))]].concat(), (56.0, 51.0));
    }

    #[test]
    fn a_vanished_service_is_named() {
        let reading = Process::default().read(&target(Some(u32::MAX), None));
        assert_eq!(reading.values, vec![]);
        assert_eq!(reading.error.unwrap(), format!("the service's main process {} is gone", u32::MAX));
    }

    #[test]
    fn a_process_can_be_read() {
        // Not this one: it has the children of other tests, which come and go.
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let reading = Process::default().read(&target(Some(process.id()), Some(std::process::id())));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(reading.value("process.count").unwrap() >= 1.0);
        assert!(reading.value("process.open_files_max_count").unwrap() >= 3.0);
        assert_eq!(reading.error, None);
    }

    /// A shell with 50 children that each burn some 5 ms and then wait for their input to end.
    const BURNERS: &str = "exec 3<&0; n=0; while [ $n -lt 50 ]; do \
        (i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; echo; read -r _ <&3) & n=$((n+1)); done; \
        exec 3<&-; wait; echo; exec sleep 60";

    /// What many processes used below a tick each is seen while they live: by the counter, and by the command that
    /// stands beside it. When they have ended, their parent's ticks tell the truth.
    #[test]
    fn small_times_of_many_processes_are_seen() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        if procfs::run_time_ns(std::process::id(), 1).is_none() {
            eprintln!("SKIPPED: this kernel keeps no times in nanoseconds (CONFIG_SCHED_INFO)");
            return;
        }
        let mut shell = Command::new("sh")
            .args(["-c", BURNERS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let burnt = lines.by_ref().take(50).filter(Result::is_ok).count();
        let mut process = Process::default();
        let pid = shell.id();
        let mut cpu_s = || process.read(&target(Some(pid), None)).value("process.cpu_s");
        let alive_s = cpu_s();
        let command = process_metric("process.cpu_s").reproduce.replace("PID", &shell.id().to_string());
        let by_hand = Command::new("sh").args(["-c", &command]).output().unwrap().stdout;
        drop(shell.stdin.take());
        let waited = lines.next().is_some_and(|line| line.is_ok());
        let ended_s = procfs::stat(shell.id()).map(|stat| ns_of(stat.reaped_cpu_ticks) as f64 / 1e9);
        let all_s = cpu_s();
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(burnt == 50 && waited);
        let (alive_s, ended_s, all_s) = (alive_s.unwrap(), ended_s.unwrap(), all_s.unwrap());
        assert!(ended_s > 0.05, "the children used {ended_s} s: too little to tell");
        assert!(alive_s >= 0.6 * ended_s, "{alive_s} s of {ended_s} s were seen");
        assert!(all_s >= alive_s);
        let by_hand: f64 = String::from_utf8(by_hand).unwrap().trim().parse().unwrap();
        assert!((by_hand - alive_s).abs() <= 0.1 * alive_s, "`{command}` shows {by_hand}, not {alive_s}");
    }

    fn process_metric(name: &str) -> Metric {
        Process::default().metrics().into_iter().find(|metric| metric.name == name).unwrap()
    }
}

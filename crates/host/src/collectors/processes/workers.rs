//! The workers of the service as processes: how many come and go, how old they are, and in which state.
//!
//! Facts: proc_pid_task_children(5), proc_pid_stat(5), proc_stat(5). The main process's list of children is read each
//! second, and of each child that is new its start time. A child that came and went between two readings is not seen:
//! `workers.started_count` is then too low, and `cpu.forks_count`, the forks of the whole machine, is above it. What the
//! children that ended cost, the kernel adds up in their parent: `workers.reaped_faults_count` rises with each of them.
//!
//! A child that runs another program file than the main process is no worker: the program that a log goes to (`|PROGRAM`).
//!
//! States are those of some workers, read in turn, for all of them: with few workers they are exact.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::os::procfs;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Workers whose state is read in one reading: some 8 us each.
const STATES_COUNT_MAX: usize = 16;

/// New workers whose start is read in one reading; that of more is read in turn.
const STARTS_COUNT_MAX: usize = 512;

/// Most workers that are remembered.
const WORKERS_COUNT_MAX: usize = 16_384;

/// Programs that Apache starts beside its workers, to write its piped logs: told by their names where their files may not be read.
const OTHER_PROGRAMS: [&str; 3] = ["rotatelogs", "cronolog", "logger"];

/// The collector.
#[derive(Debug, Default)]
pub struct Workers {
    /// The main process, by its id and start.
    main: Option<(u32, u64)>,
    /// The file of its program.
    program: Option<PathBuf>,
    known: BTreeMap<u32, Worker>,
    /// The last one whose state was read.
    last_read: u32,
    started_count: u64,
    ended_count: u64,
    reaped_faults: crate::collectors::monotonic_counter::MonotonicCounter,
}

/// A child of the main process.
#[derive(Debug, Clone, Copy)]
struct Worker {
    /// In clock ticks since boot; `None` until it was read.
    start_ticks: Option<u64>,
    state: char,
    /// Whether it is a program of another kind.
    is_other: bool,
}

impl Workers {
    /// Takes note of who is there now; the first look counts nobody as new.
    fn update(&mut self, children: &[u32], counts: bool) {
        let is_there = |pid: &u32| children.binary_search(pid).is_ok();
        let mut ended = 0;
        self.known.retain(|pid, worker| {
            ended += u64::from(!is_there(pid) && !worker.is_other);
            is_there(pid)
        });
        let new = children.iter().filter(|pid| !self.known.contains_key(pid)).copied();
        let mut started = 0;
        for (index, pid) in new.collect::<Vec<_>>().into_iter().take(WORKERS_COUNT_MAX).enumerate() {
            let stat = (index < STARTS_COUNT_MAX).then(|| procfs::stat(pid).ok()).flatten();
            let name = stat.as_ref().map_or("", |stat| stat.name.as_str());
            let worker = Worker {
                start_ticks: stat.as_ref().map(|stat| stat.start_ticks),
                state: stat.as_ref().map_or('?', |stat| stat.state),
                is_other: is_other(self.program.as_deref(), pid, name),
            };
            started += u64::from(!worker.is_other);
            self.known.insert(pid, worker);
        }
        if counts {
            self.started_count += started;
            self.ended_count += ended;
        }
    }

    /// Reads the states of those whose turn it is. One that is another process by now ended and came again.
    fn refresh(&mut self) {
        let pids: Vec<u32> = self.known.keys().copied().collect();
        let first = pids.partition_point(|pid| *pid <= self.last_read);
        let turn = pids[first..].iter().chain(&pids[..first]).take(STATES_COUNT_MAX.min(pids.len()));
        for pid in turn {
            let Ok(stat) = procfs::stat(*pid) else { continue };
            self.last_read = *pid;
            let Some(worker) = self.known.get_mut(pid) else { continue };
            if worker.start_ticks.is_some_and(|known| known != stat.start_ticks) {
                self.started_count += 1;
                self.ended_count += 1;
            }
            (worker.start_ticks, worker.state) = (Some(stat.start_ticks), stat.state);
            // It may have been met before it became what it is.
            worker.is_other = is_other(self.program.as_deref(), *pid, &stat.name);
        }
    }

    fn push(&self, now_ticks: u64, reading: &mut Reading) {
        let workers = || self.known.values().filter(|worker| !worker.is_other);
        let count = workers().count() as f64;
        reading.push("workers.count", count);
        reading.push("workers.started_count", self.started_count as f64);
        reading.push("workers.ended_count", self.ended_count as f64);
        let per_s = procfs::clock_ticks_per_s().max(1) as f64;
        let ages: Vec<f64> = workers()
            .filter_map(|worker| worker.start_ticks)
            .map(|start| now_ticks.saturating_sub(start) as f64 / per_s)
            .collect();
        reading.push_some("workers.oldest_age_s", ages.iter().copied().reduce(f64::max));
        reading.push_some("workers.newest_age_s", ages.iter().copied().reduce(f64::min));
        if !ages.is_empty() {
            let mean = ages.iter().sum::<f64>() / ages.len() as f64;
            reading.push("workers.mean_age_s", (mean * 100.0).round() / 100.0);
            reading.push("workers.young_count", ages.iter().filter(|age| **age < YOUNG_S).count() as f64);
        }
        let seen = workers().filter(|worker| worker.state != '?').count().max(1) as f64;
        for (name, states) in STATES {
            let of = workers().filter(|worker| states.contains(worker.state)).count() as f64;
            reading.push(format!("workers.{name}_count"), (of * count / seen).round());
        }
    }
}

fn program_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether a child runs another program than the main process.
fn is_other(program: Option<&Path>, pid: u32, name: &str) -> bool {
    match program.zip(program_of(pid)) {
        Some((main, own)) => main != own,
        None => OTHER_PROGRAMS.contains(&name),
    }
}

/// A worker of less is a young one.
const YOUNG_S: f64 = 10.0;

/// Metrics and the states that they count: run or wait for a processor; wait for a disk or the like; ended and not yet
/// noticed; stopped.
const STATES: [(&str, &str); 4] =
    [("running", "R"), ("blocked", "D"), ("ended_unnoticed", "ZX"), ("stopped", "Tt")];

/// The minor faults of the children that ended and were waited for, and of theirs: field 11 of proc_pid_stat(5).
fn reaped_faults(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(11 - 3)?.parse().ok()
}

/// Now, in clock ticks since boot.
fn now_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let per_s = procfs::clock_ticks_per_s().max(1);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(per_s);
    whole + u64::try_from(now.tv_nsec).unwrap_or(0) * per_s / 1_000_000_000
}

impl Collector for Workers {
    fn name(&self) -> &'static str {
        "workers"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "/proc/PID/task/PID/children";
        let ages = "ps -o etimes= --ppid PID | sort -n";
        let state = |states: &str| format!("ps -o stat= --ppid PID | grep -c '^[{states}]'");
        let mut metrics = vec![
            gauge("workers.count", SOURCE, "pgrep -c -P PID"),
            counter(
                "workers.started_count",
                SOURCE,
                "a=$(pgrep -P PID); sleep 1; pgrep -P PID | grep -vxcF \"$a\"",
            ),
            counter(
                "workers.ended_count",
                SOURCE,
                "a=$(pgrep -P PID); sleep 1; b=$(pgrep -P PID); echo \"$a\" | grep -vxcF \"$b\"",
            ),
            gauge("workers.oldest_age_s", "/proc/PID/stat of the workers", format!("{ages} | tail -n 1")),
            gauge("workers.newest_age_s", "/proc/PID/stat of the workers", format!("{ages} | head -n 1")),
            gauge(
                "workers.mean_age_s",
                "/proc/PID/stat of the workers",
                format!("{ages} | awk '{{s += $1}} END {{print s / NR}}'"),
            ),
            gauge(
                "workers.young_count",
                "/proc/PID/stat of the workers",
                format!("{ages} | awk '$1 < {YOUNG_S} {{n++}} END {{print n + 0}}'"),
            ),
            counter(
                "workers.reaped_faults_count",
                "/proc/PID/stat",
                "sed 's/.*) //' /proc/PID/stat | cut -d' ' -f9",
            ),
        ];
        metrics.extend(STATES.iter().map(|(name, states)| {
            gauge(format!("workers.{name}_count"), "/proc/PID/stat of the workers", state(states))
        }));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(main_pid) = target.service_pid else {
            return Reading::without_service(self.name(), target);
        };
        let text = procfs::read_text(format!("/proc/{main_pid}/stat"));
        let Some(main) = text.as_ref().ok().and_then(|text| procfs::parse_stat(text)) else {
            self.known.clear();
            self.main = None;
            return Reading::failed(format!("the service's main process {main_pid} is gone"));
        };
        let now = now_ticks();
        let children = procfs::children_of(main_pid);
        let is_same = self.main == Some((main_pid, main.start_ticks));
        if !is_same {
            self.known.clear();
            self.program = program_of(main_pid);
        }
        self.main = Some((main_pid, main.start_ticks));
        self.update(&children, is_same);
        self.refresh();
        let mut reading = Reading::default();
        self.push(now, &mut reading);
        let source = main.start_ticks ^ (u64::from(main_pid) << 40);
        let faults = text.ok().and_then(|text| reaped_faults(&text));
        let faults = faults.map(|faults| self.reaped_faults.update(source, faults));
        reading.push_some("workers.reaped_faults_count", faults);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process with children that wait, one more for each line that it reads, and one of another program.
    struct Parent(Child);

    impl Parent {
        fn new() -> Self {
            use std::process::Stdio;
            let script = "sleep 60 & while read line; do (read -t 60 _ <> <(:)) & done; kill $(jobs -p)";
            let child = Command::new("bash").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
            let sleeps = || {
                let first = procfs::children_of(child.id()).first().and_then(|pid| program_of(*pid));
                first.is_some_and(|program| program.ends_with("sleep"))
            };
            assert!(crate::os::process::wait_until(std::time::Duration::from_secs(20), sleeps));
            Self(child)
        }

        fn start(&mut self, children: usize) {
            use std::io::Write;
            let before = procfs::children_of(self.0.id()).len();
            self.0.stdin.as_mut().unwrap().write_all("\n".repeat(children).as_bytes()).unwrap();
            let is_there = || procfs::children_of(self.0.id()).len() >= before + children;
            assert!(crate::os::process::wait_until(std::time::Duration::from_secs(20), is_there));
        }

        fn target(&self) -> Target {
            Target { service_pid: Some(self.0.id()), ..Target::default() }
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    #[test]
    fn workers_that_come_and_go_are_counted() {
        let mut parent = Parent::new();
        parent.start(3);
        let mut workers = Workers::default();
        let first = workers.read(&parent.target());
        assert_eq!(first.value("workers.count"), Some(3.0), "{first:?}");
        assert_eq!(first.value("workers.started_count"), Some(0.0), "they were there before");
        parent.start(2);
        let one = procfs::children_of(parent.0.id())[1];
        let one = rustix::process::Pid::from_raw(one.try_into().unwrap()).unwrap();
        rustix::process::kill_process(one, rustix::process::Signal::TERM).unwrap();
        let gone =
            || !procfs::children_of(parent.0.id()).contains(&one.as_raw_nonzero().get().cast_unsigned());
        crate::os::process::wait_until(std::time::Duration::from_secs(20), gone);
        let second = workers.read(&parent.target());
        for (name, expected) in
            [("count", 4.0), ("started_count", 2.0), ("ended_count", 1.0), ("young_count", 4.0)]
        {
            assert_eq!(second.value(&format!("workers.{name}")), Some(expected), "{name} {second:?}");
        }
        let age = |name: &str| second.value(&format!("workers.{name}_age_s")).unwrap();
        assert!(age("newest") <= age("mean") && age("mean") <= age("oldest"), "{second:?}");
    }

    // All are read in turn, and one that has the id of another is a new one.
    #[test]
    fn a_process_id_that_is_used_again_is_another_worker() {
        let mut parent = Parent::new();
        parent.start(STATES_COUNT_MAX + 2);
        let mut workers = Workers::default();
        workers.read(&parent.target());
        let reused = *workers.known.keys().next_back().unwrap();
        workers.known.get_mut(&reused).unwrap().start_ticks = Some(1);
        // One whose start was not read yet is none.
        workers.known.values_mut().next().unwrap().start_ticks = None;
        let counts: Vec<_> =
            (0..2).map(|_| workers.read(&parent.target()).value("workers.started_count").unwrap()).collect();
        assert_eq!(counts[1], 1.0, "{counts:?}");
    }

    #[test]
    fn a_service_that_is_gone_is_named() {
        let mut parent = Parent::new();
        let target = parent.target();
        drop(parent.0.stdin.take());
        parent.0.wait().unwrap();
        assert!(Workers::default().read(&target).error.unwrap().contains("is gone"));
        assert_eq!(reaped_faults("7 (a) b) S 1 2 3 4 5 6 7 8 9 10"), Some(8.0));
        assert_eq!(reaped_faults(""), None);
    }
}

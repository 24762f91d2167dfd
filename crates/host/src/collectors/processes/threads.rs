//! The busiest thread of the service and of each program behind it: a program that does its work in one thread is full when
//! that thread has one core, however many are idle.
//!
//! Facts: clock_getcpuclockid(3) tells the time of a process in one call; proc_pid_schedstat(5) (`/proc/PID/task/TID/schedstat`:
//! nanoseconds on a processor) that of a thread, and where the kernel does not count it proc_pid_stat(5) does, in ticks.
//!
//! Threads of one process may also share one core among them, as those of Python and Ruby do behind a lock of their interpreter:
//! then the process has one core, and none of its threads has. So the busiest process is told as well.
//!
//! Threads are read of processes alone that used half a core since the last reading: there are never more of those than
//! twice the cores. Where there is none, the busiest process stands for its threads, which were no busier.

use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use std::collections::BTreeMap;
use std::time::Instant;

/// Processes of one program that are followed, and readings after which they are listed again.
const PROCESSES_MAX: usize = 1_024;
const LISTED_EVERY: u32 = 4;
/// Threads of one process that are read.
const THREADS_MAX: usize = 512;
/// A process that used a smaller part of a core has no busy thread.
const CANDIDATE: f64 = 0.5;
/// A thread that used this part of a core is saturated: what interrupts it and what it waits for now and then is the rest.
const SATURATED: f64 = 0.85;
/// Readings that are nearer to each other say nothing about a second.
const ELAPSED_MIN_NS: f64 = 2e8;

/// The collector.
#[derive(Debug, Default)]
pub struct Threads {
    /// By the main process.
    programs: BTreeMap<u32, Program>,
}

/// What was read last of a program.
#[derive(Debug, Default)]
struct Program {
    pids: Vec<u32>,
    readings_count: u32,
    read_at: Option<Instant>,
    /// Nanoseconds on a processor.
    processes: BTreeMap<u32, u64>,
    threads: BTreeMap<u32, u64>,
}

/// The share of a core that the busiest thread used, how many were saturated, and the cores of the busiest process.
#[derive(Debug, PartialEq)]
struct Busiest {
    fraction: f64,
    saturated_count: u64,
    process: f64,
}

impl Program {
    /// Reads the program; `None` at the first reading, which has no time before it.
    fn read(&mut self, main_pid: u32) -> Option<Busiest> {
        if self.readings_count.is_multiple_of(LISTED_EVERY) {
            self.pids = procfs::tree_of(main_pid).into_iter().take(PROCESSES_MAX).collect();
        }
        self.readings_count = self.readings_count.wrapping_add(1);
        let now = Instant::now();
        let elapsed_ns = self.read_at.map(|before| now.duration_since(before).as_nanos() as f64);
        if elapsed_ns.is_some_and(|elapsed| elapsed < ELAPSED_MIN_NS) {
            return None;
        }
        self.read_at = Some(now);
        let processes: BTreeMap<u32, u64> =
            self.pids.iter().filter_map(|pid| Some((*pid, procfs::run_time_ns(*pid)?))).collect();
        let before = std::mem::replace(&mut self.processes, processes);
        let elapsed_ns = elapsed_ns?;
        let used = shares(&before, &self.processes, elapsed_ns);
        let candidates = used.iter().filter(|(_, share)| **share >= CANDIDATE).map(|(pid, _)| *pid);
        let threads: BTreeMap<u32, u64> = candidates.flat_map(threads_of).collect();
        let before = std::mem::replace(&mut self.threads, threads);
        Some(busiest(&used, &shares(&before, &self.threads, elapsed_ns)))
    }
}

/// What each used of a core since it was read before.
fn shares(before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>, elapsed_ns: f64) -> BTreeMap<u32, f64> {
    let used = |(id, ns): (&u32, &u64)| Some((*id, ns.saturating_sub(*before.get(id)?) as f64 / elapsed_ns));
    now.iter().filter_map(used).collect()
}

/// Of the shares of processes and of the threads of the busy ones. A process that was not busy before has no thread that was
/// read twice: it is told with the next reading.
fn busiest(processes: &BTreeMap<u32, f64>, threads: &BTreeMap<u32, f64>) -> Busiest {
    let largest = |of: &BTreeMap<u32, f64>| of.values().copied().fold(0.0, f64::max);
    let quiet = processes.values().copied().filter(|share| *share < CANDIDATE).fold(0.0, f64::max);
    let fraction = if threads.is_empty() { quiet } else { largest(threads).max(quiet) };
    let saturated_count = threads.values().filter(|share| **share >= SATURATED).count() as u64;
    let rounded = |share: f64| (share * 1e4).round() / 1e4;
    Busiest { fraction: rounded(fraction.min(1.0)), saturated_count, process: rounded(largest(processes)) }
}

/// The threads of a process and the time that each of them has run.
fn threads_of(pid: u32) -> Vec<(u32, u64)> {
    let ids = procfs::threads_of(pid).into_iter();
    ids.take(THREADS_MAX).filter_map(|thread| Some((thread, thread_ns(pid, thread)?))).collect()
}

fn thread_ns(pid: u32, thread: u32) -> Option<u64> {
    let folder = format!("/proc/{pid}/task/{thread}");
    let counted = procfs::read_text(format!("{folder}/schedstat")).ok();
    let counted = counted.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
    counted.filter(|ns| *ns > 0).or_else(|| {
        let stat = procfs::parse_stat(&procfs::read_text(format!("{folder}/stat")).ok()?)?;
        Some(stat.cpu_ticks.saturating_mul(1_000_000_000 / procfs::clock_ticks_per_s().max(1)))
    })
}

impl Collector for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn metrics(&self) -> Vec<Metric> {
        const SOURCE: &str = "clocks of processes, /proc/PID/task/TID/schedstat";
        // The second of two looks is that of the second between them.
        let by_hand = |pids: &str, print: &str| {
            format!(
                "top -H -b -d 1 -n 2 -p {pids} | awk '/^top/ {{n++}} n == 2 && $1 ~ /^[0-9]+$/ {{s = $9 / 100; if (s > m) m = s; c += s >= {SATURATED}}} END {{print {print}}}'"
            )
        };
        let by_process = |pids: &str| by_hand(pids, "m + 0").replace("top -H ", "top ");
        let own = "$(echo PID $(pgrep -P PID) | tr ' ' '\\n' | head -n 20 | paste -sd,)";
        let backend = "$(pgrep $(echo INSTANCE | sed 's/_[0-9]$//; s/_/./g') | head -n 20 | paste -sd,)";
        vec![
            gauge("threads.busiest_fraction", SOURCE, by_hand(own, "m + 0")),
            gauge("threads.saturated_count", SOURCE, by_hand(own, "c + 0")),
            gauge("threads.busiest_process_fraction", SOURCE, by_process(own)),
            gauge("threads.*.busiest_fraction", SOURCE, by_hand(backend, "m + 0")),
            gauge("threads.*.saturated_count", SOURCE, by_hand(backend, "c + 0")),
            gauge("threads.*.busiest_process_fraction", SOURCE, by_process(backend)),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let front = target.service_pid.map(|pid| (String::new(), pid));
        let behind = target.named_backends().map(|(name, backend)| (format!("{name}."), backend.pid));
        let all: Vec<(String, u32)> = front.into_iter().chain(behind).collect();
        if target.service_pid.is_none() {
            reading.lacks_service(self.name(), target);
        }
        self.programs.retain(|pid, _| all.iter().any(|(_, known)| known == pid));
        for (name, pid) in all {
            let Some(busiest) = self.programs.entry(pid).or_default().read(pid) else { continue };
            reading.push(format!("threads.{name}busiest_fraction"), busiest.fraction);
            reading.push(format!("threads.{name}saturated_count"), busiest.saturated_count as f64);
            reading.push(format!("threads.{name}busiest_process_fraction"), busiest.process);
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_counts_and_a_quiet_process_stands_for_its_own() {
        let of = |all: &[(u32, f64)]| all.iter().copied().collect::<BTreeMap<u32, f64>>();
        for (processes, threads, fraction, saturated_count, process) in [
            // One thread of four has the core of its process.
            (&[(1, 1.0), (2, 0.1)][..], &[(1, 0.02), (3, 0.97), (4, 0.01)][..], 0.97, 1, 1.0),
            // Two processes of one thread each.
            (&[(1, 0.99), (2, 0.9)], &[(1, 0.99), (2, 0.9)], 0.99, 2, 0.99),
            // Many threads share the work.
            (&[(1, 1.9)], &[(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.4)], 0.5, 0, 1.9),
            (&[(1, 0.3), (2, 0.2)], &[], 0.3, 0, 0.3),
            // It has just become busy.
            (&[(1, 0.9), (2, 0.2)], &[], 0.2, 0, 0.9),
            (&[], &[], 0.0, 0, 0.0),
        ] {
            let expected = Busiest { fraction, saturated_count, process };
            assert_eq!(busiest(&of(processes), &of(threads)), expected, "{processes:?} {threads:?}");
        }
        let before = BTreeMap::from([(1, 100), (2, 50)]);
        let now = BTreeMap::from([(1, 600), (2, 40), (3, 900)]);
        assert_eq!(shares(&before, &now, 1000.0), of(&[(1, 0.5), (2, 0.0)]));
    }

    #[test]
    fn the_time_of_a_thread_of_this_process_rises() {
        let pid = std::process::id();
        let until = Instant::now() + std::time::Duration::from_millis(40);
        while Instant::now() < until {}
        let all = threads_of(pid);
        assert!(!all.is_empty() && all.iter().any(|(_, ns)| *ns > 0), "{all:?}");
    }
}

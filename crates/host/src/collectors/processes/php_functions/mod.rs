//! What the processes of PHP do: the functions that they were in at 20 moments of each second, at work or waiting.
//!
//! Facts: see `frames.rs` and `memory.rs`; phpspy shows the same. Nothing is changed in a process and none is stopped: its memory is
//! read while it goes on, so now and then a moment is not told. What waits in a function (for a database, another service, a lock)
//! is told apart from what computes: proc_pid_stat(5), state `R`.
//!
//! A value is told for each function that was met since the last reading, and none for the others, as of `profile`.

mod frames;
mod memory;

use super::profile::plain;
use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use memory::ProcessMemory;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Moments of a reading, and how far they are apart: a second less what the reading itself takes.
const MOMENTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(45);
/// Processes that are looked at in a reading, others in the next one: so many take 19 ms of a core each second in a
/// build for tests, and less in one for use.
const PROCESSES_MAX: usize = 16;
/// Functions that are told of a reading, the others together.
const PLACES_MAX: usize = 60;
const OTHERS: &str = "others";
/// A function that was met less often in a reading is one of the others: memory is read while it changes.
const MET_MIN: u64 = 2;

const SAMPLES: &str = "php_functions.samples_count";
const RUNNING: &str = "php_functions.*.running_count";
const WAITING: &str = "php_functions.*.waiting_count";

/// Where the executor's globals are in the processes of a program.
#[derive(Debug, Clone, Copy)]
struct Executor {
    globals: u64,
    /// Of the frame in them; the same for all processes once one has had a request.
    offset: Option<u64>,
}

/// The collector.
#[derive(Debug, Default)]
pub struct PhpFunctions {
    /// By the main process of the program: `None` where it has no PHP.
    executors: BTreeMap<u32, Option<Executor>>,
    /// Where the next processes to be looked at begin.
    turn: usize,
}

/// How often a function was met, at work and waiting.
type Places = BTreeMap<String, [u64; 2]>;

impl PhpFunctions {
    /// The processes that are looked at now, each with its program's main process.
    fn choose(&mut self, mains: &BTreeSet<u32>) -> Vec<(u32, u32)> {
        self.executors.retain(|main, _| mains.contains(main));
        for main in mains {
            self.executors.entry(*main).or_insert_with(|| {
                let globals = memory::executor_globals(*main);
                globals.map(|globals| Executor { globals, offset: None })
            });
        }
        let with_php = self.executors.iter().filter(|(_, executor)| executor.is_some());
        let all: Vec<(u32, u32)> = with_php
            .flat_map(|(&main, _)| {
                procfs::tree_of(main).into_iter().filter(move |pid| *pid != main).map(move |pid| (main, pid))
            })
            .collect();
        let count = all.len().min(PROCESSES_MAX);
        let first = self.turn;
        self.turn = if all.len() > count { (first + count) % all.len() } else { 0 };
        (0..count).map(|step| all[(first + step) % all.len()]).collect()
    }

    /// The function that a process is in now, and whether it waits there.
    fn sample(&mut self, main: u32, pid: u32, memory: &ProcessMemory) -> Option<(String, bool)> {
        let executor = self.executors.get_mut(&main)?.as_mut()?;
        if executor.offset.is_none() {
            executor.offset = frames::current_frame_offset(memory, executor.globals);
        }
        let place = frames::current_function(memory, executor.globals, executor.offset?)?;
        let state = procfs::stat(pid).ok()?.state;
        let place: Vec<String> = place.split(';').map(plain).collect();
        Some((place.join(";"), state != 'R'))
    }
}

/// The functions that were met most often, and the rest together.
fn bounded(places: Places) -> Places {
    let mut by_count: Vec<(String, [u64; 2])> = places.into_iter().collect();
    by_count.sort_by_key(|(_, [running, waiting])| std::cmp::Reverse(running + waiting));
    let mut kept = Places::new();
    for (at, (place, counts)) in by_count.into_iter().enumerate() {
        // Met once, it may be what stood there for a moment only.
        let is_told = at < PLACES_MAX && counts[0] + counts[1] >= MET_MIN;
        let place = if is_told { place } else { OTHERS.to_owned() };
        let sum = kept.entry(place).or_default();
        *sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    kept
}

impl Collector for PhpFunctions {
    fn name(&self) -> &'static str {
        "php_functions"
    }

    fn metrics(&self) -> Vec<Metric> {
        let of = |name: &str| {
            gauge(name, "/proc/PID/mem of PHP", "phpspy -H 20 -p PID | sort | uniq -c | sort -rn")
        };
        [SAMPLES, RUNNING, WAITING].map(of).to_vec()
    }

    fn read(&mut self, target: &Target) -> Reading {
        let began = Instant::now();
        let pids = target.service_pid.into_iter().chain(target.backends.iter().map(|one| one.pid));
        let mains: BTreeSet<u32> = pids.filter(|pid| *pid != 0).collect();
        let chosen = self.choose(&mains);
        let mut reading = Reading::default();
        if chosen.is_empty() {
            return reading;
        }
        let opened = |(main, pid): (u32, u32)| ProcessMemory::open(pid).map(|memory| (main, pid, memory));
        let (all, refused): (Vec<_>, Vec<_>) = chosen.into_iter().map(opened).partition(Result::is_ok);
        let all: Vec<_> = all.into_iter().flatten().collect();
        if let (true, Some(Err(error))) = (all.is_empty(), refused.first()) {
            let why = format!("the memory of PHP's processes cannot be read: {error}");
            reading.lacks(self.name(), why, "run as root, or with CAP_SYS_PTRACE");
            return reading;
        }
        let (mut places, mut samples_count) = (Places::new(), 0_u64);
        for moment in 0..MOMENTS {
            std::thread::sleep((PAUSE * moment).saturating_sub(began.elapsed()));
            for (main, pid, memory) in &all {
                if let Some((place, waits)) = self.sample(*main, *pid, memory) {
                    places.entry(place).or_default()[usize::from(waits)] += 1;
                    samples_count += 1;
                }
            }
        }
        reading.push(SAMPLES, samples_count as f64);
        for (place, counts) in bounded(places) {
            for (template, count) in [RUNNING, WAITING].iter().zip(counts).filter(|(_, count)| *count > 0) {
                reading.push(template.replace('*', &place), count as f64);
            }
        }
        reading
    }
}

#[cfg(test)]
mod tests;

//! What the processes of PHP do: the functions that they were in at 20 moments of each second, at work or waiting.
//!
//! Facts: see `frames.rs` and `memory.rs`; phpspy shows the same. Nothing is changed in a process and none is stopped: its memory is
//! read while it goes on, so now and then a moment is not told. What waits in a function (for a database, another service, a lock)
//! is told apart from what computes: proc_pid_stat(5), state `R`.
//!
//! A value is told for each function that was met since the last reading, and none for the others, as of `profile`: of PHP-FPM behind
//! the pool that it was met in, `www/Shop::prices;usleep`, as not every pool works for the site.

mod executor;
mod frames;
mod memory;
mod met;

use super::profile::plain_letter;
use crate::collectors::{Collector, Metric, Reading, Target, gauge};
use crate::os::procfs;
use crate::services::php_fpm::pool_of;
use executor::{Executor, RIGHTS};
use memory::ProcessMemory;
use met::{Places, RecentFunctions, bounded};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use webdyno_model::service::ServiceSnapshot;

/// Moments of a reading, and how far they are apart: a second less what the reading itself takes.
const MOMENTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(45);
/// Processes that are looked at in a reading, others in the next one: so many take 11 ms of a core each second.
const PROCESSES_MAX: usize = 16;
/// Letters of a name: of a longer one its end, as method and class stand there.
const NAME_LETTERS_MAX: usize = 72;
/// Readings after which children are listed anew, and after which it is looked again where PHP is.
const LISTED_FOR: u64 = 4;
const MAPPED_FOR: u64 = 16;
/// Readings without a look, after the memory of all was refused.
const REFUSED_FOR: u64 = 60;

const SAMPLES: &str = "php_functions.samples_count";
const RUNNING: &str = "php_functions.*.running_count";
const WAITING: &str = "php_functions.*.waiting_count";

/// The collector.
#[derive(Debug, Default)]
pub struct PhpFunctions {
    /// By the main process of the program.
    executors: BTreeMap<u32, Executor>,
    met: RecentFunctions,
    /// Where the next processes to be looked at begin.
    turn: usize,
    readings_count: u64,
    /// Whether the last reading met nothing, or a process had ended: what is known of them may be what was before a reload.
    is_stale: bool,
    /// Why no memory can be read, what helps, and the reading in which it is tried again.
    refused: Option<(String, &'static str, u64)>,
}

/// A process that is looked at.
struct Opened {
    main: u32,
    pid: u32,
    /// What its functions are told behind.
    pool: String,
    memory: ProcessMemory,
}

impl PhpFunctions {
    /// Looks where PHP is and which processes have it, as far as that may have changed.
    fn update_executors(&mut self, target: &Target) {
        let pids = target.service_pid.into_iter().chain(target.backends.iter().map(|one| one.pid));
        let mains: BTreeSet<u32> = pids.filter(|pid| *pid != 0).collect();
        self.executors.retain(|main, _| mains.contains(main));
        let (is_stale, count) = (std::mem::take(&mut self.is_stale), self.readings_count);
        for main in mains {
            let is_new = !self.executors.contains_key(&main);
            let executor = self.executors.entry(main).or_default();
            if is_new || is_stale || count.is_multiple_of(MAPPED_FOR) {
                executor.find(main, is_known_as_php(target, main));
            }
            if executor.children.is_empty() || is_stale || count.is_multiple_of(LISTED_FOR) {
                executor.list(main);
            }
        }
    }

    /// The processes that are looked at now, each with its program's main process.
    fn choose(&mut self) -> Vec<(u32, u32)> {
        let of = |(&main, executor): (&u32, &Executor)| {
            executor.children.iter().map(move |pid| (main, *pid)).collect::<Vec<_>>()
        };
        let all: Vec<(u32, u32)> = self.executors.iter().flat_map(of).collect();
        let count = all.len().min(PROCESSES_MAX);
        let first = self.turn;
        self.turn = if all.len() > count { (first + count) % all.len() } else { 0 };
        (0..count).map(|step| all[(first + step) % all.len()]).collect()
    }

    /// Those whose memory can be read; an error where that of none can.
    fn open(&mut self, target: &Target) -> io::Result<Vec<Opened>> {
        let (mut all, mut refused) = (vec![], None);
        for (main, pid) in self.choose() {
            match ProcessMemory::open(pid) {
                Ok(memory) => all.push(Opened { main, pid, pool: pool_prefix(target, main, pid), memory }),
                Err(error) if memory::has_ended(&error) => self.is_stale = true,
                Err(error) => refused = Some(error),
            }
        }
        refused.filter(|_| all.is_empty()).map_or(Ok(all), Err)
    }

    /// The function that a process is in now, and whether it waits there.
    fn sample(&mut self, process: &Opened) -> Option<(String, bool)> {
        let executor = self.executors.get_mut(&process.main)?;
        let globals = executor.globals?;
        if executor.offset.is_none() {
            executor.offset = frames::current_frame_offset(&process.memory, globals);
        }
        let place = frames::current_function(&process.memory, globals, executor.offset?)?;
        let state = procfs::stat(process.pid).ok()?.state;
        let place: Vec<String> = place.split(';').map(end_of).collect();
        Some((format!("{}{}", process.pool, place.join(";")), state != 'R'))
    }

    /// How often each function was met in the moments of a reading.
    fn sample_all(&mut self, all: &[Opened]) -> Places {
        let (began, mut places) = (Instant::now(), Places::new());
        for moment in 0..MOMENTS {
            std::thread::sleep((PAUSE * moment).saturating_sub(began.elapsed()));
            if is_late(moment, began.elapsed()) {
                continue;
            }
            for process in all {
                if let Some((place, waits)) = self.sample(process) {
                    places.entry(place).or_default()[usize::from(waits)] += 1;
                }
            }
        }
        places
    }
}

/// Whether it is the turn of the next moment already: what is looked at late, one look right behind the other, is one look.
fn is_late(moment: u32, elapsed: Duration) -> bool {
    elapsed > PAUSE * (moment + 1)
}

/// Whether a program is PHP or has it inside, by what is known of it where its memory is not for us.
fn is_known_as_php(target: &Target, main: u32) -> bool {
    let is_module = |module: &String| module.starts_with("php") && module.ends_with("_module");
    let is_php = |one: &ServiceSnapshot| one.service == "php_fpm" || one.modules.iter().any(is_module);
    let mut known = target.service.as_deref().into_iter().chain(target.backends.iter());
    known.any(|one| one.pid == main && is_php(one))
}

/// The pool of a process as it stands before its functions, named as the metrics of `php_fpm` name it: with the main process where
/// several have one of that name. Nothing where it has none.
fn pool_prefix(target: &Target, main: u32, pid: u32) -> String {
    let Some(name) = pool_of(pid) else { return String::new() };
    let all = target.services("php_fpm").flat_map(|service| &service.endpoints);
    let of_main =
        if all.filter(|pool| pool.name == name).count() > 1 { format!("@{main}") } else { String::new() };
    format!("{}{of_main}/", name.chars().map(plain_letter).collect::<String>())
}

/// A name as it may be a part of a metric's.
fn end_of(name: &str) -> String {
    let cut = name.chars().count().saturating_sub(NAME_LETTERS_MAX);
    let end = name.chars().skip(cut).map(plain_letter);
    (if cut > 0 { ".." } else { "" }).chars().chain(end).collect()
}

/// Why memory cannot be read, and what helps; `ptrace_scope` is what Yama says (Documentation/admin-guide/LSM/Yama.rst of the
/// kernel), if it is there.
fn refusal(error: &io::Error, ptrace_scope: &str) -> (String, &'static str) {
    let why = format!("the memory of PHP's processes cannot be read: {error}");
    match ptrace_scope.trim() {
        "" | "0" => (why, RIGHTS),
        "3" => (
            format!("{why}; kernel.yama.ptrace_scope is 3"),
            "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d and reboot: 3 cannot be changed by `sysctl`",
        ),
        scope => (format!("{why}; kernel.yama.ptrace_scope is {scope}"), RIGHTS),
    }
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
        let mut reading = Reading::default();
        self.readings_count += 1;
        if let Some((why, how, _)) = self.refused.as_ref().filter(|(.., until)| self.readings_count < *until)
        {
            reading.lacks(self.name(), why, *how);
            return reading;
        }
        self.update_executors(target);
        let lacks = self.executors.values().filter_map(|executor| executor.lacks.as_ref());
        lacks.for_each(|(why, how)| reading.lacks(self.name(), why, *how));
        let opened = self.open(target);
        self.refused = opened.as_ref().err().map(|error| {
            let scope = procfs::read_text("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
            let (why, how) = refusal(error, &scope);
            reading.lacks(self.name(), &why, how);
            (why, how, self.readings_count + REFUSED_FOR)
        });
        let Some(all) = opened.ok().filter(|all| !all.is_empty()) else { return reading };
        let places = self.sample_all(&all);
        let samples_count: u64 = places.values().flatten().sum();
        self.is_stale |= samples_count == 0;
        self.met.add(&places, self.readings_count);
        reading.push(SAMPLES, samples_count as f64);
        for (place, counts) in bounded(places, &self.met) {
            for (template, count) in [RUNNING, WAITING].iter().zip(counts).filter(|(_, count)| *count > 0) {
                reading.push(template.replace('*', &place), count as f64);
            }
        }
        reading
    }
}

#[cfg(test)]
mod tests;

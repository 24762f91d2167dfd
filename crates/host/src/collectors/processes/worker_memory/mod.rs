//! What the workers of the service hold in memory, each shared page counted once, and whether they grow.
//!
//! Facts: proc_pid_smaps(5), Documentation/filesystems/proc.rst (smaps_rollup, since Linux 4.14; older kernels have
//! smaps, whose lines sum up to the same). PSS is the honest memory of forked workers; the resident size counts
//! shared pages once per process. Reading walks the page tables and holds the process's memory lock meanwhile: of a
//! small worker it takes a tenth of a millisecond, of a fat one several. So workers are read in turn, as many as the
//! time allows that a reading may use on average, by what the last ones took; the last reading of each is kept while it
//! lives.
//!
//! The workers are the children of the main process, or that itself when it has none. Until every worker has been
//! read once, sums are the mean of those read times the number of workers, plus the main process.
//!
//! A leak is seen in two ways. Over workers: the older one is, the more it holds (least squares over all that are known,
//! memory against age). Within workers: each one holds more than before (least squares over all readings, each worker
//! against its own mean), which also tells when all are of one age. What a worker that is only warming up gains is in
//! both, too: a growth that goes on is one that the oldest workers still have.

use crate::collectors::{Collector, Metric, Reading, Target, gauge, io_error_text};
use crate::os::procfs;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

mod growth;

use growth::{Line, Trend};

/// Processor time that readings may take on average.
const READING_US: i64 = 1_000;

/// Time that was not used, at most: more would come at once.
const SAVED_US_MAX: i64 = 5_000;

/// Workers read at a time, however little they take.
const READ_AT_ONCE_MAX: usize = 32;

/// Fewer workers, or workers of one age, tell nothing of growth over workers.
const GROWTH_WORKERS_COUNT_MIN: usize = 8;
const GROWTH_AGES_S_MIN: f64 = 10.0;

/// Squared deviations of ages, added up, below which readings are too near to each other to tell of growth: those of ten
/// workers that were read at the begin and at the end of two seconds and a half, say.
const GROWTH_SECONDS_SQUARED_MIN: f64 = 30.0;

/// Growth is told for so many seconds.
const GROWTH_S: f64 = 1000.0;

/// The memory of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Smaps {
    /// Its share of all pages it uses.
    pub pss_bytes: u64,
    /// Its share of pages that were swapped out; not told before Linux 4.3.
    pub swap_pss_bytes: Option<u64>,
    /// Pages that only it uses: what one more worker costs.
    pub private_bytes: u64,
    /// Pages that others use, too, each in full.
    pub shared_bytes: u64,
    /// All pages in memory, each in full.
    pub rss_bytes: u64,
}

/// Parses smaps_rollup, or smaps by summing over all mappings. `None` when there is no PSS in it (kernel threads,
/// processes that are ending).
pub fn parse_smaps(text: &str) -> Option<Smaps> {
    let (mut pss, mut swap, mut private, mut shared, mut rss) = (None, None, None, None, None);
    for (key, rest) in text.lines().filter_map(|line| line.split_once(':')) {
        let sum: &mut Option<u64> = match key {
            "Pss" => &mut pss,
            "SwapPss" => &mut swap,
            "Private_Clean" | "Private_Dirty" => &mut private,
            "Shared_Clean" | "Shared_Dirty" => &mut shared,
            "Rss" => &mut rss,
            _ => continue,
        };
        let value: Option<u64> = rest.trim().strip_suffix(" kB").and_then(|number| number.parse().ok());
        if let Some(value) = value {
            *sum = Some(sum.unwrap_or(0).saturating_add(value.saturating_mul(1024)));
        }
    }
    Some(Smaps {
        pss_bytes: pss?,
        swap_pss_bytes: swap,
        private_bytes: private?,
        shared_bytes: shared.unwrap_or(0),
        rss_bytes: rss.unwrap_or(0),
    })
}

/// Reads one process; `None` when it has no memory of its own.
pub(crate) fn read_smaps(pid: u32) -> io::Result<Option<Smaps>> {
    let text = match procfs::read_text(format!("/proc/{pid}/smaps_rollup")) {
        Err(error) if error.kind() == ErrorKind::NotFound => procfs::read_text(format!("/proc/{pid}/smaps"))?,
        other => other?,
    };
    Ok(parse_smaps(&text))
}

/// The last reading of one process.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// With the pid it names one process for ever.
    start_ticks: u64,
    /// The round in which it was read.
    round: u64,
    /// Its age then.
    age_s: f64,
    smaps: Smaps,
    /// All its readings so far.
    trend: Trend,
}

impl Known {
    /// All that it holds, also what was swapped out.
    fn held_bytes(&self) -> f64 {
        self.smaps.pss_bytes.saturating_add(self.smaps.swap_pss_bytes.unwrap_or(0)) as f64
    }
}

/// The collector.
#[derive(Debug, Default)]
pub struct WorkerMemory {
    round: u64,
    known: BTreeMap<u32, Known>,
    /// Time that may still be used; below zero when a reading took more than its share.
    saved_us: i64,
    /// What workers that have ended told of growth while they lived.
    ended: Line,
}

impl WorkerMemory {
    /// Forgets what has ended.
    fn forget_ended(&mut self, alive: &[u32]) {
        let ended = self.known.iter().filter(|(pid, _)| alive.binary_search(pid).is_err());
        let ended: Vec<(u32, Line)> = ended.map(|(pid, known)| (*pid, known.trend.line())).collect();
        for (pid, line) in ended {
            self.ended.add(line);
            self.known.remove(&pid);
        }
    }

    /// Whose turn it is: workers never read first, then those whose reading is oldest.
    fn turn(&self, workers: &[u32]) -> Vec<u32> {
        let mut turn = workers.to_vec();
        turn.sort_by_key(|pid| (self.known.get(pid).map(|known| known.round), *pid));
        turn.truncate(READ_AT_ONCE_MAX);
        turn
    }

    /// Reads those whose turn it is, as long as there is time; gives the first refusal.
    fn refresh(&mut self, turn: impl Iterator<Item = u32>) -> Option<String> {
        self.saved_us = (self.saved_us + READING_US).min(SAVED_US_MAX);
        for pid in turn {
            if self.saved_us <= 0 {
                return None;
            }
            let begun_us = thread_us();
            let read = self.read_one(pid);
            self.saved_us -= thread_us() - begun_us;
            match read {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    let file = format!("/proc/{pid}/smaps_rollup");
                    return Some(format!("{}: run as root", io_error_text("read", &file, &error)));
                }
                // It ended meanwhile, or has no memory of its own.
                _ => {}
            }
        }
        None
    }

    fn read_one(&mut self, pid: u32) -> io::Result<()> {
        let stat = procfs::stat(pid)?;
        let Some(smaps) = read_smaps(pid)?.filter(|_| !stat.has_ended()) else { return Ok(()) };
        let age_s = procfs::age_s(stat.start_ticks);
        // Another process may have the id by now.
        let same = self.known.get(&pid).filter(|known| known.start_ticks == stat.start_ticks);
        let trend = same.map_or_else(Trend::default, |known| known.trend);
        let mut known = Known { start_ticks: stat.start_ticks, round: self.round, age_s, smaps, trend };
        known.trend.add(age_s, known.held_bytes());
        self.known.insert(pid, known);
        Ok(())
    }

    /// Adds sums and means over the workers, extrapolated from those that were read.
    fn values(&self, main_pid: u32, workers: &[u32], reading: &mut Reading) {
        let read: Vec<Smaps> = workers.iter().filter_map(|pid| Some(self.known.get(pid)?.smaps)).collect();
        let mean = |of: fn(&Smaps) -> Option<u64>| {
            let values: Vec<f64> = read.iter().filter_map(of).map(|bytes| bytes as f64).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        // Rounded to bytes: anything finer is dust of the division.
        let sum = |of: fn(&Smaps) -> Option<u64>| {
            let main = match self.known.get(&main_pid) {
                _ if workers.contains(&main_pid) => 0,
                known => of(&known?.smaps)?,
            };
            Some((mean(of)? * workers.len() as f64 + main as f64).round())
        };
        reading.push_some("worker_memory.pss_sum_bytes", sum(|smaps| Some(smaps.pss_bytes)));
        reading.push_some("worker_memory.swap_pss_sum_bytes", sum(|smaps| smaps.swap_pss_bytes));
        let mut push = |name: &str, value: Option<f64>| {
            reading.push_some(format!("worker_memory.{name}"), value.map(f64::round));
        };
        push("pss_mean_bytes", mean(|smaps| Some(smaps.pss_bytes)));
        push("private_mean_bytes", mean(|smaps| Some(smaps.private_bytes)));
        push("shared_mean_bytes", mean(|smaps| Some(smaps.shared_bytes)));
        let most = |of: fn(&Smaps) -> u64| read.iter().map(of).max().map(|bytes| bytes as f64);
        push("pss_max_bytes", most(|smaps| smaps.pss_bytes));
        push("rss_max_bytes", most(|smaps| smaps.rss_bytes).filter(|bytes| *bytes > 0.0));
        reading.push("worker_memory.workers_count", workers.len() as f64);
        reading.push("worker_memory.workers_read_count", read.len() as f64);
    }

    /// Adds by how much workers grow.
    fn growth(&self, workers: &[u32], reading: &mut Reading) {
        let known = || workers.iter().filter_map(|pid| self.known.get(pid));
        let mut over = Trend::default();
        known().for_each(|known| over.add(known.age_s, known.held_bytes()));
        let ages = known().map(|known| known.age_s);
        let apart = ages.clone().reduce(f64::max).zip(ages.reduce(f64::min)).map(|(old, young)| old - young);
        let tells = known().count() >= GROWTH_WORKERS_COUNT_MIN && apart >= Some(GROWTH_AGES_S_MIN);
        let line = Some(over.line()).filter(|_| tells);
        let slope = line.and_then(|line| line.slope());
        reading.push_some("worker_memory.growth_by_age_bytes", slope.map(|slope| (slope * GROWTH_S).round()));
        let fit = line.and_then(|line| line.explained_fraction());
        let rounded = |fraction: f64| (fraction * 1000.0).round() / 1000.0;
        reading.push_some("worker_memory.growth_by_age_explained_fraction", fit.map(rounded));
        let mut within = self.ended;
        known().for_each(|known| within.add(known.trend.line()));
        let slope = within.slope().filter(|_| within.seconds_squared() >= GROWTH_SECONDS_SQUARED_MIN);
        reading.push_some("worker_memory.growth_within_bytes", slope.map(|slope| (slope * GROWTH_S).round()));
    }
}

/// Processor time of this thread.
fn thread_us() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

/// Age and memory of each worker by hand, and what a line through them shows.
fn line_by_hand(show: &str) -> String {
    format!(
        "for p in $(pgrep -P PID); do ps -o etimes= -p $p; awk '/^(Pss|SwapPss):/ {{s+=$2*1024}} END {{print s}}' \
         /proc/$p/smaps_rollup; done | paste - - | awk '{{n++; x+=$1; y+=$2; xx+=$1*$1; xy+=$1*$2; yy+=$2*$2}} END {{{show}}}'"
    )
}

impl Collector for WorkerMemory {
    fn name(&self) -> &'static str {
        "worker_memory"
    }

    fn metrics(&self) -> Vec<Metric> {
        // PID is the service's main process.
        let source = "/proc/PID/smaps_rollup of the service's processes";
        let each = |keys: &str, pids: &str, end: &str| {
            format!(
                "cat $(printf '/proc/%s/smaps_rollup ' {pids}) | awk '/^({keys}):/ {{s+=$2}} END {{{end}}}'"
            )
        };
        let (all, workers) = ("PID $(pgrep -P PID)", "$(pgrep -P PID)");
        let mean = "print s*1024/'$(pgrep -c -P PID)'";
        let most = |key: &str| {
            format!(
                "grep -h ^{key}: /dev/null $(printf '/proc/%s/smaps_rollup ' {workers}) | sort -nk2 | tail -n 1 | awk '{{print $2*1024}}'"
            )
        };
        let slope = "print (n*xy-x*y)/(n*xx-x*x)*1000";
        let fit = "print (n*xy-x*y)^2/((n*xx-x*x)*(n*yy-y*y))";
        vec![
            gauge("worker_memory.pss_sum_bytes", source, each("Pss", all, "print s*1024")),
            gauge("worker_memory.swap_pss_sum_bytes", source, each("SwapPss", all, "print s*1024")),
            gauge("worker_memory.pss_mean_bytes", source, each("Pss", workers, mean)),
            gauge("worker_memory.pss_max_bytes", source, most("Pss")),
            gauge(
                "worker_memory.private_mean_bytes",
                source,
                each("Private_Clean|Private_Dirty", workers, mean),
            ),
            gauge(
                "worker_memory.shared_mean_bytes",
                source,
                each("Shared_Clean|Shared_Dirty", workers, mean),
            ),
            gauge("worker_memory.rss_max_bytes", source, most("Rss")),
            gauge(
                "worker_memory.growth_by_age_bytes",
                "memory against age of the workers, in 1000 s",
                line_by_hand(slope),
            ),
            gauge(
                "worker_memory.growth_by_age_explained_fraction",
                "memory against age of the workers",
                line_by_hand(fit),
            ),
            gauge(
                "worker_memory.growth_within_bytes",
                "memory of each worker against its age, in 1000 s",
                format!(
                    "f() {{ cat $(printf '/proc/%s/smaps_rollup ' {workers}) | awk '/^(Pss|SwapPss):/ {{s+=$2*1024}} END {{print s}}'; }}; \
                     a=$(f); sleep 100; b=$(f); echo $(( (b - a) * 10 / $(pgrep -c -P PID) ))"
                ),
            ),
            gauge("worker_memory.workers_count", "/proc/PID/task/PID/children", "pgrep -c -P PID"),
            gauge("worker_memory.workers_read_count", source, "pgrep -c -P PID"),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(main_pid) = target.service_pid else {
            return Reading::without_service(self.name(), target);
        };
        if !procfs::stat(main_pid).is_ok_and(|stat| !stat.has_ended()) {
            self.known.clear();
            return Reading::failed(format!("the service's main process {main_pid} is gone"));
        }
        let mut workers = procfs::children_of(main_pid);
        let mut alive = workers.clone();
        if workers.is_empty() {
            workers.push(main_pid);
        }
        alive.push(main_pid);
        alive.sort_unstable();
        self.round += 1;
        self.forget_ended(&alive);
        // The main process now and then: it changes little.
        let main = [main_pid]
            .into_iter()
            .filter(|pid| self.round % MAIN_EVERY == 1 || !self.known.contains_key(pid));
        let turn: Vec<u32> = main.chain(self.turn(&workers)).collect();
        let refused = self.refresh(turn.into_iter());
        let mut reading = Reading { error: refused, ..Reading::default() };
        self.values(main_pid, &workers, &mut reading);
        self.growth(&workers, &mut reading);
        reading
    }
}

/// Readings between two of the main process.
const MAIN_EVERY: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const ROLLUP: &str = "\
555edaf53000-7fffbf47a000 ---p 00000000 00:00 0                          [rollup]
Rss:                1732 kB
Pss:                 374 kB
Pss_Dirty:           112 kB
Shared_Clean:       1576 kB
Private_Clean:        44 kB
Private_Dirty:       112 kB
Swap:                  8 kB
SwapPss:               2 kB
";
    /// Made by hand like Linux 3.10: one block for each mapping, and no SwapPss.
    const OLD: &str = "\
00400000-004ef000 r-xp 00000000 fd:00 1 /usr/sbin/httpd
Rss: 10 kB
Pss: 3 kB
Private_Clean: 1 kB
Private_Dirty: 0 kB
VmFlags: rd ex mr mw me dw
006ee000-006f2000 rw-p 00000000 00:00 0 [heap]
Pss: 4 kB
Private_Clean: 0 kB
Private_Dirty: 4 kB
";

    fn smaps(pss: u64, swap: Option<u64>, private: u64) -> Smaps {
        Smaps { pss_bytes: pss, swap_pss_bytes: swap, private_bytes: private, shared_bytes: 0, rss_bytes: 0 }
    }

    #[test]
    fn mappings_sum_up() {
        for (text, expected) in [
            (
                ROLLUP,
                Some(Smaps {
                    shared_bytes: 1576 << 10,
                    rss_bytes: 1732 << 10,
                    ..smaps(374 << 10, Some(2 << 10), 156 << 10)
                }),
            ),
            (OLD, Some(Smaps { rss_bytes: 10 << 10, ..smaps(7 << 10, None, 5 << 10) })),
            ("", None),
            ("Rss: 1 kB\nPss: 2", None),
        ] {
            assert_eq!(parse_smaps(text), expected, "{text}");
        }
    }

    fn known(start_ticks: u64, round: u64, smaps: Smaps) -> Known {
        Known { start_ticks, round, age_s: 1.0, smaps, trend: Trend::default() }
    }

    // 100 workers of which two were read: the sum is their mean for all, and the main process once.
    #[test]
    fn sums_are_extrapolated_from_those_read() {
        let workers: Vec<u32> = (2..102).collect();
        let mut memory = WorkerMemory::default();
        for (pid, pss) in [(1, 1000), (2, 10), (3, 30)] {
            memory.known.insert(pid, known(1, 1, smaps(pss, Some(1), pss / 2)));
        }
        let mut reading = Reading::default();
        memory.values(1, &workers, &mut reading);
        for (name, expected) in [
            ("worker_memory.pss_sum_bytes", 20.0 * 100.0 + 1000.0),
            ("worker_memory.swap_pss_sum_bytes", 101.0),
            ("worker_memory.pss_mean_bytes", 20.0),
            ("worker_memory.private_mean_bytes", 10.0),
        ] {
            assert_eq!(reading.value(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn a_service_of_one_process_is_its_own_worker() {
        let mut memory = WorkerMemory::default();
        memory.known.insert(1, known(1, 1, smaps(1000, None, 400)));
        let mut reading = Reading::default();
        memory.values(1, &[1], &mut reading);
        assert_eq!(reading.value("worker_memory.pss_sum_bytes"), Some(1000.0));
        assert_eq!(reading.value("worker_memory.swap_pss_sum_bytes"), None, "not told is not zero");
    }

    #[test]
    fn every_worker_has_its_turn_and_a_reused_pid_is_read_anew() {
        let workers: Vec<u32> = (1..=50).collect();
        let mut memory = WorkerMemory::default();
        let mut seen = BTreeSet::new();
        for round in 1..=3 {
            for pid in memory.turn(&workers) {
                memory.known.insert(pid, known(1, round, smaps(1, None, 1)));
                seen.insert(pid);
            }
        }
        assert_eq!(seen.len(), 50);
        memory.forget_ended(&[1, 2, 3]);
        assert_eq!(memory.known.len(), 3);
    }

    // A process that has the id of another begins anew.
    #[test]
    fn a_reused_pid_is_another_worker() {
        let pid = std::process::id();
        let mut memory = WorkerMemory::default();
        let mut old = known(1, 0, smaps(1, None, 1));
        old.trend.add(1.0, 1.0);
        memory.known.insert(pid, old);
        memory.read_one(pid).unwrap();
        let mut fresh = Trend::default();
        let now = memory.known[&pid];
        fresh.add(now.age_s, now.held_bytes());
        assert_eq!(now.trend, fresh);
    }

    // What readings take is taken off, and a reading that took too long is made up for.
    #[test]
    fn readings_keep_to_their_time() {
        let mut memory = WorkerMemory { saved_us: -10 * READING_US, ..WorkerMemory::default() };
        let pid = std::process::id();
        for _ in 0..9 {
            memory.refresh([pid].into_iter());
            assert!(memory.known.is_empty(), "{memory:?}");
        }
        (0..20).for_each(|_| drop(memory.refresh([pid].into_iter())));
        assert_eq!(memory.known.len(), 1);
        assert!(memory.saved_us <= SAVED_US_MAX);
    }

    // 20 workers, each 1 kB larger for every second that it is older.
    #[test]
    fn growth_is_told_from_ages() {
        let workers: Vec<u32> = (1..=20).collect();
        let mut memory = WorkerMemory::default();
        for pid in &workers {
            let age_s = f64::from(*pid);
            let held = smaps((1 << 20) + u64::from(*pid) * 1024, None, 1);
            memory.known.insert(*pid, Known { age_s, ..known(1, 1, held) });
        }
        let mut reading = Reading::default();
        memory.growth(&workers, &mut reading);
        assert_eq!(reading.value("worker_memory.growth_by_age_bytes"), Some(1_024_000.0), "{reading:?}");
        assert_eq!(reading.value("worker_memory.growth_by_age_explained_fraction"), Some(1.0));
        assert_eq!(reading.value("worker_memory.growth_within_bytes"), None, "each was read once");
        let mut few = Reading::default();
        memory.growth(&workers[..7], &mut few);
        assert_eq!(few, Reading::default());
    }

    #[test]
    fn a_process_can_be_read() {
        // Not this one: it has the children of other tests, which come and go.
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let target = Target { service_pid: Some(process.id()), ..Target::default() };
        let reading = WorkerMemory::default().read(&target);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(reading.value("worker_memory.pss_sum_bytes").unwrap() > 0.0, "{reading:?}");
        assert!(reading.value("worker_memory.rss_max_bytes").unwrap() > 0.0);
    }

    proptest! {
        // A torn or strange file gives nothing or fewer values, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..ROLLUP.len(), noise in "(Pss|Private_Dirty)?:? {0,3}[0-9]{0,22}( kB)?\n?") {
            parse_smaps(&format!("{noise}{}{noise}", &ROLLUP[..cut]));
        }
    }
}

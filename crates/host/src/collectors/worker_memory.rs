//! What the workers of the service hold in memory, each shared page counted once.
//!
//! Facts: proc_pid_smaps(5), Documentation/filesystems/proc.rst (smaps_rollup, since Linux 4.14; older kernels have
//! smaps, whose lines sum up to the same). PSS is the honest memory of forked workers; the resident size counts
//! shared pages once per process. Reading walks the page tables and holds the process's memory lock meanwhile, so
//! only some processes are read at a time, in turn, and the last reading of each is kept while it lives.
//!
//! The workers are all descendants of the main process, or that itself when it has none. Until every worker has been
//! read once, sums are the mean of those read times the number of workers, plus the main process.

use super::{Collector, Metric, Reading, Target, gauge, told};
use crate::procfs;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

/// Workers read at a time.
const READ_AT_ONCE_MAX: usize = 20;

/// Processes whose resident size is looked at in one reading at most.
const RESIDENT_PROCESSES_MAX: usize = 4_096;

/// The memory of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Smaps {
    /// Its share of all pages it uses.
    pub pss_bytes: u64,
    /// Its share of pages that were swapped out; not told before Linux 4.3.
    pub swap_pss_bytes: Option<u64>,
    /// Pages that only it uses: what one more worker costs.
    pub private_bytes: u64,
}

/// Parses smaps_rollup, or smaps by summing over all mappings. `None` when there is no PSS in it (kernel threads,
/// processes that are ending).
pub fn parse_smaps(text: &str) -> Option<Smaps> {
    let sum = |wanted: &[&str]| {
        let values = text.lines().filter_map(|line| {
            let (key, rest) = line.split_once(':')?;
            let value: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
            wanted.contains(&key).then_some(value.saturating_mul(1024))
        });
        values.fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0).saturating_add(value)))
    };
    Some(Smaps {
        pss_bytes: sum(&["Pss"])?,
        swap_pss_bytes: sum(&["SwapPss"]),
        private_bytes: sum(&["Private_Clean", "Private_Dirty"])?,
    })
}

/// Reads the memory of a process; `None` when it has none of its own.
pub(super) fn read_smaps(pid: u32) -> io::Result<Option<Smaps>> {
    let text = match procfs::read_text(format!("/proc/{pid}/smaps_rollup")) {
        Err(error) if error.kind() == ErrorKind::NotFound => procfs::read_text(format!("/proc/{pid}/smaps"))?,
        other => other?,
    };
    Ok(parse_smaps(&text))
}

/// The resident size in `/proc/PID/statm`, in pages: anyone may read it.
fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The last reading of one process.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// With the pid it names one process for ever.
    start_ticks: u64,
    /// The round in which it was read.
    round: u64,
    smaps: Smaps,
}

/// The collector.
#[derive(Debug, Default)]
pub struct WorkerMemory {
    round: u64,
    known: BTreeMap<u32, Known>,
}

impl WorkerMemory {
    /// Forgets what has ended or is another process now.
    fn forget_ended(&mut self, alive: &BTreeMap<u32, u64>) {
        self.known.retain(|pid, known| alive.get(pid) == Some(&known.start_ticks));
    }

    /// Whose turn it is: workers never read first, then those whose reading is oldest.
    fn turn(&self, workers: &[u32]) -> Vec<u32> {
        let mut turn = workers.to_vec();
        turn.sort_by_key(|pid| (self.known.get(pid).map(|known| known.round), *pid));
        turn.truncate(READ_AT_ONCE_MAX);
        turn
    }

    /// Reads those whose turn it is; gives the first refusal.
    fn refresh(&mut self, turn: &[u32], alive: &BTreeMap<u32, u64>) -> Option<String> {
        let mut refused = None;
        for pid in turn {
            match (read_smaps(*pid), alive.get(pid)) {
                (Ok(Some(smaps)), Some(&start_ticks)) => {
                    self.known.insert(*pid, Known { start_ticks, round: self.round, smaps });
                }
                (Err(error), _) if error.kind() == ErrorKind::PermissionDenied => {
                    let file = format!("/proc/{pid}/smaps_rollup");
                    refused =
                        refused.or_else(|| Some(format!("{}: run as root", told("read", &file, &error))));
                }
                // It ended meanwhile, or has no memory of its own.
                _ => {}
            }
        }
        refused
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
        let rounded = |mean: Option<f64>| mean.map(f64::round);
        reading.push_some("worker_memory.pss_mean_bytes", rounded(mean(|smaps| Some(smaps.pss_bytes))));
        reading
            .push_some("worker_memory.private_mean_bytes", rounded(mean(|smaps| Some(smaps.private_bytes))));
    }
}

/// The largest resident size among the workers.
fn resident_max_bytes(workers: &[u32]) -> Option<u64> {
    let pages = |pid: &u32| parse_resident_pages(&procfs::read_text(format!("/proc/{pid}/statm")).ok()?);
    let most = workers.iter().take(RESIDENT_PROCESSES_MAX).filter_map(pages).max()?;
    most.checked_mul(rustix::param::page_size() as u64)
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
        vec![
            gauge("worker_memory.pss_sum_bytes", source, each("Pss", all, "print s*1024")),
            gauge("worker_memory.swap_pss_sum_bytes", source, each("SwapPss", all, "print s*1024")),
            gauge("worker_memory.pss_mean_bytes", source, each("Pss", workers, mean)),
            gauge(
                "worker_memory.private_mean_bytes",
                source,
                each("Private_Clean|Private_Dirty", workers, mean),
            ),
            gauge(
                "worker_memory.rss_max_bytes",
                "/proc/PID/statm of the service's processes",
                "ps -o rss= --ppid PID | sort -n | tail -n 1 | awk '{print $1*1024}'",
            ),
            gauge(
                "worker_memory.workers_count",
                "/proc/PID/stat of the service's processes",
                "pgrep -c -P PID",
            ),
        ]
    }

    fn every_s(&self) -> u32 {
        5
    }

    fn read(&mut self, target: &Target) -> Reading {
        let Some(main_pid) = target.service_pid else {
            return Reading::failed("no service was found: no processes to read");
        };
        let live = |pid: u32| procfs::stat(pid).ok().filter(|stat| !stat.has_ended());
        let tree = procfs::tree_of(main_pid).into_iter().filter_map(live);
        let alive: BTreeMap<u32, u64> = tree.map(|stat| (stat.pid, stat.start_ticks)).collect();
        if !alive.contains_key(&main_pid) {
            self.known.clear();
            return Reading::failed(format!("the service's main process {main_pid} is gone"));
        }
        let mut workers: Vec<u32> = alive.keys().copied().filter(|&pid| pid != main_pid).collect();
        if workers.is_empty() {
            workers.push(main_pid);
        }
        self.round += 1;
        self.forget_ended(&alive);
        let turn: BTreeSet<u32> = self.turn(&workers).into_iter().chain([main_pid]).collect();
        let refused = self.refresh(&turn.into_iter().collect::<Vec<_>>(), &alive);
        let mut reading = Reading { error: refused, ..Reading::default() };
        self.values(main_pid, &workers, &mut reading);
        reading
            .push_some("worker_memory.rss_max_bytes", resident_max_bytes(&workers).map(|bytes| bytes as f64));
        reading.push("worker_memory.workers_count", workers.len() as f64);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        Smaps { pss_bytes: pss, swap_pss_bytes: swap, private_bytes: private }
    }

    #[test]
    fn mappings_sum_up() {
        for (text, expected) in [
            (ROLLUP, Some(smaps(374 << 10, Some(2 << 10), 156 << 10))),
            (OLD, Some(smaps(7 << 10, None, 5 << 10))),
            ("", None),
            ("Rss: 1 kB\nPss: 2", None),
        ] {
            assert_eq!(parse_smaps(text), expected, "{text}");
        }
        assert_eq!(parse_resident_pages("2345 678 90 1 0 5 0\n"), Some(678));
        assert_eq!(parse_resident_pages("2345"), None);
    }

    fn known(start_ticks: u64, round: u64, smaps: Smaps) -> Known {
        Known { start_ticks, round, smaps }
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
        let alive = workers.iter().map(|&pid| (pid, if pid == 7 { 2 } else { 1 })).collect();
        memory.forget_ended(&alive);
        assert_eq!(memory.turn(&workers)[0], 7);
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
            parse_resident_pages(&noise);
        }
    }
}

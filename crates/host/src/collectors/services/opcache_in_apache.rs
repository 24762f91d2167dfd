//! The OPcache of PHP that runs inside of Apache (mod_php), seen from outside: how large it is, how much of it one worker uses, and
//! what the workers read of files. A cache that keeps all scripts leaves next to nothing to read.
//!
//! Facts: zend_shared_alloc.c of OPcache: one shared mapping without a file (`/dev/zero (deleted)` in smaps, proc_pid_smaps(5)) of
//! `opcache.memory_consumption`; Apache's own such mappings (its scoreboard) are smaller than the least that OPcache takes, 8 MB.
//! `rchar` of proc_pid_io(5): bytes that were read from files and pipes; what recv(2) took is not among them.

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use crate::os::procfs;
use std::collections::BTreeMap;

const SIZE: &str = "opcache_in_apache.size_bytes";
const RESIDENT: &str = "opcache_in_apache.resident_bytes";
const READ: &str = "opcache_in_apache.read_bytes";

/// The least that OPcache takes.
const SIZE_BYTES_MIN: u64 = 8 << 20;
/// Workers whose reading is counted, and those whose mappings are looked at in one reading: a few hundred microseconds each.
const WORKERS_MAX: usize = 128;
const MAPPINGS_MAX: usize = 2;

/// The collector.
#[derive(Debug, Default)]
pub struct OpcacheInApache {
    /// What each worker had read by the last look.
    read_bytes: BTreeMap<u32, u64>,
    total_bytes: u64,
    /// Whose turn it is.
    turn: usize,
}

impl Collector for OpcacheInApache {
    fn name(&self) -> &'static str {
        "opcache_in_apache"
    }

    fn metrics(&self) -> Vec<Metric> {
        let smaps = |key: &str| {
            format!(
                "awk '/zero .deleted/ {{f=1}} f && /^{key}:/ {{print $2*1024; f=0}}' /proc/$(pgrep -nP PID)/smaps | sort -n | tail -n 1"
            )
        };
        vec![
            gauge(SIZE, "/proc/PID/smaps", smaps("Size")),
            gauge(RESIDENT, "/proc/PID/smaps", smaps("Rss")),
            counter(
                READ,
                "/proc/PID/io",
                "for p in $(pgrep -P PID); do grep rchar /proc/$p/io; done | awk '{s+=$2} END {print s}'",
            ),
        ]
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let is_php = |module: &String| module.starts_with("php") && module.ends_with("_module");
        let service = target.services("apache").find(|service| service.modules.iter().any(is_php));
        let Some(service) = service else { return reading };
        let workers = procfs::children_of(service.pid);
        self.count_read(&workers);
        if self.read_bytes.is_empty() && !workers.is_empty() {
            reading.lacks(READ, "what its workers read of files may not be seen", "run webdyno as root");
        } else {
            reading.push(READ, self.total_bytes as f64);
        }
        let next = workers.iter().cycle().skip(self.turn).take(MAPPINGS_MAX.min(workers.len()));
        let texts = next.filter_map(|pid| procfs::read_text(format!("/proc/{pid}/smaps")).ok());
        let caches: Vec<(u64, u64)> = texts.filter_map(|text| cache(&text)).collect();
        self.turn = (self.turn + MAPPINGS_MAX) % workers.len().max(1);
        if let Some((size, resident)) = caches.into_iter().max_by_key(|(_, resident)| *resident) {
            reading.push(SIZE, size as f64);
            reading.push(RESIDENT, resident as f64);
        }
        reading
    }
}

impl OpcacheInApache {
    /// Adds up what the workers read since the last look; what one read that has ended since is lost. Those that are looked at
    /// stand for all.
    fn count_read(&mut self, workers: &[u32]) {
        let (mut now, mut rise_bytes) = (BTreeMap::new(), 0_u64);
        for pid in workers.iter().take(WORKERS_MAX) {
            let Some(read) = procfs::read_text(format!("/proc/{pid}/io")).ok().and_then(|io| rchar(&io))
            else {
                continue;
            };
            let before = self.read_bytes.get(pid).copied().unwrap_or(read);
            rise_bytes = rise_bytes.saturating_add(read.saturating_sub(before));
            now.insert(*pid, read);
        }
        self.total_bytes += rise_bytes.saturating_mul(workers.len() as u64) / now.len().max(1) as u64;
        self.read_bytes = now;
    }
}

fn rchar(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("rchar:")?.trim().parse().ok())
}

/// The size and the resident part of the cache's mapping, in bytes.
fn cache(smaps: &str) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    let (mut is_shared, mut size) = (false, 0);
    for line in smaps.lines() {
        let number = |key: &str| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        if let Some(kib) = number("Size:") {
            size = kib * 1024;
        } else if let Some(kib) = number("Rss:") {
            if is_shared && size >= SIZE_BYTES_MIN && found.is_none_or(|(largest, _)| size > largest) {
                found = Some((size, kib * 1024));
            }
        } else if line
            .split_ascii_whitespace()
            .next()
            .is_some_and(|word| word.contains('-') && !word.ends_with(':'))
        {
            is_shared = line.ends_with("/dev/zero (deleted)") && line.contains(" rw-s ");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_shared_mapping_without_a_file_is_the_cache() {
        let smaps = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
Size:              90000 kB
Rss:               80000 kB
41a5e000-4225e000 rw-s 00000000 00:01 169054                             /dev/zero (deleted)
Size:               8192 kB
KernelPageSize:        4 kB
Rss:                4824 kB
Pss:                1189 kB
7ffa963e8000-7ffa96400000 rw-s 00000000 00:01 169055                     /dev/zero (deleted)
Size:                 96 kB
Rss:                  64 kB
";
        assert_eq!(cache(smaps), Some((8192 * 1024, 4824 * 1024)));
        assert_eq!(cache(&smaps.replace("8192 kB", "4096 kB")), None, "no OPcache is that small");
        assert_eq!(cache(""), None);
        assert_eq!(rchar("rchar: 10769946\nwchar: 3843\n"), Some(10_769_946));
    }

    #[test]
    fn a_worker_that_is_new_counts_from_then_on() {
        let mut collector = OpcacheInApache::default();
        let own = std::process::id();
        collector.count_read(&[own]);
        assert_eq!(collector.total_bytes, 0);
        let text = std::fs::read("/proc/self/exe").unwrap();
        collector.count_read(&[own]);
        assert!(collector.total_bytes >= text.len() as u64, "{}", collector.total_bytes);
        let mut of_many = OpcacheInApache::default();
        of_many.count_read(&[own, u32::MAX]);
        std::fs::read("/proc/self/exe").unwrap();
        of_many.count_read(&[own, u32::MAX]);
        assert!(of_many.total_bytes >= 2 * text.len() as u64, "one of two stands for both");
    }
}

//! The disks: what is read and written, how long that takes, and how many requests wait. Which of them hold logs of the
//! service.
//!
//! Facts: Documentation/admin-guide/iostats.rst and Documentation/ABI/testing/procfs-diskstats: sectors are of 512 bytes,
//! times are milliseconds since boot. The time that requests took, divided by their number, is iostat's await; `busy` is
//! its %util, time in which at least one request was under way; `waiting` sums up over all of them: its rise per second is
//! the mean number of requests under way (aqu-sz).
//!
//! Whole disks and what is built of them (dm, md, zram) are told, without partitions, loop devices and memory disks, and
//! without those that nothing was ever read from or written to.

mod place;

use crate::collectors::{Collector, Metric, Reading, Target, counter, gauge};
use place::Places;
use std::collections::{BTreeMap, BTreeSet};

const DISKSTATS: &str = "/proc/diskstats";

/// Disks that are told: a bound on the size of a sample.
const DISKS_MAX: usize = 12;

const SECTOR_BYTES: u64 = 512;

/// Metric, field of `/proc/diskstats` from 1, what a unit of it is.
const FIELDS: [(&str, usize, Scale); 11] = [
    ("reads_count", 4, Scale::Count),
    ("read_bytes", 6, Scale::Sectors),
    ("reading_s", 7, Scale::Milliseconds),
    ("writes_count", 8, Scale::Count),
    ("written_bytes", 10, Scale::Sectors),
    ("writing_s", 11, Scale::Milliseconds),
    ("in_flight_count", 12, Scale::Count),
    ("busy_s", 13, Scale::Milliseconds),
    ("waiting_s", 14, Scale::Milliseconds),
    ("flushes_count", 19, Scale::Count),
    ("flushing_s", 20, Scale::Milliseconds),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Count,
    Sectors,
    Milliseconds,
}

impl Scale {
    fn value(self, number: u64) -> f64 {
        match self {
            Self::Count => number as f64,
            Self::Sectors => number.saturating_mul(SECTOR_BYTES) as f64,
            Self::Milliseconds => number as f64 / 1e3,
        }
    }
}

/// A line of `/proc/diskstats`: the numbers of its fields from the fourth on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Disk {
    /// As `major:minor`.
    number: (u32, u32),
    name: String,
    fields: Vec<u64>,
}

impl Disk {
    fn field(&self, field: usize) -> Option<u64> {
        self.fields.get(field.checked_sub(4)?).copied()
    }

    fn requests_count(&self) -> u64 {
        [4, 8].iter().filter_map(|field| self.field(*field)).fold(0, u64::saturating_add)
    }
}

/// Lines that are not whole are left out. Partitions of kernels before 2.6.25 have fewer fields.
fn parse_diskstats(text: &str) -> Vec<Disk> {
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let number = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?.to_owned();
        let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        (fields.len() >= 11).then_some(Disk { number, name, fields })
    };
    text.lines().filter_map(parse).collect()
}

/// Whether disks of this name are never told.
fn is_left_out(name: &str) -> bool {
    let rest = ["loop", "ram", "fd", "sr"].iter().find_map(|kind| name.strip_prefix(kind));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The collector.
#[derive(Debug, Default)]
pub struct Disks {
    /// Whether a name is that of a whole disk, by number and name.
    whole: BTreeMap<(u32, u32), (String, bool)>,
    /// The disks that are told. One that was told once is told as long as it is there.
    shown: BTreeSet<String>,
    places: Places,
}

impl Disks {
    fn values(
        &mut self,
        text: &str,
        logs: &BTreeMap<String, u64>,
        is_whole: impl Fn(&str) -> bool,
        reading: &mut Reading,
    ) {
        let mut disks = parse_diskstats(text);
        disks.retain(|disk| disk.requests_count() > 0 && !is_left_out(&disk.name));
        disks.retain(|disk| {
            let known = self.whole.get(&disk.number).filter(|(name, _)| *name == disk.name);
            let whole = known.map_or_else(|| is_whole(&disk.name), |(_, whole)| *whole);
            self.whole.insert(disk.number, (disk.name.clone(), whole));
            whole
        });
        self.shown.retain(|name| disks.iter().any(|disk| disk.name == *name));
        // Those with logs first, then those with most to do.
        disks.sort_by_key(|disk| {
            std::cmp::Reverse((
                self.shown.contains(&disk.name),
                logs.contains_key(&disk.name),
                disk.requests_count(),
            ))
        });
        let left_out: Vec<&str> = disks.iter().skip(DISKS_MAX).map(|disk| disk.name.as_str()).collect();
        if !left_out.is_empty() {
            let why =
                format!("{} disks with less to do have no values, to keep samples small", left_out.len());
            reading.lacks("disk.*", why, "`iostat -x 1` shows each disk");
        }
        for disk in disks.iter().take(DISKS_MAX) {
            self.shown.insert(disk.name.clone());
            for (what, field, scale) in FIELDS {
                let value = disk.field(field).map(|number| scale.value(number));
                reading.push_some(format!("disk.{}.{what}", disk.name), value);
            }
            let logs = logs.get(&disk.name).copied();
            reading.push_some(format!("disk.{}.logs_count", disk.name), logs.map(|count| count as f64));
        }
    }
}

impl Collector for Disks {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = FIELDS
            .iter()
            .map(|(what, field, scale)| {
                let value = match scale {
                    Scale::Count => format!("printf \"%.0f\\n\", ${field}"),
                    Scale::Sectors => format!("printf \"%.0f\\n\", ${field}*{SECTOR_BYTES}"),
                    Scale::Milliseconds => format!("printf \"%.3f\\n\", ${field}/1000"),
                };
                let by_hand = format!("awk '$3==\"INSTANCE\" {{{value}}}' {DISKSTATS}");
                let name = format!("disk.*.{what}");
                match *what {
                    "in_flight_count" => gauge(name, DISKSTATS, by_hand),
                    _ => counter(name, DISKSTATS, by_hand),
                }
            })
            .collect();
        metrics.push(gauge(
            "disk.*.logs_count",
            "where the logs of the services are",
            "lsof -p PID 2>/dev/null | awk '$4~/w$/ && $5==\"REG\" {print $9}' | xargs -r df --output=source | grep -c INSTANCE",
        ));
        metrics
    }

    fn read(&mut self, target: &Target) -> Reading {
        let mut reading = Reading::default();
        let logs = self.places.of_logs(target, &mut reading);
        reading.take(DISKSTATS, |text, reading| {
            self.values(text, &logs, place::is_whole_disk, reading);
            if parse_diskstats(text).is_empty() {
                reading.lacks("disk", "no disk is visible here", "observe from the machine itself");
            }
        });
        reading
    }
}

#[cfg(test)]
mod tests;

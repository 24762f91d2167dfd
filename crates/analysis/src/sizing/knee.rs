//! The memory of a store: with how much of it the disk is no limit any more, predicted from a load with plenty and held against loads with
//! less.
//!
//! What the processes hold takes its part of the memory; the rest caches files, and by the miss-ratio curve of the site a part of
//! what is sent is read from the disk. It limits where that is more than it reads.

use super::demands::MeasuredLoad;
use crate::diagnosis::prediction::memory;
use crate::facts::FactId;
use crate::measurement::statistics::mean;
use crate::resources::memory_pressure;
use webdyno_model::number::significant;
use webdyno_model::sizing::{KneeCheck, MissRatioCurve};

/// The knee is where the rate comes to this share of that with plenty of memory.
const KNEE_SHARE: f64 = 0.9;
/// A knee lies between sizes: fewer show none.
const SIZES_MIN: usize = 3;
/// A disk that is the limit reads at least this share of the most that it was seen to read.
const LIMITED_SHARE: f64 = 0.7;

/// Loads of one site that differ in their memory.
pub(super) struct Store<'a> {
    /// Which requests.
    pub what: &'a str,
    /// Memory, successful requests per second, what was measured; by rising memory.
    pub loads: Vec<(f64, f64, &'a MeasuredLoad)>,
}

impl Store<'_> {
    /// The knee as it was measured and as it is predicted from the load with the most memory; `None` where they show none.
    pub fn check(&self, misses: &MissRatioCurve) -> Option<KneeCheck> {
        let (most_bytes, _, plenty) = self.loads.last()?;
        let sent_bytes = plenty.demands.link_bytes.filter(|bytes| bytes.value > 0.0)?.value;
        let disk_bytes_per_s = self.disk_bytes_per_s()?;
        let full_rate = self.full_rate(disk_bytes_per_s)?;
        let measured = self.measured_bytes(KNEE_SHARE * full_rate, disk_bytes_per_s)?;
        let held = held_bytes(plenty)?;
        let miss_ratio = disk_bytes_per_s / (KNEE_SHARE * full_rate * sent_bytes);
        let predicted = held + misses.cache_bytes(miss_ratio)?;
        Some(KneeCheck {
            what: self.what.into(),
            from_bytes: *most_bytes,
            held_bytes: significant(held, 3),
            disk_bytes_per_s: significant(disk_bytes_per_s, 3),
            predicted_bytes: significant(predicted, 3),
            measured_bytes: significant(measured, 3),
            error: significant(predicted / measured - 1.0, 3),
        })
    }

    /// The mean of the loads that did not wait for the disk.
    fn full_rate(&self, disk_bytes_per_s: f64) -> Option<f64> {
        let free = self.loads.iter().filter(|(_, _, load)| !is_limited(load, disk_bytes_per_s));
        mean(&free.map(|(_, rate, _)| *rate).collect::<Vec<f64>>())
    }

    /// In proportion between the largest size whose load waited for the disk and had less than this rate, and the next one: what noise
    /// does to the rate beyond is no knee.
    fn measured_bytes(&self, rate: f64, disk_bytes_per_s: f64) -> Option<f64> {
        let is_below =
            |(_, of, load): &(f64, f64, &MeasuredLoad)| *of < rate && is_limited(load, disk_bytes_per_s);
        let below = self.loads.iter().rposition(is_below)?;
        let [(low_bytes, low, _), (high_bytes, high, _)] = self.loads.get(below..below + 2)? else {
            return None;
        };
        let share = ((rate - low) / (high - low).max(f64::MIN_POSITIVE)).min(1.0);
        (self.loads.len() >= SIZES_MIN).then(|| low_bytes + share * (high_bytes - low_bytes))
    }

    /// What the disk reads where it is the limit: the most of all loads, if two come near it.
    fn disk_bytes_per_s(&self) -> Option<f64> {
        let all = || self.loads.iter().map(|(_, _, load)| load);
        let most = all().filter_map(|load| read(load)).fold(0.0, f64::max);
        (most > 0.0 && all().filter(|load| is_limited(load, most)).count() > 1).then_some(most)
    }
}

fn read(load: &MeasuredLoad) -> Option<f64> {
    load.facts.value(FactId::disk_read_bytes_per_s)
}

fn is_limited(load: &MeasuredLoad, disk_bytes_per_s: f64) -> bool {
    read(load).is_some_and(|bytes| bytes >= LIMITED_SHARE * disk_bytes_per_s)
}

/// What is held beside files: the group's own count, which has the kernel's part, or the processes'.
fn held_bytes(load: &MeasuredLoad) -> Option<f64> {
    let of_group = load.facts.value(FactId::memory_used_in_limit_max_bytes);
    of_group
        .filter(|_| memory_pressure::is_limited(&load.facts) == Some(true))
        .or_else(|| memory::now_bytes(&load.facts))
}

//! Memory: how many workers, and how many children of PHP-FPM, it holds. What is available, plus what they have, over
//! what one more costs; the control group's limit comes before the machine's.

use crate::facts::Facts;
use crate::limits::apache_workers_exhausted::ceiling;
use crate::limits::ceiling::{Known, Limit};
use crate::limits::memory_exhausted::ID;
use crate::limits::memory_exhausted::finding::workers_that_fit;

/// Memory kept for the kernel, the page cache and everything else.
const RESERVE_FRACTION: f64 = 0.10;

pub(crate) fn limit(facts: &Facts) -> Option<Limit> {
    let max = workers_that_fit(facts)?;
    let known = Known {
        now: ceiling::taken(facts),
        max: Some(max),
        binds_at_rate: ceiling::hold_time_us(facts).map(|us| max * 1e6 / us),
        ..Known::default()
    };
    known.limit("workers in memory", "/proc/PID/smaps_rollup", Some(ID))
}

/// Of several pools, the one with the largest children.
pub(crate) fn limit_of_fpm(facts: &Facts) -> Option<Limit> {
    let largest = facts.each("ahead_fpm_child_bytes").max_by(|a, b| a.1.total_cmp(&b.1));
    let (pool, _) = largest?;
    let max = children_that_fit(facts, pool)?;
    let now = facts.value_of("ahead_fpm_busy_mean", pool);
    let binds_at_rate = now.and_then(|now| crate::limits::ceiling::in_proportion(facts, now, max));
    let known = Known { now, max: Some(max), binds_at_rate, ..Known::default() };
    known.limit(&format!("children of pool {pool} in memory"), "/proc/PID/smaps_rollup", Some(ID))
}

/// How many children of a pool fit into memory.
pub(crate) fn children_that_fit(facts: &Facts, pool: &str) -> Option<f64> {
    let each = facts.value_of("ahead_fpm_child_bytes", pool).filter(|bytes| *bytes > 0.0)?;
    let there = facts.value_of("ahead_fpm_processes_max", pool)?;
    let (free, limit) = free_and_limit(facts)?;
    let usable = (free + each * there).min(limit) - RESERVE_FRACTION * limit;
    (usable > 0.0).then(|| (usable / each).floor())
}

/// What may still be used, and of how much.
pub(crate) fn free_and_limit(facts: &Facts) -> Option<(f64, f64)> {
    let limit = facts.value("memory_limit_bytes").or_else(|| facts.value("memory_total_bytes"))?;
    let of_machine = facts.value("memory_available_min_bytes")?;
    let of_group = facts.value("memory_used_in_limit_max_bytes").map(|used| (limit - used).max(0.0));
    Some((of_group.map_or(of_machine, |group| group.min(of_machine)), limit))
}

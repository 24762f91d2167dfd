//! Memory: how many workers, and how many children of PHP-FPM, it holds. What is available, plus what they have, over
//! what one more costs; the control group's limit comes before the machine's.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::memory_pressure::{free_and_limit, workers_that_fit};
use crate::resources::utilisation::saturation_rate;
use crate::resources::workers;

/// Memory kept for the kernel, the page cache and everything else.
const RESERVE_FRACTION: f64 = 0.10;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = workers_that_fit(facts).filter(|fits| *fits > 0.0)?;
    let known = ResourceUsage {
        now: workers::busy_workers(facts),
        max: Some(max),
        binds_at_rate: workers::hold_time_us(facts).map(|us| max * 1e6 / us),
        ..ResourceUsage::default()
    };
    known.ceiling(
        Resource::Memory,
        "workers in memory",
        "/proc/PID/smaps_rollup",
        Some(LimitId::MemoryExhausted),
    )
}

/// Of several pools, the one with the largest children.
pub(crate) fn fpm_ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let largest = facts.each(FactId::ahead_fpm_child_bytes).max_by(|a, b| a.1.total_cmp(&b.1));
    let (pool, _) = largest?;
    let max = children_that_fit(facts, pool)?;
    let now = facts.value_of(FactId::ahead_fpm_busy_mean, pool);
    let binds_at_rate = now.and_then(|now| saturation_rate(facts, now, max));
    let known = ResourceUsage { now, max: Some(max), binds_at_rate, ..ResourceUsage::default() };
    known.ceiling(
        Resource::Memory,
        &format!("children of pool {pool} in memory"),
        "/proc/PID/smaps_rollup",
        Some(LimitId::MemoryExhausted),
    )
}

/// How many children of a pool fit into memory.
pub(crate) fn children_that_fit(facts: &Facts, pool: &str) -> Option<f64> {
    let each = facts.value_of(FactId::ahead_fpm_child_bytes, pool).filter(|bytes| *bytes > 0.0)?;
    let there = facts.value_of(FactId::ahead_fpm_processes_max, pool)?;
    let (free, limit) = free_and_limit(facts)?;
    let usable = (free + each * there).min(limit) - RESERVE_FRACTION * limit;
    (usable > 0.0).then(|| (usable / each).floor())
}

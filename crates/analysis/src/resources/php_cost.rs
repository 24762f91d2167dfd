//! What PHP takes of the processors, and which of its pools has most to do.

use crate::facts::{FactId, Facts};
use crate::resources::{concurrency, processors};

/// From this share on the processors are full.
const BUSY_FRACTION_MIN: f64 = 0.85;
/// What part of the full processors, or of the requests under way, PHP must be to be what limits.
const SHARE_MIN: f64 = 0.4;
/// A request that takes less than this translates next to nothing: a script of some lines.
const CPU_PER_REQUEST_US_MIN: f64 = 1000.0;

/// What PHP takes of the processors.
pub(crate) struct PhpCost {
    pub(crate) cores: f64,
    /// Its part of the full processors, or of the requests under way.
    pub(crate) share: f64,
    /// For each request.
    pub(crate) each_us: Option<f64>,
}

/// The work of PHP, if it is what the processors are full of, or what requests do while they are under way.
pub(crate) fn php_cost(facts: &Facts) -> Option<PhpCost> {
    cost_of(facts, facts.value(FactId::fpm_cpu_cores)?)
}

/// The same of so many cores.
pub(crate) fn cost_of(facts: &Facts, cores: f64) -> Option<PhpCost> {
    cost_at(facts, cores, BUSY_FRACTION_MIN)
}

/// The same where processors that are busy so much count as full already.
pub(crate) fn cost_at(facts: &Facts, cores: f64, busy_fraction_min: f64) -> Option<PhpCost> {
    let each_us = facts.ended_per_s().map(|rate| cores / rate * 1e6);
    if cores <= 0.0 || each_us.is_some_and(|us| us < CPU_PER_REQUEST_US_MIN) {
        return None;
    }
    let of_processors = concurrency::share_of_full_processors(facts, cores, busy_fraction_min);
    let of_requests = || {
        concurrency::requests_in_flight(facts)
            .filter(|count| *count >= 1.0)
            .map(|count| (cores / count).min(1.0))
    };
    // What a group may use is full where its quota is used up, however idle the machine is.
    let of_quota = || processors::used_up_quota(facts).map(|quota| (cores / quota).min(1.0));
    let share = of_processors.or_else(of_quota).or_else(of_requests).filter(|share| *share >= SHARE_MIN)?;
    Some(PhpCost { cores, share, each_us })
}

/// The pool that has most to do, of those whose cache is known.
pub(crate) fn busiest_pool(facts: &Facts) -> Option<String> {
    let known = facts.each(FactId::opcache_enabled).map(|(pool, _)| pool);
    let pools: Vec<&str> = known.chain(facts.each(FactId::fpm_queue_mean).map(|(pool, _)| pool)).collect();
    let busy = |pool: &str| {
        let of = |name: FactId| facts.value_of(name, pool);
        of(FactId::fpm_processes_busy_mean).or(of(FactId::fpm_active_mean)).unwrap_or(0.0)
            + of(FactId::fpm_queue_mean).unwrap_or(0.0)
    };
    pools.into_iter().max_by(|a, b| busy(a).total_cmp(&busy(b))).map(str::to_owned)
}

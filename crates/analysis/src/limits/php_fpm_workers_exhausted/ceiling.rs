//! Children of a pool of PHP-FPM, by Little's law. Of several pools the one that binds first.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::{beyond_in_flight, saturation_rate};
use webdyno_model::fact::Fact;
use webdyno_model::service::SettingScope;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let pools: Vec<&str> = facts.each(FactId::ahead_fpm_processes_max).map(|(pool, _)| pool).collect();
    let known = pools.into_iter().map(|pool| (pool, pool_usage(facts, pool)));
    let rate = |known: &ResourceUsage| known.binds_at_rate.unwrap_or(f64::INFINITY);
    let (pool, known) = known.min_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1)))?;
    known.ceiling(
        Resource::PhpChildren,
        &format!("children of pool {pool}"),
        "processes of php-fpm",
        Some(LimitId::PhpFpmWorkersExhausted),
    )
}

fn pool_usage(facts: &Facts, pool: &str) -> ResourceUsage {
    let now = facts.value_of(FactId::ahead_fpm_busy_mean, pool);
    let max = children_max(facts, pool);
    let used = now.map(|now| now - beyond_in_flight(facts, now));
    let binds_at_rate = used.zip(max).and_then(|(used, max)| saturation_rate(facts, used, max));
    ResourceUsage { now, max, binds_at_rate, ..ResourceUsage::default() }
}

/// How many there may be: as the pool says; where its settings were not read, as many as there were when it let requests
/// wait.
pub(crate) fn children_max(facts: &Facts, pool: &str) -> Option<f64> {
    let scope = SettingScope::Pool(pool.to_owned());
    let scoped = facts.backends("php_fpm").flat_map(|service| &service.scoped);
    let configured = scoped
        .filter(|one| one.setting == "pm.max_children" && one.scope.contains(&scope))
        .find_map(|one| one.value.parse().ok());
    let waits = facts.value_of(FactId::ahead_fpm_queue_mean, pool).is_some_and(|queue| queue >= 1.0);
    configured.or_else(|| facts.value_of(FactId::ahead_fpm_processes_max, pool).filter(|_| waits))
}

/// The facts as they will be when nobody waits for a child: Apache's workers wait with those requests that queue for PHP-FPM.
pub(crate) fn remove_fpm_queue(facts: &mut Facts) {
    let queued: f64 = facts.each(FactId::ahead_fpm_queue_mean).map(|(_, queue)| queue).sum();
    let answered: f64 = facts.each(FactId::ahead_fpm_busy_mean).map(|(_, busy)| busy).sum();
    for name in [FactId::workers_busy_mean, FactId::workers_writing_mean] {
        let Some(fact) = facts.cite(&[name]).pop() else { continue };
        // The reading itself holds one, and those that are being answered hold theirs.
        let value = (fact.value - queued).max(answered + 1.0).min(fact.value);
        facts.insert(name, Fact { value, ..fact });
    }
}

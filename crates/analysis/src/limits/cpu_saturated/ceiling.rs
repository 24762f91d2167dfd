//! CPUs, by the utilisation law: their time per request is the same at any load.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::processors::{USED_FRACTION_MIN, rate_at_cpu, services_cores};
use crate::resources::utilisation::rate;

/// From this share of the services' CPU time on, what binds is the database; and from so many rows on that a
/// statement reads in scans, it is an index that it lacks.
const DATABASE_SHARE_MIN: f64 = 0.5;
const SCANNED_ROWS_MIN: f64 = 1000.0;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    group_ceiling(facts).or_else(|| machine_ceiling(facts))
}

fn machine_ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let (cores, busy) = (facts.value(FactId::cores)?, facts.value(FactId::cpu_busy_fraction)?);
    let known = ResourceUsage {
        now: Some(busy * cores),
        max: Some(cores),
        binds_at_rate: rate_at_cpu(facts, 1.0),
        error: facts.value(FactId::rate_ci95_fraction),
        ..ResourceUsage::default()
    };
    known.ceiling(
        Resource::Processors,
        "processor cores",
        "/proc/stat",
        Some(finding(facts, LimitId::CpuSaturated)),
    )
}

/// Where the service may use less than the machine has: what its group uses against what the group may use. What else runs
/// in the group, our own samples among it, stays as it is.
fn group_ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let (cores, of_machine) = (facts.value(FactId::ahead_group_cores)?, facts.value(FactId::cores)?);
    let quota = facts.value(FactId::ahead_group_quota_cores).filter(|quota| *quota <= cores);
    if cores >= of_machine {
        return None;
    }
    let used = facts.value(FactId::ahead_group_cpu_cores)?;
    let own = services_cores(facts).map_or(used, |own| own.min(used));
    // What fails takes its part of them as well, as of the machine's.
    let per_s = facts.ended_per_s().or_else(|| rate(facts));
    let binds = || Some(per_s? * (cores - (used - own)).max(0.0) / own);
    let known = ResourceUsage {
        now: Some(used),
        max: Some(cores),
        binds_at_rate: (own >= USED_FRACTION_MIN * cores).then(binds).flatten(),
        error: facts.value(FactId::rate_ci95_fraction),
        idle: used - own,
    };
    let id = if quota.is_some() { LimitId::CpuThrottled } else { LimitId::CpuSaturated };
    known.ceiling(
        Resource::Processors,
        "processor cores of the group",
        "the control group",
        Some(finding(facts, id)),
    )
}

/// Which finding it is when the CPUs bind: another one where a quota holds them back, and where a database reads whole
/// tables for its responses.
fn finding(facts: &Facts, otherwise: LimitId) -> LimitId {
    let of_database = facts.value_of(FactId::ahead_backend_cpu_cores, "mariadb").zip(services_cores(facts));
    let mostly = of_database.is_some_and(|(own, all)| own >= DATABASE_SHARE_MIN * all && own > 0.1);
    let rows = facts
        .value(FactId::ahead_database_scanned_rows_per_s)
        .zip(facts.value(FactId::ahead_database_selects_per_s));
    let scans = rows.is_some_and(|(rows, selects)| selects > 0.0 && rows / selects >= SCANNED_ROWS_MIN);
    if mostly && scans { LimitId::DbSlowQueries } else { otherwise }
}

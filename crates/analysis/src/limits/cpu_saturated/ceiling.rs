//! Processors, by the utilisation law: their time per request is the same at any load.

use crate::facts::Facts;
use crate::limits::ceiling::{Known, Limit, rate};
use crate::limits::cpu_saturated;

/// What it becomes where a quota binds, and where a database reads whole tables for its answers.
const THROTTLED: &str = "cpu-throttled";
const SLOW_QUERIES: &str = "db-slow-queries";

/// From this share of the services' processor time on, what binds is the database; and from so many rows on that a
/// statement reads in scans, it is an index that it lacks.
const DATABASE_SHARE_MIN: f64 = 0.5;
const SCANNED_ROWS_MIN: f64 = 1000.0;

/// Of less than this share nobody can say how it grows: a part of it is there without any request.
const USED_FRACTION_MIN: f64 = 0.05;

pub(crate) fn limit(facts: &Facts) -> Option<Limit> {
    of_group(facts).or_else(|| of_machine(facts))
}

fn of_machine(facts: &Facts) -> Option<Limit> {
    let (cores, busy) = (facts.value("cores")?, facts.value("cpu_busy_fraction")?);
    let known = Known {
        now: Some(busy * cores),
        max: Some(cores),
        binds_at_rate: rate_at_cpu(facts, 1.0),
        error: facts.value("rate_ci95_fraction"),
        ..Known::default()
    };
    known.limit("processor cores", "/proc/stat", Some(finding(facts, cpu_saturated::ID)))
}

/// Where the service may use less than the machine has: what its group uses against what the group may use. What else runs
/// in the group, our own readings among it, stays as it is.
fn of_group(facts: &Facts) -> Option<Limit> {
    let (cores, of_machine) = (facts.value("ahead_group_cores")?, facts.value("cores")?);
    let quota = facts.value("ahead_group_quota_cores").filter(|quota| *quota <= cores);
    if cores >= of_machine {
        return None;
    }
    let used = facts.value("ahead_group_cpu_cores")?;
    let own = services_cores(facts).map_or(used, |own| own.min(used));
    let binds = || Some(rate(facts)? * (cores - (used - own)).max(0.0) / own);
    let known = Known {
        now: Some(used),
        max: Some(cores),
        binds_at_rate: (own >= USED_FRACTION_MIN * cores).then(binds).flatten(),
        error: facts.value("rate_ci95_fraction"),
        idle: used - own,
    };
    let id = if quota.is_some() { THROTTLED } else { cpu_saturated::ID };
    known.limit("processor cores of the group", "the control group", Some(finding(facts, id)))
}

/// What all known services use.
fn services_cores(facts: &Facts) -> Option<f64> {
    let backends: f64 = facts.each("ahead_backend_cpu_cores").map(|(_, cores)| cores).sum();
    Some(facts.value("service_cpu_cores")? + backends)
}

/// Which finding it is when the processors bind.
fn finding(facts: &Facts, otherwise: &'static str) -> &'static str {
    let of_database = facts.value_of("ahead_backend_cpu_cores", "mariadb").zip(services_cores(facts));
    let mostly = of_database.is_some_and(|(own, all)| own >= DATABASE_SHARE_MIN * all && own > 0.1);
    let rows =
        facts.value("ahead_database_scanned_rows_per_s").zip(facts.value("ahead_database_selects_per_s"));
    let scans = rows.is_some_and(|(rows, selects)| selects > 0.0 && rows / selects >= SCANNED_ROWS_MIN);
    if mostly && scans { SLOW_QUERIES } else { otherwise }
}

/// The rate at which this share of the processors would be busy. Where it is known who uses them, only the services'
/// and the generator's time grows with the rate; what everybody else uses stays as it is, and what runs at a low priority
/// gives way.
pub(crate) fn rate_at_cpu(facts: &Facts, share: f64) -> Option<f64> {
    let busy = facts.value("cpu_busy_fraction").filter(|busy| *busy >= USED_FRACTION_MIN)?;
    let cores = facts.value("cores");
    let per_s = facts.ended_per_s().or_else(|| rate(facts))?;
    let client = facts.value("client_cpu_cores").unwrap_or(0.0);
    let known = services_cores(facts).zip(cores).map(|(services, cores)| (services + client) / cores);
    // Where nobody knows whose time it is, all of it is charged to the requests.
    let own = known.map_or(busy, |own| own.min(busy));
    (own >= USED_FRACTION_MIN).then_some(())?;
    let yielding =
        facts.value("ahead_yielding_cpu_cores").zip(cores).map_or(0.0, |(nice, cores)| nice / cores);
    let others = (busy - own - yielding).max(0.0);
    let room = (share - others).max(0.0);
    Some(per_s * room / own)
}

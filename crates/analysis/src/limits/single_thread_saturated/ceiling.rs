//! The one thread that serves, by the utilisation law as of cores: of lighttpd and nginx with one worker, and of a program behind the
//! front that is one process of one thread. Beside one core it is no limit of its own.

use super::finding::lighttpd_workers;
use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::processors::USED_FRACTION_MIN;
use crate::settings::backends;

/// Processes, or threads, that are one on average.
const ONE_MAX: f64 = 1.5;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    facts.value(FactId::usable_cores).or(facts.value(FactId::cores)).filter(|usable| *usable >= 2.0)?;
    let all = front(facts).into_iter().chain(behind(facts));
    let (program, busy, finding) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let per_s = facts.ended_per_s().filter(|_| busy >= USED_FRACTION_MIN);
    let used = ResourceUsage {
        now: Some(busy),
        max: Some(1.0),
        binds_at_rate: per_s.map(|per_s| per_s / busy),
        error: facts.value(FactId::rate_ci95_fraction),
        ..ResourceUsage::default()
    };
    used.ceiling(Resource::Thread, &format!("one thread of {program}"), "/proc/PID/task", Some(finding))
}

/// What the front is called, how busy its thread is, and the finding that it becomes.
fn front(facts: &Facts) -> Option<(&str, f64, LimitId)> {
    let program = backends::program_name(facts.service.as_ref()?);
    let finding = if facts.is_service("nginx") {
        facts.setting("worker_processes").filter(|workers| *workers == 1.0)?;
        LimitId::NginxWorkersSaturated
    } else {
        (facts.is_service("lighttpd") && lighttpd_workers(facts) == 1.0).then_some(())?;
        LimitId::SingleThreadSaturated
    };
    Some((program, facts.value(FactId::busiest_thread_fraction)?, finding))
}

/// The same of each program behind it.
fn behind(facts: &Facts) -> impl Iterator<Item = (&str, f64, LimitId)> {
    let all = facts.each(FactId::backend_busiest_thread_fraction);
    all.filter(move |(name, _)| is_one_thread(facts, name)).map(move |(name, busy)| {
        let program = backends::program_of(facts.topology.as_ref(), name);
        (program, busy, LimitId::SingleThreadSaturated)
    })
}

fn is_one_thread(facts: &Facts, name: &str) -> bool {
    let counted = [FactId::backend_processes_mean, FactId::backend_threads_mean];
    counted.into_iter().all(|fact| facts.value_of(fact, name).is_some_and(|count| count < ONE_MAX))
}

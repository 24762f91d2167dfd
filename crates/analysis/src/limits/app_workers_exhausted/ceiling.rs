//! Workers of the application server behind the front, by Little's law: where each of its processes has one thread, as many requests
//! as there are processes are served at once. Of several programs the one that binds first.

use super::full_application::{has_rule_of_its_own, processes_of_one_thread};
use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::limits::slow_upstream::finding::at_most_waiting;
use crate::resources::utilisation::saturation_rate;
use crate::settings::backends;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let upstreams = facts.each(FactId::upstream_waiting_mean);
    let known = upstreams.filter_map(|(listener, seen)| program_usage(facts, listener, seen));
    let rate = |usage: &ResourceUsage| usage.binds_at_rate.unwrap_or(f64::INFINITY);
    let (program, usage) = known.min_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1)))?;
    let (name, finding) = (format!("workers of {program}"), Some(LimitId::AppWorkersExhausted));
    usage.ceiling(Resource::ApplicationWorkers, &name, "its processes and threads", finding)
}

fn program_usage(facts: &Facts, listener: &str, seen: f64) -> Option<(String, ResourceUsage)> {
    let topology = facts.topology.as_ref()?;
    let (name, service) =
        backends::listening_at(topology, listener).filter(|_| !has_rule_of_its_own(facts, listener))?;
    let workers = processes_of_one_thread(facts, &name)?;
    // What waits in its queue has no worker.
    let queue = facts.value_of(FactId::backend_queue_mean, listener).unwrap_or(0.0);
    let now = (at_most_waiting(facts, listener, seen) - queue).clamp(0.0, workers);
    let binds_at_rate = saturation_rate(facts, now, workers);
    let usage =
        ResourceUsage { now: Some(now), max: Some(workers), binds_at_rate, ..ResourceUsage::default() };
    Some((backends::program_name(service).to_owned(), usage))
}

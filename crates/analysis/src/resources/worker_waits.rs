//! What is short instead of workers where all of them are taken: more workers would wait for the same.

use crate::facts::{FactId, Facts};
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{concurrency, memory_evidence, processors, workers};

/// From this share of time on in which some of the service's tasks were ready and had no processor, nearly each of its
/// requests waits for one. Tasks that wait for each other in turn, as those of a busy server do, stay well below.
const GROUP_WAITS_FRACTION_MIN: f64 = 0.7;
/// From this share of workers on that wait for a disk, more of them would only lengthen its queue.
const BLOCKED_FRACTION_MIN: f64 = 0.5;
/// From this share of the taken workers on what they do most decides.
const MOST: f64 = 0.5;

/// Whether Apache's own workers are all taken while connections wait, and most of them by something else than so many requests: what
/// holds those is waited for.
pub(crate) fn are_most_held_otherwise(facts: &Facts, requests: f64) -> bool {
    let are_last = concurrency::targets(facts).is_empty() && noticed_queue(facts).is_some();
    are_last && workers::limit_proof(facts).is_some_and(|proof| requests < MOST * proof.workers)
}

/// Whether processors, memory or a disk are what the workers wait for.
pub(crate) fn machine_is_short(facts: &Facts) -> bool {
    processors_are_short(facts) || memory_evidence::is_proven(facts) || disk_is_short(facts)
}

/// Whether the service waits for processors: because they are full, or because it may not use more of them.
pub(crate) fn processors_are_short(facts: &Facts) -> bool {
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    processors::are_short(facts)
        || processors::held_back(facts).is_some()
        || processors::used_up_quota(facts).is_some()
        || (waits.is_some_and(|waits| waits >= GROUP_WAITS_FRACTION_MIN)
            && !usable.is_some_and(|usable| processors::do_requests_lack_more(facts, usable)))
}

fn disk_is_short(facts: &Facts) -> bool {
    let blocked = facts.value(FactId::worker_processes_blocked_mean);
    let all = facts.value(FactId::worker_processes_mean).filter(|all| *all >= 1.0);
    blocked.zip(all).is_some_and(|(blocked, all)| blocked >= BLOCKED_FRACTION_MIN * all)
}

/// What workers can be busy with, as mod_status tells it, in words.
const DOINGS: [(FactId, &str); 5] = [
    (FactId::workers_writing_mean, "in state W (processing a request)"),
    (FactId::workers_keepalive_mean, "in state K (idle keep-alive connection)"),
    (FactId::workers_reading_mean, "in state R (reading a request)"),
    (FactId::workers_logging_mean, "in state L (logging)"),
    (FactId::workers_closing_mean, "in state C (closing a connection)"),
];

/// What more than half of the taken workers do: the name of its fact, how many do it, and in words.
pub(crate) fn dominant_state(facts: &Facts) -> Option<(FactId, f64, &'static str)> {
    let busy = facts.value(FactId::workers_busy_mean).filter(|busy| *busy >= 1.0)?;
    let counted = DOINGS.into_iter().filter_map(|(fact, words)| Some((fact, facts.value(fact)?, words)));
    counted.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, count, _)| *count >= MOST * busy)
}

/// Whether the workers have answered already and wait for the log: for its disk, or for the names in it.
pub(crate) fn is_logging(facts: &Facts) -> bool {
    match dominant_state(facts) {
        Some((fact, _, _)) => fact == FactId::workers_logging_mean,
        None => logging_from_outside(facts).is_some_and(|(logging, busy)| logging >= MOST * busy),
    }
}

/// How many workers wait within a write to the access log, and how many may be busy at most: as many as there are requests.
pub(crate) fn logging_from_outside(facts: &Facts) -> Option<(f64, f64)> {
    let logging = facts.value(FactId::worker_threads_logging_mean)?;
    let all = facts.value(FactId::worker_threads_seen_mean)?;
    let requests = crate::resources::concurrency::requests_in_flight(facts).unwrap_or(all);
    Some((logging, all.min(requests).max(logging)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    // Groups of version 1 have no pressure stall information.
    #[test]
    fn a_quota_that_is_used_up_is_what_workers_wait_for() {
        let stopped = [
            (FactId::cpu_quota_cores, 0.2),
            (FactId::group_cpu_cores, 0.19),
            (FactId::throttled_fraction, 0.9),
            (FactId::cores, 4.0),
            (FactId::cpu_busy_fraction, 0.1),
        ];
        for (changes, is_short) in [
            (&[][..], true),
            (&[(FactId::throttled_fraction, 0.2)], false),
            // Short bursts that it stops, and little work on the whole.
            (&[(FactId::group_cpu_cores, 0.05)], false),
            (&[(FactId::cpu_quota_cores, f64::NAN)], false),
        ] {
            let seen = facts(&with_changes(&stopped, changes), &[]);
            assert_eq!(machine_is_short(&seen), is_short, "{changes:?}");
        }
    }
}

//! Workers of Apache, by Little's law: workers = rate x time that a request holds one.

use crate::facts::Facts;
use crate::limits::apache_workers_exhausted::ID;
use crate::limits::ceiling::{Known, Limit, beyond_in_flight, together};

/// From this share of failed requests on, what all of them hold says nothing of the good ones: failures are fast.
const FAILED_FRACTION_MAX: f64 = 0.02;

pub(crate) fn limit(facts: &Facts) -> Option<Limit> {
    let max = allowed(facts);
    let holds_us = hold_time_us(facts);
    let known = Known {
        now: taken(facts),
        max,
        binds_at_rate: max.zip(holds_us).map(|(max, us)| max * 1e6 / us),
        error: together(&[
            facts.value("rate_ci95_fraction"),
            facts.value("ahead_workers_busy_ci95_fraction"),
        ]),
        ..Known::default()
    };
    known.limit("apache workers", "mod_status", Some(ID))
}

/// How many there may be. The scoreboard may have more slots than workers are allowed: those of processes that have ended.
pub(crate) fn allowed(facts: &Facts) -> Option<f64> {
    let shown = facts.value("workers_limit");
    let configured =
        facts.service.as_ref().and_then(|service| service.configured_number("MaxRequestWorkers"));
    facts.value("workers_when_full").or_else(|| shown.into_iter().chain(configured).reduce(f64::min))
}

/// How many are taken. No more than may be: behind a lowered limit those that ended leave their last state.
pub(crate) fn taken(facts: &Facts) -> Option<f64> {
    facts.value("workers_busy_mean").map(|busy| allowed(facts).map_or(busy, |allowed| busy.min(allowed)))
}

/// How long a good answer holds a worker.
///
/// Under prefork and worker a kept connection holds one too, and so does whoever writes logs or asks for names: all busy
/// ones count. The event MPM keeps idle connections without a worker.
pub(crate) fn hold_time_us(facts: &Facts) -> Option<f64> {
    let of_all = busy_time_us(facts).or_else(|| facts.value("worker_time_mean_us"))?;
    let failed = facts.value("failed_fraction").unwrap_or(0.0);
    if failed <= FAILED_FRACTION_MAX {
        return Some(of_all);
    }
    let wait_us = crate::resources::time_breakdown::accept_queue_wait_us(facts).unwrap_or(0.0);
    let good = facts.value("service_time_mean_us").map(|us| us - wait_us);
    Some(good.map_or(of_all, |good| good.max(of_all)))
}

/// The time by all busy workers; one of them is at work on the reading itself.
fn busy_time_us(facts: &Facts) -> Option<f64> {
    let busy = facts.value("workers_busy_mean")? - 1.0;
    let busy = allowed(facts).map_or(busy, |allowed| busy.min(allowed));
    let event = facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("event"));
    let kept = facts.value("workers_keepalive_mean").filter(|_| event).unwrap_or(0.0);
    let ended_per_s =
        facts.ended_per_s().filter(|_| facts.loaded).or_else(|| crate::limits::ceiling::rate(facts))?;
    let writing = facts.value("workers_writing_mean").map_or(0.0, |writing| writing - 1.0);
    let of_answers = busy - kept - beyond_in_flight(facts, writing);
    Some(of_answers / ended_per_s * 1e6).filter(|us| *us > 0.0)
}

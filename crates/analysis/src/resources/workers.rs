//! Workers of Apache: how many there may be, how many are taken, for how long an answer holds one, and what proves that all
//! are taken.

use crate::facts::{FactId, Facts};
use crate::resources::time_breakdown::accept_queue_wait_us;
use crate::resources::utilisation::{beyond_in_flight, rate};
use crate::wording::format_number;
use webdyno_model::number::significant;

/// Room above the measured demand.
pub(crate) const HEADROOM: f64 = 1.3;
/// The limit must be reached in at least this share of the readings: a ramp or a respawn is over in a second.
const FULL_FRACTION_MIN: f64 = 0.5;
/// From this share of readings on in which the status page did not answer, the others are a chance selection: those
/// in which a worker happened to come free.
const UNANSWERED_FRACTION_MAX: f64 = 0.5;
/// Where only processes are seen, as many requests must be with the workers: fewer mean that something else holds these.
const BUSY_FRACTION_MIN: f64 = 0.7;
/// In so much of the readings somebody waits where all are busy.
const WAITING_FRACTION_MIN: f64 = 0.5;
const CONFIDENCE_HELD_OTHERWISE: f64 = 0.45;
/// From this share of failed requests on, what all of them hold says nothing of the good ones: failures are fast.
const FAILED_FRACTION_MAX: f64 = 0.02;

/// How many there may be. The scoreboard may have more slots than workers are allowed: those of processes that have ended.
pub(crate) fn workers_max(facts: &Facts) -> Option<f64> {
    let displayed = facts.value(FactId::workers_limit);
    let configured = facts.workers_configured();
    facts
        .value(FactId::workers_when_full)
        .or_else(|| displayed.into_iter().chain(configured).reduce(f64::min))
}

/// How many are taken. No more than may be: behind a lowered limit those that ended leave their last state.
pub(crate) fn busy_workers(facts: &Facts) -> Option<f64> {
    facts
        .value(FactId::workers_busy_mean)
        .map(|busy| workers_max(facts).map_or(busy, |allowed| busy.min(allowed)))
}

/// How long a good answer holds a worker.
///
/// Under prefork and worker a kept connection holds one too, and so does whoever writes logs or asks for names: all busy
/// ones count. The event MPM keeps idle connections without a worker.
pub(crate) fn hold_time_us(facts: &Facts) -> Option<f64> {
    let of_all = busy_time_us(facts).or_else(|| facts.value(FactId::worker_time_mean_us))?;
    let failed = facts.value(FactId::failed_fraction).unwrap_or(0.0);
    if failed <= FAILED_FRACTION_MAX {
        return Some(of_all);
    }
    let wait_us = accept_queue_wait_us(facts).unwrap_or(0.0);
    let good = facts.value(FactId::service_time_mean_us).map(|us| us - wait_us);
    // No worker is held longer than that so many of them serve what is served (Little's law): what clients wait longer, they
    // wait in queues.
    let most_us = workers_max(facts).zip(rate(facts)).map_or(f64::INFINITY, |(most, rate)| most * 1e6 / rate);
    Some(good.map_or(of_all, |good| good.min(most_us).max(of_all)))
}

/// The time by all busy workers; one of them is at work on the reading itself.
fn busy_time_us(facts: &Facts) -> Option<f64> {
    let busy = facts.value(FactId::workers_busy_mean)? - 1.0;
    let busy = workers_max(facts).map_or(busy, |allowed| busy.min(allowed));
    let event = facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("event"));
    let kept = facts.value(FactId::workers_keepalive_mean).filter(|_| event).unwrap_or(0.0);
    let ended_per_s = facts.ended_per_s().filter(|_| facts.loaded).or_else(|| rate(facts))?;
    let writing = facts.value(FactId::workers_writing_mean).map_or(0.0, |writing| writing - 1.0);
    let of_answers = busy - kept - beyond_in_flight(facts, writing);
    Some(of_answers / ended_per_s * 1e6).filter(|us| *us > 0.0)
}

/// The share of the response time that is spent in the accept queue.
pub(crate) fn accept_queue_share(facts: &Facts, queue: f64) -> Option<f64> {
    // A queue that stands tells no wait; how many of those that are in flight stand in it is still known.
    let explains = match accept_queue_wait_us(facts) {
        Some(wait) => facts.value(FactId::response_time_mean_us).map(|response| wait / response),
        None => facts.value(FactId::in_flight_mean).map(|in_flight| queue / in_flight),
    };
    explains.filter(|share| share.is_finite()).map(|share| significant(share.min(1.0), 3))
}

/// Whether as many workers run as are allowed, and none of them was seen to be free: whatever waits waits for them,
/// even if more of them would not help.
pub(crate) fn is_limit_reached(facts: &Facts) -> bool {
    limit_proof(facts).is_some()
}

/// How it is known that all workers are taken, and how many there are.
pub(crate) fn limit_proof(facts: &Facts) -> Option<WorkerLimitProof> {
    facts.is_service("apache").then(|| scoreboard_proof(facts).or_else(|| process_proof(facts)))?
}

/// Proof that the limit of workers is reached.
pub(crate) struct WorkerLimitProof {
    /// In words.
    pub words: String,
    /// How sure it is.
    pub confidence: f64,
    /// How many workers there are.
    pub workers: f64,
}

fn scoreboard_proof(facts: &Facts) -> Option<WorkerLimitProof> {
    let full = facts.value(FactId::scoreboard_full_fraction).filter(|full| *full >= FULL_FRACTION_MIN)?;
    let workers = facts.value(FactId::workers_when_full).or_else(|| facts.value(FactId::workers_limit))?;
    let words =
        format!("All {} Apache workers busy in {:.0}% of samples", format_number(workers), full * 100.0);
    Some(WorkerLimitProof { words, confidence: if full >= 0.8 { 0.95 } else { 0.8 }, workers })
}

/// The view from outside, when the status page is missing or cannot answer: as many server processes as hold all the
/// workers that are allowed say that no more can be started. They do not say that all are busy; the accept queue does,
/// and a status page that waits in it. What is there now and then is a burst, which free workers take at once.
fn process_proof(facts: &Facts) -> Option<WorkerLimitProof> {
    let is_burst =
        facts.value(FactId::accept_queue_waiting_fraction).is_some_and(|share| share < WAITING_FRACTION_MIN);
    let unanswered = facts.value(FactId::status_unanswered_fraction).unwrap_or(0.0);
    if is_burst {
        return None;
    }
    if facts.value(FactId::scoreboard_full_fraction).is_some() && unanswered < UNANSWERED_FRACTION_MAX {
        return None;
    }
    // A limit that is fixed at start, or cut off by another, is less than what the files say.
    let workers = workers_max(facts)?;
    let share =
        facts.value(FactId::processes_at_limit_fraction).filter(|share| *share >= FULL_FRACTION_MIN)?;
    let words = format!(
        "All {} Apache workers that MaxRequestWorkers allows are running in {:.0}% of samples",
        format_number(workers),
        share * 100.0
    );
    // Processes hold workers, not what these do: the requests that are with them do, where they are known.
    let requests =
        facts.value(FactId::requests_in_workers_mean).map(|requests| requests >= BUSY_FRACTION_MIN * workers);
    let confidence = if requests == Some(false) { CONFIDENCE_HELD_OTHERWISE } else { 0.7 };
    Some(WorkerLimitProof { words, confidence, workers })
}

//! `apache-workers-exhausted`: every worker of Apache is busy, and connections wait to be accepted.
//!
//! A worker (a process under prefork, a thread under worker and event) serves one request at a time. When all
//! `MaxRequestWorkers` of them are busy, new connections wait in the kernel's accept queue, although the machine
//! may have nothing to do: the workers may only be waiting themselves, for a database or a slow client.
//!
//! ## How it is recognised
//! In most readings the scoreboard of mod_status has neither an idle worker (`_`) nor leave to start one more (`.`),
//! or only a few idle ones while connections wait, the accept queue of the port is not empty, and the processors are not
//! all busy. Where the status page is missing or waits for a worker itself, as it does when kept connections hold
//! them all: as many server processes as `MaxRequestWorkers` allows in at least half of the readings, and the same
//! queue. When memory is short (`memory-exhausted`) the workers wait for that, and more of them would make it worse.
//!
//! ## What to do
//! Raise `MaxRequestWorkers` (and `ServerLimit` with it) to 1.3 times what is wanted at once: the larger of the goal
//! rate times the time a request holds a worker (Little's law), and what is busy, queued or in flight now. Never
//! above what memory holds: swapping costs more than queueing. Above the running `ServerLimit` this needs a restart,
//! up to it a graceful reload: where that is worth it, going up to the running limit is the second proposal. More
//! workers also means more connections to a database behind them.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` and `ss -ltn` (Recv-Q of the port) under load;
//! the error log says once in a parent's life `server reached MaxRequestWorkers setting` (AH00161, AH00286, AH00484).

use super::{memory_exhausted, say, say_us};
use crate::breakdown::{accept_queue_wait_us, noticed_queue};
use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;

mod remedy;

/// Stable id.
pub const ID: &str = "apache-workers-exhausted";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &["accept-queue-overflow"];

/// The limit must be reached in at least this share of the readings: a ramp or a respawn is over in a second.
const FULL_FRACTION_MIN: f64 = 0.5;
/// From this share of readings on in which the status page did not answer, the others are a chance selection: those
/// in which a worker happened to come free.
const UNANSWERED_FRACTION_MAX: f64 = 0.5;
/// Above this share of busy processors more workers would only queue for a core.
const CPU_FRACTION_MAX: f64 = 0.95;

/// Fires when no worker is free, connections wait, and neither the processors nor memory are what is short.
pub fn check(facts: &Facts) -> Option<Finding> {
    let proof = proof(facts)?;
    let queue = noticed_queue(facts)?;
    if crate::processors::are_short(facts) || memory_exhausted::is_proven(facts) {
        return None;
    }
    let wait_us = accept_queue_wait_us(facts);
    // A queue that stands tells no wait; how many of those that are in flight stand in it is still known.
    let explains = match wait_us {
        Some(wait) => facts.value("response_time_mean_us").map(|response| wait / response),
        None => facts.value("in_flight_mean").map(|in_flight| queue / in_flight),
    };
    let explains = explains.filter(|share| share.is_finite()).map(|share| share.min(1.0));
    let wait = wait_us.map_or(String::new(), |us| format!(", each for about {}", say_us(us)));
    let summary = format!(
        "Apache has no free worker: {}, while {} connections on average wait to be accepted{wait}.",
        proof.words,
        say(queue)
    );
    Some(Finding {
        id: ID.into(),
        summary,
        confidence: proof.confidence,
        explains_fraction: explains.map(|share| webdyno_model::number::significant(share, 3)),
        facts: facts.cite(&[
            "scoreboard_full_fraction",
            "workers_when_full",
            "workers_limit",
            "workers_busy_mean",
            "processes_at_limit_fraction",
            "service_processes_mean",
            "accept_queue_mean",
            "accept_queue_max",
            "worker_time_mean_us",
            "cpu_busy_fraction",
            "status_unanswered_fraction",
            "rate",
            "ended_per_s",
            "offered_rate",
            "response_time_mean_us",
            "in_flight_mean",
        ]),
        remedies: remedy::remedies(facts, proof.workers, queue),
    })
}

/// Whether as many workers run as are allowed, and none of them was seen to be free: whatever waits waits for them,
/// even if more of them would not help.
pub(crate) fn is_limit_reached(facts: &Facts) -> bool {
    proof(facts).is_some()
}

fn proof(facts: &Facts) -> Option<Proof> {
    facts.is_service("apache").then(|| scoreboard_proof(facts).or_else(|| process_proof(facts)))?
}

struct Proof {
    words: String,
    confidence: f64,
    workers: f64,
}

fn scoreboard_proof(facts: &Facts) -> Option<Proof> {
    let full = facts.value("scoreboard_full_fraction").filter(|full| *full >= FULL_FRACTION_MIN)?;
    let workers = facts.value("workers_when_full").or_else(|| facts.value("workers_limit"))?;
    let words =
        format!("all {} are taken in {:.0}% of the readings of its scoreboard", say(workers), full * 100.0);
    Some(Proof { words, confidence: if full >= 0.8 { 0.95 } else { 0.8 }, workers })
}

/// The view from outside, when the status page is missing or cannot answer: as many server processes as hold all the
/// workers that are allowed say that no more can be started. They do not say that all are busy; the accept queue does,
/// and a status page that waits in it.
fn process_proof(facts: &Facts) -> Option<Proof> {
    let unanswered = facts.value("status_unanswered_fraction").unwrap_or(0.0);
    if facts.value("scoreboard_full_fraction").is_some() && unanswered < UNANSWERED_FRACTION_MAX {
        return None;
    }
    let workers = facts.service.as_ref()?.configured_number("MaxRequestWorkers")?;
    let share = facts.value("processes_at_limit_fraction").filter(|share| *share >= FULL_FRACTION_MIN)?;
    let words = format!(
        "all the {} workers that MaxRequestWorkers allows are running in {:.0}% of the readings",
        say(workers),
        share * 100.0
    );
    Some(Proof { words, confidence: 0.7, workers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    /// 150 prefork workers of 200 ms, all of them taken, under 450 users.
    pub(super) const EXHAUSTED: &[(&str, f64)] = &[
        ("scoreboard_full_fraction", 1.0),
        ("workers_limit", 150.0),
        ("workers_busy_mean", 149.0),
        ("accept_queue_mean", 300.0),
        ("in_flight_mean", 450.0),
        ("cpu_busy_fraction", 0.3),
        ("rate", 750.0),
        ("response_time_mean_us", 600_000.0),
        ("worker_time_mean_us", 200_000.0),
    ];
    pub(super) const PREFORK: &[(&str, i64)] = &[("MaxRequestWorkers", 150), ("ServerLimit", 256)];

    pub(super) fn with(changes: &[(&str, f64)]) -> Option<Finding> {
        let mut values: Vec<_> = EXHAUSTED
            .iter()
            .filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name))
            .copied()
            .collect();
        values.extend(changes.iter().filter(|(_, value)| value.is_finite()));
        check(&facts(&values, PREFORK))
    }

    #[test]
    fn it_stays_silent_without_proof() {
        for (name, value) in
            [("accept_queue_mean", 0.2), ("scoreboard_full_fraction", 0.2), ("accept_queue_mean", f64::NAN)]
        {
            assert!(with(&[(name, value)]).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn without_a_status_page_the_processes_tell() {
        let outside = [
            ("scoreboard_full_fraction", f64::NAN),
            ("workers_limit", f64::NAN),
            ("workers_busy_mean", f64::NAN),
            ("worker_time_mean_us", f64::NAN),
        ];
        for (share, confidence) in [(1.0, Some(0.7)), (0.5, Some(0.7)), (0.4, None)] {
            let finding = with(&[&outside[..], &[("processes_at_limit_fraction", share)][..]].concat());
            assert_eq!(finding.map(|finding| finding.confidence), confidence, "{share}");
        }
    }

    #[test]
    fn a_scoreboard_that_hardly_ever_answers_does_not_speak_for_the_rest() {
        for (unanswered, fires) in [(0.8, true), (0.1, false)] {
            let finding = with(&[
                ("scoreboard_full_fraction", 0.0),
                ("status_unanswered_fraction", unanswered),
                ("processes_at_limit_fraction", 1.0),
            ]);
            assert_eq!(finding.is_some(), fires, "{unanswered}");
        }
    }

    #[test]
    fn a_queue_that_stands_explains_those_that_stand_in_it() {
        let finding = with(&[("connections_opened_per_s", 0.0)]).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.667));
        assert!(!finding.summary.contains("each for"), "{}", finding.summary);
    }

    #[test]
    fn workers_that_wait_for_memory_are_not_the_limit() {
        assert!(with(&[("pressure_memory_full_fraction", 0.4), ("swapped_in_pages_per_s", 900.0)]).is_none());
    }
}

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
//! queue. When memory is short (`memory-exhausted`), when the service waits for a processor most of the time
//! (`cpu-saturated`), or when the workers wait for a disk or for the log, they wait for that, and more of them would make it
//! worse. When connections that are kept hold them, that is `keepalive-holds-workers`; when the event MPM takes no more
//! connections while threads are idle, `apache-async-cap`. What the workers do (`W`, `K`, `R`) is told with it.
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

use super::{apache_async_cap, keepalive_holds_workers, say, say_us};
use crate::breakdown::{accept_queue_wait_us, noticed_queue};
use crate::facts::Facts;
use crate::{processors, work};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

pub(crate) mod behind;
pub(crate) mod instead;
pub(crate) mod remedy;

/// Stable id.
pub const ID: &str = "apache-workers-exhausted";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &["accept-queue-overflow"];

/// The limit must be reached in at least this share of the readings: a ramp or a respawn is over in a second.
const FULL_FRACTION_MIN: f64 = 0.5;
/// From this share of readings on in which the status page did not answer, the others are a chance selection: those
/// in which a worker happened to come free.
const UNANSWERED_FRACTION_MAX: f64 = 0.5;
/// A queue in front of PHP-FPM that is at least this share of the workers: these wait for its children, not for requests.
const BEHIND_FRACTION_MIN: f64 = 0.2;
/// What is believed of a limit that stands in front of one that binds, or may.
const CONFIDENCE_IN_FRONT: f64 = 0.5;
/// Where only processes are seen, as many requests must be with the workers: fewer mean that something else holds these.
const BUSY_FRACTION_MIN: f64 = 0.7;
const CONFIDENCE_HELD_OTHERWISE: f64 = 0.45;
/// Workers that use less of a processor than this each do not compute: they wait.
const WAITING_CORES_MAX: f64 = 0.2;

/// Fires when no worker is free, connections wait, and nothing else is what is short.
pub fn check(facts: &Facts) -> Option<Finding> {
    let proof = proof(facts)?;
    let queue = noticed_queue(facts)?;
    if instead::machine_is_short(facts)
        || instead::is_logging(facts)
        || keepalive_holds_workers::is_proven(facts)
        || apache_async_cap::is_proven(facts)
        || behind::in_turn(facts, proof.workers).is_some()
    {
        return None;
    }
    let wait =
        accept_queue_wait_us(facts).map_or(String::new(), |us| format!(", each for about {}", say_us(us)));
    let behind =
        facts.value("fpm_queue_behind_mean").filter(|behind| *behind >= BEHIND_FRACTION_MIN * proof.workers);
    let summary = format!(
        "Apache has no free worker: {}, while {} connections on average wait to be accepted{wait}.{}",
        proof.words,
        say(queue),
        doing(facts, behind)
    );
    // Processors that are full with work which nobody could see may be what the workers wait for.
    let is_doubtful = behind.is_some() || processors::shortage(facts).is_some();
    let most = if is_doubtful { CONFIDENCE_IN_FRONT } else { 1.0 };
    Some(Finding {
        id: ID.into(),
        summary,
        confidence: proof.confidence.min(most),
        explains_fraction: explained(facts, queue),
        facts: facts.cite(&CITED),
        remedies: remedy::remedies(facts, proof.workers, queue),
    })
}

const CITED: [&str; 22] = [
    "scoreboard_full_fraction",
    "workers_when_full",
    "workers_limit",
    "workers_busy_mean",
    "workers_writing_mean",
    "workers_keepalive_mean",
    "workers_reading_mean",
    "processes_at_limit_fraction",
    "service_processes_mean",
    "accept_queue_mean",
    "accept_queue_max",
    "worker_time_mean_us",
    "cpu_busy_fraction",
    "service_cpu_cores",
    "pressure_group_cpu_some_fraction",
    "fpm_queue_behind_mean",
    "status_unanswered_fraction",
    "rate",
    "ended_per_s",
    "offered_rate",
    "response_time_mean_us",
    "in_flight_mean",
];

/// The share of the response time that is spent in the accept queue.
pub(crate) fn explained(facts: &Facts, queue: f64) -> Option<f64> {
    // A queue that stands tells no wait; how many of those that are in flight stand in it is still known.
    let explains = match accept_queue_wait_us(facts) {
        Some(wait) => facts.value("response_time_mean_us").map(|response| wait / response),
        None => facts.value("in_flight_mean").map(|in_flight| queue / in_flight),
    };
    explains.filter(|share| share.is_finite()).map(|share| significant(share.min(1.0), 3))
}

/// What the workers do meanwhile, in a sentence.
fn doing(facts: &Facts, behind: Option<f64>) -> String {
    if let Some(behind) = behind {
        return format!(
            " The workers themselves wait: {} requests stand in the queue in front of PHP-FPM, and more workers would only lengthen that one.",
            say(behind)
        );
    }
    let Some((fact, count, words)) = instead::mostly(facts) else { return String::new() };
    let each = facts.value("service_cpu_cores").filter(|_| fact == "workers_writing_mean");
    let waiting = each.filter(|cores| *cores <= WAITING_CORES_MAX * count).map_or(String::new(), |cores| {
        let what = work::waits_for(facts, count).map_or(String::new(), |what| format!(" ({what})"));
        format!(", and together use {} of a processor: they wait for something themselves{what}", say(cores))
    });
    format!(" {} of them {words}{waiting}.", say(count))
}

/// Whether as many workers run as are allowed, and none of them was seen to be free: whatever waits waits for them,
/// even if more of them would not help.
pub(crate) fn is_limit_reached(facts: &Facts) -> bool {
    proof(facts).is_some()
}

/// How it is known that all workers are taken, and how many there are.
pub(crate) fn proof(facts: &Facts) -> Option<Proof> {
    facts.is_service("apache").then(|| scoreboard_proof(facts).or_else(|| process_proof(facts)))?
}

/// Proof that the limit of workers is reached.
pub(crate) struct Proof {
    /// In words.
    pub words: String,
    /// How sure it is.
    pub confidence: f64,
    /// How many workers there are.
    pub workers: f64,
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
    // Processes hold workers, not what these do: the requests that are with them do, where they are known.
    let requests =
        facts.value("requests_in_workers_mean").map(|requests| requests >= BUSY_FRACTION_MIN * workers);
    let confidence = if requests == Some(false) { CONFIDENCE_HELD_OTHERWISE } else { 0.7 };
    Some(Proof { words, confidence, workers })
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
    fn processors_that_are_full_with_work_nobody_sees_leave_a_doubt() {
        let full = [("cores", 2.0), ("cpu_busy_fraction", 0.98), ("pressure_cpu_some_fraction", 0.9)];
        assert_eq!(with(&full).unwrap().confidence, 0.5);
        let others = [("service_cpu_cores", 0.2), ("pressure_group_cpu_some_fraction", 0.1)];
        assert_eq!(with(&[&full[..], &others].concat()).unwrap().confidence, 0.95, "others fill them");
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
    fn processes_without_requests_are_held_by_something_else() {
        for (requests, confidence) in [(150.0, 0.7), (100.0, 0.45)] {
            let finding = with(&[
                ("scoreboard_full_fraction", f64::NAN),
                ("processes_at_limit_fraction", 1.0),
                ("requests_in_workers_mean", requests),
            ]);
            assert_eq!(finding.unwrap().confidence, confidence, "{requests}");
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

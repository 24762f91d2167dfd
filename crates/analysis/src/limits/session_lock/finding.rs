//! When `session-lock` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, memory_evidence, workers};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Fewer wait by chance.
const WAITING_MIN: f64 = 1.0;
/// They are this share of the requests in flight, or of the processes that serve.
const WAITING_OF_REQUESTS_MIN: f64 = 0.2;
const WAITING_OF_PROCESSES_MIN: f64 = 0.5;
/// So much of all requests waits for it, or in a queue behind.
const EXPLAINED_MIN: f64 = 0.8;
const CONFIDENCE: f64 = 0.9;
/// Where nobody knows how many requests there are, those that wait may be a few of many.
const CONFIDENCE_OF_UNKNOWN: f64 = 0.6;

/// Fires when a good part of the requests waits for the file of a session.
pub fn check(facts: &Facts) -> Option<Finding> {
    let waiting = facts.value(FactId::session_lock_waiting_mean).filter(|waiting| *waiting >= WAITING_MIN)?;
    let in_flight = concurrency::requests_in_flight(facts);
    if !is_much(facts, waiting) || memory_evidence::is_proven(facts) {
        return None;
    }
    let folder = facts
        .each(FactId::file_lock_waiting_mean)
        .filter(|(file, count)| file.ends_with("/sess_") && *count > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(String::new(), |(file, _)| format!(" in {}", file.trim_end_matches("/sess_")));
    let of = in_flight.map_or(String::new(), |in_flight| {
        format!(" of {} requests in flight", format_number(significant(in_flight, 3)))
    });
    let alone = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us));
    let alone = alone_words(alone);
    Some(Finding {
        id: LimitId::SessionLock.into(),
        summary: format!(
            "Requests of one session wait for each other: {}{of} wait in flock on a session file{folder}, one is served at a time.{alone}",
            format_number(significant(waiting, 3))
        ),
        confidence: if in_flight.is_some() { CONFIDENCE } else { CONFIDENCE_OF_UNKNOWN },
        explains_fraction: explained_share(facts, waiting),
        facts: facts.cite(&fact_ids! {
            session_lock_waiting_mean, lock_waiting_mean, in_flight_mean, fpm_processes_max, response_time_mean_us,
            response_time_alone_us, cpu_busy_fraction, rate,
        }),
        remedies: vec![manual(
            SettingId::application("session_write_close"),
            "changes to the session after that are lost: call it after the last one",
            "call session_write_close() as soon as the session was read and changed, or session_start(['read_and_close' => true]): then the requests of a session are served at the same time",
        )],
    })
}

/// Whether so many that wait for a file are a good part of the requests, or of the processes that serve.
pub(crate) fn is_much(facts: &Facts, waiting: f64) -> bool {
    let in_flight = concurrency::requests_in_flight(facts);
    let processes = facts.value(FactId::fpm_processes_max);
    in_flight.is_none_or(|in_flight| waiting >= WAITING_OF_REQUESTS_MIN * in_flight)
        || processes.is_some_and(|processes| waiting >= WAITING_OF_PROCESSES_MIN * processes)
        || are_most_that_came_through(facts, waiting)
}

/// Whether most of the children, or of Apache's workers, that have a request wait for it, and nearly all other requests in front of them:
/// a front that takes few connections at once lets no more come through.
fn are_most_that_came_through(facts: &Facts, waiting: f64) -> bool {
    let children: f64 = facts.each(FactId::fpm_processes_busy_mean).map(|(_, busy)| busy).sum();
    let workers = || workers::limit_proof(facts).map_or(0.0, |proof| proof.workers);
    let busy = if children > 0.0 { children } else { workers() };
    busy > 0.0
        && waiting >= WAITING_OF_PROCESSES_MIN * busy
        && explained_share(facts, waiting).is_some_and(|share| share >= EXPLAINED_MIN)
}

/// Those that wait for the file, and those that wait behind them for a worker.
pub(crate) fn explained_share(facts: &Facts, waiting: f64) -> Option<f64> {
    let in_flight = concurrency::requests_in_flight(facts);
    let queues = facts.each(FactId::fpm_queue_mean).map(|(_, queue)| queue).sum::<f64>();
    let queues = queues.max(facts.value(FactId::backend_queue_mean).unwrap_or(0.0));
    let queues = queues + facts.value(FactId::accept_queue_mean).unwrap_or(0.0);
    in_flight.map(|in_flight| significant(((waiting + queues) / in_flight).min(1.0), 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    const BASE: [(FactId, f64); 6] = [
        (FactId::session_lock_waiting_mean, 18.0),
        (FactId::lock_waiting_mean, 18.0),
        (FactId::in_flight_mean, 20.0),
        (FactId::cpu_busy_fraction, 0.1),
        (FactId::response_time_mean_us, 1_000_000.0),
        (FactId::response_time_alone_us, 50_000.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let file = [(FactId::file_lock_waiting_mean, "/var/lib/php/sessions/sess_", 18.0)];
        check(&facts_of_several(&with_changes(&BASE, changes), &file))
    }

    #[test]
    fn requests_that_wait_for_a_session_are_told_with_its_folder() {
        let found = with(&[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (0.9, Some(0.9)));
        let begins = "Requests of one session wait for each other: 18 of 20 requests in flight wait in flock on a session file in /var/lib/php/sessions, one is served";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        for (what, changes, fires) in [
            ("other files", vec![(FactId::session_lock_waiting_mean, 0.0)], false),
            ("few of many", vec![(FactId::session_lock_waiting_mean, 2.0)], false),
            (
                "all children of a pool but one",
                vec![
                    (FactId::session_lock_waiting_mean, 4.0),
                    (FactId::in_flight_mean, 60.0),
                    (FactId::fpm_processes_max, 5.0),
                ],
                true,
            ),
            ("nobody looked", vec![(FactId::session_lock_waiting_mean, f64::NAN)], false),
        ] {
            assert_eq!(with(&changes).is_some(), fires, "{what}");
        }
        let of_unknown = with(&[(FactId::in_flight_mean, f64::NAN)]).unwrap();
        assert_eq!(of_unknown.confidence, CONFIDENCE_OF_UNKNOWN);
    }

    #[test]
    fn behind_a_front_that_takes_few_at_once_those_that_came_through_count() {
        for (busy, queue, fires) in [(5.0, 130.0, true), (12.0, 130.0, false), (5.0, 2.0, false)] {
            let changes = [
                (FactId::session_lock_waiting_mean, 3.5),
                (FactId::in_flight_mean, 135.0),
                (FactId::accept_queue_mean, queue),
                (FactId::fpm_processes_max, 27.0),
            ];
            let pools = [(FactId::fpm_processes_busy_mean, "www", busy)];
            let found = check(&facts_of_several(&with_changes(&BASE, &changes), &pools));
            assert_eq!(found.is_some(), fires, "{busy} busy, {queue} in the queue");
        }
    }
}

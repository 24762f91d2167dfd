//! When `apache-workers-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::{apache_async_cap, keepalive_holds_workers, upstream_bandwidth};
use crate::resources::time_breakdown::{accept_queue_wait_us, noticed_queue};
use crate::resources::{concurrency, php_functions, processors, worker_waits, workers};
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::Finding;

/// A queue in front of PHP-FPM that is at least this share of the workers: these wait for its children, not for requests.
const BEHIND_FRACTION_MIN: f64 = 0.2;
/// What is believed of a limit that stands in front of one that binds, and of one that may.
const CONFIDENCE_IN_FRONT: f64 = 0.4;
const CONFIDENCE_DOUBTFUL: f64 = 0.5;
/// Workers that use less of a core than this each do not compute: they wait.
const WAITING_CORES_MAX: f64 = 0.2;

/// Fires when no worker is free, connections wait, and nothing else is what is short.
pub fn check(facts: &Facts) -> Option<Finding> {
    of_front(facts).or_else(|| super::backend_apache::check(facts))
}

fn of_front(facts: &Facts) -> Option<Finding> {
    let proof = workers::limit_proof(facts)?;
    let queue = noticed_queue(facts)?;
    if worker_waits::machine_is_short(facts)
        || worker_waits::is_logging(facts)
        || keepalive_holds_workers::finding::is_proven(facts)
        || apache_async_cap::finding::is_proven(facts)
        || super::backend_wait::serialized_wait(facts, proof.workers).is_some()
        || super::backend_wait::are_connections_dropped(facts, proof.workers)
    {
        return None;
    }
    let wait =
        accept_queue_wait_us(facts).map_or(String::new(), |us| format!(" (about {} each)", format_time(us)));
    let behind = facts
        .value(FactId::fpm_queue_behind_mean)
        .filter(|behind| *behind >= BEHIND_FRACTION_MIN * proof.workers);
    let summary = format!(
        "{}; {} connections wait in the accept queue on average{wait}.{}",
        proof.words,
        format_number(queue),
        worker_activity_text(facts, behind)
    );
    // CPUs that are full with work that is not visible may be what the workers wait for.
    let most = match behind {
        Some(_) => CONFIDENCE_IN_FRONT,
        None if processors::cpu_shortage(facts).is_some() => CONFIDENCE_DOUBTFUL,
        // More workers would wait for the same path.
        None if upstream_bandwidth::finding::holds_workers(facts) => CONFIDENCE_DOUBTFUL,
        None => 1.0,
    };
    Some(Finding {
        id: LimitId::ApacheWorkersExhausted.into(),
        summary,
        confidence: proof.confidence.min(most),
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts
            .cite(&CITED)
            .into_iter()
            .chain(php_functions::cite(facts, php_functions::WAITING))
            .collect(),
        remedies: crate::resources::worker_remedies::remedies(facts, proof.workers, queue),
    })
}

const CITED: [FactId; 22] = fact_ids! {
    scoreboard_full_fraction, workers_when_full, workers_limit, workers_busy_mean, workers_writing_mean,
    workers_keepalive_mean, workers_reading_mean, processes_at_limit_fraction, service_processes_mean,
    accept_queue_mean, accept_queue_max, worker_time_mean_us, cpu_busy_fraction, service_cpu_cores,
    pressure_group_cpu_some_fraction, fpm_queue_behind_mean, status_unanswered_fraction, rate, ended_per_s,
    offered_rate, response_time_mean_us, in_flight_mean,
};

/// What the workers do meanwhile, in a sentence.
fn worker_activity_text(facts: &Facts, behind: Option<f64>) -> String {
    if let Some(behind) = behind {
        return format!(
            " The workers wait for PHP-FPM: {} requests in its queue. More workers would only lengthen it.",
            format_number(behind)
        );
    }
    let Some((fact, count, words)) = worker_waits::dominant_state(facts) else { return String::new() };
    let each = facts.value(FactId::service_cpu_cores).filter(|_| fact == FactId::workers_writing_mean);
    let waiting = each.filter(|cores| *cores <= WAITING_CORES_MAX * count).map_or(String::new(), |cores| {
        let what =
            concurrency::wait_cause_text(facts, count).map_or(String::new(), |what| format!(" ({what})"));
        format!(" but together use {} cores: blocked on I/O or a backend{what}", format_number(cores))
    });
    format!(" {} of them are {words}{waiting}.", format_number(count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};

    /// 150 prefork workers of 200 ms, all of them busy, under 450 users.
    pub(crate) const EXHAUSTED: &[(FactId, f64)] = &[
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 150.0),
        (FactId::workers_busy_mean, 149.0),
        (FactId::accept_queue_mean, 300.0),
        (FactId::in_flight_mean, 450.0),
        (FactId::cpu_busy_fraction, 0.3),
        (FactId::rate, 750.0),
        (FactId::response_time_mean_us, 600_000.0),
        (FactId::worker_time_mean_us, 200_000.0),
    ];
    pub(crate) const PREFORK: &[(&str, i64)] = &[("MaxRequestWorkers", 150), ("ServerLimit", 256)];

    pub(crate) fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(EXHAUSTED, changes);
        check(&facts(&values, PREFORK))
    }

    #[test]
    fn it_stays_silent_without_proof() {
        for (name, value) in [
            (FactId::accept_queue_mean, 0.2),
            (FactId::scoreboard_full_fraction, 0.2),
            (FactId::accept_queue_mean, f64::NAN),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn processors_that_are_full_with_work_nobody_sees_leave_a_doubt() {
        let full = [
            (FactId::cores, 2.0),
            (FactId::cpu_busy_fraction, 0.98),
            (FactId::pressure_cpu_some_fraction, 0.9),
        ];
        assert_eq!(with(&full).unwrap().confidence, 0.5);
        let others = [(FactId::service_cpu_cores, 0.2), (FactId::pressure_group_cpu_some_fraction, 0.1)];
        assert_eq!(with(&[&full[..], &others].concat()).unwrap().confidence, 0.95, "others fill them");
    }

    #[test]
    fn workers_that_a_path_holds_leave_a_doubt() {
        let held = [
            (FactId::cpu_busy_fraction, 0.16),
            (FactId::workers_busy_mean, 150.0),
            (FactId::workers_closing_mean, 75.0),
            (FactId::retransmits, 8_900.0),
            (FactId::retransmitted_fraction, 0.4),
        ];
        assert_eq!(with(&held).unwrap().confidence, 0.5);
        assert_eq!(with(&held[..3]).unwrap().confidence, 0.95, "nothing is sent again");
    }

    #[test]
    fn without_a_status_page_the_processes_tell() {
        let outside = [
            (FactId::scoreboard_full_fraction, f64::NAN),
            (FactId::workers_limit, f64::NAN),
            (FactId::workers_busy_mean, f64::NAN),
            (FactId::worker_time_mean_us, f64::NAN),
        ];
        let waits = FactId::accept_queue_waiting_fraction;
        for (share, waiting, confidence) in
            [(1.0, 1.0, Some(0.7)), (0.5, 0.6, Some(0.7)), (0.4, 1.0, None), (1.0, 0.17, None)]
        {
            let processes = [(FactId::processes_at_limit_fraction, share), (waits, waiting)];
            let finding = with(&[&outside[..], &processes[..]].concat());
            assert_eq!(finding.map(|finding| finding.confidence), confidence, "{share} {waiting}");
        }
    }

    #[test]
    fn processes_without_requests_are_held_by_something_else() {
        for (requests, confidence) in [(150.0, 0.7), (100.0, 0.45)] {
            let finding = with(&[
                (FactId::scoreboard_full_fraction, f64::NAN),
                (FactId::processes_at_limit_fraction, 1.0),
                (FactId::requests_in_workers_mean, requests),
            ]);
            assert_eq!(finding.unwrap().confidence, confidence, "{requests}");
        }
    }

    #[test]
    fn a_scoreboard_that_hardly_ever_answers_does_not_speak_for_the_rest() {
        for (unanswered, fires) in [(0.8, true), (0.1, false)] {
            let finding = with(&[
                (FactId::scoreboard_full_fraction, 0.0),
                (FactId::status_unanswered_fraction, unanswered),
                (FactId::processes_at_limit_fraction, 1.0),
            ]);
            assert_eq!(finding.is_some(), fires, "{unanswered}");
        }
    }

    #[test]
    fn a_queue_that_stands_explains_those_that_stand_in_it() {
        let finding = with(&[(FactId::connections_opened_per_s, 0.0)]).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.667));
        assert!(!finding.summary.contains(" each)"), "{}", finding.summary);
    }

    #[test]
    fn workers_whose_connections_a_full_table_drops_are_not_too_few() {
        for (full, connecting, fires) in [(1.0, 100.0, false), (1.0, 12.0, true), (0.0, 100.0, true)] {
            let values = with_changes(EXHAUSTED, &[(FactId::conntrack_full_fraction, full)]);
            let mut facts = facts(&values, PREFORK);
            of_pool(&mut facts, "127.0.0.1:9057", &[(FactId::upstream_connecting_mean, connecting)]);
            assert_eq!(check(&facts).is_some(), fires, "{full} {connecting}");
        }
    }

    #[test]
    fn workers_that_wait_for_memory_are_not_the_limit() {
        assert!(
            with(&[(FactId::pressure_memory_full_fraction, 0.4), (FactId::swapped_in_pages_per_s, 900.0)])
                .is_none()
        );
    }
}

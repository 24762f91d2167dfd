//! When `apache-async-cap` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::workers::HEADROOM;
use crate::resources::{worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// From this share of idle threads on it is not threads that are missing.
const IDLE_FRACTION_MIN: f64 = 0.35;
/// The number that may be taken moves with the idle threads: so much of it, on average, is all of it.
const FILLED_FRACTION_MIN: f64 = 0.85;
/// The share of the threads that shall be left idle for the connections that are wanted.
const IDLE_FRACTION_WANTED: f64 = 0.5;

/// Fires when idle threads meet a queue, and the connections are as many as may be.
pub fn check(facts: &Facts) -> Option<Finding> {
    let cap = cap(facts)?;
    let queue = noticed_queue(facts)?;
    Some(Finding {
        id: LimitId::ApacheAsyncCap.into(),
        summary: format!(
            "Apache holds {} of {} allowed connections (ThreadsPerChild + AsyncRequestWorkerFactor x idle threads, per process) and accepts no more, although {} of its {} threads are idle. {} connections wait in the accept queue.",
            format_number(cap.held),
            format_number(cap.most),
            format_number(cap.idle),
            format_number(cap.threads),
            format_number(queue)
        ),
        confidence: cap.confidence,
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            workers_idle_mean, workers_busy_mean, workers_limit, apache_connections_mean,
            connections_held_mean, processes_capped_max, requests_in_workers_mean, accept_queue_mean,
            accept_queue_max, service_processes_mean, service_cpu_cores, in_flight_mean,
            response_time_mean_us, response_time_p99_us, rate,
        }),
        remedies: remedy(facts, &cap, queue).into_iter().collect(),
    })
}

/// Whether connections are what is at its limit, and not threads.
pub(crate) fn is_proven(facts: &Facts) -> bool {
    cap(facts).is_some()
}

struct ConnectionCap {
    /// Threads of all processes, and those that are idle.
    threads: f64,
    idle: f64,
    /// Connections that are held, and the most that may be.
    held: f64,
    most: f64,
    confidence: f64,
}

fn cap(facts: &Facts) -> Option<ConnectionCap> {
    let service = facts.service.as_ref().filter(|service| service.mode.as_deref() == Some("event"))?;
    if worker_waits::machine_is_short(facts) {
        return None;
    }
    let per_process = service.number("ThreadsPerChild").filter(|threads| *threads >= 1.0)?;
    let processes = facts
        .value(FactId::apache_processes_mean)
        .filter(|count| *count >= 1.0)
        .or_else(|| facts.value(FactId::service_processes_mean).map(|count| count - 1.0))
        .filter(|count| *count >= 1.0)?;
    let threads = processes * per_process;
    // A request in flight and not in the queue has a thread.
    let inferred = facts.value(FactId::requests_in_workers_mean).or_else(|| served_connections(facts));
    let inferred = inferred.map(|busy| (threads - busy).max(0.0));
    // The status page waits in the queue as well: one that came through at last shows a moment, and no mean.
    let reported = facts
        .value(FactId::workers_idle_mean)
        .filter(|_| facts.value(FactId::scoreboard_full_fraction).is_some() || inferred.is_none());
    let idle = reported.or(inferred).filter(|idle| *idle >= IDLE_FRACTION_MIN * threads)?.min(threads);
    let factor = service.number("AsyncRequestWorkerFactor").unwrap_or(2.0);
    let most = threads + factor * idle;
    // The page's count may stay 0 with connections open.
    let counted = facts.value(FactId::apache_connections_mean).into_iter();
    let held = counted.chain(facts.value(FactId::connections_held_mean)).reduce(f64::max)?;
    let capped = facts.value(FactId::processes_capped_max).is_some_and(|capped| capped >= 1.0);
    let filled = held >= FILLED_FRACTION_MIN * most && held > threads;
    let confidence = match (capped, reported.is_some()) {
        (true, _) => 0.95,
        (false, true) => 0.9,
        (false, false) => 0.75,
    };
    (filled || (capped && held > threads)).then_some(ConnectionCap { threads, idle, held, most, confidence })
}

/// Connections that are held and not idle: nobody's load is known by its requests.
fn served_connections(facts: &Facts) -> Option<f64> {
    let held = facts.value(FactId::connections_held_mean);
    held.zip(facts.value(FactId::idle_connections_mean)).map(|(held, idle)| (held - idle).max(0.0))
}

fn remedy(facts: &Facts, cap: &ConnectionCap, queue: f64) -> Option<Remedy> {
    let now = facts.setting("AsyncRequestWorkerFactor").unwrap_or(2.0);
    let wanted = HEADROOM * (cap.held + queue);
    let to = ((wanted - cap.threads) / (IDLE_FRACTION_WANTED * cap.threads)).ceil();
    (to > now).then(|| Remedy {
        setting: SettingId::of_service("apache", "AsyncRequestWorkerFactor"),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Reload,
        risk: "more connections per process: one file descriptor and some memory each".into(),
        why: format!(
            "{} connections are open or waiting; 30% headroom, with half of the {} threads idle",
            format_number(cap.held + queue),
            format_number(cap.threads)
        ),
        predicted: None,
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    /// One process of 25 threads with 73 connections, nearly all of them idle, and 118 who wait.
    const CAPPED: &[(FactId, f64)] = &[
        (FactId::workers_idle_mean, 24.0),
        (FactId::scoreboard_full_fraction, 0.0),
        (FactId::apache_processes_mean, 1.0),
        (FactId::service_processes_mean, 2.0),
        (FactId::apache_connections_mean, 72.0),
        (FactId::connections_held_mean, 72.0),
        (FactId::requests_in_workers_mean, 1.0),
        (FactId::accept_queue_mean, 118.0),
        (FactId::in_flight_mean, 119.0),
    ];

    fn with(changes: &[(FactId, f64)], mode: &str) -> Option<Finding> {
        let values = with_changes(CAPPED, changes);
        let mut facts = facts(&values, &[("MaxRequestWorkers", 25), ("ThreadsPerChild", 25)]);
        facts.service.as_mut().unwrap().mode = Some(mode.into());
        check(&facts)
    }

    #[test]
    fn the_cap_is_that_of_the_idle_threads() {
        let none = f64::NAN;
        for (name, changes, confidence) in [
            ("inside", vec![], Some(0.9)),
            ("the table of processes", vec![(FactId::processes_capped_max, 1.0)], Some(0.95)),
            (
                "outside",
                vec![(FactId::workers_idle_mean, none), (FactId::apache_connections_mean, none)],
                Some(0.75),
            ),
            (
                "nobody's load, and no page",
                vec![
                    (FactId::workers_idle_mean, none),
                    (FactId::requests_in_workers_mean, none),
                    (FactId::idle_connections_mean, 70.0),
                ],
                Some(0.75),
            ),
            ("the page counts none", vec![(FactId::apache_connections_mean, 0.0)], Some(0.9)),
            (
                "a single look, at the start",
                vec![(FactId::workers_idle_mean, 4.0), (FactId::scoreboard_full_fraction, none)],
                Some(0.75),
            ),
            ("threads are busy", vec![(FactId::workers_idle_mean, 4.0)], None),
            (
                "room for more",
                vec![(FactId::apache_connections_mean, 40.0), (FactId::connections_held_mean, 40.0)],
                None,
            ),
            ("no queue", vec![(FactId::accept_queue_mean, 0.5)], None),
            (
                "nobody waits for reading",
                vec![(FactId::workers_idle_mean, none), (FactId::requests_in_workers_mean, 25.0)],
                None,
            ),
        ] {
            assert_eq!(with(&changes, "event").map(|finding| finding.confidence), confidence, "{name}");
        }
        assert!(with(&[], "worker").is_none());
    }

    #[test]
    fn the_factor_covers_those_who_wait() {
        // 1.3 x (72 + 118) connections, less 25, for 12.5 idle threads.
        let remedy = with(&[], "event").unwrap().remedies.remove(0);
        assert_eq!((remedy.to, remedy.class), (Some(SettingValue::Integer(18)), ApplyClass::Reload));
    }
}

//! When `apache-worker-churn` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Processes that prefork starts at most in a second.
const STARTED_PER_S_MAX: f64 = 32.0;
/// From this share of that pace on the parent hardly keeps up: it reaches it only after seconds of doubling.
const PACE_FRACTION_MIN: f64 = 0.3;
/// What ends a process may also be an idle one too many: most of the connections must be those of processes that ended.
const EXPLAINED_FRACTION_MIN: f64 = 0.5;
/// So many end a second, and of those that begin: more than a pool that grows, whose old processes end now and then.
const SUCCEEDED_PER_S_MIN: f64 = 1.0;
const SUCCEEDED_FRACTION_MIN: f64 = 0.5;
/// The parent looks once a second: processes that all are gone by the second look live for as many connections as they may take.
const LIVES_MAX_S: f64 = 2.0;
/// So much of what that pace allows is all of it: its pace doubles from one on, and the port has connections of other clients.
const CEILING_FRACTION: (f64, f64) = (0.7, 1.1);
/// With a number so high a process ends rarely, and a leak is still bounded.
const CONNECTIONS_WITH_LEAK: i64 = 10_000;

/// Fires when processes end so fast that their successors are what connections wait for.
pub fn check(facts: &Facts) -> Option<Finding> {
    let churn = churn(facts)?;
    let queue = noticed_queue(facts)?;
    let prefork = facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("prefork"));
    let ceiling = STARTED_PER_S_MAX * churn.connections;
    let bound = if prefork {
        format!(
            " (limit {}/s, so at most {} connections/s)",
            format_number(STARTED_PER_S_MAX),
            format_number(ceiling)
        )
    } else {
        String::new()
    };
    Some(Finding {
        id: LimitId::ApacheWorkerChurn.into(),
        summary: format!(
            "Apache processes end after {} connections each (MaxConnectionsPerChild): {} end and {} are started per second{bound}. {} connections wait in the accept queue.",
            format_number(churn.connections),
            format_number(churn.ended_per_s),
            format_number(churn.started_per_s),
            format_number(queue)
        ),
        confidence: if churn.by_ids { 0.95 } else { 0.7 },
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            worker_processes_started_per_s, worker_processes_ended_per_s, worker_oldest_mean_s, forks_per_s,
            new_connections_per_s, worker_processes_mean, service_processes_mean, workers_startable_mean, workers_idle_mean,
            accept_queue_mean, service_cpu_cores, response_time_mean_us, rate,
        }),
        remedies: vec![remedy(facts, &churn)],
    })
}

struct WorkerChurn {
    /// Connections that a process takes.
    connections: f64,
    ended_per_s: f64,
    started_per_s: f64,
    by_ids: bool,
}

fn churn(facts: &Facts) -> Option<WorkerChurn> {
    let connections = facts.is_service("apache").then(|| facts.setting("MaxConnectionsPerChild"))??;
    let accepted =
        facts.value(FactId::new_connections_per_s).or(facts.value(FactId::connections_opened_per_s))?;
    if connections >= 1.0 && is_at_ceiling(facts, connections, accepted) {
        let per_s = accepted / connections;
        return Some(WorkerChurn { connections, ended_per_s: per_s, started_per_s: per_s, by_ids: true });
    }
    if connections < 1.0 || worker_waits::machine_is_short(facts) {
        return None;
    }
    // Those that begin and end between two looks are counted only by the machine's forks. What ends counts: of many that
    // were there from the start all may end before the parent's pace has doubled often enough, and of idle ones it ends one
    // in a second.
    let by_ids = facts.value(FactId::worker_processes_ended_per_s);
    let forks_per_s = facts.value(FactId::forks_per_s);
    // Of those that live for a moment most are never met by a look.
    let ended_per_s = match live_shortly(facts) {
        true => by_ids.into_iter().chain(forks_per_s).reduce(f64::max)?,
        false => by_ids.or(forks_per_s)?,
    };
    let threads = facts.threads_per_process();
    // Where none is left that a former look met, they end as soon as they come, however slowly that is; so do those that begin where
    // others live on, and hold their workers.
    let is_fast = ended_per_s >= PACE_FRACTION_MIN * STARTED_PER_S_MAX / threads
        || live_shortly(facts)
        || waits_for_successors(facts, ended_per_s);
    // Connections that nobody took before their client gave up ended no process.
    let taken = facts.value(FactId::rate).map_or(accepted, |answered| answered.min(accepted));
    let explained = ended_per_s * connections >= EXPLAINED_FRACTION_MIN * taken;
    let started_per_s = facts.value(FactId::worker_processes_started_per_s).unwrap_or(ended_per_s);
    (is_fast && explained).then_some(WorkerChurn {
        connections,
        ended_per_s,
        started_per_s,
        by_ids: by_ids.is_some(),
    })
}

/// Whether as many connections are taken as the processes can that prefork starts, and none of these outlives two looks of the
/// parent. Where responses are quick a second's processes are gone long before the next ones: no look at the ids meets them all.
/// CPUs that are full otherwise would not let just so many through.
fn is_at_ceiling(facts: &Facts, connections: f64, accepted: f64) -> bool {
    let prefork = facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("prefork"));
    let share = accepted / (STARTED_PER_S_MAX * connections);
    prefork && live_shortly(facts) && (CEILING_FRACTION.0..=CEILING_FRACTION.1).contains(&share)
}

/// Whether most of those that begin end at once, no worker is idle although more may be started, and connections wait for those.
fn waits_for_successors(facts: &Facts, ended_per_s: f64) -> bool {
    let started_per_s = facts.value(FactId::worker_processes_started_per_s).unwrap_or(f64::INFINITY);
    ended_per_s >= SUCCEEDED_PER_S_MIN
        && ended_per_s >= SUCCEEDED_FRACTION_MIN * started_per_s
        && facts.value(FactId::workers_idle_mean).is_some_and(|idle| idle < 1.0)
        && facts.value(FactId::workers_startable_mean).is_some_and(|places| places >= 1.0)
        && noticed_queue(facts).is_some()
}

fn live_shortly(facts: &Facts) -> bool {
    facts.value(FactId::worker_oldest_mean_s).is_some_and(|seconds| seconds <= LIVES_MAX_S)
}

fn remedy(facts: &Facts, churn: &WorkerChurn) -> Remedy {
    // Workers of one age, and those that live for a moment, tell nothing of growth.
    let (to, why) = match facts.value(FactId::worker_growth_by_age_bytes) {
        Some(bytes) if bytes > 0.0 => (
            CONNECTIONS_WITH_LEAK,
            "workers grow with age: this number bounds that, and processes end rarely",
        ),
        Some(_) => (0, "no memory growth of the workers observed"),
        None => (0, "memory growth of the workers could not be observed"),
    };
    Remedy {
        setting: SettingId::of_service("apache", "MaxConnectionsPerChild"),
        from: Some(SettingValue::Integer(churn.connections as i64)),
        to: Some(SettingValue::Integer(to)),
        class: ApplyClass::Reload,
        risk: "memory leaks of modules are no longer bounded: watch the workers' memory".into(),
        why: why.into(),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const CHURN: &[(FactId, f64)] = &[
        (FactId::worker_processes_started_per_s, 27.0),
        (FactId::worker_processes_ended_per_s, 26.0),
        (FactId::new_connections_per_s, 80.0),
        (FactId::forks_per_s, 29.0),
        (FactId::accept_queue_mean, 20.0),
        (FactId::in_flight_mean, 40.0),
        (FactId::cpu_busy_fraction, 0.2),
    ];

    fn with(changes: &[(FactId, f64)], connections: i64) -> Option<Finding> {
        let values = with_changes(CHURN, changes);
        check(&facts(&values, &[("MaxConnectionsPerChild", connections)]))
    }

    /// Fifty old processes write to slow clients; the others end with every second connection.
    fn held_by_others(idle: f64, startable: f64) -> Vec<(FactId, f64)> {
        vec![
            (FactId::worker_processes_ended_per_s, 5.5),
            (FactId::worker_processes_started_per_s, 7.0),
            (FactId::new_connections_per_s, 15.0),
            (FactId::worker_oldest_mean_s, 8.7),
            (FactId::workers_idle_mean, idle),
            (FactId::workers_startable_mean, startable),
        ]
    }

    #[test]
    fn processes_that_come_and_go_with_the_connections_are_churn() {
        let none = f64::NAN;
        for (name, changes, connections, confidence) in [
            ("three each", vec![], 3, Some(0.95)),
            (
                "ids unseen",
                vec![
                    (FactId::worker_processes_started_per_s, none),
                    (FactId::worker_processes_ended_per_s, none),
                ],
                3,
                Some(0.7),
            ),
            // All that were there ended at once, and the parent has doubled its pace only once.
            ("they only end", vec![(FactId::worker_processes_started_per_s, 0.5)], 3, Some(0.95)),
            (
                "slowly, and none outlives two looks",
                vec![
                    (FactId::worker_processes_ended_per_s, 4.5),
                    (FactId::forks_per_s, 14.5),
                    (FactId::new_connections_per_s, 27.7),
                    (FactId::worker_oldest_mean_s, 0.2),
                ],
                2,
                Some(0.95),
            ),
            ("for ever", vec![], 0, None),
            ("they only begin", vec![(FactId::worker_processes_ended_per_s, 0.0)], 3, None),
            ("others end, too, but not these", vec![(FactId::new_connections_per_s, 800.0)], 3, None),
            ("nobody waits", vec![(FactId::accept_queue_mean, 0.2)], 3, None),
            (
                "gone before anybody looks",
                vec![
                    (FactId::new_connections_per_s, 479.0),
                    (FactId::worker_processes_started_per_s, 12.0),
                    (FactId::worker_oldest_mean_s, 0.8),
                    (FactId::pressure_group_cpu_some_fraction, 0.9),
                ],
                15,
                Some(0.95),
            ),
            (
                "they stay",
                vec![
                    (FactId::worker_processes_ended_per_s, 12.0),
                    (FactId::new_connections_per_s, 479.0),
                    (FactId::worker_oldest_mean_s, 9.0),
                ],
                15,
                None,
            ),
            ("forks cost the processors", vec![(FactId::pressure_group_cpu_some_fraction, 0.9)], 3, None),
        ] {
            let found = with(&changes, connections).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{name}");
        }
    }

    #[test]
    fn beside_workers_that_others_hold_however_slowly_they_end() {
        let ended = |per_s| (FactId::worker_processes_ended_per_s, per_s);
        let started = |per_s| (FactId::worker_processes_started_per_s, per_s);
        for (idle, startable, changed, connections, found) in [
            (0.0, 8.0, &[][..], 2, true),
            (4.0, 8.0, &[], 2, false),
            (0.0, 0.0, &[], 2, false),
            // A pool that grows, and one in which now and then a process ends for another one.
            (0.0, 8.0, &[ended(0.1)], 1000, false),
            (0.0, 8.0, &[ended(0.1), started(0.1)], 1000, false),
            (0.0, 8.0, &[started(20.0)], 2, false),
        ] {
            let seen = with_changes(&held_by_others(idle, startable), changed);
            assert_eq!(with(&seen, connections).is_some(), found, "{idle} {startable} {changed:?}");
        }
    }

    #[test]
    fn connections_that_are_given_up_in_the_queue_end_no_process() {
        let short = [
            (FactId::worker_processes_ended_per_s, 22.0),
            (FactId::worker_oldest_mean_s, 0.6),
            (FactId::forks_per_s, 9.0),
        ];
        assert!(with(&short, 1).is_none());
        let given_up = [&short[..], &[(FactId::rate, 11.8)]].concat();
        assert_eq!(with(&given_up, 1).map(|finding| finding.confidence), Some(0.95));
    }

    #[test]
    fn a_leak_keeps_a_bound() {
        for (growth, to, why) in [
            (f64::NAN, 0, "could not be observed"),
            (0.0, 0, "no memory growth of the workers observed"),
            (3e6, 10_000, "workers grow with age"),
        ] {
            let remedy = with(&[(FactId::worker_growth_by_age_bytes, growth)], 3).unwrap().remedies.remove(0);
            assert_eq!(remedy.to, Some(SettingValue::Integer(to)), "{growth}");
            assert!(remedy.why.contains(why), "{growth}: {}", remedy.why);
        }
    }
}

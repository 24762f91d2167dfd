//! When `apache-spawn-lag` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::worker_remedies;
use crate::resources::{memory_pressure, worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The processes at the end must be this share more than at the beginning: less is the replacement of a few.
const GREW_FRACTION_MIN: f64 = 0.3;
/// More ended than this share of those that were started: that is churn.
const ENDED_FRACTION_MAX: f64 = 0.25;
/// A queue in front of PHP-FPM that is at least this share of the workers: these wait for its children.
const BEHIND_FRACTION_MIN: f64 = 0.2;

/// Fires when workers are being started while connections wait, and more are allowed.
pub fn check(facts: &Facts) -> Option<Finding> {
    let queue = noticed_queue(facts)?;
    let grew = growth(facts)?;
    if worker_waits::machine_is_short(facts) || is_a_limit(facts, queue, &grew) {
        return None;
    }
    let last = facts.value(FactId::accept_queue_last);
    let end = last
        .map_or(String::new(), |last| format!(" At the end of the window {} waited.", format_number(last)));
    Some(Finding {
        id: LimitId::ApacheSpawnLag.into(),
        summary: format!(
            "Load ramped faster than Apache spawns workers: {} connections waited on average, while {} processes were started (up to {}; {} workers allowed).{end}",
            format_number(queue),
            format_number(grew.started),
            format_number(grew.most),
            format_number(grew.allowed)
        ),
        confidence: confidence(facts, queue, &grew),
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            worker_processes_started, worker_processes_started_per_s, worker_processes_ended_per_s,
            service_processes_grew, service_processes_min, service_processes_max, workers_startable_mean,
            accept_queue_mean, accept_queue_max, accept_queue_last, offered_rate, rate, response_time_mean_us,
            response_time_p99_us, response_time_p50_us,
        }),
        remedies: remedy(facts, &grew, queue).into_iter().collect(),
    })
}

/// A queue that stands as before when many workers came may wait for something else; and where the service's share of processors
/// cannot be read, that may be a quota.
const CONFIDENCE_STANDS: f64 = 0.5;
const CONFIDENCE_HIDDEN: f64 = 0.7;
const CONFIDENCE_BY_NUMBER: f64 = 0.75;
const CONFIDENCE: f64 = 0.9;
/// A queue that is at most this share of its mean at the end has drained.
const DRAINED_FRACTION_MAX: f64 = 0.5;

/// As sure as the queue drained: half sure where it stands, or that is not known.
fn confidence(facts: &Facts, queue: f64, grew: &WorkerGrowth) -> f64 {
    let group = [FactId::group_cpu_cores, FactId::pressure_group_cpu_some_fraction];
    let drained = match () {
        () if group.into_iter().all(|fact| facts.value(fact).is_none()) => CONFIDENCE_HIDDEN,
        () if grew.by_ids => CONFIDENCE,
        () => CONFIDENCE_BY_NUMBER,
    };
    let left = facts.value(FactId::accept_queue_last).map_or(1.0, |last| last / queue);
    let share = ((1.0 - left) / (1.0 - DRAINED_FRACTION_MAX)).clamp(0.0, 1.0);
    significant(CONFIDENCE_STANDS + share * (drained - CONFIDENCE_STANDS), 2)
}

struct WorkerGrowth {
    started: f64,
    /// The most processes there were, without the parent.
    most: f64,
    /// Workers that are allowed.
    allowed: f64,
    /// Whether those that came and went were told apart.
    by_ids: bool,
}

fn growth(facts: &Facts) -> Option<WorkerGrowth> {
    let allowed = facts.is_service("apache").then(|| facts.setting("MaxRequestWorkers"))??;
    let grew = facts.value(FactId::service_processes_grew).filter(|grew| *grew >= 1.0)?;
    let most = facts.value(FactId::service_processes_max)? - 1.0;
    let (started_per_s, ended_per_s) = (
        facts.value(FactId::worker_processes_started_per_s),
        facts.value(FactId::worker_processes_ended_per_s),
    );
    let churns =
        started_per_s.zip(ended_per_s).is_some_and(|(started, ended)| ended > ENDED_FRACTION_MAX * started);
    let at_limit = facts.value(FactId::processes_at_limit_fraction).is_some_and(|share| share >= 0.5);
    let rises = grew >= GREW_FRACTION_MIN * most;
    let started = facts.value(FactId::worker_processes_started).unwrap_or(grew).max(grew);
    (rises && !churns && !at_limit).then_some(WorkerGrowth {
        started,
        most,
        allowed,
        by_ids: started_per_s.is_some(),
    })
}

/// Whether connections wait for something that no further worker ends, however late the workers came: all that are allowed
/// were there and the queue stands as before, or they wait for a pool themselves.
fn is_a_limit(facts: &Facts, queue: f64, grew: &WorkerGrowth) -> bool {
    let was_full = [FactId::scoreboard_full_fraction, FactId::processes_at_limit_fraction]
        .into_iter()
        .any(|fact| facts.value(fact).is_some_and(|share| share > 0.0));
    let still_waits =
        facts.value(FactId::accept_queue_last).is_some_and(|last| last >= DRAINED_FRACTION_MAX * queue);
    let workers = grew.most * facts.threads_per_process();
    let behind = facts.value(FactId::fpm_queue_behind_mean);
    (was_full && still_waits) || behind.is_some_and(|behind| behind >= BEHIND_FRACTION_MIN * workers)
}

fn remedy(facts: &Facts, grew: &WorkerGrowth, queue: f64) -> Option<Remedy> {
    let threads = facts.threads_per_process();
    let threaded = threads > 1.0;
    // At a rate, what is under way once none waits: by the requests that were not in the queue, as the status page tells
    // of some moments only.
    let ended_per_s = facts.ended_per_s();
    let measured =
        facts.value(FactId::requests_in_workers_mean).zip(ended_per_s).map(|(at_work, rate)| at_work / rate);
    let holds_s = measured.or_else(|| facts.value(FactId::worker_time_mean_us).map(|us| us / 1e6));
    let wanted = match (facts.value(FactId::offered_rate), holds_s) {
        (Some(rate), Some(seconds)) => rate * seconds,
        _ => worker_remedies::demand(facts, facts.value(FactId::workers_busy_mean).unwrap_or(1.0), queue),
    };
    // Never more than were seen to suffice, or may be.
    let fits = memory_pressure::workers_that_fit(facts).unwrap_or(f64::MAX);
    let to = (workers::HEADROOM * wanted.max(1.0)).min(grew.allowed).min(fits).ceil();
    let (spare, most, start) = match threaded {
        true => ("MinSpareThreads", "MaxSpareThreads", (to / threads).ceil()),
        false => ("MinSpareServers", "MaxSpareServers", to),
    };
    let from = facts.setting(spare);
    let change = |setting: &str, to: f64| SettingChange {
        setting: SettingId::of_service("apache", setting),
        to: SettingValue::Integer(to as i64),
    };
    // Neither is lowered.
    let more = (2.0 * to).max(facts.setting(most).unwrap_or(0.0));
    let start = start.max(facts.setting("StartServers").unwrap_or(0.0));
    (to >= 1.0 && from.is_none_or(|from| to > from)).then(|| Remedy {
        setting: SettingId::of_service("apache", spare),
        from: from.map(|from| SettingValue::Integer(from as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Reload,
        risk: "idle workers use memory; after a graceful reload they take seconds to start".into(),
        why: format!(
            "{} requests needed a worker in the first seconds, plus 30% headroom",
            format_number(wanted)
        ),
        predicted: None,
        together_with: vec![change("StartServers", start), change(most, more)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const RUSH: &[(FactId, f64)] = &[
        (FactId::service_processes_grew, 60.0),
        (FactId::service_processes_max, 65.0),
        (FactId::worker_processes_started, 62.0),
        (FactId::worker_processes_started_per_s, 10.0),
        (FactId::worker_processes_ended_per_s, 0.0),
        (FactId::processes_at_limit_fraction, 0.0),
        (FactId::accept_queue_mean, 40.0),
        (FactId::accept_queue_last, 3.0),
        (FactId::in_flight_mean, 70.0),
        (FactId::offered_rate, 80.0),
        (FactId::worker_time_mean_us, 400_000.0),
        (FactId::connections_cap, 1000.0),
        (FactId::group_cpu_cores, 0.5),
    ];

    const SETTINGS: [(&str, i64); 3] =
        [("MaxRequestWorkers", 150), ("MinSpareServers", 1), ("MaxSpareServers", 10)];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        check(&facts(&with_changes(RUSH, changes), &SETTINGS))
    }

    #[test]
    fn workers_that_come_while_others_wait_are_a_lag() {
        let none = f64::NAN;
        for (name, changes, confidence) in [
            ("started", vec![], Some(0.9)),
            (
                "only the number of processes",
                vec![
                    (FactId::worker_processes_started_per_s, none),
                    (FactId::worker_processes_ended_per_s, none),
                ],
                Some(0.75),
            ),
            ("the queue stands", vec![(FactId::accept_queue_last, 60.0)], Some(0.5)),
            ("it hardly drains", vec![(FactId::accept_queue_last, 38.0)], Some(0.54)),
            ("it drains", vec![(FactId::accept_queue_last, 30.0)], Some(0.7)),
            ("it has drained", vec![(FactId::accept_queue_last, 20.0)], Some(0.9)),
            ("not known whether it drains", vec![(FactId::accept_queue_last, none)], Some(0.5)),
            ("a quota would be hidden", vec![(FactId::group_cpu_cores, none)], Some(0.7)),
            (
                "hidden, and it drains",
                vec![(FactId::group_cpu_cores, none), (FactId::accept_queue_last, 30.0)],
                Some(0.6),
            ),
            ("churn", vec![(FactId::worker_processes_ended_per_s, 9.0)], None),
            ("a few replaced", vec![(FactId::service_processes_grew, 3.0)], None),
            ("the limit", vec![(FactId::processes_at_limit_fraction, 0.8)], None),
            ("nobody waits", vec![(FactId::accept_queue_mean, 0.3)], None),
            // Something else held the CPUs, and Apache came to its limit late.
            (
                "the limit, late",
                vec![(FactId::processes_at_limit_fraction, 0.2), (FactId::accept_queue_last, 40.0)],
                None,
            ),
            (
                "at the limit, and the queue is worked off",
                vec![(FactId::processes_at_limit_fraction, 0.2), (FactId::accept_queue_last, 3.0)],
                Some(0.9),
            ),
            ("a pool behind them", vec![(FactId::fpm_queue_behind_mean, 30.0)], None),
            ("a short queue of a pool", vec![(FactId::fpm_queue_behind_mean, 2.0)], Some(0.9)),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn what_is_larger_already_is_not_lowered() {
        let larger = [("StartServers", 60), ("MaxSpareServers", 100)];
        let settings = [&SETTINGS[..2], &larger].concat();
        let remedy = check(&facts(RUSH, &settings)).unwrap().remedies.remove(0);
        let together: Vec<_> = remedy.together_with.into_iter().map(|change| change.to).collect();
        assert_eq!(together, [SettingValue::Integer(60), SettingValue::Integer(100)]);
    }

    #[test]
    fn as_many_spare_ones_as_the_first_second_needs() {
        let remedy = with(&[]).unwrap().remedies.remove(0);
        // 80 a second of 0.4 s, and 30%.
        assert_eq!(
            (remedy.setting.name.as_str(), remedy.to),
            ("MinSpareServers", Some(SettingValue::Integer(42)))
        );
        let together: Vec<_> =
            remedy.together_with.into_iter().map(|change| (change.setting.name, change.to)).collect();
        assert_eq!(
            together,
            [
                ("StartServers".to_owned(), SettingValue::Integer(42)),
                ("MaxSpareServers".to_owned(), SettingValue::Integer(84))
            ]
        );
    }
}

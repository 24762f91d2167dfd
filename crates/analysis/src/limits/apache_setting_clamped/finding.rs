//! When `apache-setting-clamped` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::keepalive_holds_workers;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::worker_remedies;
use crate::resources::{memory_pressure, worker_waits, workers};
use crate::wording::format_number;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// So many of the workers must have a request, where only processes are seen.
const TAKEN_FRACTION_MIN: f64 = 0.7;

/// Fires when workers are missing that the files ask for.
pub fn check(facts: &Facts) -> Option<Finding> {
    let clamp = clamp(facts)?;
    let queue = noticed_queue(facts)?;
    if !are_workers_busy(facts, &clamp)
        || worker_waits::machine_is_short(facts)
        || keepalive_holds_workers::finding::is_proven(facts)
    {
        return None;
    }
    let why = clamp_reason(facts, &clamp);
    let output =
        facts.value(FactId::clamp_messages).filter(|output| *output >= 1.0).map_or(String::new(), |output| {
            format!(
                " Logged {} time{} in the error log.",
                format_number(output),
                if output == 1.0 { "" } else { "s" }
            )
        });
    Some(Finding {
        id: LimitId::ApacheSettingClamped.into(),
        summary: format!(
            "Apache runs {} of {} configured workers, as {why}. All are busy; {} connections wait in the accept queue.{output}",
            format_number(clamp.in_force),
            format_number(clamp.configured),
            format_number(queue)
        ),
        confidence: if clamp.is_observed { 0.95 } else { 0.75 },
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            workers_limit, clamp_messages, scoreboard_full_fraction, workers_busy_mean,
            processes_at_limit_fraction, service_processes_mean, requests_in_workers_mean, accept_queue_mean, in_flight_mean,
            response_time_mean_us, cpu_busy_fraction, rate,
        }),
        remedies: remedy(facts, &clamp, queue).into_iter().collect(),
    })
}

/// Whether all workers in force are busy. Where the page does not show their number, as many processes as the files allow
/// must run, and as many requests be with them, where that is known. Without the event MPM a kept connection takes one, too.
fn are_workers_busy(facts: &Facts, clamp: &ClampedSetting) -> bool {
    let processes =
        facts.value(FactId::service_processes_mean).map(|count| (count - 1.0) * facts.threads_per_process());
    let event =
        facts.service.as_ref().is_none_or(|service| matches!(service.mode.as_deref(), None | Some("event")));
    let kept = facts.value(FactId::idle_connections_mean).filter(|_| !event).unwrap_or(0.0);
    let requests =
        keepalive_holds_workers::finding::requests_with_workers(facts).map(|requests| requests + kept);
    let outside = || {
        processes.is_some_and(|workers| workers >= clamp.in_force)
            && (is_full_by_log(facts)
                || requests.is_none_or(|requests| requests >= TAKEN_FRACTION_MIN * clamp.in_force))
    };
    workers::limit_proof(facts).is_some() || (!clamp.is_observed && outside())
}

/// Whether the error log says that more workers are wanted than have a place.
fn is_full_by_log(facts: &Facts) -> bool {
    let all = [FactId::scoreboard_full_messages, FactId::scoreboard_full_messages_worker];
    all.iter().any(|name| facts.value(*name).is_some_and(|messages| messages >= 1.0))
}

/// What holds them down.
fn clamp_reason(facts: &Facts, clamp: &ClampedSetting) -> String {
    let limit = |setting: &str| {
        let limit =
            facts.setting(setting).map_or(String::new(), |limit| format!(" of {}", format_number(limit)));
        format!("{setting}{limit}")
    };
    match clamp.threads_configured {
        Some(threads) => {
            format!(
                "{} does not allow the {} threads of ThreadsPerChild",
                limit("ThreadLimit"),
                format_number(threads)
            )
        }
        None if clamp.by_files => format!("{} allows no more", limit("ServerLimit")),
        None => "a reload does not raise the limit fixed at start".to_owned(),
    }
}

struct ClampedSetting {
    /// The threads that each process is to have, where `ThreadLimit` allows fewer.
    threads_configured: Option<f64>,
    /// Those that each process has.
    threads: f64,
    /// As it is written.
    configured: f64,
    in_force: f64,
    /// Whether the files themselves explain it.
    by_files: bool,
    /// Whether the scoreboard shows it.
    is_observed: bool,
}

/// What the files ask for and the server does not have; less than one process is expected rounding.
fn clamp(facts: &Facts) -> Option<ClampedSetting> {
    let service = facts.service.as_ref().filter(|service| service.service == "apache")?;
    let threads = facts.threads_per_process();
    let configured = service.configured_number("MaxRequestWorkers")?;
    // What was written after the last reload is not clamped but not read yet.
    if !service.pending.is_empty() {
        return None;
    }
    let of_threads =
        service.configured_number("ThreadsPerChild").zip(service.configured_number("ThreadLimit"));
    let is_threaded = service.mode.as_deref() != Some("prefork");
    let clipped = of_threads.filter(|(wanted, limit)| is_threaded && wanted > limit);
    let threads_wanted = clipped.map(|(wanted, _)| wanted);
    let threads = clipped.map_or(threads, |(_, limit)| limit);
    let allowed = service.configured_number("ServerLimit").map(|limit| limit * threads);
    let by_files = allowed.filter(|allowed| configured - allowed >= threads);
    let displayed = facts.value(FactId::workers_limit).filter(|slots| configured - slots >= threads);
    let in_force = displayed.or(by_files.filter(|_| facts.value(FactId::workers_limit).is_none()))?;
    Some(ClampedSetting {
        threads_configured: threads_wanted,
        threads,
        configured,
        in_force,
        by_files: by_files.is_some(),
        is_observed: displayed.is_some(),
    })
}

fn remedy(facts: &Facts, clamp: &ClampedSetting, queue: f64) -> Option<Remedy> {
    let fits = memory_pressure::workers_that_fit(facts).unwrap_or(f64::MAX);
    if let Some(threads) = clamp.threads_configured.filter(|_| clamp.configured <= fits) {
        return Some(more_threads(facts, clamp, threads));
    }
    let threads = clamp.threads;
    let needed = workers::HEADROOM * worker_remedies::demand(facts, clamp.in_force, queue);
    let workers = (clamp.configured.max(needed) / threads).ceil() * threads;
    let workers = workers.min(fits);
    let to = (workers / threads).floor();
    let most = SettingChange {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        to: SettingValue::Integer((to * threads) as i64),
    };
    let differs = to * threads != clamp.configured;
    // Enough in the files that the running server does not have yet is not lowered.
    let written = facts.service.as_ref().and_then(|service| service.configured_number("ServerLimit"));
    let servers = written.map_or(to, |written| written.max(to));
    (workers > clamp.in_force).then(|| Remedy {
        setting: SettingId::of_service("apache", "ServerLimit"),
        from: facts.setting("ServerLimit").map(|limit| SettingValue::Integer(limit as i64)),
        to: Some(SettingValue::Integer(servers as i64)),
        class: ApplyClass::Restart,
        risk: "restart: brief downtime; more memory and more backend connections"
            .into(),
        why: format!(
            "{} workers in processes of {}: the configured number or the current demand, whichever is more, bounded by memory",
            format_number(to * threads),
            format_number(threads)
        ),
        predicted: worker_remedies::predict(facts, clamp.in_force, to * threads),
        together_with: if differs { vec![most] } else { vec![] },
    })
}

/// The processes are there; each may have fewer threads than it is to have.
fn more_threads(facts: &Facts, clamp: &ClampedSetting, threads: f64) -> Remedy {
    Remedy {
        setting: SettingId::of_service("apache", "ThreadLimit"),
        from: facts.setting("ThreadLimit").map(|limit| SettingValue::Integer(limit as i64)),
        to: Some(SettingValue::Integer(threads as i64)),
        class: ApplyClass::Restart,
        risk: "restart: brief downtime; more backend connections".into(),
        why: format!("as many threads per process as ThreadsPerChild: {}", format_number(threads)),
        predicted: worker_remedies::predict(facts, clamp.in_force, clamp.configured),
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const BUSY: &[(FactId, f64)] = &[
        (FactId::workers_limit, 25.0),
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::accept_queue_mean, 75.0),
        (FactId::in_flight_mean, 100.0),
        (FactId::cpu_busy_fraction, 0.1),
    ];

    fn with(changes: &[(FactId, f64)], most: i64, limit: i64, pending: bool) -> Option<Finding> {
        let values = with_changes(BUSY, changes);
        let settings = [("MaxRequestWorkers", most), ("ServerLimit", limit), ("ThreadsPerChild", 25)];
        let mut facts = facts(&values, &settings);
        let service = facts.service.as_mut().unwrap();
        service.mode = Some("event".into());
        service.pending = if pending { vec!["a file is newer".into()] } else { vec![] };
        check(&facts)
    }

    #[test]
    fn a_scoreboard_that_is_shorter_than_the_file_says_is_a_clamp() {
        for (name, changes, most, limit, pending, confidence) in [
            ("ServerLimit", vec![], 400, 1, false, Some(0.95)),
            ("a raised limit that was only reloaded", vec![], 400, 16, false, Some(0.95)),
            ("not read yet", vec![], 400, 16, true, None),
            ("as it is written", vec![], 25, 16, false, None),
            ("rounded down", vec![], 49, 16, false, None),
            ("not needed", vec![(FactId::accept_queue_mean, 0.1)], 400, 1, false, None),
            ("not busy", vec![(FactId::scoreboard_full_fraction, 0.0)], 400, 1, false, None),
            (
                "no processor is free",
                vec![(FactId::pressure_group_cpu_some_fraction, 0.9)],
                400,
                1,
                false,
                None,
            ),
            (
                "files only",
                vec![
                    (FactId::workers_limit, f64::NAN),
                    (FactId::scoreboard_full_fraction, f64::NAN),
                    (FactId::service_processes_mean, 2.0),
                ],
                400,
                1,
                false,
                Some(0.75),
            ),
            (
                "files only, and processes that nobody asks anything",
                vec![
                    (FactId::workers_limit, f64::NAN),
                    (FactId::scoreboard_full_fraction, f64::NAN),
                    (FactId::service_processes_mean, 2.0),
                    (FactId::requests_in_workers_mean, 3.0),
                ],
                400,
                1,
                false,
                None,
            ),
        ] {
            let found = with(&changes, most, limit, pending).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{name}");
        }
    }

    #[test]
    fn a_queue_has_those_that_gave_up_too() {
        let none = f64::NAN;
        // Those in workers are told by the time of one alone, or by the log.
        for (alone_us, logged, found) in
            [(400_000.0, none, true), (100_000.0, none, false), (100_000.0, 7.0, true)]
        {
            let files_only = [
                (FactId::workers_limit, f64::NAN),
                (FactId::scoreboard_full_fraction, f64::NAN),
                (FactId::service_processes_mean, 2.0),
                (FactId::requests_in_workers_mean, 3.0),
                (FactId::ended_per_s, 60.0),
                (FactId::response_time_alone_us, alone_us),
                (FactId::scoreboard_full_messages_worker, logged),
            ];
            assert_eq!(with(&files_only, 400, 1, false).is_some(), found, "{alone_us} {logged}");
        }
    }

    #[test]
    fn a_connection_that_is_kept_takes_a_worker_too() {
        for (mode, found) in [("prefork", true), ("event", false)] {
            let values = with_changes(
                BUSY,
                &[
                    (FactId::workers_limit, f64::NAN),
                    (FactId::scoreboard_full_fraction, f64::NAN),
                    (FactId::service_processes_mean, 21.0),
                    (FactId::requests_in_workers_mean, 9.0),
                    (FactId::idle_connections_mean, 10.0),
                ],
            );
            let mut facts = facts(&values, &[("MaxRequestWorkers", 160), ("ServerLimit", 20)]);
            facts.service.as_mut().unwrap().mode = Some(mode.into());
            assert_eq!(check(&facts).is_some(), found, "{mode}");
        }
    }

    #[test]
    fn a_page_that_starves_has_shown_how_many_workers_there_are() {
        let starves = [
            (FactId::scoreboard_full_fraction, f64::NAN),
            (FactId::processes_at_limit_fraction, 1.0),
            (FactId::in_flight_mean, 60.0),
            (FactId::connections_reused_fraction, 0.96),
            // 16 requests are with workers: too many for 25 of which most are held, and few for 100.
            (FactId::response_time_alone_us, 100_000.0),
            (FactId::ended_per_s, 160.0),
        ];
        let settings = [("MaxRequestWorkers", 100), ("ServerLimit", 1), ("ThreadsPerChild", 25)];
        let mut facts = facts(&with_changes(BUSY, &starves), &settings);
        facts.service.as_mut().unwrap().mode = Some("worker".into());
        assert!(!keepalive_holds_workers::finding::is_proven(&facts));
        assert_eq!(check(&facts).map(|finding| finding.confidence), Some(0.95));
    }

    #[test]
    fn the_limit_holds_what_the_files_ask_for() {
        let to = |most, limit| {
            let remedy = with(&[], most, limit, false).unwrap().remedies.remove(0);
            assert_eq!((remedy.setting.name.as_str(), remedy.class), ("ServerLimit", ApplyClass::Restart));
            (remedy.to, remedy.together_with.len())
        };
        assert_eq!(to(400, 1), (Some(SettingValue::Integer(16)), 0));
        // 130 are wanted, and the files ask for 50: both have to move.
        assert_eq!(to(50, 1), (Some(SettingValue::Integer(6)), 1));
        // The files have more than enough, and the server was only reloaded.
        assert_eq!(to(400, 64), (Some(SettingValue::Integer(64)), 0));
    }

    #[test]
    fn threads_that_their_limit_cuts_off_are_told_from_processes() {
        let settings =
            [("MaxRequestWorkers", 200), ("ServerLimit", 2), ("ThreadsPerChild", 100), ("ThreadLimit", 25)];
        let mut facts = facts(&[&BUSY[1..], &[(FactId::workers_limit, 50.0)]].concat(), &settings);
        facts.service.as_mut().unwrap().mode = Some("worker".into());
        let found = check(&facts).unwrap();
        assert!(
            found.summary.contains("ThreadLimit of 25 does not allow the 100 threads"),
            "{}",
            found.summary
        );
        let remedy = &found.remedies[0];
        assert_eq!((remedy.setting.name.as_str(), remedy.class), ("ThreadLimit", ApplyClass::Restart));
        assert_eq!(remedy.to, Some(SettingValue::Integer(100)));
        facts.service.as_mut().unwrap().mode = Some("prefork".into());
        let other = check(&facts).map(|found| found.remedies[0].setting.name.clone());
        assert_ne!(other.as_deref(), Some("ThreadLimit"), "prefork has none");
    }
}

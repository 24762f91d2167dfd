//! When `keepalive-holds-workers` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{concurrency, worker_remedies, worker_waits, workers};
use crate::settings::effective;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// From this share of the busy workers on that wait for another request, these are what is missing.
const HELD_FRACTION_MIN: f64 = 0.5;
/// Fewer would be enough for those that wait; a smaller part is met by chance.
const ENOUGH_FRACTION_MIN: f64 = 0.3;
/// What one request that was alone says of all of them is about this far off.
const NEEDED_RATIO_MIN: f64 = 1.2;
/// A load of which fewer requests than this use a connection again does not hold any with it.
const REUSED_FRACTION_MIN: f64 = 0.1;
/// Seconds that are proposed: parts of a page come within one, also over slow lines; after three people read.
const TIMEOUT_S: (f64, f64) = (1.0, 3.0);
/// Modules that cannot live with threads, as they are built for most systems.
const WITHOUT_THREADS: [&str; 3] = ["php_module", "php7_module", "php5_module"];

/// Fires when idle connections hold most of the workers and others wait.
pub fn check(facts: &Facts) -> Option<Finding> {
    let held = held_workers(facts)?;
    let queue = noticed_queue(facts)?;
    let kept = keepalive_timeout_s(facts).map_or(String::new(), |seconds| {
        format!(" Each is kept for up to {} s after a response (KeepAliveTimeout).", format_number(seconds))
    });
    Some(Finding {
        id: LimitId::KeepaliveHoldsWorkers.into(),
        summary: format!(
            "Idle keep-alive connections hold the workers: {}; {} new connections wait in the accept queue on average.{kept}",
            held.words,
            format_number(queue)
        ),
        confidence: held.confidence,
        explains_fraction: workers::accept_queue_share(facts, queue),
        facts: facts.cite(&fact_ids! {
            workers_keepalive_mean, workers_busy_mean, workers_writing_mean, idle_connections_mean, unsure_connections_mean,
            scoreboard_full_fraction,
            workers_limit, processes_at_limit_fraction, service_processes_mean, requests_in_workers_mean,
            in_flight_mean, accept_queue_mean, connections_reused_fraction, connections_opened_per_s,
            service_cpu_cores, cpu_busy_fraction, status_unanswered_fraction, response_time_p50_us,
            response_time_p99_us, rate,
        }),
        remedies: remedies(facts, held.workers, queue),
    })
}

/// Whether kept connections hold most of the workers, so that more workers are not what is missing.
pub(crate) fn is_proven(facts: &Facts) -> bool {
    held_workers(facts).is_some()
}

struct HeldWorkers {
    words: String,
    confidence: f64,
    workers: f64,
}

fn held_workers(facts: &Facts) -> Option<HeldWorkers> {
    let service = facts.service.as_ref()?;
    let is_off = facts.text("KeepAlive").is_some_and(|value| value.eq_ignore_ascii_case("off"));
    if service.mode.as_deref() == Some("event") || is_off || worker_waits::machine_is_short(facts) {
        return None;
    }
    let workers = workers::limit_proof(facts)?.workers;
    // Too few for the requests alone are what is missing, whoever holds them.
    if are_too_few_for_requests(facts, workers) {
        return None;
    }
    let inside = evidence_in_scoreboard(facts);
    // It may be event, whose idle connections hold no worker: only those in K tell it apart.
    if service.mode.is_none() && inside.is_none() {
        return None;
    }
    let connections = evidence_in_connections(facts, workers);
    let outside = evidence_in_requests(facts, workers);
    let confidence = match (&inside, &outside, &connections) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => 0.95,
        (Some(_), ..) => 0.9,
        (_, Some(_), Some(_)) => 0.9,
        (.., Some(_)) => 0.85,
        _ => 0.75,
    };
    let inside = inside.or(connections);
    Some(HeldWorkers { words: inside.or(outside)?, confidence, workers })
}

/// Whether the requests alone would take more than so many workers, if nobody else had any.
pub(crate) fn are_too_few_for_requests(facts: &Facts, workers: f64) -> bool {
    needed_workers(facts).is_some_and(|needed| needed > NEEDED_RATIO_MIN * workers)
}

/// How many workers the requests would take if none were held for the next one: by how long a request alone takes, and how often
/// clients would ask that had not to wait. By Little's law those that are not waiting for an answer are away.
fn needed_workers(facts: &Facts) -> Option<f64> {
    let alone_s = concurrency::mean_time_alone_us(facts)? / 1e6;
    let by_users = || {
        let (users, in_flight) = facts.value(FactId::users).zip(facts.value(FactId::in_flight_mean))?;
        let away_s = (users - in_flight).max(0.0) / facts.ended_per_s()?;
        Some(users / (away_s + alone_s))
    };
    Some(facts.value(FactId::offered_rate).or_else(by_users)? * alone_s)
}

/// What the scoreboard says.
fn evidence_in_scoreboard(facts: &Facts) -> Option<String> {
    let busy = facts.value(FactId::workers_busy_mean).filter(|busy| *busy >= 1.0)?;
    let kept =
        facts.value(FactId::workers_keepalive_mean).filter(|kept| *kept >= HELD_FRACTION_MIN * busy)?;
    Some(format!(
        "{} of {} busy workers wait for the next request (K)",
        format_number(kept),
        format_number(busy)
    ))
}

/// What the sockets say, also while the status page waits in the queue itself: on an idle connection nothing was asked since its
/// last answer.
fn evidence_in_connections(facts: &Facts, workers: f64) -> Option<String> {
    let idle = facts.value(FactId::idle_connections_mean)?;
    // Where only the server is seen: enough for all that wait.
    let would_do = |queue: f64| !facts.loaded && idle >= queue && idle >= ENOUGH_FRACTION_MIN * workers;
    if idle < HELD_FRACTION_MIN * workers && !noticed_queue(facts).is_some_and(would_do) {
        return None;
    }
    (!worker_waits::is_logging(facts)).then_some(())?;
    // With tickets of TLS 1.3 the server sends after it received, before it answers: that looks idle, too. A load that keeps no
    // connection and has its requests with the workers tells.
    let keeps_none =
        facts.value(FactId::connections_reused_fraction).is_some_and(|reused| reused < REUSED_FRACTION_MIN);
    let are_served = || {
        requests_with_workers(facts).is_some_and(|requests| requests > (1.0 - HELD_FRACTION_MIN) * workers)
    };
    if keeps_none && are_served() {
        return None;
    }
    Some(format!(
        "all {} workers are taken, and on {} open connections nothing is asked (tcp_info)",
        format_number(workers),
        format_number(idle)
    ))
}

/// What follows from the requests: those that are in flight and not in the queue are with workers.
fn evidence_in_requests(facts: &Facts, workers: f64) -> Option<String> {
    let requests = requests_with_workers(facts)?;
    reused_fraction(facts).filter(|reused| *reused >= REUSED_FRACTION_MIN)?;
    // What holds the others would be seen: if their connections are not idle, it is somebody else's requests. Where most answers
    // follow within a tick of the clock nobody can tell.
    let unsure = facts.value(FactId::unsure_connections_mean).unwrap_or(0.0);
    let idle = facts.value(FactId::idle_connections_mean);
    let idle = idle.map(|idle| if unsure > idle { idle + unsure } else { idle });
    if idle.is_some_and(|idle| idle < HELD_FRACTION_MIN * (workers - requests)) {
        return None;
    }
    (requests <= (1.0 - HELD_FRACTION_MIN) * workers).then(|| {
        format!(
            "all {} workers are busy, but with only {} requests",
            format_number(workers),
            format_number(requests)
        )
    })
}

/// The share of the requests that use a connection again: of those that were answered, where it is known what these take of the
/// workers. Those that waited in vain for a new connection are the ones that kept ones lock out.
fn reused_fraction(facts: &Facts) -> Option<f64> {
    let reused = facts.value(FactId::connections_reused_fraction)?;
    let failed = facts.value(FactId::failed_fraction).filter(|failed| *failed < 1.0);
    match facts.value(FactId::response_time_alone_us).and(failed) {
        Some(failed) => Some((reused / (1.0 - failed)).min(1.0)),
        None => Some(reused),
    }
}

/// Requests that are with workers.
pub(crate) fn requests_with_workers(facts: &Facts) -> Option<f64> {
    // The queue also has connections that were given up, and those of who looks at the status page: no fewer requests are with
    // workers than those that end, each for at least as long as one that is alone takes.
    let has_more = |queue: f64| facts.value(FactId::in_flight_mean).is_some_and(|all| queue > all);
    let all_queue = noticed_queue(facts).filter(|queue| has_more(*queue)).map(|_| 0.0);
    let seen = facts.value(FactId::requests_in_workers_mean).or(all_queue)?;
    let alone_us = concurrency::mean_time_alone_us(facts);
    let at_least = facts.ended_per_s().zip(alone_us).map_or(0.0, |(rate, us)| rate * us / 1e6);
    Some(seen.max(at_least))
}

fn remedies(facts: &Facts, workers: f64, queue: f64) -> Vec<Remedy> {
    let modules = facts.service.as_ref().map_or(&[][..], |service| &service.modules);
    let threads =
        !modules.is_empty() && !modules.iter().any(|module| WITHOUT_THREADS.contains(&module.as_str()));
    let mpm = Remedy {
        setting: SettingId::of_service("apache", "mpm"),
        from: facts.service.as_ref().and_then(|service| service.mode.clone()).map(SettingValue::Text),
        to: Some(SettingValue::Text("event".into())),
        class: ApplyClass::Manual,
        risk: "a restart; your own modules must be thread-safe".into(),
        why: "the event MPM keeps idle connections without a worker; no loaded module is known to be thread-unsafe"
            .into(),
        predicted: None,
        together_with: vec![],
    };
    // Who asks again sooner than any useful timeout holds a worker all the same: then it takes one for each of them.
    let more = worker_remedies::remedies(facts, workers, queue);
    threads.then_some(mpm).into_iter().chain(timeout(facts, workers, queue)).chain(more).collect()
}

/// What holds for the site that is asked: its own value goes before the server's.
fn keepalive_timeout_s(facts: &Facts) -> Option<f64> {
    let service = facts.service.as_ref()?;
    let of_site = effective::of_host(service, "KeepAliveTimeout", facts.request_targets.first());
    of_site.and_then(|value| value.parse().ok()).or_else(|| facts.setting("KeepAliveTimeout"))
}

/// The longest timeout with which the workers suffice for those who wait, too, in whole seconds.
fn timeout(facts: &Facts, workers: f64, queue: f64) -> Option<Remedy> {
    let now = keepalive_timeout_s(facts).filter(|now| *now > TIMEOUT_S.0)?;
    // Little's law: how long each connection holds a worker now; with the queue's it must be that much shorter.
    let opened = facts.value(FactId::connections_opened_per_s).filter(|opened| *opened > 0.0);
    let holds_s = opened.map(|opened| workers / opened);
    let wanted = holds_s.map_or(TIMEOUT_S.0, |seconds| (seconds * workers / (workers + queue)).floor());
    let to = wanted.clamp(TIMEOUT_S.0, TIMEOUT_S.1.min(now - 1.0).max(TIMEOUT_S.0));
    let holds = holds_s.map_or(String::new(), |seconds| {
        format!(
            ": a connection holds a worker for {} s on average, and the waiting ones need one as well",
            format_number(seconds)
        )
    });
    Some(Remedy {
        setting: SettingId::of_service("apache", "KeepAliveTimeout"),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Reload,
        risk: "a later request needs a new connection, over TLS a handshake".into(),
        why: format!("long enough for the parts of a page, too short for reading{holds}"),
        predicted: None,
        together_with: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};

    /// 60 prefork processes, nearly all of them waiting for readers, and 70 visitors who wait for one.
    const HELD: &[(FactId, f64)] = &[
        (FactId::scoreboard_full_fraction, 1.0),
        (FactId::workers_limit, 60.0),
        (FactId::workers_busy_mean, 60.0),
        (FactId::workers_keepalive_mean, 57.0),
        (FactId::workers_writing_mean, 3.0),
        (FactId::accept_queue_mean, 70.0),
        (FactId::in_flight_mean, 72.0),
        (FactId::requests_in_workers_mean, 2.0),
        (FactId::connections_reused_fraction, 0.66),
        (FactId::connections_opened_per_s, 19.0),
        (FactId::cpu_busy_fraction, 0.1),
    ];

    fn with(changes: &[(FactId, f64)], mode: &str, keep_alive: &str) -> Option<Finding> {
        let values = with_changes(HELD, changes);
        let mut facts = facts(&values, &[("MaxRequestWorkers", 60), ("KeepAliveTimeout", 15)]);
        let service = facts.service.as_mut().unwrap();
        service.mode = Some(mode.into());
        service.modules = vec!["core_module".into()];
        service.settings.entry("KeepAlive".into()).or_default().configured =
            Some(SettingValue::parse(keep_alive));
        check(&facts)
    }

    #[test]
    fn it_is_seen_from_inside_and_from_outside() {
        let none = f64::NAN;
        let starves = |changes: &[(FactId, f64)]| {
            let unseen = [
                (FactId::scoreboard_full_fraction, none),
                (FactId::workers_keepalive_mean, none),
                (FactId::workers_busy_mean, none),
                (FactId::processes_at_limit_fraction, 1.0),
            ];
            [&unseen[..], changes].concat()
        };
        let give_up = [
            (FactId::connections_reused_fraction, 0.07),
            (FactId::failed_fraction, 0.92),
            (FactId::response_time_alone_us, 900.0),
        ];
        let nobodys_load = [(FactId::requests_in_workers_mean, none), (FactId::idle_connections_mean, 55.0)];
        let quick =
            |unsure| [(FactId::idle_connections_mean, 2.0), (FactId::unsure_connections_mean, unsure)];
        let tickets = [
            (FactId::requests_in_workers_mean, 40.0),
            (FactId::idle_connections_mean, 55.0),
            (FactId::connections_reused_fraction, 0.0),
        ];
        for (name, changes, confidence) in [
            ("both", vec![], Some(0.95)),
            ("no load of ours", vec![(FactId::requests_in_workers_mean, none)], Some(0.9)),
            ("a page that starves", starves(&[]), Some(0.75)),
            ("it starves, and most give up before they are answered", starves(&give_up), Some(0.75)),
            ("it starves, and nobody's load", starves(&nobodys_load), Some(0.85)),
            ("tickets of TLS were sent after requests came, and nothing is kept", starves(&tickets), None),
            (
                "neither",
                vec![(FactId::workers_keepalive_mean, 5.0), (FactId::requests_in_workers_mean, 55.0)],
                None,
            ),
            (
                "it starves, and what is open is not idle",
                starves(&[(FactId::idle_connections_mean, 20.0)]),
                None,
            ),
            ("it starves, and answers come within a tick", starves(&quick(57.0)), Some(0.75)),
            ("it starves, and few answers come within a tick", starves(&quick(20.0)), None),
            ("no queue", vec![(FactId::accept_queue_mean, 0.2)], None),
            ("workers are free", vec![(FactId::scoreboard_full_fraction, 0.1)], None),
            ("no processor is free", vec![(FactId::pressure_group_cpu_some_fraction, 0.9)], None),
        ] {
            let found = with(&changes, "prefork", "On").map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{name}");
        }
    }

    #[test]
    fn where_workers_are_too_few_for_the_requests_alone_nobody_holds_them() {
        // 130 users are away for a second each.
        for (alone_us, found) in [(900.0, true), (1_000_000.0, true), (1_600_000.0, false)] {
            let users = [
                (FactId::users, 130.0),
                (FactId::ended_per_s, 58.0),
                (FactId::response_time_alone_us, alone_us),
            ];
            assert_eq!(with(&users, "worker", "On").is_some(), found, "{alone_us}");
            // One page among four files that take next to nothing.
            let mixed = [
                (FactId::response_time_mean_us, 250_000.0),
                (FactId::response_time_slowest_kind_us, 1_250_000.0),
            ];
            assert!(with(&[&users[..], &mixed].concat(), "worker", "On").is_some(), "{alone_us}");
        }
    }

    #[test]
    fn a_timeout_between_whole_seconds_is_survived() {
        let mut facts = facts(HELD, &[("MaxRequestWorkers", 60)]);
        let settings = &mut facts.service.as_mut().unwrap().settings;
        settings.entry("KeepAliveTimeout".into()).or_default().configured =
            Some(SettingValue::Text("1.5".into()));
        assert_eq!(timeout(&facts, 60.0, 70.0).and_then(|remedy| remedy.to), Some(SettingValue::Integer(1)));
    }

    #[test]
    fn the_event_mpm_and_closed_connections_hold_nobody() {
        assert!(with(&[], "event", "On").is_none());
        for (kept, found) in [(57.0, true), (0.0, false)] {
            let seen = [(FactId::workers_keepalive_mean, kept), (FactId::idle_connections_mean, 55.0)];
            let mut facts = facts(&with_changes(HELD, &seen), &[("MaxRequestWorkers", 60)]);
            facts.service.as_mut().unwrap().mode = None;
            assert_eq!(check(&facts).is_some(), found, "an MPM that could not be read, {kept} in K");
        }
        assert!(with(&[], "prefork", "off").is_none());
        // What is written after the answer holds workers without requests, too.
        let logging =
            [(FactId::workers_keepalive_mean, 0.0), (FactId::connections_reused_fraction, f64::NAN)];
        assert!(with(&logging, "prefork", "On").is_none());
    }

    #[test]
    fn the_timeout_is_what_the_workers_suffice_for() {
        // (connections per second, seconds): 60 workers, 70 wait.
        for (opened, to) in [(19.0, 1), (12.0, 2), (5.0, 3), (1.0, 3)] {
            let finding = with(&[(FactId::connections_opened_per_s, opened)], "prefork", "On").unwrap();
            let remedy = finding.remedies.iter().find(|one| one.setting.name == "KeepAliveTimeout").unwrap();
            assert_eq!(remedy.to, Some(SettingValue::Integer(to)), "{opened}");
        }
        let first = &with(&[], "worker", "On").unwrap().remedies[0];
        assert_eq!((first.setting.name.as_str(), first.setting_changes().len()), ("mpm", 0));
    }

    #[test]
    fn the_timeout_of_the_site_goes_before_the_servers() {
        let values: Vec<_> = HELD.to_vec();
        let mut facts = facts(&values, &[("MaxRequestWorkers", 60), ("KeepAliveTimeout", 5)]);
        facts.service.as_mut().unwrap().scoped.push(scoped_setting(
            "KeepAliveTimeout",
            "60",
            &["VirtualHost *:80"],
        ));
        let summary = check(&facts).unwrap().summary;
        assert!(summary.contains("kept for up to 60 s"), "{summary}");
    }
}

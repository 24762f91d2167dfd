//! When `nginx-connections-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::db_connections_exhausted;
use crate::limits::rate_limited::delayed;
use crate::resources::php_fpm;
use crate::wording::format_number;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Requests that fail at all.
const FAILED_FRACTION_MIN: f64 = 0.001;

const CONFIDENCE_BEFORE_OTHERS: f64 = 0.5;

/// Above what is wanted at once: visitors are not spread evenly over the workers.
const HEADROOM: f64 = 2.0;

/// Places are cheap (about 400 bytes): fewer are not worth a change.
const PLACES_MIN: f64 = 1024.0;
const PLACES_MAX: f64 = 65_536.0;

/// Logs, sockets, libraries.
const OTHER_FILES: f64 = 100.0;

/// What the kernel allows a process at most where nobody raises it (fs.nr_open).
const FILES_MAX: i64 = 1_048_576;

const SETTING: &str = "worker_connections";

/// Fires when nginx says that it has no place left, or dropped what it accepted.
pub fn check(facts: &Facts) -> Option<Finding> {
    if !facts.is_service("nginx") {
        return None;
    }
    let logged = facts.counted_often(FactId::nginx_connections_messages);
    let dropped = facts.counted_often(FactId::nginx_dropped);
    let failed = facts.value(FactId::failed_fraction).filter(|failed| *failed >= FAILED_FRACTION_MIN);
    let confidence = match (logged, dropped) {
        (Some(_), _) if failed.is_some() || !facts.loaded => 0.95,
        // Who was turned away may have come back.
        (Some(_), _) => 0.7,
        // It drops connections for other limits, too.
        (None, Some(_)) if failed.is_some() || !facts.loaded => 0.7,
        // Its log may be anywhere, and have another level; the fullest worker shows it from outside.
        (None, _) if is_full_from_outside(facts, failed) => 0.75,
        (None, _) => return None,
    };
    // What fails behind it would fail with more of them, too; and requests that a limit holds would take more.
    let is_behind = php_fpm::is_any_full_behind_errors(facts)
        || db_connections_exhausted::finding::makes_most_errors(facts)
        || places_max(facts)
            .is_some_and(|places| delayed::take_all_places(facts, places / places_each(facts)));
    let confidence = if is_behind { CONFIDENCE_BEFORE_OTHERS.min(confidence) } else { confidence };
    let said = match (logged, dropped) {
        (Some(count), _) => {
            format!("logged {} times: worker_connections are not enough", format_number(count))
        }
        (None, Some(count)) => format!("{} accepted connections dropped", format_number(count)),
        (None, None) => format!(
            "the fullest worker has {} files open",
            format_number(facts.value(FactId::ahead_open_files_max).unwrap_or(0.0))
        ),
    };
    let each = facts.setting(SETTING).map_or(String::new(), |each| {
        format!(" ({} for each of {} worker(s))", format_number(each), format_number(workers(facts)))
    });
    let failing =
        failed.map_or(String::new(), |failed| format!(" {:.1}% of the requests failed.", failed * 100.0));
    Some(Finding {
        id: LimitId::NginxConnectionsExhausted.into(),
        summary: format!("nginx worker_connections exhausted{each}; {said}.{failing}"),
        confidence,
        explains_fraction: failed.map(|failed| significant(failed.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            nginx_connections_messages, nginx_dropped, ahead_open_files_max, failed_fraction, in_flight_mean, client_connections_mean,
            open_files_limit, cores, rate,
        }),
        remedies: vec![remedy(facts)],
    })
}

/// From this share of failed requests on, a worker with as many open files as places has none left.
const FAILED_OUTSIDE_MIN: f64 = 0.05;
const FILES_OF_PLACES_MIN: f64 = 0.9;
/// Connections are listed now and then.
const CONNECTIONS_OF_PLACES_MIN: f64 = 0.5;

/// Whether a worker has as many files open as it has places for connections, while requests fail: its logs and listening sockets
/// are few. Each connection has a file that is sent at most: more are a cache of open files, and say nothing of connections.
fn is_full_from_outside(facts: &Facts, failed: Option<f64>) -> bool {
    let files = facts.value(FactId::ahead_open_files_max).zip(facts.setting(SETTING));
    // The logs of a thousand hosts are as many files: all workers together must have that many connections.
    let connections = facts.value(FactId::client_connections_mean).map(|count| count * places_each(facts));
    let has_few = connections
        .zip(facts.setting(SETTING))
        .is_some_and(|(count, places)| count < CONNECTIONS_OF_PLACES_MIN * places);
    !has_few
        && failed.is_some_and(|failed| failed >= FAILED_OUTSIDE_MIN)
        && files.is_some_and(|(files, places)| {
            (FILES_OF_PLACES_MIN * places..=2.0 * places + OTHER_FILES).contains(&files)
        })
}

/// Its workers, as configured.
fn workers(facts: &Facts) -> f64 {
    let configured = facts.setting("worker_processes").or(facts.value(FactId::cores));
    configured.filter(|count| *count >= 1.0).unwrap_or(1.0)
}

/// Whether requests are passed on, so that each takes a second place.
fn passes_on(facts: &Facts) -> bool {
    let mut scoped = facts.service.iter().flat_map(|service| &service.scoped);
    scoped.any(|one| one.setting.ends_with("_pass"))
}

/// Places of all workers together, by the setting of each.
pub(super) fn places_max(facts: &Facts) -> Option<f64> {
    facts.setting(SETTING).map(|each| each * workers(facts))
}

/// Places that a client takes.
pub(super) fn places_each(facts: &Facts) -> f64 {
    if passes_on(facts) { 2.0 } else { 1.0 }
}

fn remedy(facts: &Facts) -> Remedy {
    let now = facts.setting(SETTING).unwrap_or(512.0);
    let clients = [FactId::in_flight_mean, FactId::client_connections_mean]
        .map(|fact| facts.value(fact).unwrap_or(0.0));
    let places = clients[0].max(clients[1]) * places_each(facts) / workers(facts);
    // Where there are as many already, twice of them: never fewer than today.
    let least = (HEADROOM * places).clamp(PLACES_MIN, PLACES_MAX).max(2.0 * now);
    let to = 2f64.powf(least.log2().ceil()) as i64;
    let files = (2 * to + OTHER_FILES as i64).min(FILES_MAX);
    let has_files = facts.value(FactId::open_files_limit).is_none_or(|limit| limit >= files as f64);
    let files = SettingChange {
        setting: SettingId::of_service("nginx", "worker_rlimit_nofile"),
        to: SettingValue::Integer(files),
    };
    Remedy {
        setting: SettingId::of_service("nginx", SETTING),
        from: facts.setting(SETTING).map(|now| SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(to)),
        class: ApplyClass::Reload,
        risk: "more concurrent connections for the backends; about 400 bytes of memory for each connection"
            .into(),
        why: format!(
            "{} concurrent connections needed per worker{}; twice that",
            format_number(places.ceil()),
            if passes_on(facts) { ", including those to backends" } else { "" }
        ),
        predicted: None,
        together_with: if has_files { vec![] } else { vec![files] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, over, scoped_setting, with_changes};
    use webdyno_model::service::ScopedSetting;

    const FULL: [(FactId, f64); 5] = [
        (FactId::nginx_connections_messages, 900.0),
        (FactId::failed_fraction, 0.4),
        (FactId::in_flight_mean, 300.0),
        (FactId::open_files_limit, 1024.0),
        (FactId::cores, 2.0),
    ];

    fn with(changes: &[(FactId, f64)], pass: bool) -> Option<Finding> {
        let values = with_changes(&FULL, changes);
        let mut facts = facts(&values, &[("worker_connections", 64), ("worker_processes", 1)]);
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        if pass {
            service.scoped =
                vec![ScopedSetting { setting: "fastcgi_pass".into(), ..ScopedSetting::default() }];
        }
        check(&facts)
    }

    #[test]
    fn a_database_that_refuses_most_of_what_fails_is_not_helped_by_more_places() {
        // 139 requests fail each second.
        let sure = |refused: f64| {
            let refused = [
                (FactId::failed_fraction, 0.867),
                (FactId::rate, 21.3),
                (FactId::db_connections_failed_per_s, refused),
                (FactId::db_connections_refused, 240.0),
                (FactId::db_connections_limit, 10.0),
                (FactId::db_connections_used_max, 11.0),
            ];
            with(&refused, true).map(|finding| finding.confidence)
        };
        assert_eq!([sure(102.0), sure(30.0)], [Some(CONFIDENCE_BEFORE_OTHERS), Some(0.95)]);
    }

    #[test]
    fn requests_that_a_limit_holds_would_take_more_places_as_well() {
        // 46 requests a second get through, and 12 fail when their turn has come: 58.
        let turns = [
            (FactId::rate, 46.0),
            (FactId::rate_ci95_fraction, 0.3),
            (FactId::ended_per_s, 80.0),
            (FactId::server_error_fraction, 0.15),
            (FactId::response_time_p50_us, 172_000.0),
            (FactId::response_time_p99_us, 173_000.0),
        ];
        for (limit, confidence) in
            [("burst=400", CONFIDENCE_BEFORE_OTHERS), ("burst=40", 0.95), ("burst=400 nodelay", 0.95)]
        {
            let mut facts =
                facts(&with_changes(&FULL, &turns), &[("worker_connections", 64), ("worker_processes", 1)]);
            let one = |setting: &str, value: &str| scoped_setting(setting, value, &["server"]);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.scoped = vec![
                one("limit_req_zone", "$server_name zone=all:1m rate=58r/s"),
                one("limit_req", &format!("zone=all {limit}")),
            ];
            assert_eq!(check(&facts).unwrap().confidence, confidence, "{limit}");
        }
    }

    #[test]
    fn what_is_logged_once_in_a_long_time_is_not_what_limits() {
        for (messages, seconds, found) in [(1.0, 8.0, true), (1.0, 3600.0, false), (400.0, 3600.0, true)] {
            let mut facts = facts(&[], &[]);
            over(&mut facts, FactId::nginx_connections_messages, messages, seconds);
            (facts.service.as_mut().unwrap().service, facts.loaded) = ("nginx".into(), false);
            assert_eq!(check(&facts).is_some(), found, "{messages} in {seconds} s");
        }
    }

    #[test]
    fn it_is_as_sure_as_what_is_seen() {
        let nan = f64::NAN;
        let dropped = (FactId::nginx_dropped, 7.0);
        for (changes, sure) in [
            (vec![], Some(0.95)),
            (vec![(FactId::failed_fraction, 0.0)], Some(0.7)),
            (vec![(FactId::nginx_connections_messages, 0.0), dropped], Some(0.7)),
            (vec![(FactId::nginx_connections_messages, nan), dropped, (FactId::failed_fraction, 0.0)], None),
            (vec![(FactId::nginx_connections_messages, 0.0)], None),
            (
                vec![(FactId::nginx_connections_messages, nan), (FactId::ahead_open_files_max, 70.0)],
                Some(0.75),
            ),
            (vec![(FactId::nginx_connections_messages, nan), (FactId::ahead_open_files_max, 40.0)], None),
            (vec![(FactId::nginx_connections_messages, nan), (FactId::ahead_open_files_max, 900.0)], None),
            (
                vec![
                    (FactId::nginx_connections_messages, nan),
                    (FactId::ahead_open_files_max, 70.0),
                    (FactId::client_connections_mean, 12.0),
                ],
                None,
            ),
        ] {
            assert_eq!(with(&changes, false).map(|finding| finding.confidence), sure, "{changes:?}");
        }
    }

    #[test]
    fn places_are_enough_for_all_clients_and_their_backends_with_the_files_they_take() {
        let values = |finding: Finding| {
            let remedy = &finding.remedies[0];
            let files = remedy.together_with.first().map(|files| files.to.clone());
            (remedy.to.clone().unwrap(), files)
        };
        let integer = SettingValue::Integer;
        assert_eq!(values(with(&[], false).unwrap()), (integer(1024), Some(integer(2148))));
        assert_eq!(values(with(&[], true).unwrap()), (integer(2048), Some(integer(4196))));
        let many = [(FactId::open_files_limit, 1e6), (FactId::in_flight_mean, 1e6)];
        assert_eq!(values(with(&many, true).unwrap()), (integer(65_536), None));
        for (now, to) in [(65_535, 131_072), (100_000, 262_144)] {
            let mut facts = facts(&with_changes(&FULL, &many), &[("worker_connections", now)]);
            facts.service.as_mut().unwrap().service = "nginx".into();
            assert_eq!(values(check(&facts).unwrap()), (integer(to), None), "{now}");
        }
        let mut facts = facts(&FULL, &[("worker_connections", 200_000)]);
        facts.service.as_mut().unwrap().service = "nginx".into();
        assert_eq!(
            values(check(&facts).unwrap()),
            (integer(524_288), Some(integer(1_048_576))),
            "fs.nr_open"
        );
        let finding = with(&[], false).unwrap();
        assert!(finding.summary.contains("64 for each of 1 worker(s)") && finding.summary.contains("40.0%"));
    }

    #[test]
    fn another_program_is_not_meant() {
        assert!(check(&facts(&FULL, &[])).is_none());
    }
}

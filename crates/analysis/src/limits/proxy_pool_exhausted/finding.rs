//! When `proxy-pool-exhausted` is found, what proves it, and what to change.

use super::bound::{Bound, Need, may_be, remedy, upstream};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::healthy::response_time::{slower_than_alone, tail_slower_than_alone};
use crate::limits::slow_upstream::finding::at_most_waiting;
use crate::resources::{concurrency, worker_waits};
use crate::settings::backends::{self, forwarding_settings};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot};

/// So much of all places is taken on average where none is free for long: one is between two requests at times, and a process that has
/// just been started may serve hardly anybody.
pub(super) const TAKEN_FRACTION_MIN: f64 = 0.55;
/// The same of two processes, one of which has all who wait: then most of what is in flight must be in Apache, and in no queue before it.
const TAKEN_FRACTION_OF_ONE_MIN: f64 = 0.45;
const CONFIDENCE_OF_ONE: f64 = 0.7;
/// Readings may meet a process that has just ended.
const TAKEN_FRACTION_MAX: f64 = 1.3;
/// More are in flight than are at the backend.
const BEYOND_FRACTION_MIN: f64 = 0.2;
const BEYOND_FRACTION_WATCHED_MIN: f64 = 0.5;
const BEYOND_MIN: f64 = 2.0;
const CONFIDENCE: f64 = 0.85;
const CONFIDENCE_WATCHED: f64 = 0.7;

/// Fires when all connections that the proxy may have are in use, and others wait for one.
pub fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|service| service.service == "apache")?;
    let processes = processes(facts)?;
    let in_flight = concurrency::requests_in_flight(facts)?;
    // Without load of our own nobody knows what one takes that is alone: then most of them must wait elsewhere.
    let slower = slower_than_alone(facts).or_else(|| tail_slower_than_alone(facts)).filter(|_| facts.loaded);
    if facts.loaded && slower.is_none() {
        return None;
    }
    let FullPool { bound, name, waiting, places } =
        forwarding_settings(service).find_map(|setting| full_pool(facts, setting, processes))?;
    let beyond = in_flight - waiting_behind(facts, service, name);
    let is_of_one = waiting < TAKEN_FRACTION_MIN * places;
    let is_sure = facts.loaded && !is_of_one;
    let least = if is_sure { BEYOND_FRACTION_MIN } else { BEYOND_FRACTION_WATCHED_MIN };
    let queue = if is_of_one { facts.value(FactId::accept_queue_mean).unwrap_or(0.0) } else { 0.0 };
    if beyond - queue < BEYOND_MIN.max(least * in_flight) || worker_waits::machine_is_short(facts) {
        return None;
    }
    let alone = alone_words(slower);
    let why = need_text(in_flight, processes);
    let need = Need { in_flight, processes, most: connections_max(facts), why: &why };
    let mut cited = facts
        .cite_of(&fact_ids! { upstream_waiting_mean, upstream_unsure_mean, upstream_connections_mean, backend_queue_mean }, name);
    cited.extend(facts.cite(&fact_ids! {
        service_processes_mean, in_flight_mean, response_time_mean_us, response_time_p99_us, response_time_alone_us, cpu_busy_fraction, rate,
    }));
    Some(Finding {
        id: LimitId::ProxyPoolExhausted.into(),
        summary: format!(
            "All connections that Apache may have to {} are in use: {} of about {} (max={} in each of {} processes), while {} requests are in flight.{alone}",
            bound.address,
            format_number(significant(waiting, 3)),
            format_number(significant(places, 3)),
            format_number(bound.max),
            format_number(significant(processes, 2)),
            format_number(significant(in_flight, 3)),
        ),
        confidence: match facts.loaded {
            _ if is_sure => CONFIDENCE,
            true => CONFIDENCE_OF_ONE,
            false => CONFIDENCE_WATCHED,
        },
        explains_fraction: Some(significant((beyond / in_flight).min(1.0), 3)),
        facts: cited,
        remedies: vec![remedy(facts, &bound, need)],
    })
}

/// A backend to which as many connections are in use as may be, and before which nobody waits: the first of several.
struct FullPool<'a> {
    bound: Bound<'a>,
    /// The connections as the sockets name them.
    name: &'a str,
    waiting: f64,
    places: f64,
}

fn full_pool<'a>(facts: &'a Facts, setting: &'a ScopedSetting, processes: f64) -> Option<FullPool<'a>> {
    let bound = bound(facts, setting)?;
    let (name, seen) = upstream(facts, &bound.address)?;
    let (waiting, places) = (at_most_waiting(facts, name, seen), bound.max * processes);
    let taken_min = if facts.loaded { TAKEN_FRACTION_OF_ONE_MIN } else { TAKEN_FRACTION_MIN };
    let is_full = waiting >= taken_min * places && waiting <= TAKEN_FRACTION_MAX * places;
    let queue = facts.value_of(FactId::backend_queue_mean, name).unwrap_or(0.0);
    (is_full && queue < 1.0).then_some(FullPool { bound, name, waiting, places })
}

/// Requests that were passed on, to this backend or any other one: they wait there, and not for a connection.
fn waiting_behind(facts: &Facts, service: &ServiceSnapshot, name: &str) -> f64 {
    let passed = backends::targets_of(service);
    let is_passed = |at: &str| at == name || passed.iter().any(|(to, _)| may_be(to, at));
    let all = facts.each(FactId::upstream_waiting_mean).filter(|(at, _)| is_passed(at));
    let by_tcp: f64 = all.map(|(at, seen)| at_most_waiting(facts, at, seen)).sum();
    let of_pools = || {
        let sums = [FactId::fpm_processes_busy_mean, FactId::fpm_queue_mean];
        sums.iter().flat_map(|fact| facts.each(*fact)).map(|(_, count)| count).sum::<f64>()
    };
    // What PHP-FPM has by a socket in the file system is in no list of connections.
    let is_by_file = |(at, is_fastcgi): &(String, bool)| *is_fastcgi && at.starts_with("unix:");
    by_tcp + if passed.iter().any(is_by_file) { of_pools() } else { 0.0 }
}

/// What a setting bounds. A process has a connection for each thread whatever it says, so that more bound nobody; under prefork that is one.
fn bound<'a>(facts: &Facts, setting: &'a ScopedSetting) -> Option<Bound<'a>> {
    let bound = Bound::of(setting, "max").filter(|bound| bound.max < connections_max(facts))?;
    upstream(facts, &bound.address).is_some().then_some(bound)
}

/// Those that serve: one leads the others.
pub(super) fn processes(facts: &Facts) -> Option<f64> {
    facts.value(FactId::service_processes_mean).map(|all| (all - 1.0).max(1.0))
}

/// The most connections that a process has a use for: one for each thread.
pub(super) fn connections_max(facts: &Facts) -> f64 {
    let is_prefork = facts.service.as_ref().is_some_and(|service| service.mode.as_deref() == Some("prefork"));
    if is_prefork { 1.0 } else { facts.setting("ThreadsPerChild").unwrap_or(f64::INFINITY) }
}

fn need_text(in_flight: f64, processes: f64) -> String {
    format!(
        "{} requests are in flight at once, by chance more in one of the {} processes than in another; or no max at all: then a process may have as many as it has threads",
        format_number(significant(in_flight, 3)),
        format_number(significant(processes, 2))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{apache, facts_of_several, scoped_setting, with_changes};
    use webdyno_model::service::SettingValue;
    use webdyno_model::topology::Topology;

    const AT: &str = "127.0.0.1:8000";

    /// Apache with threads that passes requests on by these lines, all of one part of the site.
    fn of_threads(threads: i64, lines: &[(&str, &str)]) -> ServiceSnapshot {
        let scoped =
            lines.iter().map(|(setting, value)| scoped_setting(setting, value, &["Proxy balancer://app"]));
        let mode = if threads == 1 { "prefork" } else { "event" };
        let service = apache(&[("ThreadsPerChild", threads)]);
        ServiceSnapshot { scoped: scoped.collect(), mode: Some(mode.into()), ..service }
    }

    fn with(changes: &[(FactId, f64)], several: &[(FactId, &str, f64)], value: &str) -> Option<Finding> {
        let base = [
            (FactId::service_processes_mean, 3.0),
            (FactId::in_flight_mean, 40.0),
            (FactId::response_time_alone_us, 60_000.0),
            (FactId::response_time_mean_us, 600_000.0),
            (FactId::cpu_busy_fraction, 0.05),
        ];
        let several =
            if several.is_empty() { &[(FactId::upstream_waiting_mean, AT, 3.9)][..] } else { several };
        let mut facts = facts_of_several(&with_changes(&base, changes), several);
        facts.service = Some(of_threads(64, &[("ProxyPass", value)]));
        check(&facts)
    }

    #[test]
    fn a_bound_that_is_reached_while_others_wait_is_named_with_its_setting() {
        let pass = "/app http://127.0.0.1:8000/app max=2 retry=0";
        let found = with(&[], &[], pass).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.903)));
        assert!(
            found
                .summary
                .contains("to 127.0.0.1:8000 are in use: 3.9 of about 4 (max=2 in each of 2 processes)"),
            "{}",
            found.summary
        );
        let remedy = &found.remedies[0];
        assert_eq!(remedy.setting.full_name(), "apache ProxyPass max of pool 127.0.0.1:8000");
        assert_eq!(
            (&remedy.from, &remedy.to),
            (&Some(SettingValue::Integer(2)), &Some(SettingValue::Integer(34)))
        );
        // Among many quick files.
        let mixed = [(FactId::response_time_mean_us, 45_000.0), (FactId::response_time_p99_us, 900_000.0)];
        assert_eq!(with(&mixed, &[], pass).map(|finding| finding.confidence), Some(CONFIDENCE));
        let base = [(FactId::service_processes_mean, 3.0), (FactId::in_flight_mean, 40.0)];
        let mut watched = facts_of_several(&base, &[(FactId::upstream_waiting_mean, AT, 3.9)]);
        watched.service = Some(of_threads(64, &[("ProxyPass", pass)]));
        watched.loaded = false;
        assert_eq!(check(&watched).map(|finding| finding.confidence), Some(CONFIDENCE_WATCHED));
        // One of two processes has all who wait.
        let half = (FactId::upstream_waiting_mean, AT, 2.0);
        assert_eq!(with(&[], &[half], pass).map(|finding| finding.confidence), Some(CONFIDENCE_OF_ONE));
        let waiting = (FactId::upstream_waiting_mean, AT, 3.9);
        for (what, changes, several, value) in [
            ("no bound", vec![], vec![], "/app http://127.0.0.1:8000/app"),
            ("places are free", vec![], vec![], "/app http://127.0.0.1:8000/app max=9"),
            ("half of them, and nobody waits", vec![(FactId::in_flight_mean, 3.5)], vec![half], pass),
            ("half of them, and many in front", vec![(FactId::accept_queue_mean, 25.0)], vec![half], pass),
            ("nobody waits", vec![(FactId::in_flight_mean, 4.0)], vec![], pass),
            ("the backend is full", vec![], vec![waiting, (FactId::backend_queue_mean, AT, 9.0)], pass),
            ("as quick as alone", vec![(FactId::response_time_mean_us, 65_000.0)], vec![], pass),
        ] {
            assert!(with(&changes, &several, value).is_none(), "{what}");
        }
    }

    #[test]
    fn of_several_backends_the_full_one_is_named_and_what_waits_at_others_is_not_for_it() {
        let api = ("ProxyPass", "/api http://127.0.0.1:8001/ max=20");
        let app = ("ProxyPass", "/app http://127.0.0.1:8000/ max=2");
        let search = ("ProxyPass", "/search http://127.0.0.1:8002/");
        let php = ("SetHandler", "proxy:unix:/run/fpm.sock|fcgi://localhost");
        let with = |lines: &[(&str, &str)], several: &[(FactId, &str, f64)]| {
            let base = [
                (FactId::service_processes_mean, 3.0),
                (FactId::in_flight_mean, 40.0),
                (FactId::response_time_alone_us, 60_000.0),
                (FactId::response_time_mean_us, 600_000.0),
            ];
            let full = [(FactId::upstream_waiting_mean, AT, 3.9)];
            let mut facts = facts_of_several(&base, &[&full[..], several].concat());
            facts.service = Some(of_threads(64, lines));
            check(&facts).map(|finding| finding.remedies[0].setting.full_name())
        };
        let named = Some("apache ProxyPass max of pool 127.0.0.1:8000".to_owned());
        let at = |port: &'static str, waiting: f64| [(FactId::upstream_waiting_mean, port, waiting)];
        assert_eq!(with(&[api, app], &at("127.0.0.1:8001", 1.0)), named);
        assert_eq!(with(&[app, search], &at("127.0.0.1:8002", 3.0)), named);
        assert_eq!(with(&[app, search], &at("127.0.0.1:8002", 35.0)), None, "they wait there");
        let children = [(FactId::fpm_processes_busy_mean, "www", 30.0), (FactId::fpm_queue_mean, "www", 5.0)];
        let names = [app, ("ProxyPass", "/a http://one:8002/"), ("ProxyPass", "/b http://two:8002/")];
        let both = [at("10.0.0.2:8002", 3.0), at("10.0.0.3:8002", 32.0)].concat();
        assert_eq!(with(&names, &both), None, "two of one port");
        assert_eq!(with(&[app], &children), named, "that is another site's");
        assert_eq!(with(&[app, php], &children), None, "they are with PHP");
    }

    // What is raised of what a process may use, and of what the backend serves; and with it the other members of the balancer.
    #[test]
    fn no_more_connections_are_wanted_than_anybody_can_use() {
        let member = ("BalancerMember", "http://127.0.0.1:8000 max=2");
        let other = ("BalancerMember", "http://127.0.0.1:8001 max=6");
        let of = |threads, lines: &[(&str, &str)], workers: f64, waiting_elsewhere: f64| {
            let base = [
                (FactId::service_processes_mean, 3.0),
                (FactId::in_flight_mean, 40.0),
                (FactId::response_time_alone_us, 60_000.0),
                (FactId::response_time_mean_us, 600_000.0),
            ];
            let several = [
                (FactId::upstream_waiting_mean, AT, 3.9),
                (FactId::upstream_waiting_mean, "127.0.0.1:8001", waiting_elsewhere),
                (FactId::backend_processes_mean, "unknown", workers + 1.0),
                (FactId::backend_threads_mean, "unknown", workers + 1.0),
            ];
            let mut facts = facts_of_several(&base, &several);
            facts.service = Some(of_threads(threads, lines));
            let app = ServiceSnapshot {
                service: "unknown".into(),
                pid: 7,
                listens: vec![AT.into()],
                ..ServiceSnapshot::default()
            };
            facts.topology = Some(Topology { backends: vec![app], ..Topology::default() });
            let remedy = check(&facts)?.remedies.remove(0);
            let together = remedy.together_with.first().and_then(|change| change.to.number());
            Some((remedy.to.as_ref().and_then(SettingValue::number), together))
        };
        let pass = ("ProxyPass", "/ http://127.0.0.1:8000/ max=2");
        for (threads, lines, workers, elsewhere, expected) in [
            (64, &[pass][..], 500.0, 0.0, Some((Some(34.0), None))),
            (10, &[pass], 500.0, 0.0, Some((Some(10.0), None))),
            (64, &[pass], 16.0, 0.0, Some((Some(8.0), None))),
            // It serves no more than it is asked: more of it come first.
            (64, &[pass], 4.0, 0.0, Some((None, None))),
            // Under prefork, or with no more threads than connections, the workers are what is short.
            (1, &[pass], 500.0, 0.0, None),
            (2, &[pass], 500.0, 0.0, None),
            // A quarter of the room for the one, three for the other.
            (64, &[member, other], 500.0, 11.0, Some((Some(9.0), Some(26.0)))),
            (64, &[member, other], 500.0, 35.0, None),
        ] {
            assert_eq!(of(threads, lines, workers, elsewhere), expected, "{threads} {lines:?} {workers}");
        }
    }
}

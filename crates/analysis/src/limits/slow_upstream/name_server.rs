//! When requests wait for a name server: pages that ask for the address of another machine, again and again, of a resolver that is slow or
//! gone. A resolver of the C library has a socket of its own for each lookup (resolv.conf(5): 5 s per try, two tries, unless
//! `options timeout:` and `attempts:` say else).

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::hostname_lookups;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, php_functions, worker_waits};
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Fewer are there by chance, or are those that a program keeps open.
const LOOKUPS_MIN: f64 = 3.0;
/// By Little's law this is also their share of the time for which a request is worked on.
const LOOKUPS_FRACTION_MIN: f64 = 0.5;
/// More of them for each request are those of other programs, whose sockets are counted as well: a mail filter, a resolver.
const LOOKUPS_PER_REQUEST_MAX: f64 = 2.0;
/// A resolver that answers in this time, from a cache nearby, costs no one anything.
const LOOKUP_US_MIN: f64 = 5_000.0;
/// Where requests take no longer than alone, nobody notices less than this, as of other servers.
const SLOW_LOOKUP_US_MIN: f64 = 20_000.0;
/// Requests that take this many times as long as alone.
const SLOWER_TIMES_MIN: f64 = 2.0;
const CONFIDENCE: f64 = 0.85;
/// Functions of PHP that wait for a name server.
const OF_NAMES: [&str; 8] = [
    "gethostbyname",
    "gethostbynamel",
    "gethostbyaddr",
    "dns_get_record",
    "checkdnsrr",
    "dns_check_record",
    "getmxrr",
    "dns_get_mx",
];

/// Fires when at all times most of the requests that are worked on have a lookup in flight, and Apache is not told to make them.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let look_ups = facts.value(FactId::look_ups_mean)?;
    let in_flight = concurrency::requests_in_flight(facts)?;
    let worked_on = (in_flight - concurrency::requests_queued(facts))
        .min(concurrency::requests_in_children_max(facts))
        .max(LOOKUPS_MIN);
    // Sockets are looked at once a second, and of lookups that are made in step met by chance; functions are looked at more often.
    let waiting = look_ups.min(worked_on).max(in_functions(facts) * worked_on);
    let time_us = waiting / facts.ended_per_s()? * 1e6;
    let least_us = if is_slower_than_alone(facts) { LOOKUP_US_MIN } else { SLOW_LOOKUP_US_MIN };
    if waiting < LOOKUPS_MIN
        || look_ups > LOOKUPS_PER_REQUEST_MAX * in_flight
        || waiting < LOOKUPS_FRACTION_MIN * worked_on
        || time_us < least_us
        || hostname_lookups::finding::check(facts).is_some()
        || worker_waits::machine_is_short(facts)
        || worker_waits::are_most_held_otherwise(facts, waiting)
    {
        return None;
    }
    let mut cited = facts.cite(&fact_ids! {
        look_ups_mean, in_flight_mean, response_time_mean_us, response_time_alone_us, rate, cpu_busy_fraction,
    });
    cited.extend(php_functions::cite(facts, php_functions::WAITING));
    Some(Finding {
        id: LimitId::SlowUpstream.into(),
        summary: format!(
            "Requests wait for the name server: {} of {} in progress at once have a DNS lookup in flight, {} per request.",
            format_number(significant(waiting, 3)),
            format_number(significant(worked_on, 3)),
            format_time(time_us),
        ),
        confidence: CONFIDENCE,
        explains_fraction: Some(significant((waiting / worked_on).min(1.0), 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::external("resolver", "nameserver"),
            "none for this machine",
            "check each nameserver of /etc/resolv.conf (time host NAME ADDRESS): the first that is slow or does not respond costs 5 s a try. \
             A caching resolver on this machine (systemd-resolved, unbound, dnsmasq) responds at once; a name that never changes fits \
             in /etc/hosts",
        )],
    })
}

/// Of the processes of PHP that execute something, those that wait in a function that looks names up.
fn in_functions(facts: &Facts) -> f64 {
    let of_names = |place: &str| OF_NAMES.contains(&place.rsplit(';').next().unwrap_or_default());
    facts.each(php_functions::WAITING).filter(|(place, _)| of_names(place)).map(|(_, share)| share).sum()
}

/// Whether requests are known to wait for each other.
fn is_slower_than_alone(facts: &Facts) -> bool {
    let times = facts.value(FactId::response_time_alone_us).zip(facts.value(FactId::response_time_mean_us));
    times.is_some_and(|(alone_us, usual_us)| usual_us >= SLOWER_TIMES_MIN * alone_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, with_changes};

    #[test]
    fn pages_that_look_names_up_wait_for_the_name_server() {
        let base = [
            (FactId::look_ups_mean, 11.5),
            (FactId::in_flight_mean, 12.0),
            (FactId::rate, 12.0),
            (FactId::cpu_busy_fraction, 0.05),
        ];
        let with = |changes: &[(FactId, f64)]| check(&facts(&with_changes(&base, changes), &[]));
        let found = with(&[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.958)));
        let begins = "Requests wait for the name server: 11.5 of 12 in progress at once have a DNS lookup in flight, 958 ms";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        for (what, change) in [
            ("some by chance", (FactId::look_ups_mean, 2.0)),
            ("few of many", (FactId::in_flight_mean, 40.0)),
            ("a resolver's own", (FactId::look_ups_mean, 60.0)),
            ("hardly any request", (FactId::in_flight_mean, 0.5)),
            ("quick ones", (FactId::rate, 9000.0)),
            ("cores are short", (FactId::pressure_group_cpu_some_fraction, 0.9)),
        ] {
            assert!(with(&[change]).is_none(), "{what}");
        }
        // 9.6 ms of 10 ms, as always; and where they were 3 ms alone, as the name server answers one after the other.
        for (alone_us, fires) in [(f64::NAN, false), (9_500.0, false), (3_000.0, true)] {
            let quick = [
                (FactId::rate, 1200.0),
                (FactId::response_time_mean_us, 10_000.0),
                (FactId::response_time_alone_us, alone_us),
            ];
            assert_eq!(with(&quick).is_some(), fires, "{alone_us}");
        }
    }

    #[test]
    fn functions_that_look_names_up_tell_what_a_few_looks_at_sockets_miss() {
        for (place, share, found) in [
            ("view.php;gethostbyname", 0.7, true),
            ("Mail::send;dns_get_record", 0.7, true),
            ("view.php;gethostbyname", 0.3, false),
            ("view.php;usleep", 0.7, false),
        ] {
            let values = [
                (FactId::look_ups_mean, 5.0),
                (FactId::in_flight_mean, 11.0),
                (FactId::rate, 66.0),
                (FactId::cpu_busy_fraction, 0.1),
            ];
            let facts = facts_of_several(&values, &[(php_functions::WAITING, place, share)]);
            assert_eq!(
                check(&facts).map(|finding| finding.confidence),
                found.then_some(CONFIDENCE),
                "{place} {share}"
            );
        }
    }

    #[test]
    fn where_others_have_nearly_all_workers_the_few_that_wait_are_not_what_limits() {
        for (workers, queue, found) in [(47.0, 22.0, false), (6.0, 22.0, true), (47.0, 0.0, true)] {
            let values = [
                (FactId::look_ups_mean, 3.7),
                (FactId::in_flight_mean, 3.7 + queue),
                (FactId::accept_queue_mean, queue),
                (FactId::scoreboard_full_fraction, 1.0),
                (FactId::workers_limit, workers),
                (FactId::rate, 7.3),
                (FactId::cpu_busy_fraction, 0.1),
            ];
            assert_eq!(
                check(&facts(&values, &[])).is_some(),
                found,
                "{workers} workers, {queue} in the queue"
            );
        }
    }

    #[test]
    fn in_front_of_full_children_these_are_what_is_worked_on() {
        for (queue, found) in [(300.0, true), (0.0, false)] {
            let several =
                [(FactId::fpm_queue_mean, "www", queue), (FactId::fpm_processes_busy_mean, "www", 26.0)];
            let values = [
                (FactId::look_ups_mean, 22.0),
                (FactId::in_flight_mean, 390.0),
                (FactId::rate, 46.0),
                (FactId::cpu_busy_fraction, 0.05),
            ];
            let facts = facts_of_several(&values, &several);
            assert_eq!(check(&facts).is_some(), found, "{queue} in the queue");
        }
    }
}

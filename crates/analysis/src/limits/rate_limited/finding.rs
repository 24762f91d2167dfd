//! When `rate-limited` is found, what proves it, and what to change.

use super::bandwidth::{BandwidthLimit, RATE_UNIT_BYTES, is_pace_of, limit};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::keepalive_holds_workers::finding::requests_with_workers;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::{accept_queue_wait_us, noticed_queue};
use crate::resources::worker_waits;
use crate::wording::{format_bytes, format_number, format_time};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;

/// Most of the time must lie in the answer itself.
const TRANSFER_FRACTION_MIN: f64 = 0.5;
/// Where so many connections have bytes that their clients did not take yet, it is these who set the pace.
const SENDING_FRACTION_MAX: f64 = 0.5;
/// nginx sends the bytes of a first second at once: those of three seconds come at one and a half times the rate, of two at twice.
const NGINX_PACE_FRACTION_MAX: f64 = 3.0;
/// The rate of a part of the site, or of each client, is not that of the server.
pub(super) const CONFIDENCE_OF_A_PART: f64 = 0.45;
/// By the pace alone, from the server's side.
const CONFIDENCE_WATCHED: f64 = 0.75;
/// mod_ratelimit sends the bytes of a fifth of a second at a time, the first ones at once; nginx those of the first second.
const FIRST_STEP_S: f64 = 0.2;

/// Fires when answers come at the pace of a limit that is configured, or one turns requests away.
pub fn check(facts: &Facts) -> Option<Finding> {
    finding_by_bandwidth(facts).or_else(|| finding_by_responses(facts))
}

fn finding_by_responses(facts: &Facts) -> Option<Finding> {
    let turned = super::rejected::turned_away(facts)?;
    Some(Finding {
        id: LimitId::RateLimited.into(),
        summary: turned.summary(facts),
        confidence: turned.confidence,
        explains_fraction: Some(significant(turned.share.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            forbidden_fraction, request_timeout_fraction, too_many_requests_fraction, unavailable_fraction,
            server_error_fraction, failed_fraction, rate, rate_ci95_fraction, ended_per_s, cpu_busy_fraction,
        }),
        remedies: vec![Remedy {
            from: turned.value.map(SettingValue::Text),
            ..manual(turned.setting, RISK, WHY_TURNED)
        }],
    })
}

pub(crate) const RISK: &str = "it is a protection: ask its owner before changing it";
const WHY_TURNED: &str = "the limit rejects more requests per client; the operator decides whether it may be higher, or the load generator's address exempt for a measurement";

fn finding_by_bandwidth(facts: &Facts) -> Option<Finding> {
    let pace = pace(facts).filter(|pace| *pace > 0.0)?;
    let limit = limit(facts, pace)?;
    let transfer = transfer_fraction(facts);
    // When the first byte came only a client knows; that the pace is the limit's then has to do.
    let is_transfer = transfer.map_or(limit.bytes_per_s.is_some(), |share| share >= TRANSFER_FRACTION_MIN);
    if !is_transfer || worker_waits::machine_is_short(facts) {
        return None;
    }
    let kept = limit.bytes_per_s.map(|rate| {
        let has_head_start = facts.is_service("nginx")
            && transfer.is_some()
            && (rate..=NGINX_PACE_FRACTION_MAX * rate).contains(&pace);
        is_pace_of(pace, rate)
            || has_head_start
            || pace_alone(facts).is_some_and(|alone| is_pace_of(alone, rate))
    });
    // So much goes out at once, whatever the limit.
    let size = facts.value(FactId::answer_bytes_mean);
    let is_at_once = size.zip(limit.bytes_per_s).is_some_and(|(size, rate)| {
        size < if facts.is_service("nginx") { rate } else { FIRST_STEP_S * rate }
    });
    if kept == Some(false) || (transfer.is_none() && is_at_once) {
        return None;
    }
    let rate = limit.bytes_per_s.map_or(String::new(), |rate| format!(", {}/s", format_bytes(rate)));
    let response =
        facts.value(FactId::service_time_mean_us).zip(transfer).map_or(String::new(), |(us, transfer)| {
            format!(
                "; {:.0}% of the {} response time lies between first and last byte",
                transfer * 100.0,
                format_time(us)
            )
        });
    Some(Finding {
        id: LimitId::RateLimited.into(),
        summary: format!(
            "Rate limited by a setting ({}{rate}): each response arrives at {}/s{response}. No other resource is short.",
            limit.words,
            format_bytes(pace)
        ),
        confidence: match (kept, transfer) {
            _ if limit.is_of_other_part => CONFIDENCE_OF_A_PART,
            (Some(_), Some(_)) => 0.9,
            (Some(_), None) => CONFIDENCE_WATCHED,
            (None, _) => 0.6,
        },
        explains_fraction: transfer.map(|transfer| significant(transfer.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            request_bytes_per_s, received_bytes_per_s, in_flight_mean, first_byte_mean_us,
            service_time_mean_us, response_time_mean_us, response_time_p99_us, accept_queue_mean,
            cpu_busy_fraction, workers_startable_mean, rate,
        }),
        remedies: vec![remedy(&limit)],
    })
}

/// Bytes a second of each answer, from its first byte on. Where that is not known: of each request in flight, of those in
/// workers where requests queue, as these get none: workers that are held by slow answers are too few soon, and that is the
/// limit's work, too.
fn pace(facts: &Facts) -> Option<f64> {
    let of_answer = || {
        let (bytes, us) = (facts.value(FactId::answer_bytes_mean)?, transfer_us(facts)?);
        (us > 0.0).then(|| bytes / us * 1e6)
    };
    of_answer().or_else(|| match noticed_queue(facts) {
        Some(_) if !facts.loaded => pace_of_connections(facts),
        None => facts.value(FactId::request_bytes_per_s).or_else(|| pace_of_connections(facts)),
        Some(_) => {
            // The queue also has those that were given up: no fewer are with workers than those that end take.
            let in_workers = requests_with_workers(facts).filter(|requests| *requests >= 1.0)?;
            Some(facts.value(FactId::received_bytes_per_s)? / in_workers)
        }
    })
}

/// The same of each connection, where nobody tells how many requests are under way: kept ones are idle between answers, so that those
/// come no slower than this. What still waits in the kernel to be sent waits for its client.
fn pace_of_connections(facts: &Facts) -> Option<f64> {
    let accepted =
        facts.value(FactId::connections_held_mean).or(facts.value(FactId::client_connections_mean));
    let connections = accepted.filter(|all| *all >= 1.0)?;
    let waits_for_clients = facts
        .value(FactId::sending_connections_mean)
        .is_some_and(|sending| sending >= SENDING_FRACTION_MAX * connections);
    let bytes_per_s = facts.value(FactId::rate)? * facts.value(FactId::answer_bytes_mean)?;
    (!waits_for_clients).then(|| bytes_per_s / connections)
}

/// The same of a request that is alone, where responses are alike: what others wait for under load is not in it.
fn pace_alone(facts: &Facts) -> Option<f64> {
    let (bytes, us) =
        facts.value(FactId::answer_bytes_mean).zip(facts.value(FactId::response_time_alone_us))?;
    (facts.request_targets.len() == 1 && us > 0.0).then(|| bytes / us * 1e6)
}

/// The time from the first byte of an answer to its last.
fn transfer_us(facts: &Facts) -> Option<f64> {
    Some(facts.value(FactId::service_time_mean_us)? - facts.value(FactId::first_byte_mean_us)?)
}

/// The share of the time, less the wait for a worker, that passes while a response arrives. What a request waits in the
/// generator is not the server's.
fn transfer_fraction(facts: &Facts) -> Option<f64> {
    let queue = noticed_queue(facts).and_then(|_| accept_queue_wait_us(facts)).unwrap_or(0.0);
    let first = (facts.value(FactId::first_byte_mean_us)? - queue).max(0.0);
    let transfer = transfer_us(facts)?.max(0.0);
    (transfer + first > 0.0).then(|| transfer / (transfer + first))
}

fn remedy(limit: &BandwidthLimit) -> Remedy {
    let rate = limit.bytes_per_s.map(|rate| format!(" of {} KiB/s", format_number(rate / RATE_UNIT_BYTES)));
    let why = format!(
        "the site is as fast as this limit{} allows; the operator decides whether it may be higher",
        rate.unwrap_or_default()
    );
    Remedy { from: limit.value.clone().map(SettingValue::Text), ..manual(limit.setting.clone(), RISK, why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};
    use crate::settings::effective::RequestTarget;
    use webdyno_model::service::ScopedSetting;

    const LIMITED: &[(FactId, f64)] = &[
        (FactId::request_bytes_per_s, 215_000.0),
        (FactId::first_byte_mean_us, 5_000.0),
        (FactId::service_time_mean_us, 1_200_000.0),
        (FactId::response_time_mean_us, 1_200_000.0),
        (FactId::accept_queue_mean, 0.0),
        (FactId::cpu_busy_fraction, 0.05),
    ];

    fn with(changes: &[(FactId, f64)], scoped: &[(&str, &str)]) -> Option<Finding> {
        let values = with_changes(LIMITED, changes);
        let mut facts = facts(&values, &[]);
        let one = |(setting, value): &(&str, &str)| scoped_setting(setting, value, &[]);
        facts.service.as_mut().unwrap().scoped = scoped.iter().map(one).collect();
        check(&facts)
    }

    #[test]
    fn a_limit_and_its_pace_are_both_needed() {
        let filter = ("SetOutputFilter", "RATE_LIMIT");
        let limited = [filter, ("SetEnv", "rate-limit 200")];
        for (name, changes, scoped, confidence) in [
            ("both", vec![], &limited[..], Some(0.9)),
            ("its rate is not known", vec![], &limited[..1], Some(0.6)),
            ("no limit", vec![], &limited[1..], None),
            ("another pace", vec![(FactId::request_bytes_per_s, 2e6)], &limited[..], None),
            (
                "only watched, and answers that go out at once",
                vec![(FactId::first_byte_mean_us, f64::NAN), (FactId::answer_bytes_mean, 30_000.0)],
                &limited[..],
                None,
            ),
            (
                "only watched",
                vec![(FactId::first_byte_mean_us, f64::NAN)],
                &limited[..],
                Some(CONFIDENCE_WATCHED),
            ),
            ("watched, no rate", vec![(FactId::first_byte_mean_us, f64::NAN)], &limited[..1], None),
            ("late first bytes", vec![(FactId::first_byte_mean_us, 1e6)], &limited[..], None),
            (
                "a queue",
                vec![(FactId::accept_queue_mean, 30.0), (FactId::in_flight_mean, 60.0)],
                &limited[..],
                None,
            ),
            (
                "no processor is free",
                vec![(FactId::pressure_group_cpu_some_fraction, 0.9)],
                &limited[..],
                None,
            ),
        ] {
            assert_eq!(with(&changes, scoped).map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn only_watched_the_bytes_of_each_connection_tell() {
        for (connections, sending, size, confidence) in [
            (11.0, 0.0, 81_600.0, Some(CONFIDENCE_WATCHED)),
            (40.0, 0.0, 81_600.0, None),
            (11.0, 9.0, 81_600.0, None),
            // So much goes out at once.
            (6.0, 0.0, 40_000.0, None),
        ] {
            let values = [
                (FactId::rate, 10.2),
                (FactId::answer_bytes_mean, size),
                (FactId::client_connections_mean, connections),
                (FactId::sending_connections_mean, sending),
            ];
            let mut facts = facts(&values, &[("limit_rate", 59_392)]);
            facts.service.as_mut().unwrap().service = "nginx".into();
            let found = check(&facts).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{connections} connections, {sending} sending, {size} bytes");
        }
    }

    #[test]
    fn only_watched_those_that_wait_to_be_accepted_get_nothing() {
        let limited = [("SetOutputFilter", "RATE_LIMIT"), ("SetEnv", "rate-limit 132")];
        let watched = |accepted: f64| {
            let values = [
                (FactId::rate, 27.8),
                (FactId::answer_bytes_mean, 230_000.0),
                (FactId::client_connections_mean, 148.0),
                (FactId::connections_held_mean, accepted),
                (FactId::accept_queue_mean, 100.0),
            ];
            let mut facts = facts(&values, &[]);
            facts.loaded = false;
            let one = |(setting, value): &(&str, &str)| scoped_setting(setting, value, &[]);
            facts.service.as_mut().unwrap().scoped = limited.iter().map(one).collect();
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!([watched(48.0), watched(148.0)], [Some(CONFIDENCE_WATCHED), None]);
    }

    #[test]
    fn workers_that_send_at_the_limit_s_pace_are_its_work() {
        let limited = [("SetOutputFilter", "RATE_LIMIT"), ("SetEnv", "rate-limit 60")];
        // Twenty workers send 120 kB each at 50 kB a second, and thirty requests wait.
        let held = [
            (FactId::accept_queue_mean, 31.0),
            (FactId::in_flight_mean, 50.0),
            (FactId::requests_in_workers_mean, 19.0),
            (FactId::received_bytes_per_s, 930_000.0),
            (FactId::request_bytes_per_s, 18_600.0),
            (FactId::rate, 7.75),
            (FactId::response_time_mean_us, 6_200_000.0),
            (FactId::service_time_mean_us, 6_200_000.0),
            (FactId::first_byte_mean_us, 4_300_000.0),
        ];
        assert_eq!(with(&held, &limited).unwrap().confidence, 0.9);
        let cached = [&held[..3], &[(FactId::received_bytes_per_s, 9.3e6)], &held[4..]].concat();
        assert!(with(&cached, &limited).is_none(), "what waits is not limited");
    }

    #[test]
    fn the_pace_of_a_request_alone_tells_where_others_wait_as_well() {
        let limited = |alone_us: f64| {
            // 49 kB at 33 kB a second: a third of the time is that of something else.
            let slow = [
                (FactId::answer_bytes_mean, 49_119.0),
                (FactId::response_time_alone_us, alone_us),
                (FactId::service_time_mean_us, 1_482_000.0),
                (FactId::response_time_mean_us, 4_500_000.0),
                (FactId::first_byte_mean_us, 212.0),
            ];
            let mut facts = facts(&with_changes(LIMITED, &slow), &[("connection.kbytes-per-second", 55)]);
            facts.service.as_mut().unwrap().service = "lighttpd".into();
            facts.request_targets = vec![Default::default()];
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!([limited(1_003_000.0), limited(100_000.0)], [Some(0.9), None]);
    }

    #[test]
    fn a_limit_of_connections_sets_no_pace() {
        for (setting, confidence) in [("QS_LocKBytesPerSecLimit", Some(0.6)), ("QS_SrvMaxConnPerIP", None)] {
            let mut facts = facts(LIMITED, &[]);
            let service = facts.service.as_mut().unwrap();
            service.modules = vec!["qos_module".into()];
            service.scoped = vec![scoped_setting(setting, "/ 200", &[])];
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{setting}");
        }
    }

    #[test]
    fn a_protection_is_never_lifted() {
        let limited = [("SetOutputFilter", "DEFLATE;RATE_LIMIT"), ("SetEnv", "rate-limit 200")];
        let remedies = with(&[], &limited).unwrap().remedies;
        assert!(remedies.iter().all(|remedy| remedy.to.is_none() && remedy.setting_changes().is_empty()));
    }

    #[test]
    fn lighttpd_limits_each_connection() {
        for (kib, confidence) in [(200, Some(0.9)), (0, None), (2000, None)] {
            let mut facts = facts(LIMITED, &[("connection.kbytes-per-second", kib)]);
            facts.service.as_mut().unwrap().service = "lighttpd".into();
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{kib}");
        }
    }

    #[test]
    fn a_limit_of_the_whole_of_nginx_counts() {
        let mut facts = facts(LIMITED, &[("limit_rate", 204_800)]);
        facts.service.as_mut().unwrap().service = "nginx".into();
        assert_eq!(check(&facts).map(|found| found.confidence), Some(0.9));
    }

    #[test]
    fn a_limit_of_another_part_of_the_site_is_no_proof() {
        for (location, url, confidence) in [
            ("location /downloads/", "http://h/downloads/a.iso", 0.9),
            ("location ^~ /downloads/", "http://h/video/a.mp4", CONFIDENCE_OF_A_PART),
            ("location = /a.iso", "http://h/video/a.mp4", CONFIDENCE_OF_A_PART),
            ("location ~ /downloads/|\\.mp4$", "http://h/video/a.mp4", 0.9),
            ("server h", "http://h/video/a.mp4", 0.9),
        ] {
            let mut facts = facts(LIMITED, &[]);
            let one = scoped_setting("limit_rate", "200k", &[location]);
            let service = facts.service.as_mut().unwrap();
            (service.service, service.scoped) = ("nginx".into(), vec![one]);
            facts.request_targets = vec![RequestTarget::of(url).unwrap()];
            assert_eq!(check(&facts).map(|found| found.confidence), Some(confidence), "{location}");
        }
    }

    #[test]
    fn nginx_in_front_has_such_limits_too() {
        let with = |values: &[(FactId, f64)], setting: &str, value: &str| {
            let mut facts = facts(values, &[]);
            let one = ScopedSetting {
                file: Some("/etc/nginx/x.conf".into()),
                line: Some(3),
                ..scoped_setting(setting, value, &[])
            };
            let service = facts.service.as_mut().unwrap();
            (service.service, service.scoped) = ("nginx".into(), vec![one]);
            check(&facts)
        };
        let paced = with(LIMITED, "limit_rate", "200k").unwrap();
        assert_eq!(paced.confidence, 0.9);
        assert!(paced.summary.contains("limit_rate 200k, /etc/nginx/x.conf:3"), "{}", paced.summary);
        assert!(with(LIMITED, "limit_rate", "0").is_none());
        // The first second's bytes come at once, so that less than two seconds' worth looks faster than it is.
        assert_eq!(with(LIMITED, "limit_rate", "90k").map(|found| found.confidence), Some(0.9));
        assert!(with(LIMITED, "limit_rate", "30k").is_none());
        let mut two = facts(LIMITED, &[]);
        let limit = |value: &str| scoped_setting("limit_rate", value, &[]);
        let service = two.service.as_mut().unwrap();
        (service.service, service.scoped) = ("nginx".into(), vec![limit("20k"), limit("200k"), limit("2m")]);
        let paced = check(&two).unwrap().summary;
        assert!(paced.contains("(limit_rate 200k"), "{paced}");
        let turned =
            [(FactId::unavailable_fraction, 0.9), (FactId::rate, 12.0), (FactId::rate_ci95_fraction, 0.01)];
        let finding = with(&turned, "limit_conn", "addr 10").unwrap();
        assert!(
            finding.summary.contains("limit_conn addr 10, set in /etc/nginx/x.conf:3"),
            "{}",
            finding.summary
        );
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.setting.target.name(), remedy.to.clone(), remedy.setting_changes().len()),
            ("nginx", None, 0)
        );
    }
}

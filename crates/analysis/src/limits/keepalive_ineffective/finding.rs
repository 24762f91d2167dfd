//! When `keepalive-ineffective` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::limits::tls_handshakes;
use crate::resources::{memory_evidence, request_cost, site_profile, workers};
use crate::settings::effective;
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{ScopedSetting, SettingValue};
use webdyno_model::setting::SettingId;

/// Establishing connections must cost this share of the response time: less is not worth a change. Over TLS half of that:
/// what a handshake costs the processors delays all other requests, too.
const COST_FRACTION_MIN: f64 = 0.2;
const COST_FRACTION_MIN_TLS: f64 = 0.1;
/// Connections that carry two requests are used again for half of them; ten for nine tenths.
const REUSED_FRACTION_MAX: f64 = 0.6;
/// Where nothing of the server is seen, something else may take the rest, and let connections wait.
const CONFIDENCE_UNSEEN: f64 = 0.5;
/// A connection attempt that took this long was lost and made again.
const LOST_ATTEMPT_US: f64 = 900_000.0;
/// What is proposed: Apache's own default.
const REQUESTS_WANTED: i64 = 100;
/// Connections that carry this share of what a small limit allows are ended by it; some are closed for other reasons.
const CARRIED_FRACTION_MIN: f64 = 0.8;
/// Whether clients would send more is not known by watching: nearly all connections must carry all that they may.
const SPENT_FRACTION_WATCHED: f64 = 0.9;
const CONFIDENCE_WATCHED: f64 = 0.7;
/// Settings of fewer requests than this close connections that clients would use.
const REQUESTS_FEW: f64 = 10.0;

/// Fires when kept connections are wanted, not used again, and new ones cost.
pub fn check(facts: &Facts) -> Option<Finding> {
    if !facts.loaded {
        return passive_finding(facts);
    }
    let reused =
        facts.value(FactId::connections_reused_fraction).filter(|reused| *reused <= REUSED_FRACTION_MAX)?;
    let least = if facts.value(FactId::handshake_mean_us).is_some() {
        COST_FRACTION_MIN_TLS
    } else {
        COST_FRACTION_MIN
    };
    let cost = cost(facts).filter(|cost| cost.fraction >= least)?;
    // Who waits for memory waits in the handshake, too.
    if memory_evidence::is_proven(facts) {
        return None;
    }
    let cause = cause(facts, reused)?;
    let each = facts.value(FactId::requests_per_connection).map_or(String::new(), |requests| {
        format!(
            " ({} request{} on each)",
            format_number(requests),
            if format_number(requests) == "1" { "" } else { "s" }
        )
    });
    Some(Finding {
        id: LimitId::KeepaliveIneffective.into(),
        summary: format!(
            "Only {:.0}% of the requests reuse a connection{each}; new ones take {} of the {} response time. Cause: {}.",
            reused * 100.0,
            format_time(cost.us),
            format_time(cost.response_us),
            cause.words
        ),
        confidence: match facts.service {
            None => cause.confidence.min(CONFIDENCE_UNSEEN),
            Some(_) => cause.confidence,
        },
        explains_fraction: Some(significant(cost.fraction.min(1.0), 3)),
        facts: facts.cite(&CITED),
        remedies: vec![cause.remedy],
    })
}

const CITED: [FactId; 13] = fact_ids! {
    connections_reused_fraction, requests_per_connection, connections_opened_per_s, ended_per_s,
    handshake_mean_us, connect_time_mean_us, connect_time_max_us, response_time_mean_us, resumed_fraction,
    cpu_per_request_us, service_cpu_cores, cpu_busy_fraction, rate,
};

/// Fires where the server is only watched: all connections carry as many requests as a small limit allows, so that clients
/// would send more, and new ones are a good part of what fills the processors.
fn passive_finding(facts: &Facts) -> Option<Finding> {
    let opened = facts.value(FactId::connections_opened_per_s).filter(|opened| *opened > 0.0)?;
    let carried = facts.ended_per_s()? / opened;
    let work = request_cost::request_cost(facts)?;
    let (each_us, least) = match site_profile::is_tls(facts) {
        Some(true) => (tls_handshakes::finding::handshake_us(facts), COST_FRACTION_MIN_TLS),
        _ => (request_cost::connection_us(facts), COST_FRACTION_MIN),
    };
    let share = (opened * each_us / 1e6 / work.cores).min(1.0);
    let cause =
        watched_cause(facts, carried).filter(|_| share >= least && !memory_evidence::is_proven(facts))?;
    Some(Finding {
        id: LimitId::KeepaliveIneffective.into(),
        summary: format!(
            "CPU saturated: {} new connections/s for {} req/s take about {:.0}% of the service's CPU time. Cause: {}.",
            format_number(opened),
            format_number(carried * opened),
            share * 100.0,
            cause.words
        ),
        confidence: work.scaled_confidence(CONFIDENCE_WATCHED),
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&CITED),
        remedies: vec![cause.remedy],
    })
}

/// A setting that ends connections which clients would use: all carry as many requests as it allows.
fn watched_cause(facts: &Facts, carried: f64) -> Option<CloseCause> {
    if is_switched_off(facts) {
        return cause_in_settings(facts).filter(|_| carried <= 1.0 / SPENT_FRACTION_WATCHED);
    }
    let is_spent = carried >= SPENT_FRACTION_WATCHED * RequestLimit::of(facts)?.carried_max;
    cause_in_request_limit(facts, carried).filter(|_| is_spent)
}

struct ConnectionCost {
    /// Per request.
    us: f64,
    response_us: f64,
    fraction: f64,
}

/// What new connections cost each request on average.
fn cost(facts: &Facts) -> Option<ConnectionCost> {
    if facts.value(FactId::connect_time_max_us).is_some_and(|us| us >= LOST_ATTEMPT_US) {
        return None;
    }
    let response_us = facts.value(FactId::response_time_mean_us).filter(|us| *us > 0.0)?;
    let opened = facts.value(FactId::connections_opened_per_s)? / facts.ended_per_s()?;
    let each = facts.value(FactId::connect_time_mean_us).unwrap_or(0.0)
        + facts.value(FactId::handshake_mean_us).unwrap_or(0.0);
    let us = each * opened.min(1.0);
    // Where processors are full all requests wait for what connections take of them.
    let of_cores = request_cost::request_cost_with_backends(facts)
        .filter(|work| work.is_observed && facts.value(FactId::handshake_mean_us).is_none())
        .map_or(0.0, |work| {
            let connection_us = request_cost::connection_us(facts) * opened.min(1.0);
            connection_us / work.request_us.max(work.file_us)
        });
    let us = us.max(of_cores * response_us);
    Some(ConnectionCost { us, response_us, fraction: us / response_us })
}

struct CloseCause {
    words: String,
    confidence: f64,
    remedy: Remedy,
}

fn cause(facts: &Facts, reused: f64) -> Option<CloseCause> {
    cause_in_settings(facts).or_else(|| cause_in_responses(facts, reused))
}

/// Services that keep connections by a number, and none by 0: of seconds or of requests. What is proposed, and what a kept connection
/// costs them.
const KEPT_BY_NUMBER: [(&str, &str, i64, &str); 2] = [
    ("nginx", "keepalive_timeout", 75, "worker_connections"),
    ("lighttpd", LIGHTTPD_REQUESTS, REQUESTS_WANTED, "server.max-connections"),
];
const LIGHTTPD_REQUESTS: &str = "server.max-keep-alive-requests";

/// The setting with which a service keeps connections.
fn keeping_setting(facts: &Facts) -> &'static str {
    KEPT_BY_NUMBER.iter().find(|row| facts.is_service(row.0)).map_or("KeepAlive", |row| row.1)
}

const NGINX_REQUESTS: i64 = 1000;

/// Whether keep-alive is switched off, for the server or for a site.
fn is_switched_off(facts: &Facts) -> bool {
    let is_off = |value: &str| {
        let value = value.split_ascii_whitespace().next().unwrap_or_default();
        value.eq_ignore_ascii_case("off") || value == "0" || value == "0s"
    };
    let Some(service) = &facts.service else { return false };
    let (setting, target) = (keeping_setting(facts), facts.request_targets.first());
    // Of a load it is known which host it asks.
    let whole = match target {
        Some(_) => effective::of_host(service, setting, target),
        None => facts.text(setting),
    };
    let is_here =
        |one: &ScopedSetting| target.is_none_or(|to| !effective::is_of_another_host(service, one, to));
    let mut scoped = service.scoped.iter().filter(|one| one.setting == setting && is_off(&one.value));
    whole.is_some_and(|value| is_off(&value)) || scoped.any(is_here)
}

/// A setting in force that closes connections.
fn cause_in_settings(facts: &Facts) -> Option<CloseCause> {
    if is_switched_off(facts) {
        // Somebody switched it off, and over TLS the handshakes are what that costs: `tls-handshakes` says so.
        if facts.value(FactId::handshake_mean_us).is_some() {
            return None;
        }
        if let Some(row) = KEPT_BY_NUMBER.iter().find(|row| facts.is_service(row.0)) {
            return Some(keeps_none(*row));
        }
        let (off, on) = (SettingValue::Text("Off".into()), SettingValue::Text("On".into()));
        return Some(CloseCause {
            words: "KeepAlive is off".into(),
            confidence: 0.9,
            remedy: remedy("KeepAlive", Some(off), on, "clients that keep their connections open only one"),
        });
    }
    cause_in_request_limit(facts, facts.value(FactId::requests_per_connection)?)
}

fn keeps_none((service, setting, wanted, counts_towards): (&str, &str, i64, &str)) -> CloseCause {
    let (from, to) = (SettingValue::Integer(0), SettingValue::Integer(wanted));
    CloseCause {
        words: format!("{setting} is 0"),
        confidence: 0.9,
        remedy: Remedy {
            setting: SettingId::of_service(service, setting),
            risk: format!("an idle connection counts towards {counts_towards} until the timeout"),
            ..remedy(setting, Some(from), to, "clients that keep their connections open only one")
        },
    }
}

/// How many requests a connection may carry.
struct RequestLimit {
    service: &'static str,
    setting: &'static str,
    value: f64,
    /// With it. Apache does not count the first one.
    carried_max: f64,
    wanted: i64,
}

impl RequestLimit {
    fn of(facts: &Facts) -> Option<Self> {
        // The default of lighttpd differs from version to version.
        let rows = [
            ("nginx", "keepalive_requests", 0.0, NGINX_REQUESTS),
            ("lighttpd", LIGHTTPD_REQUESTS, 0.0, REQUESTS_WANTED),
        ];
        let of_apache = ("apache", "MaxKeepAliveRequests", 1.0, REQUESTS_WANTED);
        let row = rows.into_iter().find(|row| facts.is_service(row.0)).unwrap_or(of_apache);
        let (service, setting, uncounted, wanted) = row;
        // Apache's 0 is without limit.
        let value = facts.setting(setting).filter(|value| *value >= uncounted)?;
        Some(Self { service, setting, value, carried_max: value.max(1.0) + uncounted, wanted })
    }
}

/// Connections that end as they have carried what a small limit allows.
fn cause_in_request_limit(facts: &Facts, carried: f64) -> Option<CloseCause> {
    let limit = RequestLimit::of(facts).filter(|limit| limit.value < REQUESTS_FEW)?;
    let is_spent =
        carried <= limit.carried_max + 0.1 && carried >= CARRIED_FRACTION_MIN * limit.value.max(1.0);
    let (setting, value) = (limit.setting, format_number(limit.value));
    let s = if limit.carried_max > 1.0 { "s" } else { "" };
    is_spent.then(|| CloseCause {
        words: format!("{setting} {value} ends each after {} request{s}", format_number(limit.carried_max)),
        confidence: 0.9,
        remedy: Remedy {
            setting: SettingId::of_service(limit.service, setting),
            ..remedy(
                setting,
                Some(SettingValue::Integer(limit.value as i64)),
                SettingValue::Integer(limit.wanted),
                &format!("{} requests share the cost of a connection", limit.wanted),
            )
        },
    })
}

fn remedy(setting: &str, from: Option<SettingValue>, to: SettingValue, why: &str) -> Remedy {
    Remedy {
        setting: SettingId::of_service("apache", setting),
        from,
        to: Some(to),
        class: ApplyClass::Reload,
        risk: "under prefork and worker each kept connection holds a worker: check KeepAliveTimeout".into(),
        why: why.into(),
        predicted: None,
        together_with: vec![],
    }
}

/// No setting closes them, and hardly one is used twice: the answers themselves say that they end.
fn cause_in_responses(facts: &Facts, reused: f64) -> Option<CloseCause> {
    const REUSED_AT_ALL: f64 = 0.1;
    // What visitors come back for is theirs; and a server without free workers closes connections to get some.
    facts.value(FactId::plain_requests_reused_fraction)?;
    if reused >= REUSED_AT_ALL || is_switched_off(facts) || workers::is_limit_reached(facts) {
        return None;
    }
    let allowed = facts.is_service("apache") && facts.text("KeepAlive").is_some();
    let words = match allowed {
        true => {
            "the settings allow keep-alive, but the program's responses close them (`Connection: close`, or HTTP/1.0 without a length)"
        }
        false => "the responses close them (`Connection: close`, or HTTP/1.0 without a length)",
    };
    Some(CloseCause {
        words: words.into(),
        confidence: if allowed { 0.8 } else { 0.7 },
        remedy: Remedy {
            from: Some(SettingValue::Text("close".into())),
            ..manual(
                SettingId::application("Connection"),
                "it may be intended: ask the authors",
                "look for a header Connection: close in the program, or a response without a length: no server setting can change this",
            )
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, scoped_setting, with_changes};
    use crate::settings::effective::RequestTarget;

    /// Two requests on each connection, and a handshake that takes as long as the rest.
    const CLOSED: &[(FactId, f64)] = &[
        (FactId::connections_reused_fraction, 0.5),
        (FactId::plain_requests_reused_fraction, 0.5),
        (FactId::requests_per_connection, 2.0),
        (FactId::connections_opened_per_s, 5000.0),
        (FactId::rate, 10_000.0),
        (FactId::handshake_mean_us, 1600.0),
        (FactId::connect_time_mean_us, 50.0),
        (FactId::connect_time_max_us, 4000.0),
        (FactId::response_time_mean_us, 1600.0),
    ];
    const ONCE: &[(FactId, f64)] = &[
        (FactId::connections_reused_fraction, 0.0),
        (FactId::plain_requests_reused_fraction, 0.0),
        (FactId::requests_per_connection, 1.0),
        (FactId::connections_opened_per_s, 10_000.0),
    ];

    fn with(changes: &[(FactId, f64)], requests: i64, keep_alive: &str) -> Option<Finding> {
        let values = with_changes(CLOSED, changes);
        let mut facts = facts(&values, &[("MaxKeepAliveRequests", requests)]);
        let settings = &mut facts.service.as_mut().unwrap().settings;
        settings.entry("KeepAlive".into()).or_default().configured = Some(SettingValue::parse(keep_alive));
        check(&facts)
    }

    #[test]
    fn the_cause_is_named() {
        let setting =
            |finding: Option<Finding>| finding.map(|mut finding| finding.remedies.remove(0).setting.name);
        let named =
            |changes: &[(FactId, f64)], requests, keep_alive| setting(with(changes, requests, keep_alive));
        assert_eq!(named(&[], 1, "On").as_deref(), Some("MaxKeepAliveRequests"));
        let plain =
            [ONCE, &[(FactId::handshake_mean_us, f64::NAN), (FactId::connect_time_mean_us, 900.0)]].concat();
        assert_eq!(named(&plain, 100, "Off").as_deref(), Some("KeepAlive"));
        assert_eq!(named(ONCE, 100, "Off"), None, "handshakes are what it costs");
        assert_eq!(named(ONCE, 100, "On").as_deref(), Some("Connection"));
        assert_eq!(named(&[], 100, "On"), None, "half of them are used twice, and no setting says why");
    }

    #[test]
    fn only_the_host_that_is_asked_counts() {
        let plain = [(FactId::handshake_mean_us, f64::NAN), (FactId::connect_time_mean_us, 900.0)];
        let values = with_changes(CLOSED, &[ONCE, &plain].concat());
        let named = |off: &str, url: Option<&str>| {
            let mut facts = facts(&values, &[]);
            let on_or_off = |host: &str| {
                let value = if host == off { "Off" } else { "On" };
                scoped_setting("KeepAlive", value, &[format!("VirtualHost *:80 {host}").as_str()])
            };
            facts.service.as_mut().unwrap().scoped = ["a.example", "b.example"].map(on_or_off).into();
            facts.request_targets = url.and_then(RequestTarget::of).into_iter().collect();
            check(&facts).map(|mut finding| finding.remedies.remove(0).setting.name)
        };
        for (off, url, expected) in [
            ("b.example", Some("http://b.example/"), "KeepAlive"),
            ("b.example", Some("http://a.example/"), "Connection"),
            ("b.example", None, "KeepAlive"),
            ("neither", Some("http://b.example/"), "Connection"),
        ] {
            assert_eq!(named(off, url).as_deref(), Some(expected), "{off} {url:?}");
        }
    }

    #[test]
    fn a_server_that_ends_connections_is_not_taken_for_the_program() {
        let named = |service: &str, setting: &str, requests: i64, carried: f64| {
            let plain = [
                (FactId::handshake_mean_us, f64::NAN),
                (FactId::connect_time_mean_us, 900.0),
                (FactId::requests_per_connection, carried),
                (FactId::connections_opened_per_s, 10_000.0 / carried),
            ];
            let mut facts = facts(&with_changes(CLOSED, &[ONCE, &plain].concat()), &[(setting, requests)]);
            facts.service.as_mut().unwrap().service = service.into();
            check(&facts)
                .map(|mut finding| finding.remedies.remove(0))
                .map(|one| (one.setting.full_name(), one.to))
        };
        for (service, setting, wanted) in
            [("nginx", "keepalive_requests", 1000), ("lighttpd", LIGHTTPD_REQUESTS, 100)]
        {
            let more = Some((format!("{service} {setting}"), Some(SettingValue::Integer(wanted))));
            for (requests, carried) in [(1, 1.0), (0, 1.0), (2, 2.0)] {
                assert_eq!(named(service, setting, requests, carried), more, "{requests}");
            }
            let program = named(service, setting, 1000, 1.0).map(|(setting, _)| setting);
            assert_eq!(program.as_deref(), Some("application Connection"));
        }
    }

    #[test]
    fn of_a_server_that_is_not_seen_it_is_half_sure() {
        let mut facts = facts(&with_changes(CLOSED, ONCE), &[]);
        facts.service = None;
        assert_eq!(check(&facts).map(|finding| finding.confidence), Some(CONFIDENCE_UNSEEN));
    }

    #[test]
    fn new_connections_cost_as_much_where_a_backend_has_most_of_full_processors() {
        let plain = [
            (FactId::handshake_mean_us, f64::NAN),
            (FactId::rate, 2500.0),
            (FactId::connections_opened_per_s, 2500.0),
        ];
        let work = [
            (FactId::service_cpu_cores, 0.25),
            (FactId::cpu_per_request_us, 100.0),
            (FactId::usable_cores, 1.0),
            (FactId::usable_busy_fraction, 1.0),
        ];
        let values = [with_changes(CLOSED, &[ONCE, &plain].concat()), work.to_vec()].concat();
        for (backend_cores, explains) in [(0.7, Some(0.263)), (0.2, None)] {
            let mut facts = facts(&values, &[("MaxKeepAliveRequests", 0)]);
            of_pool(&mut facts, "unknown", &[(FactId::backend_cpu_cores, backend_cores)]);
            let found = check(&facts).map(|finding| finding.explains_fraction.unwrap());
            assert_eq!(found, explains, "{backend_cores}");
        }
    }

    #[test]
    fn what_costs_nothing_or_was_not_wanted_is_none() {
        let visits: Vec<_> = ONCE
            .iter()
            .map(|&(name, value)| {
                (name, if name == FactId::plain_requests_reused_fraction { f64::NAN } else { value })
            })
            .collect();
        for (name, changes) in [
            ("not asked for", vec![(FactId::connections_reused_fraction, f64::NAN)]),
            ("used again", vec![(FactId::connections_reused_fraction, 0.97)]),
            ("cheap", vec![(FactId::handshake_mean_us, 100.0)]),
            ("lost attempts", vec![(FactId::connect_time_max_us, 1_010_000.0)]),
        ] {
            assert!(with(&changes, 1, "On").is_none(), "{name}");
        }
        assert!(with(&visits, 100, "On").is_none(), "visitors who leave");
        let full =
            [ONCE, &[(FactId::scoreboard_full_fraction, 1.0), (FactId::workers_limit, 150.0)]].concat();
        assert!(with(&full, 100, "On").is_none(), "no worker is free");
    }

    #[test]
    fn by_watching_alone_connections_that_carry_all_they_may_tell() {
        let base = [
            (FactId::service_cpu_cores, 0.98),
            (FactId::cores, 1.0),
            (FactId::cpu_per_request_us, 143.0),
            (FactId::ended_per_s, 6800.0),
        ];
        for (opened, requests, cores, confidence) in [
            (3450.0, 1, 1.0, Some(0.7)),
            (1750.0, 3, 1.0, Some(0.7)),
            (3450.0, 2, 1.0, None),
            (6800.0, 1, 1.0, None),
            // Switched off.
            (6800.0, -1, 1.0, Some(0.7)),
            (3450.0, -1, 1.0, None),
            (3450.0, 100, 1.0, None),
            (3450.0, 1, 4.0, None),
        ] {
            let values =
                [&base[..], &[(FactId::connections_opened_per_s, opened), (FactId::cores, cores)]].concat();
            let mut facts = facts(&values, &[("MaxKeepAliveRequests", requests.max(0))]);
            facts.loaded = false;
            let service = facts.service.as_mut().unwrap();
            let kept = SettingValue::parse(if requests < 0 { "Off" } else { "On" });
            service.settings.entry("KeepAlive".into()).or_default().configured = Some(kept);
            let engine = webdyno_model::service::ScopedSetting {
                setting: "SSLEngine".into(),
                value: "on".into(),
                scope: vec![webdyno_model::service::SettingScope::VirtualHost(format!("*:{}", service.port))],
                ..Default::default()
            };
            service.scoped = vec![engine];
            assert_eq!(
                check(&facts).map(|finding| finding.confidence),
                confidence,
                "{opened} {requests} {cores}"
            );
        }
    }

    #[test]
    fn the_share_is_that_of_the_connections() {
        let finding = with(&[], 1, "On").unwrap();
        // Half of (50 + 1600) us for each request of 1600 us.
        assert_eq!(finding.explains_fraction, Some(0.516));
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(100)));
    }
}

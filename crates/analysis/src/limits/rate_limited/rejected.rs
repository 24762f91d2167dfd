//! Limits that turn requests away: by how often a client asks, how many connections it has, how slowly it sends.
//!
//! Facts: the manuals of mod_qos, mod_evasive, mod_limitipconn, mod_reqtimeout and ModSecurity, and of nginx's
//! ngx_http_limit_req_module and ngx_http_limit_conn_module: what each answers with by default.

use crate::facts::{FactId, Facts, fact_ids};
use crate::wording::format_number;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::SettingId;

/// So many of the requests must be turned away for somebody to miss them.
const TURNED_FRACTION_MIN: f64 = 0.01;
/// Fewer of them are turned away beside what limits the others.
const MOST_LOST_MIN: f64 = 0.1;
const CONFIDENCE_FEW: f64 = 0.5;
/// Good answers lie within this of the configured rate: a bucket lets a burst through first.
const RATE_FRACTION: (f64, f64) = (0.6, 1.6);
/// Half the 95% interval of the mean rate of successful requests: a cap is even from second to second.
const EVEN_CI95_MAX: f64 = 0.15;

/// What answers are when a limit turns a request away: the fact that counts them, and the number.
const FORBIDDEN: (FactId, &str) = (FactId::forbidden_fraction, "403");
const TIMEOUT: (FactId, &str) = (FactId::request_timeout_fraction, "408");
const TOO_MANY: (FactId, &str) = (FactId::too_many_requests_fraction, "429");
const ERROR: (FactId, &str) = (FactId::server_error_fraction, "500");
const UNAVAILABLE: (FactId, &str) = (FactId::unavailable_fraction, "503");

/// A protection that turns requests away.
struct Protection {
    service: &'static str,
    name: &'static str,
    /// The module of Apache that must be loaded.
    module: Option<&'static str>,
    /// One of these must be set.
    settings: &'static [&'static str],
    /// A setting that switches it off, and its value.
    off: Option<(&'static str, &'static str)>,
    /// A setting that says with which status, 503 without it.
    status: Option<&'static str>,
    answers: &'static [(FactId, &'static str)],
}

const KINDS: [Protection; 8] = [
    Protection {
        service: "nginx",
        name: "limit_req of nginx",
        module: None,
        settings: &["limit_req"],
        off: Some(("limit_req_dry_run", "on")),
        status: Some("limit_req_status"),
        answers: &[UNAVAILABLE, TOO_MANY, FORBIDDEN, ERROR],
    },
    Protection {
        service: "nginx",
        name: "limit_conn of nginx",
        module: None,
        settings: &["limit_conn"],
        off: Some(("limit_conn_dry_run", "on")),
        status: Some("limit_conn_status"),
        answers: &[UNAVAILABLE, TOO_MANY, FORBIDDEN, ERROR],
    },
    Protection {
        service: "apache",
        name: "mod_qos",
        module: Some("qos_module"),
        settings: &[
            "QS_LocRequestPerSecLimit",
            "QS_LocRequestPerSecLimitMatch",
            "QS_LocRequestLimit",
            "QS_LocRequestLimitMatch",
            "QS_LocRequestLimitDefault",
            "QS_SrvMaxConnPerIP",
            "QS_SrvMaxConn",
            "QS_SrvRequestRate",
            "QS_EventRequestLimit",
            "QS_EventPerSecLimit",
            "QS_ClientEventPerSecLimit",
            "QS_ClientEventBlockCount",
            "QS_ClientEventLimitCount",
            "QS_ClientEventRequestLimit",
        ],
        off: Some(("QS_LogOnly", "on")),
        status: None,
        answers: &[ERROR, UNAVAILABLE, TOO_MANY],
    },
    Protection {
        service: "apache",
        name: "mod_evasive",
        module: Some("evasive20_module"),
        settings: &["DOSPageCount", "DOSSiteCount", "DOSBlockingPeriod"],
        off: Some(("DOSEnabled", "false")),
        status: None,
        answers: &[FORBIDDEN, TOO_MANY],
    },
    Protection {
        service: "apache",
        name: "mod_limitipconn",
        module: Some("limitipconn_module"),
        settings: &["MaxConnPerIP"],
        off: None,
        status: None,
        answers: &[UNAVAILABLE, TOO_MANY],
    },
    Protection {
        service: "apache",
        name: "mod_bw",
        module: Some("bw_module"),
        settings: &["MaxConnection"],
        off: None,
        status: None,
        answers: &[UNAVAILABLE],
    },
    Protection {
        service: "apache",
        name: "ModSecurity",
        module: Some("security2_module"),
        settings: &["SecRuleEngine"],
        off: Some(("SecRuleEngine", "off")),
        status: None,
        answers: &[FORBIDDEN, TOO_MANY],
    },
    Protection {
        service: "apache",
        name: "mod_reqtimeout",
        module: Some("reqtimeout_module"),
        settings: &["RequestReadTimeout"],
        off: None,
        status: None,
        answers: &[TIMEOUT],
    },
];

/// Requests that a limit turns away.
pub(crate) struct RejectedRequests {
    /// What limits, with the place where it is set.
    pub words: String,
    /// Its setting.
    pub setting: SettingId,
    pub value: Option<String>,
    /// The share of requests that are turned away, and with which status.
    pub share: f64,
    pub status: &'static str,
    pub confidence: f64,
}

/// The limit that turns most requests away.
pub(crate) fn turned_away(facts: &Facts) -> Option<RejectedRequests> {
    let known = KINDS.iter().filter_map(|kind| rejected_by(facts, kind));
    let most = known.max_by(|a, b| a.share.total_cmp(&b.share)).or_else(|| rejected_by_status(facts))?;
    let confidence =
        if most.share < MOST_LOST_MIN { most.confidence.min(CONFIDENCE_FEW) } else { most.confidence };
    Some(RejectedRequests { confidence, ..most })
}

fn rejected_by(facts: &Facts, kind: &Protection) -> Option<RejectedRequests> {
    let service = facts.service.as_ref().filter(|service| service.service == kind.service)?;
    let has = |module: &str| service.modules.iter().any(|known| known == module);
    let is_off = kind.off.is_some_and(|(setting, off)| {
        value(service, setting)
            .is_some_and(|set| [off, "DetectionOnly"].iter().any(|off| set.value.eq_ignore_ascii_case(off)))
    });
    if kind.module.is_some_and(|module| !has(module)) || is_off {
        return None;
    }
    let set = kind.settings.iter().find_map(|setting| value(service, setting))?;
    let share = |(fact, _): &(FactId, &str)| facts.value(*fact).unwrap_or(0.0);
    let given = kind.answers.iter().filter(|(_, status)| gives(service, kind, status));
    let answer = given.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let share = share(answer);
    if share < TURNED_FRACTION_MIN || has_other_cause(facts, answer.1) {
        return None;
    }
    let at = set.at.map_or(String::new(), |at| format!(", set in {at}"));
    Some(RejectedRequests {
        words: format!("{}: {} {}{at}", kind.name, set.setting, set.value),
        setting: SettingId::of_service(kind.service, set.setting),
        value: Some(set.value.to_owned()),
        share,
        status: answer.1,
        confidence: confidence(facts, answer.1, &configured_rates(service)),
    })
}

/// Whether it turns requests away with this status: where it is told one, with no other.
fn gives(service: &ServiceSnapshot, kind: &Protection, status: &str) -> bool {
    let Some(setting) = kind.status else { return true };
    let is_set = written(service, setting).iter().any(|one| one.value == status);
    is_set || (status == UNAVAILABLE.1 && !service.settings.contains_key(setting))
}

/// Too Many Requests means nothing but a limit, whoever has it: the application, or something in front.
fn rejected_by_status(facts: &Facts) -> Option<RejectedRequests> {
    let share = facts.value(TOO_MANY.0).filter(|share| *share >= TURNED_FRACTION_MIN)?;
    Some(RejectedRequests {
        words: "429, Too Many Requests; the program that sends it is unknown, perhaps the application or a proxy in front".into(),
        setting: SettingId::external("protection", "limit"),
        value: None,
        share,
        status: TOO_MANY.1,
        confidence: 0.7,
    })
}

/// Good answers at the rate that is configured prove it; an even rate, or a status that means nothing else, hardly leaves
/// another explanation; else errors are what applications give, too.
fn confidence(facts: &Facts, status: &str, rates: &[f64]) -> f64 {
    let good = facts.value(FactId::rate).filter(|good| *good > 0.0);
    let is_near = |good: f64, rate: &f64| (RATE_FRACTION.0..=RATE_FRACTION.1).contains(&(good / rate));
    let at_rate = good.is_some_and(|good| rates.iter().any(|rate| is_near(good, rate)));
    let is_even =
        good.is_some() && facts.value(FactId::rate_ci95_fraction).is_some_and(|half| half <= EVEN_CI95_MAX);
    match status {
        _ if at_rate => 0.9,
        "429" | "408" => 0.8,
        // Forbidden access has the same status, limit or not.
        "403" if is_even => 0.5,
        _ if is_even => 0.7,
        _ => 0.45,
    }
}

/// Whether the log says where such answers come from: a backend that is not to be had, a database that refuses.
fn has_other_cause(facts: &Facts, status: &str) -> bool {
    const BACKEND: [FactId; 3] = fact_ids! {
        backend_unreachable_logged, backend_connections_failed_logged, proxy_connections_failed_logged,
    };
    let any =
        |names: &[FactId]| names.iter().any(|name| facts.value(*name).is_some_and(|count| count >= 1.0));
    match status {
        "503" => any(&BACKEND),
        "500" => any(&fact_ids! {
            db_refusals_logged, open_files_messages, open_files_program_messages,
        }),
        _ => false,
    }
}

/// A setting where it is written.
pub(super) struct WrittenSetting<'a> {
    setting: &'a str,
    pub value: String,
    pub at: Option<String>,
}

pub(super) fn value<'a>(service: &'a ServiceSnapshot, setting: &'a str) -> Option<WrittenSetting<'a>> {
    written(service, setting).into_iter().next()
}

/// All places where it is written.
pub(super) fn written<'a>(service: &'a ServiceSnapshot, setting: &'a str) -> Vec<WrittenSetting<'a>> {
    let place = |file: &Option<String>, line: Option<u32>| {
        Some(format!("{}{}", file.as_ref()?, line.map_or(String::new(), |line| format!(":{line}"))))
    };
    let scoped = service.scoped.iter().filter(|one| one.setting.eq_ignore_ascii_case(setting));
    let scoped = scoped.map(|one| WrittenSetting {
        setting,
        value: one.value.clone(),
        at: place(&one.file, one.line),
    });
    let general = service.settings.get(setting).and_then(|one| {
        let value = one.configured.as_ref()?.to_string();
        Some(WrittenSetting { setting, value, at: place(&one.file, one.line) })
    });
    scoped.chain(general).collect()
}

/// Requests per second that the tightest zone of nginx lets through that is used.
pub(super) fn configured_rate(service: &ServiceSnapshot) -> Option<f64> {
    configured_rates(service).into_iter().min_by(f64::total_cmp)
}

/// The same of each zone that is used; of all where that is not known.
pub(super) fn configured_rates(service: &ServiceSnapshot) -> Vec<f64> {
    let used: Vec<String> =
        written(service, "limit_req").into_iter().filter_map(|one| zone(&one.value)).collect();
    let zones = written(service, "limit_req_zone");
    let is_used = |value: &str| zone(value).is_some_and(|name| used.contains(&name));
    let of = |any: bool| -> Vec<f64> {
        zones
            .iter()
            .filter(|one| any || is_used(&one.value))
            .filter_map(|one| zone_rate(&one.value))
            .collect()
    };
    Some(of(false)).filter(|rates| !rates.is_empty()).unwrap_or_else(|| of(true))
}

/// The rate of the zone that a `limit_req` names.
pub(super) fn rate_of(service: &ServiceSnapshot, limit: &str) -> Option<f64> {
    let name = zone(limit)?;
    let zones = written(service, "limit_req_zone");
    zones
        .iter()
        .find(|one| zone(&one.value).as_deref() == Some(name.as_str()))
        .and_then(|one| zone_rate(&one.value))
}

/// `zone=a:10m`, and `zone=a` where it is used.
fn zone(value: &str) -> Option<String> {
    let named = value.split_whitespace().find_map(|word| word.strip_prefix("zone="))?;
    Some(named.split(':').next().unwrap_or(named).to_owned())
}

/// `$binary_remote_addr zone=a:10m rate=10r/s`.
fn zone_rate(value: &str) -> Option<f64> {
    let rate = value.split_whitespace().find_map(|word| word.strip_prefix("rate="))?;
    let (number, per) = rate.split_once("r/")?;
    let number: f64 = number.parse().ok()?;
    Some(if per == "m" { number / 60.0 } else { number })
}

impl RejectedRequests {
    /// A sentence.
    pub(crate) fn summary(&self, facts: &Facts) -> String {
        let good = facts
            .value(FactId::rate)
            .map_or(String::new(), |good| format!(", {} successful req/s", format_number(good)));
        format!(
            "A limit rejects {:.0}% of the requests with {}{good} ({}).",
            self.share * 100.0,
            self.status,
            self.words
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting};
    use webdyno_model::service::ScopedSetting;

    fn with(values: &[(FactId, f64)], program: &str, module: &str, scoped: &[(&str, &str)]) -> Option<f64> {
        let mut facts = facts(values, &[]);
        let service = facts.service.as_mut().unwrap();
        (service.service, service.modules) = (program.into(), vec![module.into()]);
        let one = |(setting, value): &(&str, &str)| ScopedSetting {
            file: Some("/etc/x.conf".into()),
            line: Some(9),
            ..scoped_setting(setting, value, &[])
        };
        service.scoped = scoped.iter().map(one).collect();
        turned_away(&facts).map(|found| found.confidence)
    }

    #[test]
    fn a_limit_that_is_set_and_its_answers_are_both_needed() {
        let zone = ("limit_req_zone", "$binary_remote_addr zone=one:10m rate=20r/s");
        let nginx = [zone, ("limit_req", "zone=one burst=5")];
        let turned = |(status, _): (FactId, &str), rate: f64| [(status, 0.4), (FactId::rate, rate)];
        let even = |(status, _): (FactId, &str)| {
            [(status, 0.4), (FactId::rate, 700.0), (FactId::rate_ci95_fraction, 0.02)]
        };
        let page = [("DOSPageCount", "2")];
        let qos = [("QS_LocRequestLimit", "/ 10")];
        for (name, found, expected) in [
            ("at its rate", with(&turned(UNAVAILABLE, 21.0), "nginx", "", &nginx), Some(0.9)),
            ("another rate", with(&turned(UNAVAILABLE, 900.0), "nginx", "", &nginx), Some(0.45)),
            ("a status that it does not give", with(&even(ERROR), "nginx", "", &nginx), None),
            ("429 of somebody else", with(&turned(TOO_MANY, 900.0), "nginx", "", &nginx), Some(0.7)),
            (
                "its status",
                with(&even(ERROR), "nginx", "", &[nginx[0], nginx[1], ("limit_req_status", "500")]),
                Some(0.7),
            ),
            ("not used", with(&turned(UNAVAILABLE, 21.0), "nginx", "", &nginx[..1]), None),
            ("none turned away", with(&[(FactId::rate, 20.0)], "nginx", "", &nginx), None),
            ("evasive", with(&even(FORBIDDEN), "apache", "evasive20_module", &page), Some(0.5)),
            ("uneven", with(&turned(FORBIDDEN, 700.0), "apache", "evasive20_module", &page), Some(0.45)),
            ("not loaded", with(&even(FORBIDDEN), "apache", "", &page), None),
            (
                "off",
                with(&even(FORBIDDEN), "apache", "evasive20_module", &[page[0], ("DOSEnabled", "false")]),
                None,
            ),
            ("qos", with(&even(ERROR), "apache", "qos_module", &qos), Some(0.7)),
            ("another status", with(&even(FORBIDDEN), "apache", "qos_module", &qos), None),
            ("nobody known", with(&turned(TOO_MANY, 9.0), "apache", "", &[]), Some(0.7)),
            (
                "slow senders",
                with(
                    &turned(TIMEOUT, 9.0),
                    "apache",
                    "reqtimeout_module",
                    &[("RequestReadTimeout", "header=20-40,minrate=500")],
                ),
                Some(0.8),
            ),
        ] {
            assert_eq!(found, expected, "{name}");
        }
        let refused = [
            (FactId::unavailable_fraction, 0.4),
            (FactId::rate, 20.0),
            (FactId::backend_unreachable_logged, 90.0),
        ];
        assert_eq!(with(&refused, "nginx", "", &nginx), None, "the log knows why");
    }

    #[test]
    fn a_rate_a_minute_is_one_a_second() {
        let service = |rate: &str| ServiceSnapshot {
            scoped: vec![scoped_setting(
                "limit_req_zone",
                &format!("$binary_remote_addr zone=one:10m rate={rate}"),
                &[],
            )],
            ..ServiceSnapshot::default()
        };
        for (rate, per_s) in [("20r/s", Some(20.0)), ("90r/m", Some(1.5)), ("many", None)] {
            assert_eq!(configured_rate(&service(rate)), per_s, "{rate}");
        }
    }
}

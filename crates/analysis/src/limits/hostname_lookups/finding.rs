//! When `hostname-lookups` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::workers;
use crate::settings::effective;
use crate::settings::effective::EffectiveSetting;
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// Lookups in flight, as a share of the busy workers, from which on they hold many of them.
const HELD_FRACTION_MIN: f64 = 0.3;
/// Fewer are there by chance: the collector may meet one of the agent's own, or of a backend.
const LOOKUPS_MIN: f64 = 3.0;
/// A resolver that answers in this time, from a cache nearby, costs no one anything.
const LOOKUP_US_MIN: f64 = 1_000.0;
/// Where others have nearly all workers, the few that are left for the load may all look names up; such lookups are slow, and no chance.
const LEFT_FRACTION_MIN: f64 = 0.8;
const LEFT_LOOKUPS_MIN: f64 = 0.5;
const LEFT_LOOKUP_US_MIN: f64 = 100_000.0;
const CONFIDENCE_OF_LEFT: f64 = 0.7;

/// Who looks a name up for the log is in state L: where fewer are than names are looked up, the site's program asks for these.
const LOGGING_OF_LOOKUPS_MIN: f64 = 0.3;
/// Of workers that are read more rarely, as the status page waits for one itself, the mean tells little.
const UNANSWERED_FRACTION_MAX: f64 = 0.3;

/// A setting that makes Apache look names up.
struct LookupSetting {
    setting: &'static str,
    value: String,
    place: String,
    in_rules: bool,
}

/// Fires when names are asked for, and workers are held by it.
pub fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let all = lookup_settings(service, facts);
    let first = all.first()?;
    let Some(look_ups) = facts.value(FactId::look_ups_mean) else { return suspected_finding(facts, first) };
    let is_seen = facts
        .value(FactId::status_unanswered_fraction)
        .is_none_or(|unanswered| unanswered <= UNANSWERED_FRACTION_MAX);
    let logging = facts.value(FactId::workers_logging_mean).filter(|_| is_seen);
    let may_be_for_log = logging.is_none_or(|logging| logging >= LOGGING_OF_LOOKUPS_MIN * look_ups);
    let first = all.iter().find(|one| one.in_rules || may_be_for_log)?;
    let busy = facts.value(FactId::workers_busy_mean).filter(|busy| *busy >= 1.0);
    let held = look_ups / busy.or(facts.value(FactId::in_flight_mean)).filter(|all| *all > 0.0)?;
    let rate =
        facts.ended_per_s().or(facts.value(FactId::server_requests_per_s)).filter(|rate| *rate > 0.0)?;
    let look_up_us = look_ups / rate * 1e6;
    let are_many = look_ups >= LOOKUPS_MIN && held >= HELD_FRACTION_MIN && look_up_us >= LOOKUP_US_MIN;
    let (held, by_whom, confidence) = match busy {
        Some(busy) if are_many => (held, format!("of {} busy workers", format_number(busy)), 0.95),
        None if are_many => {
            let in_flight = facts.value(FactId::in_flight_mean)?;
            (held, format!("of {} requests in flight", format_number(in_flight)), 0.9)
        }
        _ => {
            let left = requests_left(facts, look_ups, look_up_us)?;
            let of_left = format!("of {} requests in the workers that others leave", format_number(left));
            (look_ups / left, of_left, CONFIDENCE_OF_LEFT)
        }
    };
    Some(Finding {
        id: LimitId::HostnameLookups.into(),
        summary: format!(
            "{} DNS lookups in flight, holding as many {by_whom}; {} per request. {}",
            format_number(look_ups),
            format_time(look_up_us),
            lookup_reason(first)
        ),
        confidence,
        explains_fraction: Some(significant(held.min(1.0), 3)),
        facts: cited_facts(facts),
        remedies: all.iter().map(remedy).collect(),
    })
}

/// The requests of our load that are in workers, where the limit of these is reached and nearly all of the requests look a name up.
fn requests_left(facts: &Facts, look_ups: f64, look_up_us: f64) -> Option<f64> {
    let left = facts
        .value(FactId::requests_in_workers_mean)
        .filter(|left| facts.loaded && *left >= LEFT_LOOKUPS_MIN && workers::is_limit_reached(facts))?;
    (look_ups >= LEFT_FRACTION_MIN * left && look_up_us >= LEFT_LOOKUP_US_MIN).then_some(left)
}

/// Without a view of the lookups: workers that are done but not free say that something holds them at the log, and the
/// setting that it may be this.
fn suspected_finding(facts: &Facts, lookup: &LookupSetting) -> Option<Finding> {
    let (logging, busy) =
        (facts.value(FactId::workers_logging_mean)?, facts.value(FactId::workers_busy_mean)?);
    let idle = crate::resources::request_cost::request_cost(facts).is_none();
    (!lookup.in_rules && logging >= 0.5 * busy && logging >= LOOKUPS_MIN && idle).then(|| Finding {
        id: LimitId::HostnameLookups.into(),
        summary: format!(
            "{} of {} busy workers are held while they write the log. {} Lookups could not be counted: a slow log may also be the cause.",
            format_number(logging),
            format_number(busy),
            lookup_reason(lookup)
        ),
        confidence: 0.5,
        explains_fraction: Some(significant((logging / busy).min(1.0), 3)),
        facts: cited_facts(facts),
        remedies: vec![remedy(lookup)],
    })
}

fn cited_facts(facts: &Facts) -> Vec<webdyno_model::fact::Fact> {
    facts.cite(&fact_ids! {
        look_ups_mean, workers_busy_mean, workers_logging_mean, workers_writing_mean, in_flight_mean,
        requests_in_workers_mean, ended_per_s, server_requests_per_s, rate, response_time_mean_us,
    })
}

/// The settings that make Apache ask for names where requests go, those of the log first.
fn lookup_settings(service: &ServiceSnapshot, facts: &Facts) -> Vec<LookupSetting> {
    let target = facts.request_targets.first();
    let mut all = vec![];
    let of_root = effective::value(service, "HostnameLookups", target);
    let of_server = || {
        let value = effective::of_host(service, "HostnameLookups", target)?;
        Some(EffectiveSetting { value, place: "the server".into(), written_at: None, part: "/".into() })
    };
    if let Some(found) = of_root.or_else(of_server).filter(|found| found.has("On") || found.has("Double")) {
        all.push(LookupSetting {
            setting: "HostnameLookups",
            value: found.value.clone(),
            place: found.written_at.unwrap_or(found.place),
            in_rules: found.value.eq_ignore_ascii_case("double"),
        });
    }
    for setting in ["Require", "Allow", "Deny"] {
        let by_name = effective::values_anywhere(service, setting).find(|one| is_name(setting, &one.value));
        all.extend(by_name.map(|one| LookupSetting {
            setting,
            value: one.value.clone(),
            place: one.file.as_ref().map_or_else(
                || one.innermost(),
                |file| one.line.map_or(file.clone(), |line| format!("{file}:{line}")),
            ),
            in_rules: true,
        }));
    }
    all
}

/// Whether a rule names a host: `host example.org`, `not forward-dns example.org`, `from example.org`.
fn is_name(setting: &str, value: &str) -> bool {
    let value = value.strip_prefix("not ").unwrap_or(value);
    let (kind, names) = value.split_once(' ').unwrap_or((value, ""));
    // `env=bot` is a variable, and `2001:db8::/32` an address.
    let is_name = |name: &str| {
        name.contains(|letter: char| letter.is_ascii_alphabetic())
            && !name.contains(':')
            && !name.to_ascii_lowercase().starts_with("env=")
    };
    let names_hosts = match setting {
        "Require" => ["host", "forward-dns"].contains(&kind.to_ascii_lowercase().as_str()),
        _ => kind.eq_ignore_ascii_case("from") && !names.to_ascii_lowercase().starts_with("all"),
    };
    names_hosts && names.split_whitespace().any(is_name)
}

fn lookup_reason(lookup: &LookupSetting) -> String {
    match lookup.setting {
        "HostnameLookups" => format!("HostnameLookups is {} ({}).", lookup.value, lookup.place),
        setting => {
            format!("An access rule contains a name: {setting} {} ({}).", lookup.value, lookup.place)
        }
    }
}

fn remedy(lookup: &LookupSetting) -> Remedy {
    let is_switch = lookup.setting == "HostnameLookups";
    Remedy {
        setting: SettingId::of_service("apache", lookup.setting),
        from: Some(SettingValue::parse(&lookup.value)),
        to: is_switch.then(|| SettingValue::Text("Off".into())),
        class: if is_switch { ApplyClass::Reload } else { ApplyClass::Manual },
        risk: if is_switch {
            "the access log, and programs that read REMOTE_HOST, get addresses instead of names".into()
        } else {
            "access changes if the addresses behind the name change".into()
        },
        why: if is_switch {
            "no request needs the name; it can be looked up later, from the log".into()
        } else {
            "addresses or networks in the rule need no lookup; a name needs one for every client".into()
        },
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, scoped_setting, with_changes};

    const HELD: [(FactId, f64); 5] = [
        (FactId::look_ups_mean, 140.0),
        (FactId::workers_busy_mean, 150.0),
        (FactId::workers_logging_mean, 142.0),
        (FactId::ended_per_s, 280.0),
        (FactId::in_flight_mean, 60.0),
    ];

    fn with(changes: &[(FactId, f64)], setting: &str, value: &str) -> Option<Finding> {
        let values = with_changes(&HELD, changes);
        let mut facts = facts(&values, &[]);
        facts.service.as_mut().unwrap().scoped.push(scoped_setting(
            setting,
            value,
            &["DocumentRoot /srv/a/"],
        ));
        check(&facts)
    }

    #[test]
    fn look_ups_that_hold_workers_are_the_answer() {
        let finding = with(&[], "HostnameLookups", "On").unwrap();
        assert!(
            finding.summary.contains("140 DNS lookups") && finding.summary.contains("500 ms"),
            "{}",
            finding.summary
        );
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.933)));
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Text("Off".into())));
        assert_eq!(finding.remedies[0].class, ApplyClass::Reload);
    }

    #[test]
    fn processes_that_start_late_for_workers_who_ask_for_names_come_second() {
        let rush = [
            (FactId::workers_busy_mean, f64::NAN),
            (FactId::workers_logging_mean, f64::NAN),
            (FactId::look_ups_mean, 25.0),
            (FactId::ended_per_s, 30.0),
            (FactId::service_processes_grew, 60.0),
            (FactId::service_processes_max, 65.0),
            (FactId::worker_processes_started_per_s, 10.0),
            (FactId::accept_queue_mean, 55.0),
            (FactId::accept_queue_last, 0.0),
            (FactId::group_cpu_cores, 0.1),
        ];
        let mut facts = facts(&with_changes(&HELD, &rush), &[("MaxRequestWorkers", 150)]);
        let lookups = scoped_setting("HostnameLookups", "On", &["DocumentRoot /srv/a/"]);
        facts.service.as_mut().unwrap().scoped.push(lookups);
        let all = crate::diagnosis::ranking::findings(&facts);
        let ids: Vec<&str> = all.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids[..2], ["hostname-lookups", "apache-spawn-lag"], "{all:?}");
    }

    #[test]
    fn names_in_rules_are_a_persons_work() {
        for (setting, value, fires) in [
            ("Require", "not host robot.example", true),
            ("Require", "forward-dns home.example", true),
            ("Require", "all granted", false),
            ("Require", "ip", false),
            ("Deny", "from robot.example", true),
            ("Allow", "from all", false),
            ("Allow", "from 10.0.0.0/8", false),
            ("Deny", "from env=bad_bot", false),
            ("Deny", "from env=bad_bot robot.example", true),
            ("Allow", "from 2001:db8::/32", false),
            ("HostnameLookups", "Off", false),
            ("HostnameLookups", "double", true),
        ] {
            let finding = with(&[], setting, value);
            assert_eq!(finding.is_some(), fires, "{setting} {value}");
            if let Some(remedy) = finding.map(|finding| finding.remedies[0].clone()) {
                assert_eq!(remedy.to.is_none(), setting != "HostnameLookups");
            }
        }
    }

    #[test]
    fn a_setting_that_costs_nothing_is_no_finding() {
        for changed in
            [(FactId::look_ups_mean, 0.0), (FactId::look_ups_mean, 20.0), (FactId::ended_per_s, 1_000_000.0)]
        {
            assert!(with(&[changed], "HostnameLookups", "On").is_none(), "{changed:?}");
        }
    }

    #[test]
    fn the_last_worker_that_others_leave_may_look_a_name_up_for_each_request() {
        let left = |changes: &[(FactId, f64)]| {
            let values = [
                (FactId::workers_busy_mean, f64::NAN),
                (FactId::workers_logging_mean, f64::NAN),
                (FactId::look_ups_mean, 0.9),
                (FactId::in_flight_mean, 6.0),
                (FactId::requests_in_workers_mean, 1.0),
                (FactId::ended_per_s, 1.8),
                (FactId::scoreboard_full_fraction, 1.0),
                (FactId::workers_limit, 27.0),
            ];
            with(&with_changes(&values, changes), "HostnameLookups", "On")
        };
        let found = left(&[(FactId::in_flight_mean, 6.0)]).unwrap();
        let says = "as many of 1 requests in the workers that others leave; 500 ms per request";
        assert!(found.summary.contains(says), "{}", found.summary);
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_OF_LEFT, Some(0.9)));
        for (what, changed) in [
            ("others look up", (FactId::requests_in_workers_mean, 2.0)),
            ("hardly any request", (FactId::requests_in_workers_mean, 0.1)),
            ("quick ones", (FactId::ended_per_s, 20.0)),
            ("workers are free", (FactId::scoreboard_full_fraction, 0.0)),
        ] {
            assert!(left(&[changed]).is_none(), "{what}");
        }
    }

    #[test]
    fn names_that_the_sites_program_asks_for_are_not_the_logs() {
        let while_writing = [(FactId::workers_logging_mean, 1.0), (FactId::workers_writing_mean, 149.0)];
        assert!(with(&while_writing, "HostnameLookups", "On").is_none());
        let starved = [&while_writing[..], &[(FactId::status_unanswered_fraction, 0.8)]].concat();
        assert!(with(&starved, "HostnameLookups", "On").is_some());
        for (setting, value) in [("HostnameLookups", "double"), ("Require", "host a.example")] {
            assert!(with(&while_writing, setting, value).is_some(), "{setting} {value}");
        }
    }

    #[test]
    fn one_view_suffices_and_none_is_a_suspicion() {
        let outside = with(
            &[(FactId::workers_busy_mean, f64::NAN), (FactId::in_flight_mean, 150.0)],
            "HostnameLookups",
            "On",
        );
        assert_eq!(outside.unwrap().confidence, 0.9);
        let inside = with(&[(FactId::look_ups_mean, f64::NAN)], "HostnameLookups", "On");
        assert_eq!(inside.unwrap().confidence, 0.5);
        assert!(with(&[(FactId::look_ups_mean, f64::NAN)], "Require", "host a.example").is_none());
    }
}

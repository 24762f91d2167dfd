//! `rate-limited`: a protection of the server holds answers to a rate that somebody has set.
//!
//! mod_ratelimit sends each answer at so many KiB a second; mod_qos, mod_evasive and their like let only so much through.
//! Then answers take as long as their size says, for everybody and at any load, while processors, workers and line are
//! idle. Somebody wanted that, and only who knows why can tell whether it is still needed.
//!
//! ## How it is recognised
//! Such a module is loaded and active for a part of the site, and answers come at a constant pace: what arrived, divided by
//! the time that requests were under way, is the configured rate; most of the response time lies between the first byte and
//! the last. Nothing waits to be accepted, and the processors have room. Where the rate cannot be read, the pace alone is a
//! suspicion.
//!
//! ## What to do
//! Ask who set the limit. If it is to stay, this is the site's speed, and no other setting helps; if it may be higher, its
//! owner says how much. webdyno never lifts a protection.
//!
//! ## By hand
//! `curl -o /dev/null -w '%{size_download} %{time_starttransfer} %{time_total}\n' URL` of a small and a large answer: times
//! follow the sizes. `apache2ctl -M | grep -E 'ratelimit|qos|evasive|bw'`; `grep -ri rate-limit /etc/apache2`.

use super::apache_workers_exhausted::instead;
use super::{say, say_bytes, say_us};
use crate::breakdown::noticed_queue;
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::ScopedSetting;

/// Stable id.
pub const ID: &str = "rate-limited";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &["slow-clients", "apache-workers-exhausted", "upstream-bandwidth"];

/// Most of the time must lie in the answer itself.
const TRANSFER_FRACTION_MIN: f64 = 0.5;
/// The module sends in steps of a fifth of a second, and the first one at once: small answers come somewhat faster.
const PACE_FRACTION: (f64, f64) = (0.6, 1.8);
/// `rate-limit` counts KiB a second.
const RATE_UNIT_BYTES: f64 = 1024.0;

/// Fires when answers come at the pace of a limit that is configured.
pub fn check(facts: &Facts) -> Option<Finding> {
    let limit = limit(facts)?;
    let pace = facts.value("request_bytes_per_s").filter(|pace| *pace > 0.0)?;
    let transfer = transfer_fraction(facts).filter(|share| *share >= TRANSFER_FRACTION_MIN)?;
    if noticed_queue(facts).is_some() || instead::machine_is_short(facts) {
        return None;
    }
    let kept = limit.bytes_per_s.map(|rate| (PACE_FRACTION.0..=PACE_FRACTION.1).contains(&(pace / rate)));
    if kept == Some(false) {
        return None;
    }
    let rate = limit.bytes_per_s.map_or(String::new(), |rate| format!(", at {} a second", say_bytes(rate)));
    let response = facts.value("response_time_mean_us").map_or(String::new(), |us| {
        format!(
            ", and {:.0}% of the {} that an answer takes lie between its first byte and its last",
            transfer * 100.0,
            say_us(us)
        )
    });
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "A limit on the rate is in force ({}{rate}): each answer comes at {} a second{response}. Nothing else is short.",
            limit.words,
            say_bytes(pace)
        ),
        confidence: if kept.is_some() { 0.9 } else { 0.6 },
        explains_fraction: Some(significant(transfer.min(1.0), 3)),
        facts: facts.cite(&[
            "request_bytes_per_s",
            "received_bytes_per_s",
            "in_flight_mean",
            "first_byte_mean_us",
            "service_time_mean_us",
            "response_time_mean_us",
            "response_time_p99_us",
            "accept_queue_mean",
            "cpu_busy_fraction",
            "workers_startable_mean",
            "rate",
        ]),
        remedies: vec![remedy(&limit)],
    })
}

/// The share of the response time that passes while an answer arrives.
fn transfer_fraction(facts: &Facts) -> Option<f64> {
    let (service, first) = (facts.value("service_time_mean_us")?, facts.value("first_byte_mean_us")?);
    let response = facts.value("response_time_mean_us").filter(|us| *us > 0.0)?;
    Some((service - first).max(0.0) / response)
}

struct Limit {
    /// The directive, with its place.
    words: String,
    setting: String,
    bytes_per_s: Option<f64>,
}

/// A limit that is active for some part of the site; the tightest one.
fn limit(facts: &Facts) -> Option<Limit> {
    let service = facts.service.as_ref()?;
    let place = |one: &ScopedSetting| {
        let scope = one.scope.last().map_or(String::new(), |scope| format!(" in {scope}"));
        format!("{} {}{scope}", one.setting, one.value)
    };
    let filters = service.scoped.iter().filter(|one| {
        matches!(one.setting.as_str(), "SetOutputFilter" | "AddOutputFilter" | "AddOutputFilterByType")
            && one.value.contains("RATE_LIMIT")
    });
    let rates = service.scoped.iter().filter_map(|one| {
        let words: Vec<&str> = one.value.split_whitespace().collect();
        let is_rate = one.setting == "SetEnv" && words.first() == Some(&"rate-limit");
        let rate = words.get(1)?.trim_matches('"').parse::<f64>().ok();
        (is_rate && rate.is_some_and(|rate| rate > 0.0)).then_some((one, rate?))
    });
    let tightest = rates.min_by(|a, b| a.1.total_cmp(&b.1));
    let filter = filters.map(place).next();
    match (filter, tightest) {
        (Some(words), rate) => Some(Limit {
            words: format!("mod_ratelimit: {words}"),
            setting: "rate-limit".into(),
            bytes_per_s: rate.map(|(_, kib)| kib * RATE_UNIT_BYTES),
        }),
        (None, _) => {
            const OTHERS: [&str; 3] = ["bw_module", "cband_module", "qos_module"];
            let loaded = service.modules.iter().find(|module| OTHERS.contains(&module.as_str()))?;
            let directives = ["BandWidth", "MinBandWidth", "QS_SrvMaxConnPerIP", "QS_LocKBytesPerSecLimit"];
            let active = service.scoped.iter().find(|one| directives.contains(&one.setting.as_str()))?;
            Some(Limit {
                words: format!("{loaded}: {}", place(active)),
                setting: active.setting.clone(),
                bytes_per_s: None,
            })
        }
    }
}

fn remedy(limit: &Limit) -> Remedy {
    Remedy {
        service: "apache".into(),
        setting: limit.setting.clone(),
        from: None,
        to: None,
        class: ApplyClass::Manual,
        risk: "it protects something: ask who wanted it before it is changed".into(),
        why: format!(
            "the site is as fast as this limit{} allows; whether it may be higher is for the operator to decide",
            limit
                .bytes_per_s
                .map_or(String::new(), |rate| format!(" of {} KiB/s", say(rate / RATE_UNIT_BYTES)))
        ),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const LIMITED: &[(&str, f64)] = &[
        ("request_bytes_per_s", 215_000.0),
        ("first_byte_mean_us", 5_000.0),
        ("service_time_mean_us", 1_200_000.0),
        ("response_time_mean_us", 1_200_000.0),
        ("accept_queue_mean", 0.0),
        ("cpu_busy_fraction", 0.05),
    ];

    fn with(changes: &[(&str, f64)], scoped: &[(&str, &str)]) -> Option<Finding> {
        let kept = LIMITED.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let changed = changes.iter().filter(|(_, value)| value.is_finite());
        let values: Vec<_> = kept.chain(changed).copied().collect();
        let mut facts = facts(&values, &[]);
        let one = |(setting, value): &(&str, &str)| ScopedSetting {
            setting: (*setting).into(),
            value: (*value).into(),
            ..ScopedSetting::default()
        };
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
            ("another pace", vec![("request_bytes_per_s", 2e6)], &limited[..], None),
            ("late first bytes", vec![("first_byte_mean_us", 1e6)], &limited[..], None),
            ("a queue", vec![("accept_queue_mean", 30.0), ("in_flight_mean", 60.0)], &limited[..], None),
            ("no processor is free", vec![("pressure_group_cpu_some_fraction", 0.9)], &limited[..], None),
        ] {
            assert_eq!(with(&changes, scoped).map(|finding| finding.confidence), confidence, "{name}");
        }
    }

    #[test]
    fn a_protection_is_never_lifted() {
        let limited = [("SetOutputFilter", "DEFLATE;RATE_LIMIT"), ("SetEnv", "rate-limit 200")];
        let remedies = with(&[], &limited).unwrap().remedies;
        assert!(remedies.iter().all(|remedy| remedy.to.is_none() && remedy.wishes().is_empty()));
    }
}

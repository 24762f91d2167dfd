//! When `proxy-pool-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::slow_upstream::finding::at_most_waiting;
use crate::resources::workers::HEADROOM;
use crate::resources::{concurrency, worker_waits};
use crate::settings::backends::{addresses, forwarding_settings};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::{ScopedSetting, SettingValue};
use webdyno_model::setting::SettingId;

/// So much of all places is taken on average where none is free for long: one is between two requests at times, and a process that has
/// just been started may serve hardly anybody.
pub(super) const TAKEN_FRACTION_MIN: f64 = 0.55;
/// Readings may meet a process that has just ended.
const TAKEN_FRACTION_MAX: f64 = 1.3;
/// More are in flight than are at the backend.
const BEYOND_FRACTION_MIN: f64 = 0.2;
const BEYOND_FRACTION_WATCHED_MIN: f64 = 0.5;
const BEYOND_MIN: f64 = 2.0;
const CONFIDENCE: f64 = 0.85;
const CONFIDENCE_WATCHED: f64 = 0.7;

/// A bound on the connections to a backend.
struct Bound<'a> {
    setting: &'a ScopedSetting,
    address: String,
    /// For each process.
    max: f64,
}

/// Fires when all connections that the proxy may have are in use, and others wait for one, or are refused.
pub fn check(facts: &Facts) -> Option<Finding> {
    of_apache(facts).or_else(|| super::refused::check(facts))
}

fn of_apache(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|service| service.service == "apache")?;
    let processes = facts.value(FactId::service_processes_mean).map(|all| (all - 1.0).max(1.0))?;
    let in_flight = concurrency::requests_in_flight(facts)?;
    // Without load of our own nobody knows what one takes that is alone: then most of them must wait elsewhere.
    let slower = slower_than_alone(facts).filter(|_| facts.loaded);
    if facts.loaded && slower.is_none() {
        return None;
    }
    let bound = forwarding_settings(service).find_map(|setting| bound(facts, setting))?;
    let (name, seen) = upstream(facts, &bound.address)?;
    let waiting = at_most_waiting(facts, name, seen);
    let places = bound.max * processes;
    let is_full = waiting >= TAKEN_FRACTION_MIN * places && waiting <= TAKEN_FRACTION_MAX * places;
    let beyond = in_flight - waiting;
    let least = if facts.loaded { BEYOND_FRACTION_MIN } else { BEYOND_FRACTION_WATCHED_MIN };
    let queue = facts.value_of(FactId::backend_queue_mean, name).unwrap_or(0.0);
    if !is_full
        || beyond < BEYOND_MIN.max(least * in_flight)
        || queue >= 1.0
        || worker_waits::machine_is_short(facts)
    {
        return None;
    }
    let alone = slower.map_or(String::new(), |(alone_us, usual_us)| {
        format!(
            " A request alone takes {}, under this load {}.",
            format_time(alone_us),
            format_time(usual_us)
        )
    });
    let mut cited = facts
        .cite_of(&fact_ids! { upstream_waiting_mean, upstream_unsure_mean, upstream_connections_mean, backend_queue_mean }, name);
    cited.extend(facts.cite(&fact_ids! {
        service_processes_mean, in_flight_mean, response_time_mean_us, response_time_alone_us, cpu_busy_fraction, rate,
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
        confidence: if facts.loaded { CONFIDENCE } else { CONFIDENCE_WATCHED },
        explains_fraction: Some(significant((beyond / in_flight).min(1.0), 3)),
        facts: cited,
        remedies: vec![remedy(&bound, (in_flight, processes))],
    })
}

/// What a setting bounds: `/app http://127.0.0.1:8000/app max=4`.
fn bound<'a>(facts: &Facts, setting: &'a ScopedSetting) -> Option<Bound<'a>> {
    let max = setting.value.split_whitespace().find_map(|word| word.strip_prefix("max="));
    let max = max?.parse::<f64>().ok().filter(|max| *max >= 1.0)?;
    let address = addresses(&setting.value)
        .into_iter()
        .map(|(address, _)| address)
        .find(|address| !address.is_empty())?;
    upstream(facts, &address).is_some().then_some(Bound { setting, address, max })
}

/// The connections to it: a name may be any address with that port, and without one it is HTTP's.
pub(super) fn upstream<'a>(facts: &'a Facts, address: &str) -> Option<(&'a str, f64)> {
    let port = address.rsplit_once(':').map_or("80", |(_, port)| port);
    let mut all = facts.each(FactId::upstream_waiting_mean);
    let is_it = |at: &str| at == address || at.rsplit_once(':').is_some_and(|(_, own)| own == port);
    all.find(|(at, _)| is_it(at))
}

fn remedy(bound: &Bound<'_>, (in_flight, processes): (f64, f64)) -> Remedy {
    let to = (HEADROOM * in_flight / processes).ceil();
    let with = |max: f64| {
        let words = bound.setting.value.split_whitespace();
        let words = words.map(|word| match word.starts_with("max=") {
            true => format!("max={}", format_number(max)),
            false => word.to_owned(),
        });
        SettingValue::Text(words.collect::<Vec<_>>().join(" "))
    };
    Remedy {
        setting: SettingId::of_service("apache", &bound.setting.setting),
        from: Some(with(bound.max)),
        to: Some(with(to)),
        class: ApplyClass::Manual,
        risk: "the backend gets more requests at once".into(),
        why: format!(
            "{} requests are in flight at once, for each of {} processes, plus 30%; or no max at all: then a process may have as many as it has threads",
            format_number(significant(in_flight, 3)),
            format_number(significant(processes, 2))
        ),
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    const AT: &str = "127.0.0.1:8000";

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
        let setting =
            ScopedSetting { setting: "ProxyPass".into(), value: value.into(), ..ScopedSetting::default() };
        facts.service.as_mut().unwrap().scoped = vec![setting];
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
        let to = SettingValue::Text("/app http://127.0.0.1:8000/app max=26 retry=0".into());
        assert_eq!(found.remedies[0].to, Some(to));
        let setting =
            ScopedSetting { setting: "ProxyPass".into(), value: pass.into(), ..ScopedSetting::default() };
        let base = [(FactId::service_processes_mean, 3.0), (FactId::in_flight_mean, 40.0)];
        let mut watched = facts_of_several(&base, &[(FactId::upstream_waiting_mean, AT, 3.9)]);
        watched.service.as_mut().unwrap().scoped = vec![setting];
        watched.loaded = false;
        assert_eq!(check(&watched).map(|finding| finding.confidence), Some(CONFIDENCE_WATCHED));
        let waiting = (FactId::upstream_waiting_mean, AT, 3.9);
        for (what, changes, several, value) in [
            ("no bound", vec![], vec![], "/app http://127.0.0.1:8000/app"),
            ("places are free", vec![], vec![], "/app http://127.0.0.1:8000/app max=9"),
            ("nobody waits", vec![(FactId::in_flight_mean, 4.0)], vec![], pass),
            ("the backend is full", vec![], vec![waiting, (FactId::backend_queue_mean, AT, 9.0)], pass),
            ("as quick as alone", vec![(FactId::response_time_mean_us, 65_000.0)], vec![], pass),
        ] {
            assert!(with(&changes, &several, value).is_none(), "{what}");
        }
    }
}

//! A proxy whose settings cannot be read (HAProxy, Envoy, Traefik, a program of one's own) and that passes on only so many requests at
//! once: as its sockets show it.
//!
//! Facts: a bound on connections keeps the number that wait for an answer at one value, reading after reading, while a bound on the rate
//! lets it rise and fall. HAProxy's `maxconn` of a `server` queues inside of the proxy (Configuration Manual, 5.2).

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::manual;
use crate::resources::time_breakdown::noticed_queue;
use crate::resources::{concurrency, worker_waits};
use crate::settings::backends::{self, UNKNOWN};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// So much more than the mean is the most that was ever seen waiting where a bound holds it.
const STEADY_ABOVE_MEAN_MAX: f64 = 0.3;
/// So many of the requests in flight wait inside of the proxy.
const HELD_FRACTION_MIN: f64 = 0.5;
const HELD_MIN: f64 = 3.0;
/// A proxy that computes may be what is short.
const BUSY_THREAD_FRACTION_MAX: f64 = 0.5;
const CONFIDENCE: f64 = 0.7;

/// Fires when a proxy that does not compute keeps most requests to itself, while the few that it passed on are always as many, and
/// nobody waits behind it.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|service| service.service == UNKNOWN)?;
    let in_flight = concurrency::requests_in_flight(facts).filter(|_| facts.loaded)?;
    let slower = slower_than_alone(facts)?;
    let computes = facts.value(FactId::busiest_thread_fraction)? > BUSY_THREAD_FRACTION_MAX;
    if computes || noticed_queue(facts).is_some() || worker_waits::machine_is_short(facts) {
        return None;
    }
    let mut all = facts.each(FactId::upstream_waiting_mean).filter(|(_, waiting)| *waiting >= 0.5);
    let (at, waiting) = all.next().filter(|_| all.next().is_none())?;
    let most = facts.value_of(FactId::upstream_waiting_max, at)?;
    let queue = facts.value_of(FactId::backend_queue_mean, at).unwrap_or(0.0);
    let held = in_flight - most;
    let is_bound = most <= waiting + STEADY_ABOVE_MEAN_MAX && queue < 1.0;
    if !is_bound || held < HELD_MIN.max(HELD_FRACTION_MIN * in_flight) {
        return None;
    }
    let name = backends::program_name(service);
    let mut cited = facts
        .cite_of(&fact_ids! { upstream_waiting_mean, upstream_waiting_max, upstream_connections_mean, backend_queue_mean }, at);
    cited.extend(facts.cite(&fact_ids! {
        busiest_thread_fraction, in_flight_mean, response_time_mean_us, response_time_alone_us, cpu_busy_fraction, rate,
    }));
    Some(Finding {
        id: LimitId::ProxyPoolExhausted.into(),
        summary: format!(
            "{name} has {} requests in flight and passes on {} at once to {at}, never more, and nobody waits there: {} wait in {name} itself, which does not compute.{}",
            format_number(significant(in_flight, 3)),
            format_number(most),
            format_number(significant(held, 3)),
            alone_words(Some(slower)),
        ),
        confidence: CONFIDENCE,
        explains_fraction: Some(significant((held / in_flight).min(1.0), 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::application("connections to the backend"),
            "the backend gets more requests at once",
            "raise the bound in its own settings: maxconn of the server (HAProxy), max_connections and max_requests of the cluster (Envoy), MaxConnsPerHost (Go), the size of the connection pool",
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    const APP: &str = "127.0.0.1:8000";

    fn with(changes: &[(FactId, f64)], most: f64) -> Option<Finding> {
        let base = [
            (FactId::in_flight_mean, 30.0),
            (FactId::rate, 19.6),
            (FactId::cpu_busy_fraction, 0.05),
            (FactId::busiest_thread_fraction, 0.01),
            (FactId::response_time_mean_us, 1_420_000.0),
            (FactId::response_time_alone_us, 103_000.0),
        ];
        let behind = [(FactId::upstream_waiting_mean, APP, 2.0), (FactId::upstream_waiting_max, APP, most)];
        let mut facts = facts_of_several(&with_changes(&base, changes), &behind);
        let service = facts.service.as_mut().unwrap();
        service.service = UNKNOWN.into();
        service.executable = Some("/usr/sbin/haproxy".into());
        check(&facts)
    }

    #[test]
    fn a_proxy_that_passes_on_only_so_many_is_told() {
        let found = with(&[], 2.0).unwrap();
        let begins =
            "haproxy has 30 requests in flight and passes on 2 at once to 127.0.0.1:8000, never more";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        assert_eq!(found.explains_fraction, Some(0.933));
        assert!(with(&[], 4.0).is_none(), "a bound on the rate lets it rise and fall");
        for (what, changes) in [
            ("it computes", (FactId::busiest_thread_fraction, 0.9)),
            ("nobody waits", (FactId::response_time_mean_us, 110_000.0)),
            ("most are passed on", (FactId::in_flight_mean, 3.5)),
        ] {
            assert!(with(&[changes], 2.0).is_none(), "{what}");
        }
    }
}

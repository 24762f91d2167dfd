//! Where nginx may open only so many connections to a server of an `upstream` (`max_conns`), and refuses what finds none free.
//!
//! Facts: ngx_http_upstream_module, `max_conns`: without the `queue` of the commercial version a request that finds no server with
//! a free place is answered with 502, and the log says `no live upstreams`. Without a `zone` the number is for each worker.

use super::bound::{Bound, Need, remedy, upstream};
use super::finding::TAKEN_FRACTION_MIN;
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::slow_upstream::finding::at_most_waiting;
use crate::resources::concurrency;
use crate::resources::workers::HEADROOM;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingScope};

/// So many of the responses must be errors.
const FAILED_FRACTION_MIN: f64 = 0.01;
/// So often it must be logged where the responses are not known.
const LOGGED_MIN: f64 = 10.0;

/// `no live upstreams` is also said where no server can be reached.
const CONFIDENCE_UNREACHABLE: f64 = 0.4;

/// Fires when responses are errors (502) while all places are taken, or the log says that no server has one.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref().filter(|service| service.service == "nginx")?;
    let failed = facts.value(FactId::bad_gateway_fraction).or_else(|| {
        let errors = facts.value(FactId::server_errors_answered_per_s)?;
        Some(errors / facts.value(FactId::answers_logged_per_s).filter(|all| *all > 0.0)?)
    });
    let logged = facts.value(FactId::nginx_no_upstream_messages).filter(|count| *count >= 1.0);
    // Where no log of requests is read, that of errors has to do.
    let is_failing = match failed {
        Some(failed) => failed >= FAILED_FRACTION_MIN,
        None => logged.is_some_and(|count| count >= LOGGED_MIN),
    };
    is_failing.then_some(())?;
    let bound = fullest(facts, service)?;
    let (address, max) = (bound.address.as_str(), bound.max);
    let taken = waiting(facts, &bound).filter(|waiting| *waiting >= TAKEN_FRACTION_MIN * max);
    let confidence = match (taken, logged) {
        (Some(_), Some(_)) => 0.92,
        (Some(_), None) => 0.8,
        // Servers that cannot be reached are left out as well.
        (None, Some(_)) if are_unreachable(facts) => CONFIDENCE_UNREACHABLE,
        (None, Some(_)) => 0.6,
        (None, None) => return None,
    };
    let used = taken.map_or(String::new(), |taken| format!("{} are in use; ", format_number(taken)));
    let said = logged
        .map_or(String::new(), |count| format!(" Logged {} times: no live upstreams.", format_number(count)));
    let errors = failed.map_or("requests without one are answered with 502".to_owned(), |failed| {
        format!("{:.0}% of responses are errors (502)", failed * 100.0)
    });
    let in_flight = in_flight_if_served(facts, &bound);
    let why =
        "what is in flight at once, plus 30%; or no max_conns at all, where the backend queues by itself";
    Some(Finding {
        id: LimitId::ProxyPoolExhausted.into(),
        summary: format!(
            "nginx may have {} connections to {address} (max_conns{}): {used}{errors}.{said}",
            format_number(max),
            if facts.setting("worker_processes").is_some_and(|workers| workers > 1.0) {
                ", for each worker where the upstream has no zone"
            } else {
                ""
            },
        ),
        confidence,
        explains_fraction: failed.map(|failed| significant(failed.min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            nginx_no_upstream_messages, bad_gateway_fraction, server_errors_answered_per_s, in_flight_mean,
            response_time_mean_us, rate,
        }),
        remedies: vec![remedy(facts, &bound, Need { in_flight, processes: 1.0, most: f64::INFINITY, why })],
    })
}

/// The bound of which most is in use.
fn fullest<'a>(facts: &Facts, service: &'a ServiceSnapshot) -> Option<Bound<'a>> {
    let share = |bound: &Bound<'_>| waiting(facts, bound).unwrap_or(0.0) / bound.max;
    let all = service.scoped.iter().filter_map(bound);
    all.reduce(|most, next| if share(&next) > share(&most) { next } else { most })
}

/// Requests that wait for an answer there.
fn waiting(facts: &Facts, bound: &Bound<'_>) -> Option<f64> {
    upstream(facts, &bound.address).map(|(name, seen)| at_most_waiting(facts, name, seen))
}

/// Whether the log says that connections to servers behind it were refused, or their sockets are not there.
fn are_unreachable(facts: &Facts) -> bool {
    let both = [FactId::nginx_backend_refused_messages, FactId::nginx_backend_absent_messages];
    both.into_iter().any(|name| facts.value(name).is_some_and(|count| count >= 1.0))
}

/// A server of an `upstream` with a bound.
pub(super) fn bound(setting: &ScopedSetting) -> Option<Bound<'_>> {
    let is_upstream = |scope: &SettingScope| scope.to_string().starts_with("upstream");
    let is_it = setting.setting == "server" && setting.scope.iter().any(is_upstream);
    Bound::of(setting, "max_conns").filter(|_| is_it)
}

/// Requests that would be in flight: those that are refused end at once, so that of a rate that is asked for it is what it comes to by
/// the time of the good ones; twice as many as now at least.
fn in_flight_if_served(facts: &Facts, bound: &Bound<'_>) -> f64 {
    let offered = facts.value(FactId::offered_rate).zip(facts.value(FactId::response_time_mean_us));
    let offered = offered.map_or(0.0, |(rate, us)| rate * us / 1e6);
    let now = concurrency::requests_in_flight(facts).unwrap_or(0.0);
    now.max(offered).max(2.0 / HEADROOM * bound.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, scoped_setting, with_changes};
    use webdyno_model::service::{SettingInForce, SettingValue};

    #[test]
    fn refused_requests_are_the_bound_s_work_where_it_is_reached_or_the_log_says_so() {
        let base = [(FactId::bad_gateway_fraction, 0.9), (FactId::in_flight_mean, 29.0)];
        let with = |changes: &[(FactId, f64)], waiting: f64, value: &str| {
            let several = [(FactId::upstream_waiting_mean, "127.0.0.1:9236", waiting)];
            let mut facts = facts_of_several(&with_changes(&base, changes), &several);
            let service = facts.service.as_mut().unwrap();
            service.service = "nginx".into();
            service.scoped = vec![scoped_setting("server", value, &["upstream behind"])];
            check(&facts)
        };
        let ten = "127.0.0.1:9236 max_conns=10 max_fails=0";
        let logged = (FactId::nginx_no_upstream_messages, 40.0);
        for (changes, waiting, value, confidence) in [
            (vec![logged], 9.0, ten, Some(0.92)),
            (vec![], 9.0, ten, Some(0.8)),
            (vec![logged], 2.0, ten, Some(0.6)),
            (vec![logged, (FactId::nginx_backend_refused_messages, 6.0)], 2.0, ten, Some(0.4)),
            (vec![logged, (FactId::nginx_backend_refused_messages, 6.0)], 9.0, ten, Some(0.92)),
            (vec![], 2.0, ten, None),
            (vec![logged], 9.0, "127.0.0.1:9236", None),
            (vec![logged, (FactId::bad_gateway_fraction, 0.0)], 9.0, ten, None),
            (vec![logged, (FactId::bad_gateway_fraction, f64::NAN)], 9.0, ten, Some(0.92)),
            (vec![(FactId::bad_gateway_fraction, f64::NAN)], 9.0, ten, None),
        ] {
            let found = with(&changes, waiting, value);
            assert_eq!(found.map(|finding| finding.confidence), confidence, "{changes:?} {waiting} {value}");
        }
        let remedy = with(&[logged], 9.0, ten).unwrap().remedies.remove(0);
        assert_eq!(remedy.setting.full_name(), "nginx server max_conns of pool 127.0.0.1:9236");
        assert_eq!(
            (remedy.from, remedy.to),
            (Some(SettingValue::Integer(10)), Some(SettingValue::Integer(38)))
        );
        // At a rate that is asked for: 100/s of 600 ms each.
        let offered = [logged, (FactId::offered_rate, 100.0), (FactId::response_time_mean_us, 600_000.0)];
        let remedy = with(&offered, 9.0, ten).unwrap().remedies.remove(0);
        assert_eq!(remedy.to, Some(SettingValue::Integer(78)));
    }
    #[test]
    fn of_several_bounds_the_one_that_is_reached_is_named() {
        let server = |value: &str, upstream: &str| scoped_setting("server", value, &[upstream]);
        let several = [
            (FactId::upstream_waiting_mean, "10.0.0.2:8080", 3.0),
            (FactId::upstream_waiting_mean, "10.0.0.3:8080", 9.5),
        ];
        let mut facts = facts_of_several(&[(FactId::bad_gateway_fraction, 0.4)], &several);
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        service.scoped = vec![
            server("10.0.0.2:8080 max_conns=50", "upstream api"),
            server("10.0.0.3:8080 max_conns=10", "upstream app"),
        ];
        let found = check(&facts).unwrap();
        assert!(found.summary.contains("10 connections to 10.0.0.3:8080 (max_conns)"), "{}", found.summary);
        let configured = Some(SettingValue::Integer(4));
        let workers = SettingInForce { configured, ..SettingInForce::default() };
        facts.service.as_mut().unwrap().settings.insert("worker_processes".into(), workers);
        let summary = check(&facts).unwrap().summary;
        assert!(summary.contains("(max_conns, for each worker where the upstream has no zone)"), "{summary}");
    }
}

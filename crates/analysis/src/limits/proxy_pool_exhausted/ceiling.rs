//! Connections that the front may have to a backend, by Little's law. Of several backends the one that binds first.

use super::bound::{Bound, upstream};
use super::finding::{connections_max, processes};
use super::refused;
use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::limits::slow_upstream::finding::at_most_waiting;
use crate::resources::concurrency;
use crate::resources::utilisation::{beyond_in_flight, saturation_rate};
use crate::settings::backends::forwarding_settings;
use webdyno_model::fact::Fact;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let known = bounds(facts).into_iter().filter_map(|(bound, places)| {
        let now = waiting(facts, &bound)?;
        let used = now - beyond_in_flight(facts, now);
        let binds_at_rate = saturation_rate(facts, used, places);
        let usage =
            ResourceUsage { now: Some(now), max: Some(places), binds_at_rate, ..ResourceUsage::default() };
        Some((bound.address, usage))
    });
    let rate = |usage: &ResourceUsage| usage.binds_at_rate.unwrap_or(f64::INFINITY);
    let (address, usage) = known.min_by(|a, b| rate(&a.1).total_cmp(&rate(&b.1)))?;
    let (name, finding) = (format!("connections to {address}"), Some(LimitId::ProxyPoolExhausted));
    usage.ceiling(Resource::BackendConnections, &name, "the sockets, and the configuration", finding)
}

/// Each bound, with the connections that all processes together may have by it. One of nginx is not known where several workers may count
/// for themselves.
fn bounds(facts: &Facts) -> Vec<(Bound<'_>, f64)> {
    let Some(service) = &facts.service else { return vec![] };
    if facts.is_service("nginx") {
        let is_one = facts.setting("worker_processes").is_some_and(|workers| workers == 1.0);
        let all = service.scoped.iter().filter_map(refused::bound).filter(|_| is_one);
        return all.map(|bound| (bound.clone(), bound.max)).collect();
    }
    let Some(processes) = processes(facts).filter(|_| facts.is_service("apache")) else { return vec![] };
    let all = forwarding_settings(service).filter_map(|setting| Bound::of(setting, "max"));
    let binding = all.filter(|bound| bound.max < connections_max(facts));
    binding.map(|bound| (bound.clone(), bound.max * processes)).collect()
}

fn waiting(facts: &Facts, bound: &Bound<'_>) -> Option<f64> {
    let (name, seen) = upstream(facts, &bound.address)?;
    Some(at_most_waiting(facts, name, seen))
}

/// The facts as they will be when nobody waits for a connection: who does holds a worker meanwhile.
pub(crate) fn release_workers(facts: &mut Facts) {
    let answered: f64 = bounds(facts).iter().filter_map(|(bound, _)| waiting(facts, bound)).sum();
    let Some(held) = concurrency::requests_in_flight(facts).map(|in_flight| in_flight - answered) else {
        return;
    };
    for name in [FactId::workers_busy_mean, FactId::workers_writing_mean] {
        let Some(fact) = facts.cite(&[name]).pop() else { continue };
        // The reading itself holds one, and those that are being answered hold theirs.
        let value = (fact.value - held.max(0.0)).max(answered + 1.0).min(fact.value);
        facts.insert(name, Fact { value, ..fact });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{apache, facts_of_several, scoped_setting};
    use webdyno_model::service::ServiceSnapshot;

    const AT: &str = "127.0.0.1:8000";

    fn of(line: &str, mode: &str) -> Facts {
        let base = [
            (FactId::rate, 50.0),
            (FactId::service_processes_mean, 3.0),
            (FactId::in_flight_mean, 40.0),
            (FactId::workers_busy_mean, 41.0),
        ];
        let mut facts = facts_of_several(&base, &[(FactId::upstream_waiting_mean, AT, 5.0)]);
        let pass = scoped_setting("ProxyPass", line, &[]);
        let service = apache(&[("ThreadsPerChild", 25)]);
        facts.service = Some(ServiceSnapshot { scoped: vec![pass], mode: Some(mode.into()), ..service });
        facts
    }

    #[test]
    fn what_is_in_use_tells_when_all_are() {
        let binds =
            |line: &str, mode: &str| ceiling(&of(line, mode)).and_then(|one| one.ceiling.binds_at_rate);
        // 5 of 2 times 10 at 50 answers a second.
        assert_eq!(binds("/ http://127.0.0.1:8000/ max=10", "event"), Some(200.0));
        for (line, mode) in [
            ("/ http://127.0.0.1:8000/", "event"),
            ("/ http://127.0.0.1:8000/ max=25", "event"),
            ("/ http://127.0.0.1:8000/ max=10", "prefork"),
            ("/ http://127.0.0.1:9000/ max=10", "event"),
        ] {
            assert_eq!(binds(line, mode), None, "{line} {mode}");
        }
    }

    #[test]
    fn who_waits_for_a_connection_holds_a_worker_meanwhile() {
        let mut facts = of("/ http://127.0.0.1:8000/ max=2", "event");
        release_workers(&mut facts);
        assert_eq!(facts.value(FactId::workers_busy_mean), Some(6.0));
    }
}

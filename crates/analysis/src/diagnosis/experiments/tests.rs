//! Which experiment is made, and what its outcome says: tables.

use super::*;
use crate::facts::Facts;
use webdyno_model::histogram::TimeHistogram;

const WORKERS: &str = "apache-workers-exhausted";
const KEPT: &str = "keepalive-holds-workers";
const LOOKUPS: &str = "hostname-lookups";
const CPU: &str = "cpu-saturated";
const LINK: &str = "network-saturated";
const QUERIES: &str = "db-slow-queries";

fn finding(id: &str, confidence: f64) -> Finding {
    let any = crate::diagnosis::ranking::findings(&Facts::default()).remove(0);
    Finding { id: id.into(), confidence, explains_fraction: None, ..any }
}

fn found(of: &[(&str, f64)]) -> Vec<Finding> {
    of.iter().map(|(id, confidence)| finding(id, *confidence)).collect()
}

#[test]
fn the_experiment_is_one_in_which_the_two_expect_different_things() {
    use Purpose::{FromLoopback, HalfLoad, WithoutKeepalive, WithoutResources};
    let all = Purpose::EXPERIMENTS;
    for (findings, possible, what) in [
        (vec![(WORKERS, 0.8), (KEPT, 0.7)], &all[..], Some(WithoutKeepalive)),
        (vec![(WORKERS, 0.8), (LOOKUPS, 0.7)], &all[..], Some(HalfLoad)),
        (vec![(LINK, 0.8), (QUERIES, 0.7)], &all[..], Some(WithoutResources)),
        (vec![(LINK, 0.8), (QUERIES, 0.7)], &[HalfLoad, FromLoopback][..], Some(HalfLoad)),
        (vec![(LINK, 0.8), (CPU, 0.7)], &[HalfLoad, FromLoopback][..], Some(FromLoopback)),
        // Nothing tells these apart, one is no rival, and what is no limit has none.
        (vec![(WORKERS, 0.8), (CPU, 0.7)], &all[..], None),
        (vec![(WORKERS, 0.9), (KEPT, 0.4)], &all[..], None),
        (vec![(WORKERS, 0.9)], &all[..], None),
        (vec![("healthy", 0.5), (KEPT, 0.5)], &all[..], None),
        (vec![("generator-saturated", 0.9), (KEPT, 0.9), (WORKERS, 0.9)], &all[..], None),
        (vec![(WORKERS, 0.8), (KEPT, 0.7)], &[HalfLoad][..], None),
        // What the first one brings about is no rival: the next one is.
        (vec![(WORKERS, 0.8), ("accept-queue-overflow", 0.8), (KEPT, 0.7)], &all[..], Some(WithoutKeepalive)),
    ] {
        let choice = choose_experiment(&found(&findings), possible);
        assert_eq!(choice.as_ref().map(|choice| choice.what), what, "{findings:?}");
    }
}

#[test]
fn a_load_is_changed_in_one_thing_if_it_has_that() {
    let closed = Workload { connections: 100, ..Workload::default() };
    let open = Workload { arrival: Arrival::Open { rate_per_s: 300.0, poisson: true }, ..closed.clone() };
    let of = |workload: &Workload, what| changed(workload, what);
    assert_eq!(of(&closed, Purpose::HalfLoad), Some(Workload { connections: 50, ..closed.clone() }));
    let halved = Workload { arrival: Arrival::Open { rate_per_s: 150.0, poisson: true }, ..open.clone() };
    assert_eq!(of(&open, Purpose::HalfLoad), Some(halved));
    let fresh = Workload { keepalive: false, ..closed.clone() };
    assert_eq!(of(&closed, Purpose::WithoutKeepalive), Some(fresh.clone()));
    let local = of(&closed, Purpose::FromLoopback).unwrap();
    assert_eq!(local.transport.connect_to[0].to_host.as_deref(), Some("127.0.0.1"));
    let mut streams = closed.clone();
    streams.transport.http2_streams = Some(10);
    for (workload, what) in [
        (&fresh, Purpose::WithoutKeepalive),
        (&streams, Purpose::WithoutKeepalive),
        (&local, Purpose::FromLoopback),
        (&closed, Purpose::WithoutResources),
        (&Workload { connections: 3, ..closed.clone() }, Purpose::HalfLoad),
        (&closed, Purpose::Diagnose),
    ] {
        assert_eq!(of(workload, what), None, "{what:?}");
    }
    assert_eq!(possible(&closed, false), [Purpose::WithoutKeepalive, Purpose::HalfLoad]);
    assert!(possible(&closed, true).contains(&Purpose::FromLoopback));
}

/// Six seconds at this many answers a second, each of which takes so long.
fn load(per_s: u64, time_us: u64) -> Measurement {
    let interval = |second: u64| {
        let mut times = TimeHistogram::new();
        (0..per_s + second % 2).for_each(|_| times.record(time_us));
        Interval {
            t_s: second as f64,
            length_us: 1_000_000,
            started: per_s + second % 2,
            completed: per_s + second % 2,
            in_flight_us: (per_s + second % 2) * time_us,
            response_time: times.encode(),
            ..Interval::default()
        }
    };
    Measurement {
        workload: Some(Workload::default()),
        intervals: (0..6).map(interval).collect(),
        measured_to_s: 6.0,
        ..Measurement::default()
    }
}

#[test]
fn what_came_out_decides_between_the_two() {
    let before = load(200, 100_000);
    let kept = [(WORKERS, 0.85), (KEPT, 0.75)];
    let costs = [(WORKERS, 0.85), (LOOKUPS, 0.75)];
    for (findings, what, after, outcome, first) in [
        (kept, Purpose::WithoutKeepalive, load(600, 30_000), Some(Outcome::Better), KEPT),
        (kept, Purpose::WithoutKeepalive, load(201, 99_000), Some(Outcome::Same), WORKERS),
        // Neither expects that, and with a little more nothing is told.
        (kept, Purpose::WithoutKeepalive, load(234, 90_000), None, WORKERS),
        (costs, Purpose::HalfLoad, load(200, 50_000), Some(Outcome::Better), WORKERS),
        (costs, Purpose::HalfLoad, load(100, 101_000), Some(Outcome::Same), LOOKUPS),
    ] {
        let (after, made) = reconsider(found(&findings), &before, &[(what, after)]).unwrap();
        assert_eq!((made[0].outcome, after[0].id.as_str()), (outcome, first), "{made:?}");
        assert!(made[0].means.contains(WORKERS), "{}", made[0].means);
        let sure = after[0].confidence;
        assert!(if outcome.is_some() { sure > 0.85 && sure <= 0.95 } else { sure == 0.85 }, "{sure}");
    }
}

/// Means that are near to each other by chance say nothing.
#[test]
fn the_same_is_told_only_where_the_figures_are_even() {
    let mut uneven = load(200, 100_000);
    for (second, interval) in uneven.intervals.iter_mut().enumerate() {
        interval.completed = if second % 2 == 0 { 20 } else { 380 };
    }
    let findings = found(&[(WORKERS, 0.85), (KEPT, 0.75)]);
    let (after, made) =
        reconsider(findings.clone(), &load(200, 100_000), &[(Purpose::WithoutKeepalive, uneven)]).unwrap();
    assert!(within(made[0].figure.ratio.unwrap(), 1.05), "{made:?}");
    assert_eq!((made[0].outcome, after), (None, findings));
}

#[test]
fn a_load_that_was_stopped_or_tells_nothing_apart_changes_nothing() {
    let findings = found(&[(WORKERS, 0.85), (KEPT, 0.75)]);
    let mut braked = load(600, 30_000);
    braked.harm_guard_trip = Some(crate::facts::testing::with_harm_guard_trip("x"));
    let before = load(200, 100_000);
    let (after, made) =
        reconsider(findings.clone(), &before, &[(Purpose::WithoutKeepalive, braked)]).unwrap();
    assert_eq!((made[0].outcome, after), (None, findings.clone()));
    let useless = [(Purpose::FromLoopback, load(900, 10_000))];
    assert_eq!(reconsider(findings.clone(), &before, &useless).unwrap(), (findings, vec![]));
}

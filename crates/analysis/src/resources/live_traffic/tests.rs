//! What is taken for others, and what is not.

use super::*;
use crate::facts::testing::{apache, sample};
use crate::measurement::TimedSample;
use webdyno_model::interval::Interval;
use webdyno_model::workload::Workload;

/// Readings of one metric: `(time, value)`.
fn readings(metric: &str, points: &[(f64, f64)]) -> Vec<TimedSample> {
    let mut all: Vec<_> = points.iter().map(|(t_s, value)| sample(*t_s, "x", &[(metric, *value)])).collect();
    all.iter_mut().for_each(|timed| timed.sample.duration_us = 0);
    all
}

/// Readings of a counter every second of a window, that rises by so much a second.
fn increasing_counter(metric: &str, window: (i32, i32), per_s: f64) -> Vec<TimedSample> {
    let points: Vec<_> =
        (window.0..=window.1).map(|t| (f64::from(t), 5000.0 + f64::from(t) * per_s)).collect();
    readings(metric, &points)
}

/// Readings of a level that stays.
fn level(metric: &str, window: (i32, i32), value: f64) -> Vec<TimedSample> {
    let points: Vec<_> = (window.0..=window.1).map(|t| (f64::from(t), value)).collect();
    readings(metric, &points)
}

/// A load of ten seconds with so many answers a second, after three quiet ones.
fn loaded(rate: u64, samples: Vec<Vec<TimedSample>>) -> Measurement {
    let workload = Workload { connections: 10, timeout_us: 1_000_000, ..Workload::default() };
    let second =
        |t: u32| Interval { t_s: f64::from(t), length_us: 1_000_000, completed: rate, ..Interval::default() };
    Measurement {
        workload: Some(workload),
        intervals: (0..10).map(second).collect(),
        samples: samples.concat(),
        measured_to_s: 10.0,
        quiet_from_s: Some(-3.0),
        service: Some(apache(&[])),
        ..Measurement::default()
    }
}

/// What is found: whether somebody is there, requests a second, connections.
type Found = Option<(bool, Option<f64>, Option<f64>)>;

fn check(measurement: &Measurement, expected: Found) {
    let traffic = live_traffic(measurement);
    let found = traffic.as_ref().map(|t| (t.present, t.requests_per_s, t.connections_count));
    assert_eq!(found, expected, "{traffic:?}");
}

const QUIET: (i32, i32) = (-3, 0);
const LOADED: (i32, i32) = (1, 10);

#[test]
fn before_the_load_every_request_of_others_counts() {
    // Each second has our own reading in it.
    for (per_s, present) in [(1.0, false), (2.0, true), (13.0, true), (501.0, true)] {
        let processes = level(PROCESSES, QUIET, 6.0);
        let measurement = loaded(100, vec![increasing_counter(ACCESSES, QUIET, per_s), processes]);
        check(&measurement, Some((present, Some(per_s - 1.0), None)));
    }
    // One may be counted late.
    let late = readings(ACCESSES, &[(-3.0, 10.0), (-2.0, 12.0), (-1.0, 13.0), (0.0, 14.0)]);
    let late = loaded(100, vec![late, level(PROCESSES, QUIET, 6.0)]);
    assert!(!live_traffic(&late).unwrap().present);
    // Where the processes are not seen, one a second may be the service's own.
    check(&loaded(100, vec![increasing_counter(ACCESSES, QUIET, 2.0)]), Some((false, Some(0.0), None)));
    check(&loaded(100, vec![increasing_counter(ACCESSES, QUIET, 22.0)]), Some((true, Some(20.0), None)));
}

#[test]
fn what_is_not_known_is_not_nobody() {
    check(&loaded(100, vec![]), None);
    check(&loaded(100, vec![readings(ACCESSES, &[(-1.0, 5.0)])]), None);
    // The counter was set back, or a reload made the service send requests to itself.
    check(&loaded(100, vec![readings(ACCESSES, &[(-2.0, 50.0), (-1.0, 3.0)])]), None);
    let reloaded = readings(GENERATION, &[(-3.0, 1.0), (-1.0, 2.0)]);
    check(&loaded(100, vec![increasing_counter(ACCESSES, QUIET, 40.0), reloaded]), None);
    // A load whose server was in use before it began: only what was seen meanwhile counts.
    let mut not_quiet = loaded(100, vec![increasing_counter(ACCESSES, QUIET, 40.0)]);
    not_quiet.quiet_from_s = None;
    check(&not_quiet, None);
}

#[test]
fn what_a_load_left_behind_is_nobody() {
    // Prefork ends an idle worker a second, and each is woken by a request of Apache's own.
    let ending = readings(PROCESSES, &[(-3.0, 90.0), (-2.0, 89.0), (-1.0, 88.0), (0.0, 87.0)]);
    check(
        &loaded(100, vec![increasing_counter(ACCESSES, QUIET, 2.0), ending]),
        Some((false, Some(0.0), None)),
    );
    // As many end and somebody comes all the same.
    let ending = readings(PROCESSES, &[(-3.0, 90.0), (-2.0, 89.0), (-1.0, 88.0), (0.0, 87.0)]);
    check(
        &loaded(100, vec![increasing_counter(ACCESSES, QUIET, 7.0), ending]),
        Some((true, Some(5.0), None)),
    );
    // Requests whose client has gone are served all the same.
    let left = readings(LEFT, &[(-3.0, 300.0), (-2.0, 200.0), (-1.0, 0.0), (0.0, 0.0)]);
    let processes = level(PROCESSES, QUIET, 90.0);
    let served = readings(ACCESSES, &[(-3.0, 0.0), (-2.0, 101.0), (-1.0, 302.0), (0.0, 303.0)]);
    check(&loaded(100, vec![served, left, processes]), Some((false, Some(0.0), None)));
    // Their connections are gone altogether, and workers are still at it.
    let served =
        |rate: f64| vec![increasing_counter(ACCESSES, QUIET, 31.0 + rate), level(PROCESSES, QUIET, 150.0)];
    let busy = |open: f64| {
        vec![level(BUSY, QUIET, 151.0), level(CONNECTIONS, QUIET, open), level(OTHERS, QUIET, 0.0)]
    };
    check(&loaded(100, [served(0.0), busy(0.0)].concat()), Some((false, Some(0.0), Some(0.0))));
    check(&loaded(100, [served(40.0), busy(0.0)].concat()), Some((true, Some(20.0), Some(0.0))));
    check(&loaded(100, [served(0.0), busy(150.0)].concat()), Some((true, Some(30.0), Some(0.0))));
}

#[test]
fn connections_of_others_tell_also_during_the_load() {
    for (quiet, during, present, most) in
        [(0.0, 0.0, false, 0.0), (2.0, 0.0, true, 2.0), (0.0, 1.0, true, 1.0), (3.0, 5.0, true, 3.0)]
    {
        let samples = vec![level(OTHERS, QUIET, quiet), level(OTHERS, LOADED, during)];
        check(&loaded(100, samples), Some((present, None, Some(most))));
    }
    // The generator is elsewhere: during the load its connections are among them.
    let elsewhere = |quiet| vec![level(CONNECTIONS, QUIET, quiet), level(CONNECTIONS, LOADED, 450.0)];
    check(&loaded(100, elsewhere(0.0)), Some((false, None, Some(0.0))));
    check(&loaded(100, elsewhere(4.0)), Some((true, None, Some(4.0))));
    // It is here, and its connections are told apart from the start.
    let here = vec![level(CONNECTIONS, QUIET, 1.0), level(OTHERS, QUIET, 0.0)];
    check(&loaded(100, here), Some((false, None, Some(0.0))));
}

#[test]
fn during_the_load_our_own_requests_are_taken_off() {
    // Our reading and two probes a second come on top of the load.
    for (rate, others_per_s, present) in
        [(100, 0.0, false), (100, 2.0, false), (100, 12.0, false), (100, 20.0, true), (2000, 900.0, true)]
    {
        let count = increasing_counter(ACCESSES, LOADED, rate as f64 + 1.0 + others_per_s);
        let mut measurement = loaded(rate, vec![count]);
        measurement.quiet_from_s = None;
        // What does not show is unknown: it may hide behind the load.
        let traffic = live_traffic(&measurement);
        assert_eq!(traffic.is_some(), present, "{rate} and {others_per_s}: {traffic:?}");
        let least = traffic.and_then(|traffic| traffic.requests_per_s);
        assert!(least.is_none_or(|least| least <= others_per_s), "{least:?}");
    }
    // What the load before left behind may be served now.
    for (left_behind_count, present) in [(0, true), (200, false), (100, true)] {
        let count = increasing_counter(ACCESSES, LOADED, 100.0 + 1.0 + 30.0);
        let measurement = Measurement { quiet_from_s: None, left_behind_count, ..loaded(100, vec![count]) };
        assert_eq!(live_traffic(&measurement).is_some(), present, "{left_behind_count}");
    }
    // However uneven a load is within its seconds, nothing of it is taken for others.
    let mut uneven =
        loaded(0, vec![readings(ACCESSES, &[(1.4, 9000.0), (3.3, 9000.0 + 3.0 * 5000.0 + 1.0)])]);
    uneven.intervals.iter_mut().for_each(|interval| interval.completed = 5000);
    uneven.quiet_from_s = None;
    check(&uneven, None);
    // A page that waited for a worker counts until it was written, not until it was asked for.
    let reading = |t: f64| sample(t - 0.9, "x", &[(ACCESSES, 160.0 * t + t)]);
    let mut late: Vec<TimedSample> = (1..=8).map(|t| reading(f64::from(t))).collect();
    late.iter_mut().for_each(|timed| timed.sample.duration_us = 900_000);
    let mut measurement = loaded(100, vec![late, level(PROCESSES, (0, 9), 9.0)]);
    measurement.quiet_from_s = None;
    let evidence = live_traffic(&measurement).unwrap().evidence;
    assert_eq!((evidence[0].from_s, evidence[0].to_s), (1.0, 8.0));
}

#[test]
fn the_evidence_can_be_seen_by_hand() {
    use webdyno_model::sample::{CollectorInfo, Metric};
    let metric = |name: &str, source: &str, reproduce: &str| Metric {
        name: name.into(),
        source: source.into(),
        reproduce: reproduce.into(),
        ..Metric::default()
    };
    let metrics =
        vec![metric(ACCESSES, "mod_status", "count PORT"), metric(OTHERS, "sock_diag(7)", "ss PORT")];
    let mut measurement =
        loaded(100, vec![increasing_counter(ACCESSES, QUIET, 13.0), level(OTHERS, QUIET, 2.0)]);
    measurement.collectors = vec![CollectorInfo { name: "x".into(), metrics }];
    let evidence = live_traffic(&measurement).unwrap().evidence;
    let displayed: Vec<_> =
        evidence.iter().map(|fact| (fact.name.as_str(), fact.from_s, fact.to_s)).collect();
    assert_eq!(displayed, [("others_requests_per_s", -3.0, 0.0), ("others_connections_max", -3.0, 0.0)]);
    let commands: Vec<_> = evidence.iter().map(|fact| fact.reproduce.as_str()).collect();
    assert_eq!(commands, ["a=$(count 80); sleep 3; b=$(count 80); echo $(( (b - a - 1) / 3 ))", "ss 80"]);
}

#[test]
fn without_load_all_that_comes_is_of_others() {
    let mut watched = Measurement { measured_to_s: 10.0, ..Measurement::default() };
    let (count, processes) = (increasing_counter(ACCESSES, (0, 10), 31.0), level(PROCESSES, (0, 10), 6.0));
    watched.samples = [count, processes, level(CONNECTIONS, (0, 10), 6.0)].concat();
    check(&watched, Some((true, Some(30.0), Some(6.0))));
}

#[test]
fn who_was_seen_once_is_there() {
    let traffic = |present, rate| LiveTraffic {
        present,
        requests_per_s: Some(rate),
        connections_count: None,
        evidence: vec![],
    };
    for (all, expected) in [
        (vec![], None),
        (vec![(false, 0.3), (false, 0.0)], Some((false, 0.3))),
        (vec![(false, 0.3), (true, 9.0), (false, 0.0)], Some((true, 9.0))),
        (vec![(true, 9.0), (true, 12.0), (true, 3.0)], Some((true, 12.0))),
    ] {
        let all = all.into_iter().map(|(present, rate)| traffic(present, rate));
        let found = merged(all).map(|traffic| (traffic.present, traffic.requests_per_s.unwrap()));
        assert_eq!(found, expected);
    }
}

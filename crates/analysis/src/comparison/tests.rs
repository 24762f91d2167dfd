//! Comparisons of measurements that are made up.

use super::*;
use crate::facts::testing::{sample, with_harm_guard_trip};
use proptest::prelude::*;
use webdyno_model::environment::Environment;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::LoadEnd;
use webdyno_model::page::PageInterval;
use webdyno_model::workload::{Arrival, RequestSpec, Workload};

/// Seconds of `(completed, failed, time in microseconds)`; one time in ten is ten times as long.
fn load(seconds: &[(u64, u64, u64)]) -> Measurement {
    let second = |(at, &(completed, failed, time_us)): (usize, &(u64, u64, u64))| {
        let mut times = TimeHistogram::new();
        times.record_many(time_us, completed - completed / 10);
        times.record_many(time_us * 10, completed / 10);
        let in_flight_us = time_us * (completed + 9 * (completed / 10));
        let (t_s, length_us, response_time) = (at as f64, 1_000_000, times.encode());
        Interval { t_s, length_us, completed, failed, in_flight_us, response_time, ..Interval::default() }
    };
    let request = RequestSpec { url: "http://h/a".into(), ..RequestSpec::default() };
    let seconds: Vec<Interval> = seconds.iter().enumerate().map(second).collect();
    Measurement {
        measured_to_s: seconds.len() as f64,
        intervals: seconds,
        end: Some(LoadEnd { elapsed_us: 8_000_000, ..LoadEnd::default() }),
        workload: Some(Workload { requests: vec![request], ..Workload::default() }),
        ..Measurement::default()
    }
}

/// Eight seconds that are nearly alike.
pub(super) fn steady(rate: u64, failed: u64, time_us: u64) -> Measurement {
    load(&std::array::from_fn::<_, 8, _>(|at| {
        (rate + rate * (at as u64 % 3) / 200, failed, time_us + at as u64 % 2)
    }))
}

fn metrics(a: &Measurement, b: &Measurement) -> Vec<ComparedMetric> {
    compare_loads(a, b).unwrap().1
}

fn verdict_on(name: &str, metrics: &[ComparedMetric]) -> Verdict {
    metrics.iter().find(|metric| metric.name == name).unwrap().verdict
}

#[test]
fn each_figure_has_its_verdict() {
    use Verdict::{Better, Same, Worse};
    let base = steady(500, 0, 10_000);
    for (other, rate, p50, p99, failed) in [
        (steady(500, 0, 10_000), Same, Same, Same, Same),
        (steady(710, 0, 10_000), Better, Same, Same, Same),
        (steady(300, 0, 16_000), Worse, Worse, Worse, Same),
        (steady(505, 0, 7_000), Same, Better, Better, Same),
        // Within what the slowest answers differ by from run to run.
        (steady(500, 0, 10_700), Same, Worse, Same, Same),
        (steady(500, 50, 10_000), Same, Same, Same, Worse),
        (steady(500, 1, 10_000), Same, Same, Same, Same),
    ] {
        let found = metrics(&base, &other);
        let names = ["rate", "p50_us", "p99_us", "failed_fraction"];
        assert_eq!(names.map(|name| verdict_on(name, &found)), [rate, p50, p99, failed], "{found:#?}");
    }
    assert_eq!(verdict_on("failed_fraction", &metrics(&steady(500, 50, 9_000), &base)), Better);
}

#[test]
fn a_server_that_serves_nothing_any_more_is_worse_without_a_ratio() {
    let dead = load(&[(0, 30, 1); 8]);
    let found = metrics(&steady(500, 0, 10_000), &dead);
    assert_eq!((found[0].verdict, found[0].ratio, found[0].b), (Verdict::Worse, None, Some(0.0)));
    assert!(found[0].is_regression(0.5) && found[4].is_regression(0.5), "{found:#?}");
    assert_eq!(verdict_on("p99_us", &found), Verdict::Inconclusive);
    assert_eq!(verdict_on("rate", &metrics(&dead, &steady(500, 0, 10_000))), Verdict::Better);
}

#[test]
fn too_little_is_inconclusive() {
    let short = load(&[(500, 0, 10_000)]);
    let found = metrics(&short, &steady(500, 0, 10_000));
    assert!(found[..4].iter().all(|metric| metric.verdict == Verdict::Inconclusive), "{found:#?}");
    assert_eq!((found[0].ratio, found[1].ci95), (None, None));
    let few = metrics(&steady(20, 0, 10_000), &steady(20, 0, 30_000));
    assert_eq!(
        (verdict_on("p50_us", &few), verdict_on("p99_us", &few)),
        (Verdict::Worse, Verdict::Inconclusive)
    );
}

#[test]
fn pages_and_processor_time_are_compared_where_both_have_them() {
    let with_pages = |rate: u64| {
        let mut load = steady(500, 0, 10_000);
        for (at, second) in load.intervals.iter_mut().enumerate() {
            let mut times = TimeHistogram::new();
            times.record_many(200_000, rate);
            let completed = rate + at as u64 % 2;
            let pages = PageInterval { completed, time: times.encode(), ..PageInterval::default() };
            second.pages = Some(Box::new(pages));
        }
        load
    };
    let with_cpu = |cores: f64| {
        let reading = |at: u32| {
            let t_s = f64::from(at);
            sample(t_s, "process", &[("process.cpu_s", cores * t_s + 0.001 * f64::from(at % 2))])
        };
        Measurement { samples: (0..9).map(reading).collect(), ..steady(500, 0, 10_000) }
    };
    let names = |found: &[ComparedMetric]| found.iter().map(|metric| metric.name.clone()).collect::<Vec<_>>();
    let found = metrics(&with_pages(100), &with_pages(130));
    assert_eq!((names(&found)[0].as_str(), found[0].verdict), ("page_rate", Verdict::Better));
    assert!(names(&found).contains(&"page_p99_us".into()));
    let found = metrics(&with_cpu(0.5), &with_cpu(1.0));
    let cpu = found.last().unwrap();
    assert_eq!((cpu.name.as_str(), cpu.verdict), ("cpu_per_request_us", Verdict::Worse));
    assert!((cpu.ratio.unwrap() - 2.0).abs() < 0.01 && (cpu.a.unwrap() - 1000.0).abs() < 20.0, "{cpu:?}");
    assert!(!names(&metrics(&with_cpu(0.5), &steady(500, 0, 10_000))).contains(&"cpu_per_request_us".into()));
}

#[test]
fn what_differs_besides_the_server_is_named() {
    let base = steady(500, 0, 10_000);
    type Change = fn(&mut Measurement);
    let of = |change: Change| {
        let mut other = base.clone();
        change(&mut other);
        compare_loads(&base, &other).unwrap().0
    };
    assert_eq!(of(|_| {}), []);
    assert_eq!(of(|load| load.intervals.truncate(6)), [], "a shorter one can be compared");
    for (change, what, a, b) in [
        (
            (|load| workload(load).requests[0].url = "http://h/b".into()) as Change,
            "url",
            Some("http://h/a"),
            Some("http://h/b"),
        ),
        (
            |load| workload(load).connections = 80,
            "concurrency",
            Some("50 concurrent requests, closed loop"),
            Some("80 concurrent requests, closed loop"),
        ),
        (
            |load| workload(load).arrival = Arrival::Open { rate_per_s: 500.0, poisson: false },
            "concurrency",
            Some("50 concurrent requests, closed loop"),
            Some("constant rate 500 req/s, at most 50 connections"),
        ),
        (
            |load| workload(load).keepalive = false,
            "keepalive",
            Some("keep-alive"),
            Some("a connection for each request"),
        ),
        (|load| workload(load).requests[0].method = "POST".into(), "requests", None, None),
        (|load| workload(load).timeout_us = 1, "conditions", None, None),
        (
            |load| {
                load.client =
                    Environment { hostname: Some("g2".into()), cores: Some(4), ..Environment::default() }
            },
            "generator",
            Some("unknown (unknown, cores unknown, unknown of memory)"),
            Some("g2 (unknown, 4 cores, unknown of memory)"),
        ),
        (|load| load.end = None, "validity", Some("valid"), Some("cut off before its end")),
        (
            |load| load.harm_guard_trip = Some(with_harm_guard_trip("memory.available_bytes")),
            "validity",
            Some("valid"),
            None,
        ),
    ] {
        let found = of(change);
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!((found[0].what.as_str(), found[0].a.as_deref()), (what, a));
        assert!(b.is_none() || found[0].b.as_deref() == b, "{found:?}");
    }
}

#[test]
fn a_fault_that_both_have_is_one() {
    let base = steady(500, 0, 10_000);
    let cut = Measurement { end: None, ..base };
    assert_eq!(compare_loads(&cut, &cut).unwrap().0[0].what, "validity");
}

fn workload(load: &mut Measurement) -> &mut Workload {
    load.workload.as_mut().unwrap()
}

fn any_load() -> impl Strategy<Value = Measurement> {
    prop::collection::vec((0..2_000u64, 0..20u64, 1..2_000_000u64), 2..15).prop_map(|seconds| load(&seconds))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // Invariant: a load does not differ from itself, however unsteady it is.
    #[test]
    fn a_load_is_the_same_as_itself(load in any_load()) {
        let (differences, metrics) = compare_loads(&load, &load).unwrap();
        prop_assert!(differences.iter().all(|difference| difference.what == "validity"));
        for metric in metrics.iter().filter(|metric| metric.a.is_some()) {
            prop_assert_eq!(metric.verdict, Verdict::Same);
            prop_assert!(metric.ratio.is_none_or(|ratio| (ratio - 1.0).abs() < 1e-9), "{:?}", metric);
            prop_assert!(!metric.is_regression(0.0));
        }
    }

    // Invariant: swapping the loads inverts the ratio and its interval, and turns the verdict round.
    #[test]
    fn swapping_inverts(a in any_load(), b in any_load()) {
        let opposite = |verdict| match verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        };
        for (forward, backward) in metrics(&a, &b).iter().zip(&metrics(&b, &a)) {
            prop_assert_eq!((forward.a, forward.b), (backward.b, backward.a));
            prop_assert_eq!(forward.verdict, opposite(backward.verdict));
            let is_inverse = |one: f64, other: f64| (one * other - 1.0).abs() < 1e-4;
            if let (Some(one), Some(other)) = (forward.ratio, backward.ratio) {
                prop_assert!(is_inverse(one, other), "{:?} {:?}", forward, backward);
            }
            if let (Some([low, high]), Some(other)) = (forward.ci95, backward.ci95) {
                prop_assert!(low <= high && is_inverse(low, other[1]) && is_inverse(high, other[0]), "{:?}", forward);
            }
        }
    }
}

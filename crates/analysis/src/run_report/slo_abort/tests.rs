//! Each kind of objective: lost when nothing can save it any more, and not a second before.

use super::*;
use proptest::prelude::*;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::NamedInterval;
use webdyno_model::page::PageInterval;
use webdyno_model::workload::Stop;
use webdyno_model::workload::visit::Visits;

fn load(arrival: Arrival, seconds: u64) -> Workload {
    let stop = Stop { duration_us: Some(seconds * 1_000_000), requests: None };
    Workload { arrival, stop, ..Workload::default() }
}

fn open(rate_per_s: f64, seconds: u64) -> Workload {
    load(Arrival::Open { rate_per_s, poisson: false }, seconds)
}

fn staged(texts: &[&str]) -> Workload {
    let written: Vec<_> = texts.iter().map(|text| stage::parse(text).unwrap()).collect();
    let mut workload = Workload::default();
    workload.set_stages(stage::check_stages(&written).unwrap());
    workload
}

/// A second of good answers that took 1 ms, slow ones that took 500 ms, and failures.
fn second(index: usize, good: u64, slow: u64, failed: u64) -> Interval {
    let mut times = TimeHistogram::new();
    times.record_many(1_000, good);
    times.record_many(500_000, slow);
    Interval {
        t_s: index as f64,
        length_us: 1_000_000,
        completed: good + slow,
        failed,
        response_time: times.encode(),
        ..Interval::default()
    }
}

/// The second, from 1, after which an objective is lost.
fn lost_after(
    workload: &Workload,
    warmup_s: Option<f64>,
    slo: &str,
    seconds: &[(u64, u64, u64)],
) -> Option<usize> {
    let intervals =
        seconds.iter().enumerate().map(|(index, &(good, slow, failed))| second(index, good, slow, failed));
    lost_in(workload, warmup_s, slo, intervals.collect())
}

fn lost_in(workload: &Workload, warmup_s: Option<f64>, slo: &str, intervals: Vec<Interval>) -> Option<usize> {
    let objective = Objective::parse(slo).unwrap();
    let mut slo_abort = SloAbort::of(workload, warmup_s, &[objective]).unwrap();
    intervals
        .iter()
        .position(|interval| slo_abort.add_second(interval).unwrap().is_some())
        .map(|index| index + 1)
}

#[test]
fn at_a_rate_the_planned_total_decides() {
    // 100/s for 100 s: 10,000 in all, of which fewer than 10 may fail, and at most 100 be slow.
    let load = open(100.0, 100);
    let failing = |each| vec![(100, 0, each); 100];
    for (slo, seconds, after) in [
        ("errors<0.1%", failing(0), None),
        ("errors<0.1%", failing(1), Some(11)),
        ("errors<0.1%", failing(5), Some(5)),
        ("errors<=0.1%", [vec![(90, 0, 10)], failing(0)].concat(), None),
        ("errors<0.1%", [vec![(89, 0, 11)], failing(0)].concat(), Some(5)),
        ("failed<=4", failing(1), Some(5)),
        ("failed<7", failing(1), Some(7)),
        ("p99<200ms", vec![(90, 10, 0); 100], Some(11)),
        ("p99<200ms", vec![(99, 1, 0); 100], None),
        ("p99<600ms", vec![(0, 100, 0); 100], None),
        ("p50<200ms", vec![(0, 100, 0); 100], Some(51)),
        ("mean<10ms", vec![(0, 100, 0); 100], Some(5)),
        ("mean<400ms", vec![(0, 100, 0); 100], Some(81)),
        ("max<500ms", [failing(0)[..7].to_vec(), vec![(99, 1, 0)]].concat(), Some(8)),
        ("max<=500ms", vec![(99, 1, 0); 9], None),
        ("rate>99", [vec![(95, 0, 0); 10], failing(0)].concat(), None),
        ("rate>99", vec![(95, 0, 5); 100], Some(21)),
        ("rate<50", failing(0), None),
        ("errors>1%", failing(0), None),
    ] {
        assert_eq!(lost_after(&load, Some(0.0), slo, &seconds), after, "{slo} {:?}", seconds[0]);
    }
}

#[test]
fn a_backlog_can_still_be_worked_off() {
    // The server stalls, and what is due waits: at most what is in flight and what is due can still end.
    let load = open(100.0, 20);
    let stalled = |index| Interval { in_flight: 100 * (index as u64 + 1), ..second(index, 0, 0, 0) };
    let seconds: Vec<Interval> = (0..20).map(stalled).collect();
    assert_eq!(lost_in(&load, Some(0.0), "rate>99", seconds.clone()), None);
    assert_eq!(lost_in(&load, Some(0.0), "rate>101", seconds), Some(5));
}

#[test]
fn users_may_get_twice_as_quick_as_their_best_second() {
    let load = load(Arrival::Closed, 100);
    for (slo, seconds, after) in [
        // 200/s for the rest of 100 s: 18,200 in all after 18 s, 18,100 after 19.
        ("errors<0.1%", vec![(99, 0, 1); 100], Some(19)),
        ("rate>190", vec![(100, 0, 0); 100], Some(10)),
        ("rate>250", vec![(100, 0, 0); 100], Some(5)),
        ("rate>100", vec![(99, 0, 0); 100], Some(99)),
        ("rate>99", vec![(100, 0, 0); 100], None),
        // Nothing has ended yet: nothing is known.
        ("rate>1", vec![(0, 0, 0); 50], None),
    ] {
        assert_eq!(lost_after(&load, Some(0.0), slo, &seconds), after, "{slo}");
    }
}

#[test]
fn only_the_measured_part_counts() {
    let stages = staged(&["10s@0..100/s", "20s@100/s", "5s@100..0/s"]);
    let failing = |from: usize, to: usize| -> Vec<(u64, u64, u64)> {
        (0..35).map(|index| if (from..to).contains(&index) { (50, 0, 50) } else { (100, 0, 0) }).collect()
    };
    assert_eq!(lost_after(&stages, None, "errors<1%", &failing(0, 10)), None);
    assert_eq!(lost_after(&stages, None, "errors<1%", &failing(30, 35)), None);
    assert_eq!(lost_after(&stages, None, "errors<1%", &failing(8, 12)), Some(15));
    assert_eq!(lost_after(&open(100.0, 20), Some(6.0), "errors<1%", &failing(0, 6)), None);
    // Users who come one by one: what 10 do promises what 100 will.
    let increasing = staged(&["50s@0..100connections,measured=yes"]);
    let seconds: Vec<_> = (0..50).map(|index| (10 * index, 0, 0)).collect();
    assert_eq!(lost_after(&increasing, None, "rate>200", &seconds), None);
}

#[test]
fn what_may_yet_be_cut_as_warm_up_does_not_count() {
    let load = open(100.0, 20);
    let slow_start: Vec<_> =
        (0..20).map(|index| if index < 10 { (0, 100, 0) } else { (100, 0, 0) }).collect();
    assert_eq!(lost_after(&load, None, "p50<200ms", &slow_start), None);
    assert_eq!(lost_after(&load, None, "max<200ms", &slow_start), None);
    assert_eq!(lost_after(&load, Some(0.0), "max<200ms", &slow_start), Some(5));
    assert_eq!(lost_after(&load, None, "max<200ms", &[(0, 100, 0); 20]), Some(11));
    // A rate that rises late is reached by what is left; a failure is never cut.
    let late: Vec<_> = (0..20).map(|index| if index < 9 { (10, 0, 0) } else { (100, 0, 0) }).collect();
    assert_eq!(lost_after(&load, None, "rate>99", &late), None);
    assert_eq!(lost_after(&load, None, "failed<1", &[(99, 0, 1); 20]), Some(5));
}

#[test]
fn a_number_of_requests_is_the_planned_total() {
    let stop = Stop { duration_us: None, requests: Some(10_000) };
    let load = Workload { stop, ..Workload::default() };
    assert_eq!(lost_after(&load, Some(0.0), "errors<1%", &[(90, 0, 10); 100]), Some(10));
    assert_eq!(lost_after(&load, Some(0.0), "rate>1000", &[(90, 0, 0); 100]), None);
    // Visitors' sessions are counted: of their requests there are more than that.
    let sessions = Workload { visits: Some(Box::new(Visits::default())), ..load.clone() };
    assert_eq!(lost_after(&sessions, Some(0.0), "errors<1%", &[(900, 0, 100); 100]), None);
    assert_eq!(lost_after(&sessions, Some(0.0), "failed<1000", &[(900, 0, 100); 100]), Some(10));
    let endless = Workload { stop: Stop { duration_us: None, requests: None }, ..load };
    assert!(SloAbort::of(&endless, None, &[Objective::parse("p99<1s").unwrap()]).is_none());
}

#[test]
fn names_and_pages_have_their_own() {
    let named = |failed| NamedInterval { completed: 10 - failed, failed, response_time: None };
    let pages = |failed| PageInterval { completed: 10 - failed, failed, ..PageInterval::default() };
    let seconds: Vec<Interval> = (0..20)
        .map(|index| {
            let by_name = [("/a".to_owned(), named(0)), ("/b".to_owned(), named(5))].into();
            Interval { by_name, pages: Some(Box::new(pages(5))), ..second(index, 95, 0, 5) }
        })
        .collect();
    let closed = Workload { visits: Some(Box::new(Visits::default())), ..load(Arrival::Closed, 20) };
    for (slo, after) in [
        ("request /a: errors<1%", None),
        // Of a name there are at most as many as of all: 100 in 20 s, and twice as many are possible.
        ("request /b: errors<1%", Some(6)),
        ("request /b: failed<26", Some(6)),
        ("request /c: failed<1", None),
        // Ten pages a second, and twice as many are possible: 330 in all after 7 s.
        ("page: errors<10%", Some(7)),
        ("pages/s>11", Some(12)),
    ] {
        assert_eq!(lost_in(&closed, Some(0.0), slo, seconds.clone()), after, "{slo}");
    }
    // Visitors who arrive at a rate become more and more: what they do at first promises nothing.
    let open = Workload { visits: closed.visits.clone(), ..open(10.0, 20) };
    assert_eq!(lost_in(&open, Some(0.0), "page: errors<10%", seconds.clone()), None);
    assert_eq!(lost_in(&open, Some(0.0), "page: failed<26", seconds), Some(6));
}

proptest! {
    // Invariant: an objective that the whole load meets is never given up, whatever its seconds were like.
    #[test]
    fn what_is_met_in_the_end_is_never_given_up(
        seconds in prop::collection::vec((0u64..120, 0u64..10, 0u64..4), 8..30),
        slo in prop::sample::select(vec!["errors<1%", "errors<=2%", "p99<200ms", "p95<200ms", "p50<200ms", "mean<20ms", "max<500ms", "rate>60", "rate>=50", "failed<20"]),
    ) {
        // What is due at the rate, and so ends by and by: never more than 100 each second in all.
        let (mut backlog, mut intervals) = (0u64, vec![]);
        for (index, &(good, slow, failed)) in seconds.iter().enumerate() {
            backlog += 100;
            let good = good.min(backlog);
            let slow = slow.min(backlog - good);
            let failed = failed.min(backlog - good - slow);
            backlog -= good + slow + failed;
            intervals.push(Interval { in_flight: backlog, ..second(index, good, slow, failed) });
        }
        let workload = open(100.0, intervals.len() as u64);
        let objective = Objective::parse(slo).unwrap();
        let measurement = crate::measurement::Measurement { intervals: intervals.clone(), ..Default::default() };
        let run = crate::run_report::run_report(&measurement).unwrap();
        let met = objective.check(&run).met;
        let lost = lost_in(&workload, Some(0.0), slo, intervals.clone());
        prop_assert!(!(met && lost.is_some()), "{slo} is met, and was given up after {lost:?}");
        // And the report of what was seen until then says that it is not met.
        if let Some(after) = lost {
            intervals.truncate(after);
            let measurement = crate::measurement::Measurement { intervals, ..Default::default() };
            let run = crate::run_report::run_report(&measurement).unwrap();
            prop_assert!(!objective.check(&run).met, "{slo} is met after {after} s");
        }
    }
}

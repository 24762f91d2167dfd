//! Invented seconds of pages.

use super::*;
use crate::run_report::run_report;
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::page::{NamedPageInterval, TraceKind};
use webdyno_model::run::RunReport;
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec, Visits};

fn of(times_us: &[u64]) -> Option<EncodedHistogram> {
    let mut times = TimeHistogram::new();
    times_us.iter().for_each(|&time| times.record(time));
    times.encode()
}

fn trace(kind: TraceKind, time_us: u64, failed: bool) -> PageTrace {
    PageTrace { kind, name: "/".into(), time_us, failed, parts: vec![] }
}

/// A second in which pages took these times, with the traces that the engine keeps of it.
fn second(index: usize, times_us: &[u64], failed: u64, in_flight: (u64, u64)) -> Interval {
    let completed = times_us.len() as u64;
    let mut sorted = times_us.to_vec();
    sorted.sort_unstable();
    let kept = [(TraceKind::Typical, sorted.get(sorted.len() / 2)), (TraceKind::Slowest, sorted.last())];
    let traces = kept.into_iter().filter_map(|(kind, time)| Some(trace(kind, *time?, false))).collect();
    let named = NamedPageInterval { completed, failed, time: of(times_us) };
    let pages = PageInterval {
        started: completed + failed + in_flight.1 - in_flight.0,
        completed,
        failed,
        in_flight: in_flight.1,
        time: of(times_us),
        by_name: [("/".to_owned(), named)].into(),
        traces,
    };
    let (t_s, length_us) = (index as f64, 1_000_000);
    Interval {
        t_s,
        length_us,
        completed: 20 * completed,
        pages: Some(Box::new(pages)),
        ..Interval::default()
    }
}

fn run(intervals: Vec<Interval>, measured_from_s: f64) -> RunReport {
    run_report(&Measurement { intervals, measured_from_s, ..Measurement::default() }).unwrap()
}

#[test]
fn pages_are_those_of_the_measured_part() {
    let intervals = vec![
        second(0, &[9_000_000], 2, (0, 3)),
        second(1, &[100_000, 300_000], 1, (3, 2)),
        second(2, &[200_000, 250_000], 0, (2, 4)),
    ];
    let run = run(intervals, 1.0);
    let pages = run.pages.unwrap();
    assert_eq!((pages.started, pages.completed, pages.failed, pages.in_flight_at_end), (9, 4, 1, 4));
    assert_eq!((pages.rate, pages.time_us.max), (Some(2.0), Some(300_000)));
    assert_eq!((pages.by_name["/"].completed, pages.by_name["/"].failed), (4, 1));
    assert_eq!(pages.median_page.unwrap().time_us, 250_000);
    assert_eq!(pages.slowest_page.unwrap().time_us, 300_000);
    assert_eq!(run.intervals.iter().map(|second| second.page_rate).collect::<Vec<_>>(), [Some(2.0); 2]);
    let without = super::report(&Measurement::default(), 1.0).unwrap();
    assert!(without.is_none());
}

#[test]
fn a_workload_of_pages_has_pages_also_when_none_ended() {
    let step = StepSpec { page: Some(PageSpec::default()), ..StepSpec::default() };
    let session = SessionSpec { name: "s".into(), weight: 1.0, steps: vec![step] };
    let visits = Visits { sessions: vec![session], ..Visits::default() };
    let workload = Workload { visits: Some(Box::new(visits)), ..Workload::default() };
    let run = run_report(&Measurement { workload: Some(workload), ..Measurement::default() }).unwrap();
    let pages = run.pages.unwrap();
    assert_eq!((pages.rate, pages.time_us.p50, pages.median_page), (None, None, None));
    assert_eq!(run.visits, Some(VisitCounts::default()));
    assert_eq!(run_report(&Measurement::default()).unwrap().visits, None);
}

#[test]
fn the_median_page_is_a_completed_one_and_the_slowest_may_have_failed() {
    let mut intervals = vec![second(0, &[100_000; 9], 2, (0, 0))];
    let traces = &mut intervals[0].pages.as_mut().unwrap().traces;
    *traces = vec![trace(TraceKind::Typical, 90_000, false), trace(TraceKind::Slowest, 10_000_000, true)];
    traces.push(trace(TraceKind::Typical, 100_000, true));
    let pages = run(intervals, 0.0).pages.unwrap();
    assert_eq!(pages.median_page.unwrap().time_us, 90_000);
    assert_eq!(pages.slowest_page.unwrap().time_us, 10_000_000);
}

#[test]
fn percentiles_of_pages_need_pages() {
    let intervals = (0..10).map(|index| second(index, &[100_000; 30], 0, (0, 0))).collect();
    let pages = run(intervals, 0.0).pages.unwrap();
    assert_eq!(pages.unsupported_percentiles, ["p99", "p999"]);
    assert_eq!((pages.percentiles_need["p99"].count, pages.percentiles_need["p99"].elapsed_s), (1000, 34.0));
}

#[test]
fn pages_that_are_lost_spoil_the_run() {
    let whole = vec![second(0, &[1000; 5], 1, (0, 2)), second(1, &[1000; 5], 0, (2, 1))];
    let why = |intervals| run(intervals, 0.0).client.why;
    assert_eq!(why(whole.clone()), None);
    let mut lost = whole;
    lost[1].pages.as_mut().unwrap().completed -= 1;
    let expected = "the page counts do not add up: 12 started, 10 ended, 1 in flight";
    assert_eq!(why(lost).as_deref(), Some(expected));
}

#[test]
fn counts_of_visitors_add_up() {
    let mut intervals = vec![second(0, &[], 0, (0, 0)), second(1, &[], 0, (0, 0))];
    for (interval, visitors) in intervals.iter_mut().zip([50, 40]) {
        (interval.visits.sessions_started, interval.visits.visitors) = (10, visitors);
        interval.visits.captures_missed.insert("login: csrf".into(), 2);
    }
    let visits = run(intervals, 0.0).visits.unwrap();
    assert_eq!((visits.sessions_started, visits.visitors), (20, 40));
    assert_eq!(visits.captures_missed["login: csrf"], 4);
}

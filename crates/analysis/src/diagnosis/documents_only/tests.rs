//! Loads by their figures a second, and what the comparison of two makes of them.

use super::*;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::page::PageInterval;
use webdyno_model::workload::Workload;
use webdyno_model::workload::visit::{PageSpec, SessionSpec, StepSpec, Visits};

/// Figures of a second: pages, requests, kilobytes, connections opened, page time in milliseconds.
type Second = (u64, u64, u64, u64, u64);

fn load((pages, requests, kilobytes, opened, page_ms): Second, arrival: Arrival) -> Measurement {
    let second = |number: u64| {
        let (mut times, mut page_times) = (TimeHistogram::new(), TimeHistogram::new());
        // A little noise, as measurements have it.
        let completed = requests + number % 3;
        (0..completed).for_each(|request| times.record(2_000 + request % 5));
        (0..pages + number % 2).for_each(|page| page_times.record(page_ms * 1000 + page % 7));
        let page = PageInterval {
            started: pages + number % 2,
            completed: pages + number % 2,
            time: page_times.encode(),
            ..PageInterval::default()
        };
        let mut interval = Interval {
            t_s: number as f64,
            length_us: 1_000_000,
            started: completed,
            completed,
            in_flight_us: completed * 2_002,
            bytes_received: kilobytes * 1000 + number,
            response_time: times.encode(),
            pages: Some(Box::new(page)),
            cpu_us: 100_000,
            thread_cpu_us: vec![100_000],
            cpu_us_max_thread: 100_000,
            ..Interval::default()
        };
        interval.connections.opened = opened + number % 2;
        interval.connections.peak = 60;
        interval
    };
    let step = StepSpec { page: Some(PageSpec::default()), ..StepSpec::default() };
    let session = SessionSpec { name: "visit".into(), weight: 1.0, steps: vec![step] };
    let visits = Visits { sessions: vec![session], users: 10, ..Visits::default() };
    let workload =
        Workload { arrival, visits: Some(Box::new(visits)), connections: 60, ..Workload::default() };
    Measurement {
        workload: Some(workload),
        intervals: (0..10).map(second).collect(),
        measured_to_s: 10.0,
        ..Measurement::default()
    }
}

fn compared(with: Second, without: Second, arrival: Arrival) -> Ablation {
    ablation(&[load(with, arrival)], &[load(without, arrival)]).unwrap().unwrap()
}

const OPEN: Arrival = Arrival::Open { rate_per_s: 50.0, poisson: false };

#[test]
fn what_stays_the_same_is_what_limits() {
    for (with, without, arrival, part) in [
        // The tuning of a LAMP server: 58 pages of 20 files a second, 263 without them.
        ((58, 1160, 14_000, 300, 700), (263, 263, 3_000, 263, 100), Arrival::Closed, "Neither bytes/s nor"),
        (
            (58, 1160, 14_000, 300, 700),
            (263, 263, 3_000, 300, 100),
            Arrival::Closed,
            "the same new connections/s",
        ),
        ((70, 1400, 15_000, 400, 700), (300, 300, 15_000, 300, 100), Arrival::Closed, "points to bandwidth"),
        ((50, 1000, 9_000, 300, 700), (1000, 1000, 2_000, 1000, 10), Arrival::Closed, "the same requests/s"),
        (
            (50, 1000, 9_000, 500, 700),
            (500, 1000, 9_000, 500, 10),
            Arrival::Closed,
            "but to one of: bandwidth",
        ),
        ((50, 1000, 9_000, 300, 700), (51, 51, 500, 51, 690), Arrival::Closed, "limit is in the documents"),
        ((50, 1000, 9_000, 300, 700), (20, 20, 500, 20, 690), Arrival::Closed, "something else changed"),
        (
            (50, 1000, 9_000, 300, 400),
            (50, 50, 500, 50, 100),
            OPEN,
            "the document is 25% of the p50 page time",
        ),
        ((50, 1000, 9_000, 300, 400), (50, 50, 500, 50, 400), OPEN, "took as long"),
    ] {
        let reported = compared(with, without, arrival).means;
        assert!(reported.contains(part), "{with:?} {without:?}: {reported}");
    }
}

#[test]
fn the_figures_of_both_have_their_ratio_and_interval() {
    let both = compared((50, 1000, 9_000, 300, 700), (200, 200, 2_000, 200, 100), Arrival::Closed);
    assert_eq!((both.without.as_str(), both.runs), ("resources", 1));
    let figure = |name: &str| both.figures.iter().find(|figure| figure.name == name).unwrap();
    let pages = figure("pages/s");
    assert_eq!((pages.with, pages.without, pages.unit.as_str()), (Some(50.5), Some(200.5), "1/s"));
    let [low, high] = pages.ci95.unwrap();
    assert!(low < 3.97 && 3.97 < high && high - low < 0.2, "{low} to {high}");
    let time = figure("page time, p50");
    assert!(time.ratio.is_some_and(|ratio| (ratio - 1.0 / 7.0).abs() < 0.001) && time.ci95.is_some());
    // A single percentile of a load has no interval.
    assert!(figure("page time, p95").ratio.is_some() && figure("page time, p95").ci95.is_none());
    assert_eq!((figure("failed pages").with, figure("failed pages").ratio), (Some(0.0), None));
    assert_eq!(figure("client CPU").with, Some(0.1));
    assert_eq!(figure("connections at once").ratio, Some(1.0));
}

#[test]
fn several_loads_give_the_interval_themselves() {
    let with: Vec<_> = [50, 52, 54].map(|pages| load((pages, 1000, 9_000, 300, 700), Arrival::Closed)).into();
    let without: Vec<_> =
        [200, 208, 216].map(|pages| load((pages, pages, 2_000, 200, 100), Arrival::Closed)).into();
    // One that is too much: its partner was interrupted.
    let both = ablation(&with, &without[..2]).unwrap().unwrap();
    assert_eq!((both.runs, both.figures[0].with), (2, Some(51.5)));
    let both = ablation(&with, &without).unwrap().unwrap();
    let [low, high] = both.figures[0].ci95.unwrap();
    assert!(both.runs == 3 && low > 3.3 && high < 4.7, "{low} to {high}");
    assert!(both.figures.iter().all(|figure| figure.name != "page time, p95" || figure.ci95.is_some()));
    assert_eq!(ablation(&with, &[]).unwrap(), None);
}

#[test]
fn nothing_is_said_where_nothing_is_known() {
    let mut spoiled = load((50, 1000, 9_000, 300, 700), Arrival::Closed);
    for interval in &mut spoiled.intervals {
        interval.thread_cpu_us = vec![990_000];
        interval.cpu_us_max_thread = 990_000;
    }
    let good = || load((200, 200, 2_000, 200, 100), Arrival::Closed);
    let reported = ablation(&[spoiled], &[good()]).unwrap().unwrap().means;
    assert!(reported.contains("not valid"), "{reported}");
    let mut wild = load((20, 1000, 9_000, 300, 700), Arrival::Closed);
    let other = load((400, 1000, 9_000, 300, 700), Arrival::Closed);
    let (every, others) = (wild.intervals.iter_mut().step_by(2), other.intervals.into_iter().step_by(2));
    every.zip(others).for_each(|(second, other)| *second = other);
    let reported = ablation(&[wild], &[good()]).unwrap().unwrap().means;
    assert!(reported.contains("too wide"), "{reported}");
    let mut broken = load((50, 1000, 9_000, 300, 700), Arrival::Closed);
    broken.intervals.iter_mut().for_each(|interval| interval.pages = None);
    let reported = ablation(&[broken], &[good()]).unwrap().unwrap().means;
    assert!(reported.contains("no page completed"), "{reported}");
}

//! What many workers cost the coordinator.

use super::{Action, Coordinator, LoadOrder, OnLoss, ResumeOrder};
use crate::packed_workload::PackedWorkload;
use crate::protocol::{
    Announce, LoadStatus, OrderBody, Phase, Report, ReportBody, S, START_LEAD_NS, VERSION,
};
use std::time::{Duration, Instant};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::workload::{RequestSpec, Workload};

const SECONDS: u64 = 3;

/// A second of a worker: 2,000 requests, five times each.
fn second(index: u64) -> Interval {
    let mut times = TimeHistogram::new();
    (0..2000u64).for_each(|number| times.record(200 + (number * number * 7919) % 40_000));
    let encoded = times.encode();
    Interval {
        t_s: index as f64,
        length_us: 1_000_000,
        started: 2000,
        completed: 2000,
        response_time: encoded.clone(),
        service_time: encoded.clone(),
        first_byte: encoded.clone(),
        client_delay: encoded.clone(),
        round_trip: encoded,
        thread_cpu_us: vec![500_000; 2],
        ..Interval::default()
    }
}

fn announce(number: u32, phase: Option<Phase>) -> Announce {
    let load = phase.map(|phase| LoadStatus { load: 1, phase, why: None, began_ns: None });
    let (build, instance) = ("b".into(), format!("w{number:05}"));
    let name = instance.clone();
    let session = load.as_ref().map(|_| "s".to_owned());
    Announce {
        version: VERSION,
        build,
        instance,
        name,
        threads: 2,
        requests_per_s: None,
        spare: false,
        session,
        load,
    }
}

/// What so many workers give, second by second.
fn reports(workers: u32) -> Vec<Vec<Report>> {
    let of_second = |index| {
        let body = ReportBody::Interval(Box::new(second(index)));
        let report = |number| Report {
            session: "s".into(),
            load: 1,
            worker: format!("w{number:05}"),
            index,
            body: body.clone(),
        };
        (0..workers).map(report).collect()
    };
    (0..SECONDS).map(of_second).collect()
}

/// A coordinator whose workers were just told when to begin, and what time it is.
fn started(workers: u32) -> (Coordinator, u64) {
    let request = RequestSpec { url: "http://127.0.0.1/".into(), ..RequestSpec::default() };
    let workload = Workload { requests: vec![request], connections: 1_000_000, ..Workload::default() };
    let workload = PackedWorkload::pack(&workload).unwrap();
    let mut coordinator = Coordinator::new("s".into());
    coordinator.begin(
        0,
        LoadOrder {
            load: 1,
            workload,
            threads_max: 1_000_000,
            workers: Some(workers as usize),
            on_loss: OnLoss::End,
        },
    );
    let mut now_ns = 0;
    let mut phase = None;
    for _ in 0..200 {
        now_ns += S / 10;
        (0..workers).for_each(|number| coordinator.announced(now_ns, announce(number, phase)));
        for action in coordinator.tick(now_ns) {
            match action {
                Action::Ping { worker, nonce } => coordinator.pong(now_ns, &worker, nonce, now_ns),
                Action::Order(order) => match order.body {
                    OrderBody::Prepare(_) => phase = Some(Phase::Ready),
                    OrderBody::Start { .. } => phase = Some(Phase::Started),
                    _ => {}
                },
                _ => {}
            }
        }
        if phase == Some(Phase::Started) {
            return (coordinator, now_ns);
        }
    }
    panic!("nobody was told to begin");
}

/// How long it is busy with a second of so many workers.
fn busy_per_second(workers: u32) -> Duration {
    let (mut coordinator, mut now_ns) = started(workers);
    let phase = Some(Phase::Started);
    let reports = reports(workers);
    let begun = Instant::now();
    let mut merged = 0;
    for (index, reports) in reports.into_iter().enumerate() {
        now_ns += S;
        (0..workers).for_each(|number| coordinator.announced(now_ns, announce(number, phase)));
        reports.into_iter().for_each(|report| drop(coordinator.report(report)));
        for action in coordinator.tick(now_ns).into_iter().chain(coordinator.logged(index as u64)) {
            if let Action::Interval(interval) = action {
                merged += 1;
                assert_eq!(interval.completed, 2000 * u64::from(workers));
            }
        }
    }
    assert_eq!(merged, SECONDS);
    begun.elapsed() / SECONDS as u32
}

/// Kilobytes that this process has, and had at most.
fn memory_kb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The figures of docs/distributed.md: `cargo test -p webdyno-distributed --lib linear -- --nocapture`, alone.
#[test]
fn the_cost_of_workers_is_linear() {
    let before_kb = memory_kb("VmRSS");
    let (few, many) = (busy_per_second(100), busy_per_second(1000));
    let grown_kb = memory_kb("VmHWM") - before_kb;
    println!("a second of 100 workers: {few:?}, of 1000: {many:?} and {} MB", grown_kb / 1000);
    // Nothing of it grows with the square of their number; the bound leaves room for a busy machine.
    assert!(many < few * 25, "{few:?} {many:?}");
    assert!(grown_kb < 500_000, "{grown_kb} kB");
}

#[test]
fn who_is_cut_off_as_the_load_begins_is_not_taken_for_one_that_did_not_begin() {
    let (mut coordinator, mut now_ns) = started(2);
    let until_ns = now_ns + START_LEAD_NS + 2 * S;
    let mut said = vec![];
    // Its last words were that it is ready, and nothing comes through.
    while now_ns < until_ns {
        now_ns += S / 10;
        let is_heard = now_ns < until_ns - START_LEAD_NS - S;
        (0..2)
            .filter(|_| is_heard)
            .for_each(|number| coordinator.announced(now_ns, announce(number, Some(Phase::Ready))));
        said.extend(coordinator.tick(now_ns));
    }
    // When it is heard again its part is over, and what it came to is still on its way.
    let mut over = announce(0, Some(Phase::Over));
    over.load.iter_mut().for_each(|load| load.began_ns = Some(1));
    for _ in 0..25 {
        now_ns += S / 10;
        for number in 0..2 {
            let instance = format!("w{number:05}");
            coordinator.announced(now_ns, Announce { name: instance.clone(), instance, ..over.clone() });
        }
        for action in coordinator.tick(now_ns) {
            match action {
                Action::Ping { worker, nonce } => coordinator.pong(now_ns, &worker, nonce, now_ns),
                other => said.push(other),
            }
        }
    }
    reports(2).into_iter().flatten().for_each(|report| drop(coordinator.report(report)));
    said.extend(coordinator.tick(now_ns + S / 10));
    assert!(!said.iter().any(|action| matches!(action, Action::Note(_) | Action::Failed(_))), "{said:?}");
    let seconds = said.iter().filter(|action| matches!(action, Action::Interval(_))).count() as u64;
    assert_eq!(seconds, SECONDS);
}

/// What a session had that is taken up may come before it is said which load that is.
#[test]
fn no_result_is_thrown_away_before_a_load_is_taken_up() {
    let mut coordinator = Coordinator::new("s".into());
    let report = reports(1)[0][0].clone();
    assert!(coordinator.report(report.clone()).is_empty());
    coordinator.resume(0, ResumeOrder { load: 2, parts: vec![], logged_seconds: 0 }).unwrap();
    assert!(matches!(coordinator.report(report)[..], [Action::Acknowledge(_)]));
}

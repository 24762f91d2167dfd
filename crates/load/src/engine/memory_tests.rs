//! Memory does not grow with requests: a process of its own loads a simulated server, good and bad, and compares its
//! resident memory (proc_pid_statm(5)) after few requests with that after many.

use super::Engine;
use super::simulation::*;
use crate::engine::control::Control;
use crate::plan::prepare;
use crate::plan::thread_share::ThreadShare;
use crate::results::merge::Merger;
use crate::results::recorder::Report;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use webdyno_model::workload::Arrival;

/// Says to this test that it runs in a process of its own.
const ALONE: &str = "WEBDYNO_MEASURE_MEMORY";
const FEW: u64 = 20_000;
const MANY: u64 = 100_000;
/// Eight bytes a request would be more; the allocator's own ups and downs are less than half of it.
const GROWTH_BYTES_MAX: u64 = 400_000;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Good responses in several pieces, closes, resets, silence, nonsense, refusals.
fn moody() -> Server<'static> {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    Box::new(move |visit| match (visit.connection % 7, visit.request) {
        (0, 0) => vec![(0, ServerAction::Refuse)],
        (_, 0) => vec![(0, ServerAction::Accept)],
        (1, 40) => vec![(MS, ServerAction::Reset)],
        (2, 40) => vec![(MS, ServerAction::Send(OK[..30].to_vec())), (2 * MS, ServerAction::Close)],
        (3, 40) => vec![(MS, ServerAction::Send(b"nonsense\r\n\r\n".to_vec()))],
        (4, 40) => vec![],
        (5, _) => vec![(MS, ServerAction::Send(chunked.to_vec()))],
        (_, request) if request % 2 == 0 => {
            vec![(MS, ServerAction::Send(OK[..30].to_vec())), (2 * MS, ServerAction::Send(OK[30..].to_vec()))]
        }
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    })
}

/// Loads and returns the growth in bytes between few and many requests, whose intervals are dropped.
fn growth_bytes(arrival: Arrival) -> u64 {
    let mut load = workload(arrival, 20, 1);
    load.timeout_us = 50_000;
    load.requests.push(get("/other"));
    (load.stop.requests, load.stop.duration_us) = (Some(MANY), None);
    let prepared = prepare(&load).unwrap();
    let control = Control::new();
    let labels = prepared.plan.labels();
    let mut merger = Merger::new(prepared.plan.labels(), 1);
    let (mut ended, mut few_bytes) = (0, None);
    let exchange = |full: Box<Report>| {
        merger.add(0, full);
        let mut spare = None;
        while let Some(interval) = merger.next_interval(&mut |_, used| spare = Some(used)) {
            ended += interval.completed + interval.failed;
        }
        if ended >= FEW {
            few_bytes.get_or_insert_with(resident_bytes);
        }
        spare.or_else(|| Some(Box::new(Report::new(&labels))))
    };
    let budget = (arrival == Arrival::Closed).then(|| Arc::new(AtomicU64::new(MANY)));
    let share = ThreadShare { thread: 0, threads: 1, unit: 1, budget };
    Engine::new(&prepared.plan, &control, &share, Sim::new(moody()), exchange).run();
    assert_eq!(ended, MANY);
    resident_bytes().saturating_sub(few_bytes.unwrap())
}

#[test]
fn memory_does_not_grow_with_requests() {
    if std::env::var_os(ALONE).is_some() {
        for arrival in [Arrival::Closed, Arrival::Open { rate_per_s: 5000.0, poisson: false }] {
            let growth = growth_bytes(arrival);
            assert!(growth <= GROWTH_BYTES_MAX, "{growth} bytes for {} requests, {arrival:?}", MANY - FEW);
        }
        return;
    }
    // Other tests of this process use its memory too.
    let alone = ["--exact", "engine::memory_tests::memory_does_not_grow_with_requests", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(alone).env(ALONE, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn thousands_of_visitors_fit() {
    // 10,000 users with six connections each stay below 200 MB: they take this much before they do anything.
    let (conn, visitor) = (std::mem::size_of::<super::conn::Conn>(), super::visits::VISITOR_BYTES);
    assert!(conn <= 640, "{conn} bytes");
    assert!(visitor <= 640, "{visitor} bytes");
}

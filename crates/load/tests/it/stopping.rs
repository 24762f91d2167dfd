//! How loads end.

use crate::server::{OK, Server, Step, load, load_with, workload};
use std::time::{Duration, Instant};
use webdyno_load::{Control, EndReason};

fn responding() -> Server {
    Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again])
}

#[test]
fn the_duration_is_kept_exactly() {
    let server = responding();
    let mut load_of = workload(&server.url());
    load_of.stop.duration_us = Some(1_250_000);
    let outcome = load(&load_of);
    assert_eq!((outcome.end.elapsed_us, outcome.end.reason), (1_250_000, EndReason::Duration));
    let lengths: Vec<_> = outcome.intervals.iter().map(|interval| interval.length_us).collect();
    assert_eq!(lengths, [1_000_000, 250_000]);
    assert_eq!(outcome.end.in_flight_at_end, 2);
    assert!(outcome.completed() > 100 && outcome.failed() == 0);
}

#[test]
fn a_stop_from_outside_wakes_threads_that_sleep() {
    // Nobody answers and the timeout is far: only the stop can end it.
    let server = Server::start(vec![Step::Hold]);
    let mut load_of = workload(&server.url());
    load_of.stop.duration_us = None;
    load_of.threads = Some(2);
    load_of.timeout_us = 60_000_000;
    let control = Control::new();
    let other = control.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.stop(EndReason::Interrupted);
        Instant::now()
    });
    let outcome = load_with(&load_of, &control);
    let late = stopper.join().unwrap().elapsed();
    assert_eq!(outcome.end.reason, EndReason::Interrupted);
    assert_eq!((outcome.end.in_flight_at_end, outcome.end.waiting_at_end), (2, 0));
    // About a millisecond on an idle machine.
    assert!(late < Duration::from_millis(500), "{late:?}");
    assert!(outcome.end.elapsed_us < 900_000);
}

#[test]
fn a_control_that_was_stopped_ends_a_load_at_once() {
    let server = responding();
    let control = Control::new();
    control.stop(EndReason::Enough);
    let outcome = load_with(&workload(&server.url()), &control);
    assert_eq!(outcome.end.reason, EndReason::Enough);
    assert!(outcome.end.elapsed_us < 500_000);
    assert_eq!(outcome.sum(|interval| interval.started), 0);
}

#[test]
fn so_many_requests_over_several_threads() {
    let server = responding();
    for (requests, connections, threads) in [(1, 1, 1), (7, 3, 2), (2000, 8, 4)] {
        let mut load_of = workload(&server.url());
        (load_of.connections, load_of.threads) = (connections, Some(threads));
        load_of.stop.requests = Some(requests);
        load_of.stop.duration_us = None;
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (requests, 0));
        assert_eq!(outcome.end.reason, EndReason::Requests);
        assert_eq!(outcome.end.thread_cpu_us.len(), threads as usize);
        assert_eq!(outcome.sum(|interval| interval.started), requests);
    }
}

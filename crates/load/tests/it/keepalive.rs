//! Connections that servers close when they like, as Apache does after MaxKeepAliveRequests and KeepAliveTimeout.

use crate::server::{OK, Server, Step, load, workload};
use std::sync::atomic::Ordering;
use std::time::Duration;
use webdyno_model::workload::Arrival;

/// `count` answers on each connection, then a close.
fn limited(count: usize, last: &[u8]) -> Vec<Step> {
    let mut script = vec![];
    for number in 1..=count {
        let response = if number == count { last } else { OK };
        script.extend([Step::Request, Step::Send(response.to_vec())]);
    }
    script
}

#[test]
fn a_limit_that_is_announced_costs_no_failure() {
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let server = Server::start(limited(10, closing));
    let mut load_of = workload(&server.url());
    load_of.stop.requests = Some(1000);
    load_of.stop.duration_us = None;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (1000, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 0);
    let opened = outcome.sum(|interval| interval.connections.opened);
    assert!((100..=102).contains(&opened), "{opened}");
    assert_eq!(outcome.sum(|interval| interval.connections.reused), 1000 - opened);
}

#[test]
fn a_limit_that_is_not_announced_is_a_quiet_close() {
    for threads in [1, 2] {
        let server = Server::start(limited(10, OK));
        let mut load_of = workload(&server.url());
        load_of.connections = 4;
        load_of.threads = Some(threads);
        load_of.stop.requests = Some(1000);
        load_of.stop.duration_us = None;
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (1000, 0), "{:?}", outcome.intervals);
        let quiet = outcome.sum(|interval| interval.connections.quiet_closes);
        assert!((96..=100).contains(&quiet), "{quiet}");
        let opened = outcome.sum(|interval| interval.connections.opened);
        assert!((100..=104).contains(&opened), "{opened}");
        assert_eq!(server.connections.load(Ordering::Acquire), opened);
    }
}

#[test]
fn a_timeout_between_requests_is_a_quiet_close() {
    // Open arrival leaves connections idle for 100 ms; the server closes them after each response.
    let server =
        Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Sleep(Duration::from_millis(30))]);
    let mut load_of = workload(&server.url());
    load_of.arrival = Arrival::Open { rate_per_s: 10.0, poisson: false };
    // However late the last response is.
    load_of.stop.requests = Some(10);
    load_of.stop.duration_us = None;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (10, 0));
    // Starts that a busy machine made late go out together, and the last connections are not seen to close.
    assert!(outcome.sum(|interval| interval.connections.quiet_closes) >= 6);
}

#[test]
fn without_keepalive_nothing_is_reused() {
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec())]);
    let mut load_of = workload(&server.url());
    load_of.keepalive = false;
    load_of.stop.requests = Some(300);
    load_of.stop.duration_us = None;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (300, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 300);
    assert_eq!(outcome.sum(|interval| interval.connections.reused), 0);
}

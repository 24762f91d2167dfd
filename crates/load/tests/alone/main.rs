//! What a load leaves of its process: this test has a process to itself, so that every descriptor in it is its own.
//! proc_pid_fd(5).

// Helpers of tests may fail like the tests themselves; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(dead_code)] // shared with the other tests, which use the rest
#[path = "../it/server.rs"]
mod server;

use server::{OK, Server, Step, load, workload};
use std::time::{Duration, Instant};
use webdyno_model::transport::Io;
use webdyno_model::workload::Arrival;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Good and bad at once: each connection has another fate.
fn fate(turn: u64) -> Vec<Step> {
    let send = |text: &str| Step::Send(text.replace('\n', "\r\n").into_bytes());
    let mut script = vec![Step::Request, Step::Send(OK.to_vec()), Step::Request];
    script.extend(match turn % 8 {
        0 => vec![Step::Send(OK.to_vec()), Step::Again],
        1 => vec![],
        2 => vec![Step::Reset],
        3 => vec![Step::Hold],
        4 => vec![send("nonsense\n\n"), Step::Hold],
        5 => vec![send("HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\n\nok"), Step::Hold],
        6 => vec![send("HTTP/1.1 200 OK\n\nx"), Step::Endless(vec![b'x'; 1000])],
        _ => vec![send("HTTP/1.1 200 OK\nContent-Le"), Step::HalfClose, Step::Hold],
    });
    script
}

#[test]
fn a_load_leaves_no_descriptor() {
    let before = descriptors();
    let open = Arrival::Open { rate_per_s: 200.0, poisson: false };
    for (arrival, keepalive, io) in [
        (Arrival::Closed, true, Io::Epoll),
        (Arrival::Closed, false, Io::Uring),
        (Arrival::Closed, false, Io::Epoll),
        (open, true, Io::Uring),
        (open, false, Io::Epoll),
    ] {
        let server = Server::by_turn(fate);
        let mut load_of = workload(&server.url());
        (load_of.arrival, load_of.keepalive) = (arrival, keepalive);
        load_of.transport.io = io;
        (load_of.connections, load_of.threads) = (16, Some(2));
        load_of.timeout_us = 200_000;
        load_of.stop.duration_us = Some(600_000);
        let outcome = load(&load_of);
        assert!(outcome.completed() > 10, "{:?}", outcome.intervals);
    }
    // The server's ends are closed by its own threads, which hear of it a little later.
    let begun = Instant::now();
    while descriptors() > before {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} descriptors, {before} before", descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

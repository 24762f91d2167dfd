//! The engine over io_uring (`--io uring`), where the kernel allows it: connections live, fail and end as over epoll. io_uring(7).

use crate::endings;
use crate::refusing::Refusing;
use crate::secure::{Authority, Secure, responding};
use crate::server::{OK, Server, Step, load, workload};
use crate::skip::skip;
use webdyno_load::{connections_allowed, prepare};
use webdyno_model::interval::ErrorCounts;
use webdyno_model::transport::{Io, Transport};
use webdyno_model::workload::{Clock, Workload};

/// A load of requests one by one that goes by io_uring; `None`, and told, where it would not.
fn uring(url: &str, requests: u64, change: impl FnOnce(&mut Workload)) -> Option<Workload> {
    let mut load_of = workload(url);
    load_of.transport.io = Io::Uring;
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(requests), None);
    change(&mut load_of);
    match prepare(&load_of).unwrap().warnings() {
        [] => Some(load_of),
        notes => {
            skip(&notes.join(" "));
            None
        }
    }
}

#[test]
fn connections_are_kept_or_new_and_end_by_fin() {
    let kept = Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let Some(load_of) = uring(&kept.url(), 3000, |load| load.clock = Clock::Kernel) else { return };
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (3000, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 2);
    assert_eq!(outcome.sum(|interval| interval.stamps.connections), 2, "the kernel's timestamps remain");
    let script = vec![Step::Request, Step::Send(OK.to_vec())];
    let by_uring = |load: &mut Workload| load.transport.io = Io::Uring;
    endings::check(2, [&script[..], &[Step::Again]].concat(), by_uring);
    endings::check(8, script.clone(), |load| (load.keepalive, load.transport.io) = (false, Io::Uring));
    endings::check(8, [&script[..], &[Step::HalfClose]].concat(), |load| {
        (load.keepalive, load.transport.io) = (false, Io::Uring);
    });
    // More than a socket takes at once, and an answer that comes first.
    let no = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno".to_vec();
    let large = vec![Step::Request, Step::Send(no), Step::HalfClose];
    endings::check(8, large, |load| {
        (load.keepalive, load.transport.io) = (false, Io::Uring);
        (load.requests[0].method, load.requests[0].body) = ("POST".into(), vec![b'x'; 8_000_000].into());
    });
}

#[test]
fn five_hundred_connections_carry_requests() {
    if connections_allowed(1).is_some_and(|allowed| allowed < 1100) {
        return skip("500 connections and their server's ends need more open files");
    }
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let Some(load_of) = uring(&server.url(), 5000, |load| load.connections = 500) else { return };
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (5000, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 500);
}

#[test]
fn failures_are_of_the_same_classes() {
    let part = Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok".to_vec());
    type Class = fn(&ErrorCounts) -> u64;
    let cases: [(Vec<Step>, Class); 4] = [
        (vec![Step::Request, part.clone(), Step::Hold], |errors| errors.timeout),
        (vec![Step::Request, Step::Hold], |errors| errors.timeout),
        (vec![Step::Request, Step::Reset], |errors| errors.reset),
        (vec![Step::Request, part, Step::HalfClose, Step::Hold], |errors| errors.closed_early),
    ];
    for (script, class) in cases {
        let server = Server::start(script);
        let Some(load_of) = uring(&server.url(), 6, |load| load.timeout_us = 100_000) else { return };
        let outcome = load(&load_of);
        assert_eq!((outcome.failed(), class(&outcome.errors())), (6, 6), "{:?}", outcome.errors());
    }
    let gone = Refusing::start();
    let Some(load_of) = uring(&format!("http://{}/", gone.address), 6, |_| {}) else { return };
    assert_eq!(load(&load_of).errors().connect_refused, 6);
}

#[test]
fn tls_is_spoken() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let server = Secure::start(authority.server(&identity), responding(OK.to_vec()));
    let over_tls = server.load_of(&authority, 500);
    let transport =
        |load: &mut Workload| load.transport = Transport { io: Io::Uring, ..over_tls.transport.clone() };
    let Some(mut load_of) = uring(&over_tls.requests[0].url, 500, transport) else { return };
    for keepalive in [true, false] {
        load_of.keepalive = keepalive;
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (500, 0), "{:?}", outcome.intervals);
    }
}

//! HTTP/1.1 as servers speak it, in the simulated world: what counts as a response, and what becomes of its connection.

use super::simulation::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::workload::{Arrival, Expectation, Workload};

/// Text with the line ends of HTTP.
fn wire(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

/// One user and so many requests.
fn requests(count: u64) -> Workload {
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.stop.requests = Some(count);
    load.stop.duration_us = None;
    load
}

/// Accepts, and answers each request after a millisecond with these bytes.
fn sending(bytes: Vec<u8>) -> Server<'static> {
    Box::new(move |visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        _ => vec![(MS, ServerAction::Send(bytes.clone()))],
    })
}

/// What came of ten requests of one user: failures by class, connections opened, quiet closes, requests sent again.
fn ten(load: &mut Workload, acts: Vec<(u64, ServerAction)>) -> (u64, ErrorCounts, [u64; 3]) {
    load.stop.requests = Some(10);
    let server: Server<'_> = Box::new(move |visit| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ => acts.clone(),
    });
    let outcome = simulate(load, server);
    let mut errors = ErrorCounts::default();
    outcome.intervals.iter().for_each(|interval| errors.add(&interval.errors));
    let connections = [
        outcome.sum(|interval| interval.connections.opened),
        outcome.sum(|interval| interval.connections.quiet_closes),
        outcome.sum(|interval| interval.connections.resent),
    ];
    (outcome.counts().0, errors, connections)
}

/// Checks that ten answers like this are good, with bodies of this length, over this many connections.
fn check_good(method: &str, text: &str, closes: bool, length_bytes: u64, opened: u64) {
    let whole = wire(text);
    // In one piece, byte by byte, and cut in the middle of whatever is there.
    for piece in [whole.len(), 1, 7] {
        let mut acts: Vec<_> =
            whole.chunks(piece).map(|part| (MS, ServerAction::Send(part.to_vec()))).collect();
        if closes {
            acts.push((MS, ServerAction::Close));
        }
        let mut load = requests(10);
        load.requests[0].method = method.into();
        load.expect = vec![Expectation::Length(length_bytes)];
        let expected = (10, ErrorCounts::default(), [opened, 0, 0]);
        assert_eq!(ten(&mut load, acts), expected, "{method} {text:?} in pieces of {piece}");
    }
}

#[test]
fn responses_end_where_the_rfc_says() {
    let keeps = |text: &str, length_bytes| check_good("GET", text, false, length_bytes, 1);
    let ends = |text: &str, length_bytes| check_good("GET", text, true, length_bytes, 10);
    keeps("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 2);
    keeps("HTTP/1.1 200 OK\nContent-Length:\n  2\nX: a\n\tb\n\nok", 2);
    keeps("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2;a=\"b\"\nok\n0\nX-Sum: 1\nY: 2\n\n", 2);
    keeps("HTTP/1.1 200 OK\nTransfer-Encoding:\n chunked\n\n0\n\n", 0);
    keeps("HTTP/1.1 204 No Content\nContent-Length: 7\n\n", 0);
    keeps("HTTP/1.1 304 Not Modified\nContent-Length: 7\n\n", 0);
    keeps("HTTP/1.1 304 Not Modified\nTransfer-Encoding: chunked\n\n", 0);
    keeps("HTTP/1.1 200\nContent-Length: 0\n\n", 0);
    keeps(
        "HTTP/1.0 200 OK\nConnection: Keep-Alive\nKeep-Alive: timeout=5, max=99\nContent-Length: 2\n\nok",
        2,
    );
    check_good("HEAD", "HTTP/1.1 200 OK\nContent-Length: 99\n\n", false, 0, 1);
    check_good("HEAD", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", false, 0, 1);
    ends("HTTP/1.0 200 OK\nContent-Length: 2\n\nok", 2);
    ends("HTTP/1.0 200 OK\n\nall there is", 12);
    ends("HTTP/1.1 200 OK\n\nall there is", 12);
    ends("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n", 0);
    ends("HTTP/1.1 200 OK\nConnection: Foo, CLOSE\nContent-Length: 2\n\nok", 2);
    ends("HTTP/1.1 200 OK\nConnection: keep-alive,\n close\nContent-Length: 2\n\nok", 2);
    // Both framings at once: the chunks count, and the connection is not trusted again.
    ends("HTTP/1.1 200 OK\nContent-Length: 99\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n", 2);
}

#[test]
fn interim_responses_are_not_final() {
    let interim = "HTTP/1.1 100 Continue\n\nHTTP/1.1 102 Processing\nX: y\n\n\
         HTTP/1.1 103 Early Hints\nLink: </a>\nContent-Length: 5\nConnection: close\n\n";
    let text = format!("{interim}HTTP/1.1 200 OK\nContent-Length: 2\n\nok");
    check_good("GET", &text, false, 2, 1);
    check_good("HEAD", &format!("{interim}HTTP/1.1 200 OK\nContent-Length: 2\n\n"), false, 0, 1);
    // One that is followed by nothing is no response either, and what was begun is not sent again.
    let mut acts =
        vec![(MS, ServerAction::Send(wire("HTTP/1.1 103 Early Hints\n\n"))), (2 * MS, ServerAction::Close)];
    let failed = ErrorCounts { closed_early: 10, ..ErrorCounts::default() };
    assert_eq!(ten(&mut requests(10), acts.clone()), (0, failed, [10, 0, 0]));
    // A protocol switch that was not requested.
    acts[0].1 = ServerAction::Send(wire("HTTP/1.1 101 Switching Protocols\n\n"));
    let failed = ErrorCounts { protocol: 10, ..ErrorCounts::default() };
    assert_eq!(ten(&mut requests(10), acts), (0, failed, [10, 0, 0]));
}

#[test]
fn what_breaks_the_rules_is_a_protocol_error() {
    let long = format!("HTTP/1.1 200 OK\nX: {}\n\n", "y".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\n{}\n", "A: b\n".repeat(200));
    for text in [
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok, and more",
        "HTTP/1.1 204 No Content\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\nHTTP/1.1 200 OK",
        "HTTP/1.1 200 OK\nContent-Length: 2, 3\n\nok",
        &long,
        &many,
    ] {
        let failed = ErrorCounts { protocol: 10, ..ErrorCounts::default() };
        let got = ten(&mut requests(10), vec![(MS, ServerAction::Send(wire(text)))]);
        assert_eq!((got.0, got.1), (0, failed), "{:?}", &text[..60]);
    }
    // Behind a response that ends the connection nothing is awaited, so nothing there matters.
    let last = wire("HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\n\nok, and more");
    assert_eq!(ten(&mut requests(10), vec![(MS, ServerAction::Send(last))]).0, 10);
}

#[test]
fn a_limit_on_requests_costs_quiet_closes_and_no_failure() {
    let last = wire("HTTP/1.1 200 OK\nKeep-Alive: timeout=5, max=1\nContent-Length: 2\n\nok");
    let acts = vec![(MS, ServerAction::Send(last)), (MS + 1000, ServerAction::Close)];
    let (good, errors, [opened, quiet, resent]) = ten(&mut requests(10), acts.clone());
    // The next request crosses each close, and is sent again.
    assert_eq!((good, errors.total(), opened), (10, 0, 10));
    assert_eq!((quiet, resent), (9, 9));
    // In open arrival there is time to see it.
    let mut load = requests(10);
    load.arrival = Arrival::Open { rate_per_s: 10.0, poisson: false };
    let (good, errors, [opened, quiet, resent]) = ten(&mut load, acts);
    assert_eq!((good, errors.total(), opened, quiet, resent), (10, 0, 10, 9, 0));
}

/// Each connection answers once; then a last word comes, before or after the next request is sent.
#[test]
fn data_on_an_idle_connection_is_not_a_response() {
    let word = wire("HTTP/1.1 408 Request Timeout\nConnection: close\nContent-Length: 0\n\n");
    for crossing in [false, true] {
        for method in ["GET", "POST"] {
            let mut load = requests(10);
            load.requests[0].method = method.into();
            load.arrival = Arrival::Open { rate_per_s: 10.0, poisson: false };
            // Requests come every 100 ms: the word is there long before the next one, or comes just behind it.
            let after_ns = if crossing { 101 * MS } else { 50 * MS };
            let word = word.clone();
            let server: Server<'_> = Box::new(move |visit| match visit.request {
                0 => vec![(0, ServerAction::Accept)],
                1 => vec![
                    (MS, ServerAction::Send(OK.to_vec())),
                    (after_ns, ServerAction::Send(word.clone())),
                    (after_ns, ServerAction::Close),
                ],
                _ => vec![],
            });
            let outcome = simulate(&load, server);
            let sent_again = outcome.sum(|interval| interval.connections.resent);
            let told = outcome.sum(|interval| *interval.status.get("408").unwrap_or(&0));
            match (crossing, method) {
                (false, _) => assert_eq!((outcome.counts(), sent_again, told), ((10, 0, 0), 0, 0)),
                (true, "GET") => assert_eq!((outcome.counts(), sent_again, told), ((10, 0, 0), 9, 0)),
                (true, _) => assert_eq!((outcome.counts(), sent_again, told), ((5, 5, 0), 0, 5)),
            }
        }
    }
    // On a fresh connection it is a response.
    let got = ten(&mut requests(10), vec![(MS, ServerAction::Send(word))]);
    assert_eq!((got.0, got.1.status, got.2), (0, 10, [10, 0, 0]));
}

#[test]
fn a_response_before_the_request_is_sent_is_its_response() {
    // The server takes 300 bytes in 10 us and has said no long before a megabyte is through.
    for closes in [true, false] {
        let mut load = requests(5);
        load.requests[0].method = "POST".into();
        load.requests[0].body = vec![b'x'; 1_000_000].into();
        let no = wire("HTTP/1.1 413 Content Too Large\nContent-Length: 2\n\nno");
        let server: Server<'_> = Box::new(move |visit| match visit.request {
            0 => {
                let mut acts = vec![(0, ServerAction::Accept), (5 * MS, ServerAction::Send(no.clone()))];
                if closes {
                    acts.push((5 * MS, ServerAction::Close));
                }
                acts
            }
            _ => panic!("a request of which only a part is wanted arrived whole"),
        });
        let mut sim = Sim::new(server);
        sim.send_max = 300;
        let outcome = simulate_on(&load, sim);
        assert_eq!((outcome.counts(), outcome.intervals[0].status["413"]), ((0, 5, 0), 5));
        assert_eq!(outcome.sum(|interval| interval.errors.status), 5);
        // The rest of the request is not owed to anybody, and the connection is no longer good.
        assert_eq!(outcome.sum(|interval| interval.connections.opened), 5);
        assert!(outcome.sum(|interval| interval.bytes_sent) < 5 * 200_000);
    }
}

#[test]
fn a_large_body_follows_its_head_whole() {
    for send_max in [usize::MAX, 70_000, 999] {
        let mut load = requests(3);
        load.requests[0].method = "PUT".into();
        load.requests[0].body = vec![b'x'; 200_000].into();
        let mut sim = Sim::new(answering(MS));
        sim.send_max = send_max;
        let received = sim.received.clone();
        assert_eq!(simulate_on(&load, sim).counts(), (3, 0, 0), "{send_max}");
        assert!(received.borrow().iter().all(|(_, text)| text.ends_with(&"x".repeat(200_000))));
    }
}

#[test]
fn a_connection_that_was_said_to_be_closed_is_not_used_again() {
    let mut load = requests(10);
    load.requests[0].headers = vec![("connection".into(), "TE, Close".into())];
    let (good, errors, connections) = ten(&mut load, vec![(MS, ServerAction::Send(OK.to_vec()))]);
    assert_eq!((good, errors.total(), connections), (10, 0, [10, 0, 0]));
}

fn unmet(outcome: &Outcome) -> u64 {
    outcome.sum(|interval: &Interval| interval.errors.expect)
}

#[test]
fn bodies_are_checked_when_there_are_expectations() {
    let text = "a good page\n".repeat(3000);
    let mut encoder = GzEncoder::new(vec![], Compression::none());
    encoder.write_all(text.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let length = format!("Content-Length: {}\n\n", text.len());
    let chunks: String = text.as_bytes().chunks(999).fold(String::new(), |so_far, chunk| {
        format!("{so_far}{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))
    });
    let plain = [wire(&format!("HTTP/1.1 200 OK\n{length}")), text.clone().into_bytes()].concat();
    let chunked =
        [wire("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n"), format!("{chunks}0\r\n\r\n").into_bytes()]
            .concat();
    let head = format!("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: {}\n\n", gzip.len());
    let coded = [wire(&head), gzip].concat();
    for (response, name) in [(plain, "plain"), (chunked, "chunked"), (coded, "gzip")] {
        for (expectation, met) in [
            (Expectation::Regex("(?m)^a good page$".into()), true),
            (Expectation::Regex("Fatal error".into()), false),
            (Expectation::Length(text.len() as u64), true),
            (Expectation::Length(text.len() as u64 + 1), false),
        ] {
            let mut load = requests(3);
            load.expect = vec![expectation.clone()];
            let outcome = simulate(&load, sending(response.clone()));
            let expected = if met { (3, 0, 0) } else { (0, 3, 0) };
            assert_eq!(outcome.counts(), expected, "{name} {expectation:?}");
            assert_eq!(unmet(&outcome), expected.1, "{name} {expectation:?}");
            // Counted as it came over the wire, and the connection is good for the next request.
            let received = outcome.sum(|interval| interval.bytes_received);
            assert_eq!(received, 3 * response.len() as u64, "{name}");
            assert_eq!(outcome.sum(|interval| interval.connections.opened), 1);
        }
    }
}

#[test]
fn large_bodies_are_dropped_unread_unless_a_check_needs_them() {
    let response = [wire("HTTP/1.1 200 OK\nContent-Length: 900000\n\n"), vec![b'x'; 900_000]].concat();
    let refused = [wire("HTTP/1.1 500 No\nContent-Length: 900000\n\n"), vec![b'x'; 900_000]].concat();
    let body_buffers = Expectation::Regex("x$".into());
    let swollen = [vec![b'x'; 17 << 20], vec![b'y'; 1]].concat();
    let swollen =
        [wire(&format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n", swollen.len())), swollen].concat();
    for (response, expect, good, dropped) in [
        (response.clone(), vec![], 3, true),
        (response.clone(), vec![Expectation::Status(200), Expectation::Length(900_000)], 3, true),
        (response, vec![body_buffers.clone()], 3, false),
        (refused, vec![body_buffers.clone()], 0, true),
        // Beyond the bound nothing more is needed of it.
        (swollen, vec![body_buffers], 0, true),
    ] {
        let mut load = requests(3);
        load.expect = expect;
        let sim = Sim::new(sending(response));
        let discarded_bytes = sim.discarded_bytes.clone();
        assert_eq!(simulate_on(&load, sim).counts(), (good, 3 - good, 0), "{:?}", load.expect);
        assert_eq!(discarded_bytes.get() > 0, dropped, "{:?}", load.expect);
    }
}

#[test]
fn a_broken_coding_is_an_unmet_expectation_and_nothing_without_one() {
    let response = wire("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 5\n\nhello");
    let mut load = requests(2);
    assert_eq!(simulate(&load, sending(response.clone())).counts(), (2, 0, 0));
    load.expect = vec![Expectation::Length(5)];
    let outcome = simulate(&load, sending(response));
    assert_eq!((outcome.counts(), unmet(&outcome)), ((0, 2, 0), 2));
}

#[test]
fn a_response_that_fails_by_its_status_is_not_checked() {
    let mut load = requests(2);
    load.expect = vec![Expectation::Regex("ok".into())];
    let outcome = simulate(&load, sending(wire("HTTP/1.1 500 No\nContent-Length: 2\n\nno")));
    assert_eq!((outcome.sum(|interval| interval.errors.status), unmet(&outcome)), (2, 0));
}

//! The engine over HTTP/2, against simulated servers: what it counts and times is what it does over HTTP/1.1.

use super::accuracy::{check_times, frozen_ns};
use super::simulation::*;
use super::visit_tests::{page, visits};
use crate::io::http2::scripted::{Reader, Sent, data, frame, goaway, headers, number, ok, settings};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use webdyno_model::interval::ErrorCounts;
use webdyno_model::workload::{Arrival, Workload};

/// Types of frames: RFC 9113, section 6.
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// What the server answers to what a client sent: after how long, and which bytes or what else.
type Answer = dyn FnMut(u64, &Sent) -> Vec<(u64, ServerAction)>;
/// What clients sent, with the number of their connection.
type Log = Rc<RefCell<Vec<(u64, Sent)>>>;

fn send(delay_ns: u64, bytes: Vec<u8>) -> (u64, ServerAction) {
    (delay_ns, ServerAction::Send(bytes))
}

/// A machine whose server greets with these settings.
fn machine(greeting: Vec<u8>, mut answer: Box<Answer>) -> (Sim<'static>, Log) {
    let log = Log::default();
    let mut sim = Sim::new(Box::new(move |visit: ServerRequest| match visit.request {
        0 => vec![(100_000, ServerAction::Accept), send(100_000, greeting.clone())],
        _ => vec![],
    }));
    let (mut readers, sent_to) = (BTreeMap::<u64, Reader>::new(), log.clone());
    sim.bytes_server = Some(Box::new(move |connection, _, bytes| {
        let mut acts = vec![];
        for sent in readers.entry(connection).or_default().take(bytes) {
            acts.extend(answer(connection, &sent));
            sent_to.borrow_mut().push((connection, sent));
        }
        acts
    }));
    (sim, log)
}

/// A response after a millisecond.
fn answers(_: u64, sent: &Sent) -> Vec<(u64, ServerAction)> {
    match sent {
        Sent::Request { stream, ends: true, .. } | Sent::Data { stream, ends: true, .. } => {
            vec![send(MS, ok(*stream))]
        }
        _ => vec![],
    }
}

fn load(connections: u32, streams: u32, requests: u64) -> Workload {
    let mut load = workload(Arrival::Closed, connections, 1);
    load.transport.http2_streams = Some(streams);
    (load.stop.requests, load.stop.duration_us) = (Some(requests), None);
    load.timeout_us = 50_000;
    load
}

fn errors(outcome: &Outcome, of: fn(&ErrorCounts) -> u64) -> u64 {
    outcome.sum(|interval| of(&interval.errors))
}

/// Opened, reused, closed quietly, sent again.
fn connections(outcome: &Outcome) -> [u64; 4] {
    let sum = |of: fn(&webdyno_model::interval::ConnectionCounts) -> u64| {
        outcome.sum(|interval| of(&interval.connections))
    };
    [sum(|c| c.opened), sum(|c| c.reused), sum(|c| c.quiet_closes), sum(|c| c.resent)]
}

#[test]
fn streams_share_connections_and_count_as_requests() {
    let (sim, log) = machine(settings(&[]), Box::new(answers));
    let outcome = simulate_on(&load(2, 3, 60), sim);
    assert_eq!(outcome.counts(), (60, 0, 0));
    assert_eq!(connections(&outcome), [2, 58, 0, 0]);
    assert_eq!(outcome.sum(|interval| interval.connections.peak).max(2), 2);
    // Ten rounds of a millisecond each: six are in flight at once.
    assert!((10 * MS / 1000..11 * MS / 1000).contains(&outcome.end.elapsed_us), "{}", outcome.end.elapsed_us);
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!((service.min, service.max), (Some(1000), Some(1000)));
    let requests = log.borrow();
    let first = requests
        .iter()
        .find_map(|(_, sent)| if let Sent::Request { fields, .. } = sent { Some(fields) } else { None });
    assert!(
        first.unwrap().starts_with(
            ":method: GET\n:scheme: http\n:authority: 127.0.0.1:1\n:path: /\nuser-agent: webdyno/"
        )
    );
}

#[test]
fn a_lower_limit_of_the_server_makes_requests_wait_and_none_fail() {
    let (sim, _) = machine(settings(&[(3, 1)]), Box::new(answers));
    let outcome = simulate_on(&load(1, 4, 20), sim);
    assert_eq!(outcome.counts(), (20, 0, 0));
    assert!(outcome.end.elapsed_us >= 17_000, "{}", outcome.end.elapsed_us);
}

#[test]
fn a_connection_that_goes_away_is_replaced_without_a_failure() {
    let mut count = 0;
    let (sim, _) = machine(
        settings(&[]),
        Box::new(move |connection, sent| {
            let Sent::Request { stream, .. } = sent else { return vec![] };
            count += 1;
            match (connection, count) {
                // The fifth request is the last one that is answered: those after it were not processed.
                (1, 5) => {
                    vec![send(0, goaway(*stream, 0)), send(MS, ok(*stream)), (2 * MS, ServerAction::Close)]
                }
                (1, 6..) => vec![],
                _ => vec![send(MS, ok(*stream))],
            }
        }),
    );
    let outcome = simulate_on(&load(1, 3, 30), sim);
    assert_eq!(outcome.counts(), (30, 0, 0));
    assert_eq!(connections(&outcome)[0], 2);
}

#[test]
fn refused_streams_are_sent_again_once() {
    for (refusals, failed) in [(1, 0), (2, 1)] {
        let mut left = refusals;
        let (sim, _) = machine(
            settings(&[]),
            Box::new(move |connection, sent| match sent {
                Sent::Request { stream, .. } if left > 0 => {
                    left -= 1;
                    vec![send(0, number(RST_STREAM, *stream, 7))]
                }
                sent => answers(connection, sent),
            }),
        );
        let mut load = load(1, 1, 5);
        load.requests[0].method = "POST".into();
        let outcome = simulate_on(&load, sim);
        assert_eq!(
            (outcome.counts(), errors(&outcome, |errors| errors.reset)),
            ((5 - failed, failed, 0), failed)
        );
        assert_eq!(connections(&outcome)[3], 1);
    }
}

// Its connection goes on, so that it is no close that crossed the request.
#[test]
fn a_request_whose_stream_is_reset_has_failed_and_is_not_sent_again() {
    let (sim, _) = machine(
        settings(&[]),
        Box::new(|connection, sent| match sent {
            Sent::Request { stream: stream @ 5, .. } => vec![send(0, number(RST_STREAM, *stream, 2))],
            sent => answers(connection, sent),
        }),
    );
    let outcome = simulate_on(&load(1, 1, 4), sim);
    assert_eq!((outcome.counts(), errors(&outcome, |errors| errors.reset)), ((3, 1, 0), 1));
    assert_eq!(connections(&outcome)[3], 0);
}

#[test]
fn a_timeout_resets_its_stream_and_leaves_the_others() {
    let mut count = 0;
    let (sim, log) = machine(
        settings(&[]),
        Box::new(move |connection, sent| {
            if let Sent::Request { .. } = sent {
                count += 1;
                if count == 4 {
                    return vec![];
                }
            }
            answers(connection, sent)
        }),
    );
    let outcome = simulate_on(&load(1, 3, 300), sim);
    assert_eq!((outcome.counts(), errors(&outcome, |errors| errors.timeout)), ((299, 1, 0), 1));
    assert_eq!(connections(&outcome)[0], 1);
    let resets = log.borrow().iter().filter(|(_, sent)| *sent == Sent::Reset { stream: 7, code: 8 }).count();
    assert_eq!(resets, 1, "CANCEL of the one that timed out");
}

#[test]
fn a_server_that_falls_silent_is_left_and_another_connection_made() {
    let (sim, _) = machine(
        settings(&[]),
        Box::new(move |connection, sent| match (connection, sent) {
            (1, Sent::Request { stream: 5.., .. }) => vec![],
            _ => answers(connection, sent),
        }),
    );
    let outcome = simulate_on(&load(1, 2, 40), sim);
    assert_eq!((outcome.counts(), errors(&outcome, |errors| errors.timeout)), ((38, 2, 0), 2));
    assert_eq!(connections(&outcome)[0], 2);
}

/// What a hostile server does to the first connection, and the class that its requests end in.
type Hostile = (&'static str, Vec<(u64, ServerAction)>, fn(&ErrorCounts) -> u64);

#[test]
fn hostile_servers_end_in_their_class_and_the_load_goes_on() {
    let protocol: fn(&ErrorCounts) -> u64 = |errors| errors.protocol;
    let closed: fn(&ErrorCounts) -> u64 = |errors| errors.closed_early;
    let reset: fn(&ErrorCounts) -> u64 = |errors| errors.reset;
    let timeout: fn(&ErrorCounts) -> u64 = |errors| errors.timeout;
    let begun = || headers(1, &[":status: 200", "content-length: 9"], false);
    let cases: Vec<Hostile> = vec![
        ("silence", vec![], timeout),
        ("half a response", vec![send(0, begun())], timeout),
        ("half a frame", vec![send(0, begun()), send(0, vec![0, 0, 9])], timeout),
        ("a close", vec![(0, ServerAction::Close)], closed),
        ("a close within", vec![send(0, begun()), (MS, ServerAction::Close)], closed),
        ("a reset", vec![send(0, begun()), (MS, ServerAction::Reset)], reset),
        (
            "resets of the streams",
            vec![send(0, [number(RST_STREAM, 1, 2), number(RST_STREAM, 3, 2)].concat())],
            reset,
        ),
        ("a flood of pings", vec![send(0, frame(PING, 0, 0, &[0; 8]).repeat(5000))], protocol),
        ("empty data", vec![send(0, begun()), send(0, data(1, b"", false).repeat(5000))], protocol),
        (
            "a head without end",
            vec![send(0, frame(1, 0, 1, &[])), send(0, frame(CONTINUATION, 0, 1, &[0x82]).repeat(50))],
            protocol,
        ),
        ("a stream that is none", vec![send(0, ok(99))], protocol),
        ("what is no frame", vec![send(0, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())], protocol),
    ];
    for (name, acts, class) in cases {
        let mut acts = Some(acts);
        let (sim, _) = machine(
            settings(&[]),
            Box::new(move |connection, sent| match (connection, sent) {
                (1, Sent::Request { stream: 1, .. }) => acts.take().unwrap_or_default(),
                (1, _) => vec![],
                _ => answers(connection, sent),
            }),
        );
        let outcome = simulate_on(&load(1, 2, 40), sim);
        // Those on the first connection fail, as many as were on it; a frame error of one request may spare the other.
        let failed = outcome.counts().1;
        assert!((1..=4).contains(&failed) && outcome.counts().2 == 0, "{name}: {:?}", outcome.counts());
        let in_class = errors(&outcome, class);
        let late = errors(&outcome, |errors| errors.timeout);
        assert!(in_class > 0 && in_class + late >= failed, "{name}: {in_class} of {failed}");
    }
}

#[test]
fn a_window_of_nothing_holds_a_body_until_the_timeout() {
    let (sim, _) = machine(settings(&[(4, 0)]), Box::new(answers));
    let mut load = load(1, 1, 3);
    load.requests[0].method = "POST".into();
    load.requests[0].body = vec![7_u8; 100_000].into();
    let outcome = simulate_on(&load, sim);
    // The windows of before the settings: 65,535 bytes go out, the rest never.
    assert_eq!((outcome.counts(), errors(&outcome, |errors| errors.timeout)), ((0, 3, 0), 3));
}

#[test]
fn bodies_go_out_as_windows_open() {
    let (sim, _) = machine(
        settings(&[]),
        Box::new(|connection, sent| match sent {
            Sent::Data { stream, bytes, ends: false } => {
                let more = *bytes as u32;
                vec![send(MS, [number(8, 0, more), number(8, *stream, more)].concat())]
            }
            Sent::Data { stream, bytes, .. } => {
                vec![send(MS, [number(8, 0, *bytes as u32), ok(*stream)].concat())]
            }
            sent => answers(connection, sent),
        }),
    );
    let mut load = load(1, 2, 8);
    load.requests[0].method = "POST".into();
    load.requests[0].body = vec![7_u8; 300_000].into();
    assert_eq!(simulate_on(&load, sim).counts(), (8, 0, 0));
}

#[test]
fn a_new_connection_for_each_request_is_one() {
    let (sim, log) = machine(settings(&[]), Box::new(answers));
    let mut load = load(2, 1, 10);
    load.keepalive = false;
    let outcome = simulate_on(&load, sim);
    assert_eq!((outcome.counts(), connections(&outcome)), ((10, 0, 0), [10, 0, 0, 0]));
    let gone = log.borrow().iter().filter(|(_, sent)| *sent == Sent::GoAway { code: 0 }).count();
    assert_eq!(gone, 10);
}

#[test]
fn one_byte_at_a_time_is_the_same() {
    let (mut sim, _) = machine(
        settings(&[]),
        Box::new(|connection, sent| {
            let mut acts = vec![];
            for (at_ns, act) in answers(connection, sent) {
                if let ServerAction::Send(bytes) = act {
                    acts.extend(bytes.iter().zip(0..).map(|(byte, at)| send(at_ns + at, vec![*byte])));
                }
            }
            acts
        }),
    );
    sim.send_max = 3;
    assert_eq!(simulate_on(&load(2, 3, 30), sim).counts(), (30, 0, 0));
}

#[test]
fn at_a_rate_times_begin_when_requests_are_due() {
    let (mut sim, _) = machine(settings(&[]), Box::new(answers));
    sim.call_ns = 1000;
    let mut load = workload(Arrival::Open { rate_per_s: 2000.0, poisson: false }, 4, 1000);
    load.transport.http2_streams = Some(10);
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts().1, 0);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert!(response.p50.unwrap() >= 1000 && response.p50.unwrap() <= 1010, "{response:?}");
    let delay = outcome.merged(|interval| &interval.client_delay).dist();
    assert!(delay.p99.unwrap() <= 10, "{delay:?}");
}

#[test]
fn visitors_share_no_connection_and_each_has_one() {
    let (sim, log) = machine(settings(&[]), Box::new(answers));
    let mut load = page(8, 3, 20);
    visits(&mut load).returning_fraction = 1.0;
    load.transport.http2_streams = Some(5);
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts().1, 0);
    assert_eq!(connections(&outcome)[0], 3, "one for each visitor, who comes again");
    // Document, then at most five at once: three rounds of a millisecond a page.
    let requests = outcome.counts().0;
    assert!((3 * 9 * 5..=3 * 9 * 7).contains(&requests), "{requests}");
    let carried: BTreeSet<u64> = log.borrow().iter().map(|(connection, _)| *connection).collect();
    assert_eq!(carried.len(), 3);
}

// A call ends with its trailers, or with a head alone; what is not OK is named.
#[test]
fn calls_of_grpc_end_with_their_status() {
    let message: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    let head = ":status: 200|content-type: application/grpc";
    let fields = |text: &'static str| text.split('|').collect::<Vec<_>>();
    for (first, body, trailers, status, expected) in [
        (head, message, Some("grpc-status: 0"), "200", [5, 0, 0, 0]),
        (head, &[0, 0, 0, 0, 0], Some("grpc-status: 0|grpc-message: fine"), "200", [5, 0, 0, 0]),
        (head, b"", Some("grpc-status: 14|grpc-message: full"), "UNAVAILABLE", [0, 5, 0, 0]),
        (head, message, Some("x: y"), "UNKNOWN", [0, 5, 0, 0]),
        (head, message, Some("grpc-status: 99"), "UNKNOWN", [0, 5, 0, 0]),
        (":status: 200|grpc-status: 12", b"", None, "UNIMPLEMENTED", [0, 5, 0, 0]),
        (":status: 503", b"", None, "503", [0, 0, 5, 0]),
        (":status: 502|content-length: 3", b"no!", Some("x: y"), "502", [0, 0, 5, 0]),
        // Not one message: too short, too long, no message.
        (head, &message[..6], Some("grpc-status: 0"), "", [0, 0, 0, 5]),
        (head, b"", Some("grpc-status: 0"), "", [0, 0, 0, 5]),
        (head, &[2, 0, 0, 0, 0], Some("grpc-status: 0"), "", [0, 0, 0, 5]),
    ] {
        let answer = move |_: u64, sent: &Sent| match sent {
            Sent::Data { stream, ends: true, .. } => {
                let mut parts = vec![headers(*stream, &fields(first), body.is_empty() && trailers.is_none())];
                // In two pieces, as a server may send them.
                let (one, two) = body.split_at(body.len() / 2);
                parts.extend(
                    [one, two]
                        .map(|piece| data(*stream, piece, false))
                        .into_iter()
                        .filter(|_| !body.is_empty()),
                );
                parts.extend(trailers.map(|text| headers(*stream, &fields(text), true)));
                vec![send(MS, parts.concat())]
            }
            _ => vec![],
        };
        let (sim, log) = machine(settings(&[]), Box::new(answer));
        let mut load = load(1, 2, 5);
        load.requests[0].method = "POST".into();
        load.requests[0].headers = [("Content-Type", "application/grpc"), ("TE", "trailers")]
            .map(|(n, v)| (n.into(), v.into()))
            .into();
        load.requests[0].body = message.to_vec().into();
        let outcome = simulate_on(&load, sim);
        let classes = [
            outcome.counts().0,
            errors(&outcome, |e| e.grpc),
            errors(&outcome, |e| e.status),
            errors(&outcome, |e| e.protocol),
        ];
        assert_eq!(classes, expected, "{first} {body:?} {trailers:?}");
        let named = outcome.sum(|interval| interval.status.get(status).copied().unwrap_or(0));
        assert_eq!(named, if status.is_empty() { 0 } else { 5 }, "{status}: {:?}", outcome.intervals);
        let log = log.borrow();
        let request = log.iter().find_map(|(_, sent)| match sent {
            Sent::Request { fields, .. } => Some(fields.clone()),
            _ => None,
        });
        assert!(request.unwrap().contains("te: trailers\ngrpc-timeout: 50m\n"), "{log:?}");
    }
}

// As over HTTP/1.1 (`accuracy`): a start every 5 ms, and a server that freezes for 500 ms of every 2 s. All of it on one connection.
#[test]
fn a_freezing_server_shows_exactly_over_http2_too() {
    let mut sim = Sim::new(Box::new(|visit: ServerRequest| match visit.request {
        0 => vec![(0, ServerAction::Accept), send(0, settings(&[(3, 1000)]))],
        _ => vec![],
    }));
    let mut reader = Reader::default();
    sim.bytes_server = Some(Box::new(move |_, now_ns, bytes| {
        let sent = reader.take(bytes);
        let streams = sent.iter().filter_map(|sent| match sent {
            Sent::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        streams.map(|stream| send(frozen_ns(now_ns), ok(stream))).collect()
    }));
    let mut load = load(1, 400, 2000);
    load.arrival = Arrival::Open { rate_per_s: 200.0, poisson: false };
    load.timeout_us = 10_000_000;
    let outcome = simulate_on(&load, sim);
    let truth: Vec<u64> = (0..2000).map(|n| frozen_ns(n * 5 * MS)).collect();
    check_times(&outcome.merged(|interval| &interval.response_time), &truth, "over HTTP/2");
    assert_eq!(connections(&outcome)[0], 1);
}

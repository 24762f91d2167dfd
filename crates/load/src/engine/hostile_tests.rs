//! The engine against simulated servers that are hostile: what they do to one connection is exact to the nanosecond,
//! and no other connection is affected.

use super::simulation::*;
use webdyno_model::workload::Arrival;

/// Responses that end in different ways.
const ANSWERS: [&str; 3] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
];

/// What follows the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum AfterBytes {
    Close,
    Reset,
    Silence,
}

/// The first connection gives one successful response and cuts the second one; later ones are good.
fn cutting(response: &'static str, count: usize, then: AfterBytes) -> Server<'static> {
    let part = ServerAction::Send(response.as_bytes()[..count].to_vec());
    Box::new(move |visit| match (visit.connection, visit.request) {
        (_, 0) => vec![(0, ServerAction::Accept)],
        (1, 2) => match then {
            AfterBytes::Close => vec![(MS, part.clone()), (2 * MS, ServerAction::Close)],
            AfterBytes::Reset => vec![(MS, part.clone()), (2 * MS, ServerAction::Reset)],
            AfterBytes::Silence => vec![(MS, part.clone())],
        },
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    })
}

/// A kept connection ends at each byte of its second answer.
fn check_cut(response: &'static str, count: usize, then: AfterBytes, method: &str) {
    let mut load = workload(Arrival::Closed, 1, 1);
    load.requests[0].method = method.into();
    load.timeout_us = 50_000;
    (load.stop.requests, load.stop.duration_us) = (Some(4), None);
    let outcome = simulate(&load, cutting(response, count, then));
    let sum =
        |of: fn(&webdyno_model::interval::ErrorCounts) -> u64| outcome.sum(|interval| of(&interval.errors));
    let (closed, reset, timeout) =
        (sum(|errors| errors.closed_early), sum(|errors| errors.reset), sum(|errors| errors.timeout));
    let quiet = outcome.sum(|interval| interval.connections.quiet_closes);
    let whole = count == response.len();
    // Nothing of the response came: an idempotent request is sent again.
    let crossed = count == 0 && then != AfterBytes::Silence && method == "GET";
    let failed = !whole && !crossed;
    let expected = match then {
        AfterBytes::Close => (u64::from(failed), 0, 0),
        AfterBytes::Reset => (0, u64::from(failed), 0),
        AfterBytes::Silence => (0, 0, u64::from(failed)),
    };
    let told = format!("{method} {response:?} cut at {count}, {then:?}");
    assert_eq!((closed, reset, timeout), expected, "{told}");
    assert_eq!(outcome.counts(), (4 - u64::from(failed), u64::from(failed), 0), "{told}");
    // After the whole response the next request is on its way when the connection ends: it crosses the close.
    if method == "GET" && !whole {
        assert_eq!(quiet, u64::from(crossed), "{told}");
    }
    if then == AfterBytes::Silence && failed {
        assert_eq!(outcome.merged(|interval| &interval.response_time).dist().max, Some(50_000), "{told}");
    }
}

#[test]
fn a_kept_connection_that_ends_at_any_byte_has_its_class() {
    for response in ANSWERS {
        for count in 0..=response.len() {
            for then in [AfterBytes::Close, AfterBytes::Reset, AfterBytes::Silence] {
                for method in ["GET", "POST"] {
                    // The whole response, and the close as the next POST goes: that is a failure of its own.
                    if !(count == response.len() && method == "POST" && then != AfterBytes::Silence) {
                        check_cut(response, count, then, method);
                    }
                }
            }
        }
    }
}

#[test]
fn a_connection_without_end_takes_its_turn_like_any_other() {
    let server = Box::new(|visit: ServerRequest| match (visit.connection, visit.request) {
        (_, 0) => vec![(0, ServerAction::Accept)],
        (1, _) => {
            vec![(MS, ServerAction::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())), (MS + 1, ServerAction::Flood)]
        }
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    });
    let mut load = workload(Arrival::Open { rate_per_s: 100.0, poisson: false }, 10, 1000);
    load.timeout_us = 800_000;
    let mut sim = Sim::new(server);
    // 16 reads are a turn of 0.8 ms.
    sim.call_ns = 50_000;
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts().1, 1);
    assert_eq!(outcome.sum(|interval| interval.errors.timeout), 1);
    // The response takes a millisecond, and at most two turns of the other go by before it is read.
    let response = outcome.merged(|interval| &interval.response_time);
    assert_eq!(response.dist().max, Some(800_000));
    let others = response.quantile_us(0.98).unwrap();
    assert!(others < 5_000, "{others}");
}

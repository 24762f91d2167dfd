//! HTTP/1.1 as servers speak it, in the simulated world: what counts as an answer, and what becomes of its connection.

use super::simulation::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use webdyno_model::interval::Interval;
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
        0 => vec![(100_000, Act::Accept)],
        _ => vec![(MS, Act::Send(bytes.clone()))],
    })
}

fn unmet(outcome: &Outcome) -> u64 {
    outcome.sum(|interval: &Interval| interval.errors.expect)
}

#[test]
fn bodies_are_looked_into_when_something_is_expected_of_them() {
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
    for (answer, name) in [(plain, "plain"), (chunked, "chunked"), (coded, "gzip")] {
        for (expectation, met) in [
            (Expectation::Regex("(?m)^a good page$".into()), true),
            (Expectation::Regex("Fatal error".into()), false),
            (Expectation::Length(text.len() as u64), true),
            (Expectation::Length(text.len() as u64 + 1), false),
        ] {
            let mut load = requests(3);
            load.expect = vec![expectation.clone()];
            let outcome = simulate(&load, sending(answer.clone()));
            let expected = if met { (3, 0, 0) } else { (0, 3, 0) };
            assert_eq!(outcome.counts(), expected, "{name} {expectation:?}");
            assert_eq!(unmet(&outcome), expected.1, "{name} {expectation:?}");
            // Counted as it came over the wire, and the connection is good for the next request.
            let received = outcome.sum(|interval| interval.bytes_received);
            assert_eq!(received, 3 * answer.len() as u64, "{name}");
            assert_eq!(outcome.sum(|interval| interval.connections.opened), 1);
        }
    }
}

#[test]
fn a_broken_coding_is_an_unmet_expectation_and_nothing_without_one() {
    let answer = wire("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 5\n\nhello");
    let mut load = requests(2);
    assert_eq!(simulate(&load, sending(answer.clone())).counts(), (2, 0, 0));
    load.expect = vec![Expectation::Length(5)];
    let outcome = simulate(&load, sending(answer));
    assert_eq!((outcome.counts(), unmet(&outcome)), ((0, 2, 0), 2));
}

#[test]
fn an_answer_that_fails_by_its_status_is_not_looked_into() {
    let mut load = requests(2);
    load.expect = vec![Expectation::Regex("ok".into())];
    let outcome = simulate(&load, sending(wire("HTTP/1.1 500 No\nContent-Length: 2\n\nno")));
    assert_eq!((outcome.sum(|interval| interval.errors.status), unmet(&outcome)), (2, 0));
}

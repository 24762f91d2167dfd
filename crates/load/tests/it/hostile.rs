//! Servers that misbehave: each has its class of failure, and none stops the engine.

use crate::server::{OK, Outcome, Server, Step, load, workload};
use std::time::Duration;
use webdyno_model::interval::ErrorCounts;

const MS: Duration = Duration::from_millis(1);

/// Loads the script with ten requests and checks that all ten fail, in this class, long before a timeout.
fn check(script: Vec<Step>, class: fn(&ErrorCounts) -> u64) -> Outcome {
    check_within(20_000_000, script, class)
}

/// The same with this timeout.
fn check_within(timeout_us: u64, script: Vec<Step>, class: fn(&ErrorCounts) -> u64) -> Outcome {
    let server = Server::start(script.clone());
    let mut load_of = workload(&server.url());
    load_of.stop.requests = Some(10);
    load_of.stop.duration_us = None;
    load_of.timeout_us = timeout_us;
    let outcome = load(&load_of);
    assert_eq!(outcome.sum(|interval| class(&interval.errors)), 10, "{script:?}: {:?}", outcome.intervals);
    assert_eq!((outcome.completed(), outcome.failed()), (0, 10));
    outcome
}

fn send(text: &str) -> Step {
    Step::Send(text.replace('\n', "\r\n").into_bytes())
}

#[test]
fn what_is_not_http_is_a_protocol_error() {
    check(vec![Step::Request, send("SSH-2.0-OpenSSH\n"), Step::Hold], |errors| errors.protocol);
    let twice = send("HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\nok");
    check(vec![Step::Request, twice, Step::Hold], |errors| errors.protocol);
    let bad_chunk = send("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nnot a size\n");
    check(vec![Step::Request, bad_chunk, Step::Hold], |errors| errors.protocol);
    let more = send("HTTP/1.1 200 OK\nContent-Length: 2\n\nok and more");
    check(vec![Step::Request, more, Step::Hold], |errors| errors.protocol);
}

#[test]
fn endless_headers_end_at_a_bound() {
    let line = format!("X-Filler: {}\r\n", "y".repeat(1000)).into_bytes();
    let mut script = vec![Step::Request, send("HTTP/1.1 200 OK\n")];
    script.extend(std::iter::repeat_n(Step::Send(line), 100));
    script.push(Step::Hold);
    check(script, |errors| errors.protocol);
}

#[test]
fn a_truncated_connection_is_distinguished_from_a_reset() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec();
    for cut in [0, 1, 12, 30, response.len()] {
        let part = response[..cut].to_vec();
        check(vec![Step::Request, Step::Send(part.clone())], |errors| errors.closed_early);
        check(vec![Step::Request, Step::Send(part.clone()), Step::HalfClose, Step::Hold], |errors| {
            errors.closed_early
        });
        // The pause lets the bytes be read before the reset throws them away.
        let reset = vec![Step::Request, Step::Send(part), Step::Sleep(MS * 20), Step::Reset];
        check(reset, |errors| errors.reset);
    }
}

#[test]
fn a_server_that_never_answers_times_out_at_the_bound() {
    let outcome = check_within(300_000, vec![Step::Hold], |errors| errors.timeout);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    // The bound is what is recorded, however late the machine let us notice.
    assert_eq!((response.count, response.min, response.max), (10, Some(300_000), Some(300_000)));
    // Two users, five timeouts each.
    assert!((1_500_000..2_500_000).contains(&outcome.end.elapsed_us), "{}", outcome.end.elapsed_us);
}

#[test]
fn bytes_that_keep_coming_slowly_do_not_stretch_the_timeout() {
    let drip = Step::Drip(OK.to_vec(), MS * 20);
    let outcome = check_within(300_000, vec![Step::Request, drip, Step::Again], |errors| errors.timeout);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!(response.max, Some(300_000));
}

#[test]
fn slow_bytes_within_the_timeout_are_a_successful_response() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".to_vec();
    let server = Server::start(vec![Step::Request, Step::Drip(chunked, MS), Step::Again]);
    let mut load_of = workload(&server.url());
    load_of.stop.requests = Some(6);
    load_of.stop.duration_us = None;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (6, 0));
    assert!(outcome.merged(|interval| &interval.service_time).dist().min.unwrap() > 50_000);
}

#[test]
fn nothing_listens_there() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let outcome = load(&workload(&format!("http://{address}/")));
    let refused = outcome.sum(|interval| interval.errors.connect_refused);
    assert_eq!(refused, outcome.failed());
    // Pauses of 10, 20, 40, ... ms leave room for seven attempts of each of two users in a second.
    assert!((8..=14).contains(&refused), "{refused}");
}

#[test]
fn a_large_body_is_counted_to_the_byte() {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_vec();
    response.resize(response.len() + 3_000_000, b'x');
    let size = response.len() as u64;
    let server = Server::start(vec![Step::Request, Step::Send(response), Step::Again]);
    let mut load_of = workload(&server.url());
    load_of.stop.requests = Some(20);
    load_of.stop.duration_us = None;
    load_of.expect = vec![webdyno_model::workload::Expectation::Length(3_000_000)];
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (20, 0));
    assert_eq!(outcome.sum(|interval| interval.bytes_received), 20 * size);
}

#[test]
fn a_large_request_is_sent_whole() {
    let server = Server::start(vec![Step::Sleep(MS * 50), Step::Request, Step::Send(OK.to_vec())]);
    let mut load_of = workload(&server.url());
    load_of.requests[0].method = "POST".into();
    // More than any socket buffer takes at once; the blank line that the server waits for is at its end.
    load_of.requests[0].body = format!("{}\r\n\r\n", "x".repeat(8_000_000)).as_str().into();
    load_of.stop.requests = Some(4);
    load_of.stop.duration_us = None;
    load_of.keepalive = false;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (4, 0), "{:?}", outcome.intervals[0].errors);
    assert!(outcome.sum(|interval| interval.bytes_sent) >= 4 * 8_000_000);
}

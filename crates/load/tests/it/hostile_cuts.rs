//! Answers cut off at each of their bytes, by a close, by a close of one side only, and by a reset.

use crate::server::{Server, Step, load, workload};
use std::time::Duration;
use webdyno_model::interval::ErrorCounts;

const ANSWERS: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.0 200 OK\r\n\r\nup to the close",
];

/// The number of bytes from which on a close completes a response: HTTP/1.0 has a body up to the close here.
fn complete_bytes(response: &str) -> usize {
    match response.starts_with("HTTP/1.0") {
        true => response.find("\r\n\r\n").unwrap() + 4,
        false => response.len(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Cut {
    Close,
    HalfClose,
    Reset,
}

/// The script of a connection that is cut after `count` bytes.
fn script(response: &str, count: usize, cut: Cut) -> Vec<Step> {
    let mut script = vec![Step::Request, Step::Send(response.as_bytes()[..count].to_vec())];
    match cut {
        Cut::Close => {}
        Cut::HalfClose => script.extend([Step::HalfClose, Step::Hold]),
        // The pause lets the bytes be read: what they complete is complete.
        Cut::Reset => script.extend([Step::Sleep(Duration::from_millis(10)), Step::Reset]),
    }
    script
}

/// One connection for each number of bytes, from none to all.
fn check(response: &'static str, cut: Cut) {
    let complete_bytes = complete_bytes(response);
    let server = Server::by_turn(move |turn| script(response, turn as usize, cut));
    let mut load_of = workload(&server.url());
    load_of.connections = 8;
    load_of.keepalive = false;
    load_of.stop.requests = Some(response.len() as u64 + 1);
    load_of.stop.duration_us = None;
    let outcome = load(&load_of);
    // A body that ends with the connection is never complete after a reset.
    let framed = complete_bytes == response.len();
    let good = match cut {
        Cut::Reset if !framed => 0,
        _ => (response.len() - complete_bytes + 1) as u64,
    };
    let class = |errors: &ErrorCounts| if cut == Cut::Reset { errors.reset } else { errors.closed_early };
    let cut_off = outcome.sum(|interval| class(&interval.errors));
    let rest = response.len() as u64 + 1 - good;
    assert_eq!((outcome.completed(), cut_off, outcome.failed()), (good, rest, rest), "{response:?}");
    assert_eq!(server.connections.load(std::sync::atomic::Ordering::Acquire), response.len() as u64 + 1);
    assert_eq!(crate::hostile_matrix::sockets_to(server.address.port()), 0);
}

#[test]
fn a_close_at_each_byte_is_distinguished_from_the_end() {
    ANSWERS.iter().for_each(|response| check(response, Cut::Close));
    ANSWERS.iter().for_each(|response| check(response, Cut::HalfClose));
}

#[test]
fn a_reset_at_each_byte_is_a_reset() {
    ANSWERS.iter().for_each(|response| check(response, Cut::Reset));
}

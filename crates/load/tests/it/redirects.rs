//! Redirects between real servers: the load goes where the probe has been.

use crate::refusing::Refusing;
use crate::secure::{Authority, Secure};
use crate::server::{OK, Server, Step, load, load_prepared, workload};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use webdyno_load::{Control, prepare, probe};
use webdyno_model::workload::{Expectation, Workload};

fn responding(text: Vec<u8>) -> Server {
    Server::start(vec![Step::Request, Step::Send(text), Step::Again])
}

fn redirecting(to: &str) -> Server {
    responding(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 3\r\n\r\nto.").into_bytes())
}

fn following(url: &str, redirects_max: u32) -> Workload {
    let mut load_of = workload(url);
    (load_of.redirects_max, load_of.stop.requests) = (redirects_max, Some(200));
    load_of.stop.duration_us = None;
    load_of.expect = vec![Expectation::Regex("^ok$".into())];
    load_of
}

#[test]
fn a_chain_over_three_servers_is_followed() {
    let last = responding(OK.to_vec());
    let second = redirecting(&last.url());
    let first = redirecting(&second.url());
    let mut prepared = prepare(&following(&first.url(), 2)).unwrap();
    assert_eq!(prepared.addresses(), [first.address]);
    let seen = probe(&mut prepared).unwrap();
    assert_eq!((seen.status, seen.body_bytes), (Some(200), 2));
    assert_eq!(prepared.addresses().len(), 3);
    let outcome = load_prepared(&prepared, &Control::new());
    assert_eq!((outcome.completed(), outcome.failed()), (200, 0));
    assert_eq!(outcome.sum(|interval| interval.redirects), 400);
    // Two users with a connection to each server, or one who was there before the other and left nothing.
    let opened = outcome.sum(|interval| interval.connections.opened);
    assert!((3..=6).contains(&opened), "{opened}");
}

#[test]
fn a_redirect_to_a_dead_server_is_reported_with_both_ends() {
    let refusing = Refusing::start();
    let gone = refusing.address;
    let first = redirecting(&format!("http://{gone}/"));
    let told = probe(&mut prepare(&following(&first.url(), 2)).unwrap()).unwrap_err();
    let by = first.url();
    let by = by.trim_end_matches('/');
    assert_eq!(told.message, format!("cannot connect to {gone}: connection refused ({by} redirects there)"));
    // A name that is none is not loaded, and that is said.
    let lost = redirecting("http://nobody.invalid/");
    let mut prepared = prepare(&following(&lost.url(), 2)).unwrap();
    assert_eq!(probe(&mut prepared).unwrap().status, Some(302));
    let [note] = prepared.warnings() else { panic!("{:?}", prepared.warnings()) };
    assert!(note.starts_with("redirects lead to nobody.invalid, which is not loaded: "), "{note}");
}

#[test]
fn a_server_that_was_not_seen_before_is_not_loaded() {
    let other = responding(OK.to_vec());
    let first = redirecting(&other.url());
    let outcome = load(&following(&first.url(), 2));
    assert_eq!((outcome.completed(), outcome.failed()), (0, 200));
    assert_eq!(outcome.sum(|interval| interval.errors.status), 200);
    assert_eq!(other.connections.load(std::sync::atomic::Ordering::Acquire), 0);
}

#[test]
fn the_other_requests_of_a_workload_are_explored_too() {
    let other = responding(OK.to_vec());
    let (good, away) = (responding(OK.to_vec()), redirecting(&other.url()));
    let mut load_of = following(&good.url(), 1);
    let request = load_of.requests[0].clone();
    for method in ["HEAD", "POST"] {
        let mut more = request.clone();
        (more.url, more.method) = (away.url(), method.into());
        load_of.requests.truncate(1);
        load_of.requests.push(more);
        let mut prepared = prepare(&load_of).unwrap();
        assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
        // What may change something on a server is not tried.
        let known = prepared.addresses().contains(&other.address);
        assert_eq!(known, method == "HEAD", "{method}");
    }
}

#[test]
fn a_probe_ends_where_a_chain_cannot_be_followed() {
    for to in ["http://no-such-host.invalid/", "ftp://127.0.0.1/", "/"] {
        let server = redirecting(to);
        let mut prepared = prepare(&following(&server.url(), 3)).unwrap();
        assert_eq!(probe(&mut prepared).unwrap().status, Some(302), "{to}");
        assert_eq!(prepared.addresses(), [server.address]);
    }
}

/// A large body goes along, in TLS now; a secret does not.
#[test]
fn a_redirect_to_https_takes_the_body_along_and_no_secret() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let heard = Arc::new(Mutex::new(vec![]));
    let hearing = heard.clone();
    let secure = Secure::start(authority.server(&identity), move |mut stream| {
        loop {
            let (mut seen, mut buffer) = (vec![], vec![0; 65536]);
            // A body of zeros, and a one at its end.
            while seen.last() != Some(&1) {
                let count = stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
                seen.extend_from_slice(&buffer[..count]);
            }
            hearing.lock().unwrap().push(seen);
            stream.write_all(OK).ok()?;
            stream.flush().ok()?;
        }
    });
    let to = format!("HTTP/1.1 308 x\r\nLocation: {}new\r\nContent-Length: 0\r\n\r\n", secure.url());
    // It answers when it has seen the head, closes, and reads what still comes.
    let plain = Secure::raw(move |mut stream| {
        let (mut seen, mut buffer) = (vec![], vec![0; 65536]);
        while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
            let count = stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
            seen.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(to.as_bytes()).ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        while stream.read(&mut buffer).ok()? > 0 {}
        Some(())
    });
    let mut load_of = following(&format!("http://{}/", plain.address), 1);
    load_of.transport = secure.load_of(&authority, 1).transport;
    load_of.requests[0].method = "PUT".into();
    load_of.requests[0].headers = vec![("Authorization".into(), "s3cret".into())];
    load_of.requests[0].body = [vec![0; 1_000_000], vec![1]].concat().into();
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(6), None);
    let mut prepared = prepare(&load_of).unwrap();
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    let outcome = load_prepared(&prepared, &Control::new());
    assert_eq!((outcome.completed(), outcome.failed()), (6, 0), "{:?}", outcome.intervals[0].errors);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 7);
    for request in heard.iter() {
        let head_bytes = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&request[..head_bytes]);
        assert!(head.starts_with("PUT /new HTTP/1.1\r\n") && !head.contains("s3cret"), "{head}");
        assert_eq!(request.len() - head_bytes, 1_000_001);
    }
}

//! HTTP/3 where there is none: ports of UDP that nobody listens on, or that stay silent, and what it cannot be spoken with. Over
//! a real server: crates/webdyno/tests/it/http3.rs.

use crate::server::{load, workload};
use std::net::UdpSocket;
use webdyno_load::{prepare, probe};
use webdyno_model::UserError;
use webdyno_model::interval::ErrorCounts;
use webdyno_model::transport::Proxy;
use webdyno_model::workload::Workload;

/// A load of so many requests over HTTP/3 to a port.
fn load_of(port: u16, requests: u64) -> Workload {
    let mut load_of = workload(&format!("https://127.0.0.1:{port}/"));
    load_of.transport.http3_streams = Some(1);
    load_of.transport.tls.insecure = true;
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(requests), None);
    load_of
}

fn probed(workload: &Workload) -> UserError {
    probe(&mut prepare(workload).unwrap()).unwrap_err()
}

fn assert_says(error: &UserError, message: &str, hint: &str) {
    let said = error.hint.clone().unwrap_or_default();
    assert!(error.message.contains(message) && said.contains(hint), "{error}: {said}");
}

#[test]
fn a_port_that_nobody_listens_on_refuses_at_once() {
    // Taken, so that no other test is given it; but what is connected has no ear for others, and they are refused (udp(7)).
    let [deaf, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    deaf.connect(other.local_addr().unwrap()).unwrap();
    let port = deaf.local_addr().unwrap().port();
    let refused = load_of(port, 6);
    assert_says(&probed(&refused), &format!("nothing listens on UDP port {port}"), "leave --http3 out");
    let errors = load(&refused).errors();
    assert_eq!(errors, ErrorCounts { connect_refused: 6, ..ErrorCounts::default() });
}

#[test]
fn a_port_that_stays_silent_is_no_server() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut silent_load = load_of(silent.local_addr().unwrap().port(), 4);
    silent_load.timeout_us = 200_000;
    assert_says(&probed(&silent_load), "does not answer over QUIC", "firewall");
    let errors = load(&silent_load).errors();
    assert_eq!(errors, ErrorCounts { connect_timeout: 4, ..ErrorCounts::default() });
}

#[test]
fn what_it_cannot_be_spoken_with_is_refused() {
    type Change = fn(&mut Workload);
    for (change, message, hint) in [
        ((|load| load.requests[0].url = "http://127.0.0.1:1/".into()) as Change, "https://", "--http3"),
        (|load| load.transport.http2_streams = Some(1), "HTTP/2", "leave --http3 or --http2 out"),
        (|load| load.transport.proxy = Proxy::parse("h:3128").ok(), "UDP", "--proxy"),
        (|load| load.transport.unix_socket = Some("/run/x".into()), "UDP", "--unix-socket"),
        (|load| load.transport.http3_streams = Some(0), "0 streams", "--streams"),
        (|load| load.requests[0].url = "wss://127.0.0.1:1/".into(), "HTTP/3", "--http3"),
        (
            |load| load.requests[0].headers.push(("content-type".into(), "application/grpc".into())),
            "gRPC",
            "--http2",
        ),
    ] {
        let mut wrong = load_of(1, 1);
        change(&mut wrong);
        let error = prepare(&wrong).err().unwrap();
        assert_says(&error, message, hint);
        assert_eq!(error.exit_code(), 2, "{error}");
    }
}

//! Loads through a proxy of HTTP: tunnels for TLS and HTTP/2, whole URLs for plain HTTP, and proxies that do neither.

use crate::refusing::Refusing;
use crate::secure::{Authority, Secure, read_request, responding, response_of};
use crate::server::{OK, Server, Step, load, workload};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use webdyno_load::{prepare, probe};
use webdyno_model::interval::ErrorCounts;
use webdyno_model::transport::Proxy;
use webdyno_model::workload::Workload;

const TUNNEL: &[u8] = b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n";

/// A proxy, and the heads of what it was asked for.
fn proxy() -> (Secure, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(vec![]));
    let kept = seen.clone();
    let serve = move |mut client: TcpStream| loop {
        let head = String::from_utf8(read_request(&mut client)?).unwrap();
        kept.lock().unwrap().push(head.clone());
        let target = head.split(' ').nth(1)?.to_owned();
        if !head.starts_with("CONNECT ") {
            client.write_all(OK).ok()?;
            continue;
        }
        let port = target.rsplit_once(':')?.1.parse::<u16>().ok()?;
        let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
        server.set_nodelay(true).ok()?;
        client.write_all(TUNNEL).ok()?;
        let (mut from, mut to) = (server.try_clone().ok()?, client.try_clone().ok()?);
        thread::spawn(move || pump(&mut from, &mut to));
        pump(&mut client, &mut server);
        return None;
    };
    (Secure::raw(serve), seen)
}

fn pump(from: &mut TcpStream, to: &mut TcpStream) {
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(Shutdown::Write);
}

fn through(mut load_of: Workload, proxy: &str) -> Workload {
    load_of.transport.proxy = Some(Proxy::parse(proxy).unwrap());
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(20), None);
    load_of
}

#[test]
fn tls_is_spoken_through_a_tunnel_for_each_connection() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let server = Secure::start(authority.server(&identity), responding(response_of(3000)));
    let (proxy, seen) = proxy();
    let url = format!("http://me:p%40ss@{}", proxy.address);
    let mut load_of = through(server.load_of(&authority, 200), &url);
    load_of.transport.tls.ca_file = Some(authority.file());
    (load_of.stop.requests, load_of.connections) = (Some(200), 4);
    let mut prepared = prepare(&load_of).unwrap();
    assert_eq!(prepared.addresses(), [proxy.address], "connections go to the proxy");
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (200, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 4);
    assert_eq!(outcome.merged(|interval| &interval.tls_handshake).count(), 4);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5, "a tunnel for each connection, and the probe's");
    let target = format!("CONNECT localhost:{} HTTP/1.1\r\n", server.address.port());
    for head in seen.iter() {
        assert!(
            head.starts_with(&target) && head.contains("Proxy-Authorization: Basic bWU6cEBzcw==\r\n"),
            "{head}"
        );
    }
}

#[test]
fn plain_http_is_requested_by_its_whole_url() {
    let (proxy, seen) = proxy();
    let load_of =
        through(workload("http://nowhere.invalid:81/a?b=c"), &format!("http://me:pass@{}", proxy.address));
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (20, 0), "{:?}", outcome.intervals);
    for head in seen.lock().unwrap().iter() {
        let first = "GET http://nowhere.invalid:81/a?b=c HTTP/1.1\r\nHost: nowhere.invalid:81\r\n";
        assert!(
            head.starts_with(first) && head.contains("Proxy-Authorization: Basic bWU6cGFzcw==\r\n"),
            "{head}"
        );
    }
}

/// A proxy that says this, then does the rest of its script.
fn check(answer: &str, rest: &[Step], expected: fn(&ErrorCounts) -> u64, probe_says: &str) {
    let text = answer.replace('\n', "\r\n").into_bytes();
    let script: Vec<_> = [Step::Head, Step::Send(text)].into_iter().chain(rest.iter().cloned()).collect();
    let proxy = Server::start(script);
    for http2 in [false, true] {
        let mut load_of = through(workload("https://host.invalid/"), &proxy.url());
        load_of.transport.http2_streams = http2.then_some(2);
        // Only what never comes is waited for in vain.
        load_of.timeout_us = if probe_says.is_empty() { 400_000 } else { 10_000_000 };
        load_of.stop.requests = Some(6);
        match probe(&mut prepare(&load_of).unwrap()) {
            Ok(probe) => assert!(probe.timed_out && probe_says.is_empty(), "{answer:?}: {probe:?}"),
            Err(error) => {
                let text = format!("{} {}", error.message, error.hint.clone().unwrap_or_default());
                assert!(!probe_says.is_empty() && text.contains(probe_says), "{answer:?}: {text}");
            }
        }
        let outcome = load(&load_of);
        let errors = outcome.errors();
        assert_eq!((expected(&errors), outcome.completed()), (6, 0), "{answer:?}, {http2}: {errors:?}");
        let statuses = outcome.sum(|interval| interval.status.values().sum());
        let has_status = probe_says.contains("answers");
        assert_eq!(statuses, if has_status { 6 } else { 0 }, "{answer:?}: {:?}", outcome.intervals);
    }
}

#[test]
fn proxies_that_make_no_tunnel_are_told_apart() {
    let of_proxy = |errors: &ErrorCounts| errors.proxy;
    let of_time = |errors: &ErrorCounts| errors.connect_timeout;
    let slow = Duration::from_millis(100);
    for (answer, rest, probe_says) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\nContent-Length: 4\n\nno!\n",
            vec![Step::Hold],
            "it answers 407",
        ),
        ("HTTP/1.0 403 Forbidden\n\n", vec![], "it answers 403"),
        ("HTTP/1.1 502 Bad Gateway\n\n", vec![Step::Reset], "it answers 502"),
        ("HTTP/1.1 100 Continue\n\nHTTP/1.1 503 x\n\n", vec![], "it answers 503"),
        ("", vec![], "it closes"),
        ("", vec![Step::Reset], "it closes"),
        ("HTTP/1.1 200 O", vec![], "it closes"),
        ("SSH-2.0-OpenSSH_9.2\n", vec![Step::Hold], "does not answer in HTTP"),
        ("HTTP/1.1 200 OK\n", vec![Step::Endless(b"A: b\r\n".to_vec())], "does not answer in HTTP"),
    ] {
        check(answer, &rest, of_proxy, probe_says);
    }
    for (answer, rest) in [
        ("", vec![Step::Hold]),
        ("HTTP/1.1 100 Continue\n\n", vec![Step::Hold]),
        ("HTTP/1.1 ", vec![Step::Drip(b"200 OK\r\n\r\n".to_vec(), slow)]),
    ] {
        check(answer, &rest, of_time, "");
    }
    // What is behind the tunnel is the server's: here it speaks no TLS.
    check("HTTP/1.1 200 OK\n\nnone of TLS", &[Step::Hold], |errors| errors.tls, "host.invalid");
}

#[test]
fn an_unreachable_proxy_is_named() {
    let refusing = Refusing::start();
    let gone = refusing.address;
    for url in ["https://host.invalid/", "http://host.invalid/"] {
        let load_of = through(workload(url), &format!("http://me:s3cret@{gone}"));
        let error = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
        assert!(error.message.contains(&format!("cannot connect to the proxy {gone}: ")), "{error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error}");
        let outcome = load(&load_of);
        assert_eq!(outcome.errors().connect_refused, 20, "{:?}", outcome.intervals);
    }
}

// The connection preface of a server may stand right behind the proxy's head, in one segment with it.
#[test]
fn what_the_server_sends_behind_the_head_of_the_proxy_is_not_lost() {
    let preface = [TUNNEL, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let proxy = Secure::raw(move |mut stream| {
        read_request(&mut stream)?;
        stream.write_all(&preface).ok()?;
        let mut seen = vec![];
        // The client confirms the settings that it was sent: a frame of nine bytes.
        while !seen.windows(9).any(|nine| nine == [0, 0, 0, 4, 1, 0, 0, 0, 0]) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
            seen.extend_from_slice(&buffer[..count]);
        }
        // 200, to the streams 1 and 3.
        for stream_id in [1, 3] {
            stream.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, stream_id, 0x88]).ok()?;
        }
        while stream.read(&mut [0; 1024]).ok()? > 0 {}
        Some(())
    });
    let mut load_of = through(workload("http://host.invalid/"), &format!("http://{}", proxy.address));
    load_of.transport.http2_streams = Some(2);
    (load_of.connections, load_of.stop.requests) = (1, Some(2));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (2, 0), "{:?}", outcome.intervals);
}

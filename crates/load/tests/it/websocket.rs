//! Loads of WebSocket against servers of our own: what they count, how connections end, and servers that do not keep to it.

use crate::secure::{Authority, Secure, read_request};
use crate::server::{load, workload};
use base64::Engine as _;
use sha1::{Digest, Sha1};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use webdyno_load::workload::file;
use webdyno_load::{prepare, probe};
use webdyno_model::interval::ErrorCounts;
use webdyno_model::transport::AddressFamily;
use webdyno_model::workload::{Arrival, Stop, Workload};

/// Grants the upgrade; the head that asked for it.
fn upgrade(stream: &mut impl ReadWrite) -> Option<String> {
    let head = String::from_utf8(read_request(stream)?).ok()?;
    let key = head.split("Sec-WebSocket-Key: ").nth(1)?.lines().next()?;
    let digest = Sha1::new().chain_update(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")).finalize();
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()?;
    Some(head)
}

trait ReadWrite: Read + Write {}
impl<S: Read + Write> ReadWrite for S {}

/// The next frame of a client: its opcode and payload.
fn frame(stream: &mut impl ReadWrite) -> Option<(u8, Vec<u8>)> {
    let mut exact = |count: usize| {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let head = exact(2)?;
    let length = match head[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes(exact(2)?.try_into().ok()?)),
        127 => u64::from_be_bytes(exact(8)?.try_into().ok()?),
        short => u64::from(short),
    };
    let mask = exact(4)?;
    let mut payload = exact(length as usize)?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Some((head[0] & 0x0f, payload))
}

fn send(stream: &mut impl ReadWrite, opcode: u8, payload: &[u8]) -> Option<()> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        short @ ..=125 => bytes.push(short as u8),
        long @ ..=0xffff => bytes.extend([&[126][..], &(long as u16).to_be_bytes()].concat()),
        huge => bytes.extend([&[127][..], &(huge as u64).to_be_bytes()].concat()),
    }
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes).ok()?;
    stream.flush().ok()
}

/// Returns each message, a ping before every third; closes after `most` of them. Counts those who say that they close.
fn echo(mut stream: impl ReadWrite, most: u64, closes: &AtomicU64) -> Option<()> {
    upgrade(&mut stream)?;
    for number in 1.. {
        let (opcode, payload) = frame(&mut stream)?;
        match opcode {
            8 => {
                closes.fetch_add(1, Ordering::AcqRel);
                return send(&mut stream, 8, &payload);
            }
            10 => continue,
            _ => {}
        }
        if number % 3 == 0 {
            send(&mut stream, 9, b"are you there?")?;
        }
        send(&mut stream, opcode, &payload)?;
        if number >= most {
            return send(&mut stream, 8, &1000_u16.to_be_bytes());
        }
    }
    None
}

fn messages(url: &str, body: &[u8], count: u64) -> Workload {
    let mut load_of = workload(url);
    load_of.requests[0].method = "TEXT".into();
    load_of.requests[0].body = body.to_vec().into();
    load_of.transport.address_family = AddressFamily::Ipv4;
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(count), None);
    load_of
}

#[test]
fn messages_are_round_trips_on_kept_connections() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let closes = Arc::new(AtomicU64::new(0));
    let (one, other) = (closes.clone(), closes.clone());
    let plain = Secure::raw(move |stream| echo(stream, u64::MAX, &one));
    let secure = Secure::start(authority.server(&identity), move |stream| echo(stream, u64::MAX, &other));
    let urls = [
        format!("ws://{}/chat?a=b", plain.address),
        format!("wss://localhost:{}/chat", secure.address.port()),
    ];
    for url in &urls {
        for body in [&b"hello"[..], &[b'x'; 300], &[b'y'; 200_000]] {
            let mut load_of = messages(url, body, 300);
            load_of.transport.tls.ca_file = Some(authority.file());
            load_of.connections = 4;
            load_of.expect = vec![webdyno_model::workload::Expectation::Length(body.len() as u64)];
            assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200), "{url}");
            let outcome = load(&load_of);
            assert_eq!((outcome.completed(), outcome.failed()), (300, 0), "{url}: {:?}", outcome.intervals);
            assert_eq!(outcome.sum(|interval| interval.connections.opened), 4);
            assert_eq!(outcome.sum(|interval| interval.connections.reused), 296);
        }
    }
    // At a rate, and each on a connection of its own, which is closed by both sides.
    let mut load_of = messages(&urls[0], b"hello", 60);
    (load_of.arrival, load_of.keepalive) = (Arrival::Open { rate_per_s: 300.0, poisson: false }, false);
    load_of.connections = 20;
    let before = closes.load(Ordering::Acquire);
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (60, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 60);
    std::thread::sleep(Duration::from_millis(300));
    let closed = closes.load(Ordering::Acquire) - before;
    assert!(closed >= 55, "{closed} of 60 connections ended with the closing handshake");
}

#[test]
fn a_server_that_closes_between_messages_costs_a_connection_and_no_message() {
    let closes = Arc::new(AtomicU64::new(0));
    let server = Secure::raw(move |stream| echo(stream, 5, &closes));
    let mut load_of = messages(&format!("ws://{}/", server.address), b"hello", 100);
    load_of.connections = 2;
    let outcome = load(&load_of);
    let errors = outcome.errors();
    // A message may cross the close: it is not known whether it was handled, and it is not sent again.
    assert_eq!(outcome.completed() + errors.closed_early + errors.reset, 100, "{errors:?}");
    assert!(outcome.completed() >= 60, "{errors:?}");
    assert!(outcome.sum(|interval| interval.connections.opened) >= 12);
}

#[test]
fn servers_that_are_none_are_told_apart() {
    type Of = fn(&ErrorCounts) -> u64;
    let hold = |stream: &mut std::net::TcpStream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {};
    let text = |answer: &'static str| {
        Secure::raw(move |mut stream| {
            read_request(&mut stream)?;
            stream.write_all(answer.replace('\n', "\r\n").as_bytes()).ok()?;
            hold(&mut stream);
            Some(())
        })
    };
    let after = |bytes: &'static [u8]| {
        Secure::raw(move |mut stream| {
            upgrade(&mut stream)?;
            frame(&mut stream)?;
            stream.write_all(bytes).ok()?;
            hold(&mut stream);
            Some(())
        })
    };
    let cases: [(Secure, Of, &str); 8] = [
        (text("HTTP/1.1 403 Forbidden\nContent-Length: 0\n\n"), |e| e.status, "with status 403"),
        (text("HTTP/1.1 101 x\nUpgrade: websocket\nConnection: upgrade\n\n"), |e| e.protocol, "RFC 6455"),
        (text("SSH-2.0-x\n"), |e| e.protocol, "RFC 6455"),
        (text(""), |e| e.timeout, ""),
        (after(b""), |e| e.timeout, ""),
        (after(&[0x83, 0]), |e| e.protocol, "breaks the rules of WebSocket"),
        (after(&[0x88, 2, 3, 0xe9]), |e| e.closed_early, "closed the connection"),
        (
            Secure::raw(|mut stream| upgrade(&mut stream).map(|_| ())),
            |e| e.closed_early + e.reset,
            "the connection",
        ),
    ];
    for (number, (server, of, probe_says)) in cases.into_iter().enumerate() {
        let mut load_of = messages(&format!("ws://{}/", server.address), b"hello", 6);
        load_of.timeout_us = 300_000;
        match probe(&mut prepare(&load_of).unwrap()) {
            Ok(probe) => assert!(probe.timed_out && probe_says.is_empty(), "{number}: {probe:?}"),
            Err(error) => {
                assert!(!probe_says.is_empty() && error.message.contains(probe_says), "{number}: {error}")
            }
        }
        let outcome = load(&load_of);
        let errors = outcome.errors();
        assert_eq!((of(&errors), outcome.completed()), (6, 0), "{number}: {errors:?}");
    }
}

#[test]
fn visitors_talk_with_what_the_server_said_beside_requests_of_http() {
    let heard = Arc::new(Mutex::new(vec![]));
    let told = heard.clone();
    let server = Secure::raw(move |mut stream| {
        let head = upgrade(&mut stream);
        let Some(head) = head else { return stream.write_all(crate::server::OK).ok() };
        told.lock().unwrap().push(head);
        while let Some((opcode @ 1..=2, payload)) = frame(&mut stream) {
            told.lock().unwrap().push(format!("{opcode} {}", String::from_utf8_lossy(&payload)));
            send(&mut stream, 1, br#"{"room":{"id":"k\u00e4se"}}"#)?;
        }
        None
    });
    let text = format!(
        "users = 1\nthink = \"none\"\n[[session]]\n[[session.step]]\nrequest = \"http://{0}/\"\n[[session.step]]\n\
         request = {{ name = \"join\", url = \"ws://{0}/talk\", headers = {{ Origin = \"http://h\" }}, json = {{ join = 1 }} }}\n\
         capture = [{{ name = \"room\", json = \"/room/id\" }}]\n[[session.step]]\n\
         request = {{ url = \"ws://{0}/talk\", headers = {{ Origin = \"http://h\" }}, body = \"in ${{room}}\" }}\n[[session.step]]\n\
         request = {{ url = \"ws://{0}/talk\", headers = {{ Origin = \"http://h\" }}, body_hex = \"68 69\" }}\n",
        server.address
    );
    let mut load_of = file::parse(&text, Path::new("w.toml"), &mut |_| unreachable!()).unwrap();
    (load_of.stop, load_of.threads) = (Stop { requests: Some(4), duration_us: None }, Some(1));
    let outcome = load(&load_of);
    assert_eq!(outcome.failed(), 0, "{:?}", outcome.intervals);
    let heard = heard.lock().unwrap();
    let talks = heard.iter().filter(|line| line.starts_with("GET /talk HTTP/1.1\r\n")).count();
    assert!(talks >= 1 && heard[0].contains("\r\nOrigin: http://h\r\n"), "{heard:?}");
    assert_eq!(
        heard[1..4],
        [r#"1 {"join":1}"#.to_owned(), "1 in k\u{e4}se".into(), "2 hi".into()],
        "{heard:?}"
    );
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (change, says) in [
        ((|load| load.transport.http2_streams = Some(1)) as fn(&mut Workload), "not spoken over HTTP/2"),
        (|load| load.requests[0].method = "GET".into(), "no kind of message"),
        (|load| load.requests[0].headers = vec![("Sec-WebSocket-Key".into(), "x".into())], "the upgrade"),
        (
            |load| {
                let other = webdyno_model::workload::RequestSpec {
                    headers: vec![("A".into(), "b".into())],
                    ..load.requests[0].clone()
                };
                load.requests.push(other);
            },
            "different headers",
        ),
    ] {
        let mut load_of = messages("ws://127.0.0.1:1/", b"x", 1);
        change(&mut load_of);
        let error = prepare(&load_of).unwrap_err();
        assert!(error.exit_code() == 2 && error.message.contains(says) && error.hint.is_some(), "{error}");
    }
}

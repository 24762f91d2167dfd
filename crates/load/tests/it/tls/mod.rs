//! Loads over TLS, against a server by rustls: what is counted, what is refused, and how failures are reported.

mod with_nginx;

use crate::secure::{Authority, Identity, Secure, Stream, closing, read_request, responding, response_of};
use crate::server::{OK, Outcome, load, workload};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use webdyno_load::{measure_alone, prepare, probe};
use webdyno_model::UserError;
use webdyno_model::transport::ConnectTo;
use webdyno_model::workload::Workload;

/// An authority and a certificate of it for localhost.
fn pki() -> (Authority, Identity) {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    (authority, identity)
}

pub fn tls_errors(outcome: &Outcome) -> u64 {
    outcome.sum(|interval| interval.errors.tls)
}

#[test]
fn handshakes_and_responses_are_counted() {
    let (authority, identity) = pki();
    let server = Secure::start(authority.server(&identity), responding(OK.to_vec()));
    for threads in [1, 2] {
        let mut load_of = server.load_of(&authority, 3000);
        (load_of.connections, load_of.threads) = (8, Some(threads));
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (3000, 0), "{:?}", outcome.intervals);
        assert_eq!(outcome.sum(|interval| interval.bytes_received), 3000 * OK.len() as u64);
        let opened = outcome.sum(|interval| interval.connections.opened);
        assert_eq!(opened, 8);
        let handshakes = outcome.merged(|interval| &interval.tls_handshake);
        assert_eq!(handshakes.count(), opened);
        assert!(handshakes.mean_us().unwrap() > 50.0, "a handshake takes time");
        assert_eq!(outcome.merged(|interval| &interval.connect_time).count(), opened);
        assert_eq!(outcome.sum(|interval| interval.connections.reused), 3000 - opened);
    }
}

#[test]
fn sessions_are_resumed_unless_that_is_switched_off() {
    let (authority, identity) = pki();
    let closing_answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
            .unwrap();
        config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
        let server = Secure::start(config, closing(closing_answer.to_vec()));
        let mut load_of = server.load_of(&authority, 40);
        load_of.connections = 1;
        for (no_resumption, resumed) in [(false, 39), (true, 0)] {
            load_of.transport.tls.no_resumption = no_resumption;
            let outcome = load(&load_of);
            assert_eq!((outcome.completed(), outcome.failed()), (40, 0), "{:?}", outcome.intervals);
            assert_eq!(outcome.sum(|interval| interval.connections.opened), 40);
            let seen = outcome.sum(|interval| interval.connections.tls_resumed);
            assert_eq!(seen, resumed, "{version:?} {no_resumption}");
        }
    }
}

#[test]
fn a_client_certificate_is_shown_where_it_is_wanted() {
    let (authority, identity) = pki();
    let client = authority.identity(&["client"], |_| {});
    let server = Secure::start(authority.server_that_asks(&identity), responding(OK.to_vec()));
    let mut load_of = server.load_of(&authority, 20);
    let told = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
    assert!(told.message.contains("refused TLS with the alert CertificateRequired"), "{told}");
    assert!(told.hint.as_ref().unwrap().contains("--cert FILE"), "{told}");
    let outcome = load(&load_of);
    assert_eq!((tls_errors(&outcome), outcome.failed()), (20, 20), "{:?}", outcome.intervals);
    load_of.transport.tls.certificate_file = Some(client.certificate_file.clone());
    load_of.transport.tls.key_file = Some(client.key_file.clone());
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (20, 0), "{:?}", outcome.intervals);
    // Both in one file.
    let both = authority.path("both.pem");
    let text = [&client.certificate_file, &client.key_file].map(|path| std::fs::read(path).unwrap());
    std::fs::write(&both, text.concat()).unwrap();
    load_of.transport.tls.certificate_file = Some(both);
    load_of.transport.tls.key_file = None;
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
}

#[test]
fn what_is_not_tls_is_of_its_class() {
    let script = |what: &'static [u8]| {
        move |mut stream: TcpStream| {
            let _ = stream.read(&mut [0; 4096]).ok()?;
            stream.write_all(what).ok()?;
            stream.shutdown(Shutdown::Write).ok()?;
            while stream.read(&mut [0; 1024]).ok()? > 0 {}
            Some(())
        }
    };
    for (what, cause, hint) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
            Some("speaks no TLS: what"),
            "plain HTTP",
        ),
        (b"\x16\x03\x03\x00\x04\xff\xff\xff\xff", None, ""),
        (b"\x00", None, ""),
        // Closes within the handshake.
        (b"", Some("closed the connection within TLS"), "curl"),
        (b"\x15\x03\x03\x00\x02\x02\x28", Some("refused TLS with the alert HandshakeFailure"), "--cert"),
        (b"\x15\x03\x01\x00\x02\x02\x46", Some("the alert ProtocolVersion"), "TLS 1.2 and 1.3"),
        (b"\x15\x03\x03\x00\x02\x02\x70", Some("the alert UnrecognisedName"), "no site of that name"),
    ] {
        let server = Secure::raw(script(what));
        let authority = Authority::new();
        let mut load_of = server.load_of(&authority, 10);
        load_of.timeout_us = 20_000_000;
        let told = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
        assert!(cause.is_none_or(|cause| told.message.contains(cause)), "{told}");
        assert!(told.hint.as_ref().unwrap().contains(hint), "{told}");
        let outcome = load(&load_of);
        assert_eq!((tls_errors(&outcome), outcome.failed()), (10, 10), "{what:?} {:?}", outcome.intervals);
        assert_eq!(outcome.sum(|interval| interval.connections.opened), 0);
    }
}

#[test]
fn a_handshake_that_is_not_answered_is_a_timeout_and_a_reset_is_a_reset() {
    let authority = Authority::new();
    let silent = Secure::raw(|mut stream| {
        while stream.read(&mut [0; 1024]).ok()? > 0 {}
        Some(())
    });
    let mut load_of = silent.load_of(&authority, 2);
    load_of.timeout_us = 200_000;
    let outcome = load(&load_of);
    assert_eq!(outcome.sum(|interval| interval.errors.timeout), 2, "{:?}", outcome.intervals);
    let resetting = Secure::raw(|stream| {
        stream.peek(&mut [0; 1]).ok()?;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).ok()
    });
    let outcome = load(&resetting.load_of(&authority, 2));
    assert_eq!(outcome.sum(|interval| interval.errors.reset), 2, "{:?}", outcome.intervals);
}

#[test]
fn a_record_that_is_not_genuine_is_of_the_class_tls() {
    let (authority, identity) = pki();
    let server = Secure::start(authority.server(&identity), |mut stream: Stream| {
        read_request(&mut stream)?;
        stream.write_all(OK).ok()?;
        stream.flush().ok()?;
        read_request(&mut stream)?;
        stream.sock.write_all(b"\x17\x03\x03\x00\x20--------------------------------").ok()?;
        while stream.sock.read(&mut [0; 1024]).ok()? > 0 {}
        Some(())
    });
    let mut load_of = server.load_of(&authority, 20);
    load_of.connections = 1;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), tls_errors(&outcome), outcome.failed()), (10, 10, 10));
}

/// Bodies of this many bytes are longer than any buffer on their way.
const LARGE: usize = 3_000_001;

#[test]
fn large_bodies_are_counted_to_the_byte_however_they_end() {
    let (authority, identity) = pki();
    let fixed = response_of(LARGE);
    let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..30 {
        chunked.extend(format!("{:x}\r\n", 100_000).into_bytes());
        chunked.extend([b'x'; 100_000]);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    let mut until_close = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
    until_close.resize(until_close.len() + LARGE, b'x');
    let kept = |response: &Vec<u8>| Secure::start(authority.server(&identity), responding(response.clone()));
    let closed = |response: &Vec<u8>| Secure::start(authority.server(&identity), closing(response.clone()));
    for (server, response) in [
        (kept(&fixed), &fixed),
        (closed(&fixed), &fixed),
        (kept(&chunked), &chunked),
        (closed(&until_close), &until_close),
    ] {
        let outcome = load(&server.load_of(&authority, 12));
        assert_eq!((outcome.completed(), outcome.failed()), (12, 0), "{:?}", outcome.intervals);
        assert_eq!(outcome.sum(|interval| interval.bytes_received), 12 * response.len() as u64);
    }
}

#[test]
fn an_end_without_its_word_is_early_only_where_the_close_is_the_end() {
    let (authority, identity) = pki();
    let cut = |response: Vec<u8>| {
        Secure::start(authority.server(&identity), move |mut stream: Stream| {
            read_request(&mut stream)?;
            stream.write_all(&response).ok()?;
            stream.flush().ok()?;
            stream.sock.shutdown(Shutdown::Write).ok()?;
            while stream.sock.read(&mut [0; 1024]).ok()? > 0 {}
            Some(())
        })
    };
    let outcome = load(&cut(b"HTTP/1.1 200 OK\r\n\r\nas long as it lasts".to_vec()).load_of(&authority, 10));
    assert_eq!(outcome.sum(|interval| interval.errors.closed_early), 10, "{:?}", outcome.intervals);
    let outcome = load(&cut(OK.to_vec()).load_of(&authority, 10));
    assert_eq!((outcome.completed(), outcome.failed()), (10, 0), "{:?}", outcome.intervals);
    let outcome = load(&cut(response_of(100)[..80].to_vec()).load_of(&authority, 10));
    assert_eq!(outcome.sum(|interval| interval.errors.closed_early), 10, "{:?}", outcome.intervals);
}

#[test]
fn the_client_sends_close_notify() {
    let (authority, identity) = pki();
    let (clean, unclean) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen_clean, seen_unclean) = (clean.clone(), unclean.clone());
    let server = Secure::start(authority.server(&identity), move |mut stream: Stream| {
        read_request(&mut stream)?;
        stream.write_all(OK).ok()?;
        stream.flush().ok()?;
        // An end without close_notify is an error of rustls, a reset one of the kernel.
        let counter =
            if stream.read(&mut [0; 64]).is_ok_and(|count| count == 0) { &seen_clean } else { &seen_unclean };
        counter.fetch_add(1, Ordering::AcqRel);
        Some(())
    });
    let mut load_of = server.load_of(&authority, 6);
    load_of.keepalive = false;
    assert_eq!(load(&load_of).completed(), 6);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while clean.load(Ordering::Acquire) + unclean.load(Ordering::Acquire) < 6
        && std::time::Instant::now() < until
    {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((clean.load(Ordering::Acquire), unclean.load(Ordering::Acquire)), (6, 0));
}

#[test]
fn large_requests_arrive_whole() {
    const BODY: usize = 4 * LARGE;
    let (authority, identity) = pki();
    let server = Secure::start(authority.server(&identity), |mut stream: Stream| {
        let mut left = BODY;
        // More than the kernel takes is waiting then.
        thread::sleep(Duration::from_millis(100));
        let (mut head, mut buffer) = (vec![], [0; 16_384]);
        while left > 0 {
            let count = stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
            let mut body = &buffer[..count];
            if !head.ends_with(b"\r\n\r\n") {
                let at = head.len();
                head.extend_from_slice(body);
                let end = head.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
                head.truncate(end);
                body = &body[end - at..];
            }
            left = left.checked_sub(body.len()).filter(|_| body.iter().all(|byte| *byte == b'y'))?;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").ok()?;
        stream.conn.send_close_notify();
        stream.flush().ok()
    });
    let mut load_of = server.load_of(&authority, 4);
    load_of.timeout_us = 30_000_000;
    load_of.requests[0].method = "POST".into();
    load_of.requests[0].body = vec![b'y'; BODY].into();
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (4, 0), "{:?}", outcome.intervals);
    assert!(outcome.sum(|interval| interval.bytes_sent) > 4 * BODY as u64);
}

/// Passes bytes on in pieces of so many, each with a packet of its own, and begins after `pause`.
fn relay(to: std::net::SocketAddr, piece: usize, pause: Duration) -> Secure {
    Secure::raw(move |mut client: TcpStream| {
        thread::sleep(pause);
        let mut server = TcpStream::connect(to).ok()?;
        server.set_nodelay(true).ok()?;
        let (mut up_from, mut up_to) = (client.try_clone().ok()?, server.try_clone().ok()?);
        let up = thread::spawn(move || {
            let _ = std::io::copy(&mut up_from, &mut up_to);
            let _ = up_to.shutdown(Shutdown::Write);
        });
        let mut buffer = [0; 16_384];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            for bytes in buffer[..count].chunks(piece) {
                client.write_all(bytes).ok()?;
                thread::sleep(Duration::from_micros(20));
            }
        }
        let _ = client.shutdown(Shutdown::Write);
        up.join().ok()
    })
}

#[test]
fn records_may_come_in_any_pieces() {
    let (authority, identity) = pki();
    for (response, piece) in [(response_of(10), 1), (response_of(5000), 7), (response_of(100_000), 900)] {
        let bytes = response.len() as u64;
        let server = Secure::start(authority.server(&identity), responding(response));
        let relay = relay(server.address, piece, Duration::ZERO);
        let outcome = load(&relay.load_of(&authority, 10));
        assert_eq!((outcome.completed(), outcome.failed()), (10, 0), "{piece} {:?}", outcome.intervals);
        assert_eq!(outcome.sum(|interval| interval.bytes_received), 10 * bytes);
    }
}

#[test]
fn a_request_alone_connects_only_where_those_of_the_load_do() {
    const CONNECTING: Duration = Duration::from_millis(300);
    let (authority, identity) = pki();
    let closes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".to_vec();
    for (response, keepalive, connects) in
        [(response_of(10), true, false), (response_of(10), false, true), (closes, true, true)]
    {
        let server = Secure::start(authority.server(&identity), responding(response));
        let relay = relay(server.address, 1000, CONNECTING);
        let load_of = Workload { keepalive, ..relay.load_of(&authority, 1) };
        let mut prepared = prepare(&load_of).unwrap();
        measure_alone(&mut prepared);
        let alone_us = prepared.alone_us().unwrap();
        assert_eq!(u128::from(alone_us) >= CONNECTING.as_micros(), connects, "{alone_us} us, {load_of:?}");
    }
}

#[test]
fn the_name_of_the_url_counts_wherever_the_connection_goes() {
    let authority = Authority::new();
    let identity = authority.identity(&["www.site.example"], |_| {});
    let seen = Arc::new(Mutex::new(vec![]));
    let names = seen.clone();
    let server = Secure::start(authority.server(&identity), move |mut stream: Stream| {
        let request = read_request(&mut stream)?;
        let alpn = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
        names.lock().unwrap().push((stream.conn.server_name().map(str::to_owned), alpn, request));
        stream.write_all(OK).ok()?;
        stream.flush().ok()
    });
    let mut load_of = server.load_of(&authority, 1);
    load_of.requests[0].url = "https://www.site.example/x".into();
    load_of.transport.connect_to = vec![ConnectTo {
        host: Some("www.site.example".into()),
        port: None,
        to_host: Some("127.0.0.1".into()),
        to_port: Some(server.address.port()),
    }];
    let mut prepared = prepare(&load_of).unwrap();
    assert_eq!(prepared.addresses(), [server.address]);
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    assert_eq!(load(&load_of).completed(), 1);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    for (name, alpn, request) in seen.iter() {
        assert_eq!((name.as_deref(), alpn.as_deref()), (Some("www.site.example"), Some(&b"http/1.1"[..])));
        let text = String::from_utf8_lossy(request);
        assert!(text.starts_with("GET /x HTTP/1.1\r\nHost: www.site.example\r\n"), "{text}");
    }
}

fn refused(change: impl Fn(&mut Workload)) -> UserError {
    let mut load_of = workload("https://127.0.0.1:1/");
    change(&mut load_of);
    prepare(&load_of).map(|_| ()).expect_err("it must be refused")
}

#[test]
fn files_that_cannot_be_used_are_refused_with_their_names() {
    let (authority, identity) = pki();
    let other = authority.identity(&["other"], |_| {});
    let (empty, text, gone) = (authority.path("empty"), authority.path("text"), authority.path("gone"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&text, "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    let ca = |path: &std::path::Path| refused(|load_of| load_of.transport.tls.ca_file = Some(path.into()));
    let pair = |certificate: Option<&std::path::Path>, key: Option<&std::path::Path>| {
        refused(|load_of| {
            load_of.transport.tls.certificate_file = certificate.map(Into::into);
            load_of.transport.tls.key_file = key.map(Into::into);
        })
    };
    for (told, part) in [
        (ca(&gone), "gone"),
        (ca(&empty), "there is no certificate in"),
        (ca(&identity.key_file), "there is no certificate in"),
        (ca(&text), "is not PEM"),
        (pair(Some(&identity.certificate_file), Some(&other.key_file)), "is not that of the certificate in"),
        (pair(Some(&identity.certificate_file), None), "there is no private key in"),
        (pair(Some(&identity.certificate_file), Some(&gone)), "gone"),
        (pair(Some(&empty), Some(&identity.key_file)), "there is no certificate in"),
        (pair(None, Some(&identity.key_file)), "comes without its certificate"),
    ] {
        assert!(told.message.contains(part), "{told}");
        assert_eq!(told.exit_code(), 2, "{told}");
    }
}

#[test]
fn a_close_between_requests_is_quiet() {
    let (authority, identity) = pki();
    for says_so in [true, false] {
        let server = Secure::start(authority.server(&identity), move |mut stream: Stream| {
            for _ in 0..10 {
                read_request(&mut stream)?;
                stream.write_all(OK).ok()?;
                stream.flush().ok()?;
            }
            if says_so {
                stream.conn.send_close_notify();
                stream.flush().ok()?;
            }
            stream.sock.shutdown(Shutdown::Write).ok()?;
            while stream.sock.read(&mut [0; 1024]).ok()? > 0 {}
            Some(())
        });
        let mut load_of = server.load_of(&authority, 500);
        load_of.connections = 4;
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (500, 0), "{:?}", outcome.intervals);
        let opened = outcome.sum(|interval| interval.connections.opened);
        let quiet = outcome.sum(|interval| interval.connections.quiet_closes);
        assert!((50..=54).contains(&opened) && (46..=50).contains(&quiet), "{opened} {quiet}");
    }
}

// A server that closes right behind its response without saying so in the head: no request may go onto that connection.
// One that must not be sent again would fail there, and the server would have the blame.
#[test]
fn a_close_with_the_response_is_noticed_before_the_next_request() {
    let (authority, identity) = pki();
    // The second is dropped unread: its end fills all the room that was asked for.
    for body_bytes in [2, 12_000] {
        let server = Secure::start(authority.server(&identity), move |mut stream: Stream| {
            read_request(&mut stream)?;
            stream.conn.writer().write_all(&response_of(body_bytes)).ok()?;
            stream.conn.send_close_notify();
            // Both in one segment.
            stream.conn.write_tls(&mut stream.sock).ok()?;
            stream.sock.shutdown(Shutdown::Write).ok()?;
            while stream.sock.read(&mut [0; 1024]).ok()? > 0 {}
            Some(())
        });
        let mut load_of = server.load_of(&authority, 200);
        load_of.connections = 4;
        load_of.requests[0].method = "POST".into();
        let outcome = load(&load_of);
        assert_eq!((outcome.completed(), outcome.failed()), (200, 0), "{:?}", outcome.intervals);
        let opened = outcome.sum(|interval| interval.connections.opened);
        let quiet = outcome.sum(|interval| interval.connections.quiet_closes);
        assert_eq!((opened, quiet), (200, 200), "{body_bytes}");
    }
}

#[test]
fn keys_may_change_at_any_time() {
    let (authority, identity) = pki();
    let server = Secure::start(authority.server(&identity), |mut stream: Stream| {
        loop {
            read_request(&mut stream)?;
            stream.conn.refresh_traffic_keys().ok()?;
            stream.write_all(OK).ok()?;
            stream.flush().ok()?;
        }
    });
    let outcome = load(&server.load_of(&authority, 200));
    assert_eq!((outcome.completed(), outcome.failed()), (200, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 2);
}

//! The real world by itself: what the engine cannot see of it through the seam.

use super::*;
use crate::engine::control::Control;
use crate::plan::{Prepared, prepare};
use nix::sys::socket::TimestampingFlag;
use nix::sys::socket::sockopt::Timestamping;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use webdyno_model::workload::{Clock, RequestSpec, Workload};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const SLOT: u32 = 0;

/// A server with TLS that answers every read; its threads end with their connections.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pending_events = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(pending_events.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![pending_events.cert.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let config = config.clone();
            std::thread::spawn(move || {
                let stream = stream.ok()?;
                stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
                let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
                while stream.read(&mut [0; 1024]).ok()? > 0 {
                    stream.write_all(ANSWER).ok()?;
                }
                Some(())
            });
        }
    });
    address
}

/// A world with one slot for a load of this server.
fn io(address: SocketAddr, clock: Clock) -> (KernelIo, Prepared) {
    let url = format!("https://{address}/");
    let mut load = Workload {
        requests: vec![RequestSpec { url, ..RequestSpec::default() }],
        clock,
        ..Workload::default()
    };
    load.transport.tls.insecure = true;
    let prepared = prepare(&load).unwrap();
    let waker = Control::new().waker().unwrap();
    let timestamps = RxTimestamps::new(clock, 1).unwrap();
    let kernel =
        EventLoop::new(waker, &prepared.plan.origins, timestamps, prepared.plan.transport.io).unwrap();
    (KernelIo::new(kernel, prepared.plan.tls.as_ref(), &prepared.plan.transport, 1), prepared)
}

/// Makes a call until it does something.
fn done(io: &mut KernelIo, mut call: impl FnMut(&mut KernelIo) -> Result<usize, SocketError>) -> usize {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match call(io) {
            Err(SocketError::AGAIN) => assert!(Instant::now() < until, "nothing happens"),
            done => return done.unwrap(),
        }
        let soon_ns = io.now_ns() + 1_000_000;
        io.wait(soon_ns, false);
    }
}

// Making the first bytes of a handshake takes longer than connecting within one machine: it must not count there.
#[test]
fn a_handshake_begins_when_the_connection_could_carry_it() {
    let (mut io, prepared) = io(server(), Clock::Engine);
    let mut early = 0;
    for token in 0..11 {
        io.connect(SLOT, token, &prepared.plan.origins[0]).unwrap();
        assert!(matches!(io.sessions[0], Some(TlsState::Due { .. })), "it is made later");
        let called_ns = io.now_ns();
        // A server may be so fast that the request goes out with the same call.
        assert!(matches!(io.send(SLOT, REQUEST), Err(SocketError::AGAIN) | Ok(_)));
        let length_ns = io.now_ns() - called_ns;
        let (Handshake::InProgress { started_ns } | Handshake::Done { started_ns, .. }) = io.handshake(SLOT)
        else {
            panic!("it has not begun")
        };
        // A clock reading after its first bytes are made and sent would lie near the end of the call.
        early += u32::from(started_ns - called_ns < length_ns / 2);
        io.close(SLOT);
    }
    assert!(early >= 9, "{early} of 11");
}

// The timestamp of one response must not be taken for that of the next: by the kernel's clock, that one would take no
// time.
#[test]
fn a_tls_read_without_a_timestamp_has_none() {
    let (mut io, prepared) = io(server(), Clock::Kernel);
    io.connect(SLOT, 0, &prepared.plan.origins[0]).unwrap();
    let ask = |io: &mut KernelIo| {
        let sent_ns = io.now_ns();
        done(io, |io| io.send(SLOT, REQUEST));
        assert_eq!(done(io, |io| io.recv(SLOT, &mut [0; 4096])), ANSWER.len());
        let read_ns = io.now_ns();
        io.received_ns(SLOT, sent_ns, read_ns)
    };
    // The kernel switches timestamping on in its own time.
    assert!((0..2000).any(|_| ask(&mut io).is_some()), "stamps come");
    let socket = io.sockets[SLOT as usize].as_ref().unwrap();
    nix::sys::socket::setsockopt(socket, Timestamping, &TimestampingFlag::empty()).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&mut io), None);
    }
}

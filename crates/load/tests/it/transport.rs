//! Ways to a server besides its address: unix sockets, source addresses, other destinations, IPv6, and names resolved
//! for each connection.

use crate::secure::{Authority, responding};
use crate::server::{OK, Server, Step, load, workload};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use webdyno_load::{prepare, probe};
use webdyno_model::transport::{AddressFamily, ConnectTo};

fn respond_to_all(mut stream: impl Read + Write) -> Option<()> {
    loop {
        crate::secure::read_request(&mut stream)?;
        stream.write_all(OK).ok()?;
    }
}

#[test]
fn a_unix_socket_is_loaded_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let mut load_of = workload("http://site.example/");
    load_of.transport.unix_socket = Some(path.clone());
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(500), None);
    load_of.connections = 4;
    let told = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
    assert!(told.message.starts_with(&format!("cannot connect to {}: ", path.display())), "{told}");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || respond_to_all(stream.ok()?));
        }
    });
    let mut prepared = prepare(&load_of).unwrap();
    assert!(prepared.address().is_none() && prepared.addresses().is_empty());
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (500, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 4);
    // Nobody listens there any more.
    std::fs::remove_file(&path).unwrap();
    load_of.stop.requests = Some(3);
    let outcome = load(&load_of);
    assert_eq!(outcome.sum(|interval| interval.errors.connect_refused), 3, "{:?}", outcome.intervals);
}

/// A unix socket in a folder, at which one connection at most waits to be accepted.
fn without_queue() -> (tempfile::TempDir, UnixListener) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    (folder, UnixListener::from(std::os::fd::OwnedFd::from(socket)))
}

#[test]
fn a_unix_socket_whose_queue_is_full_is_waited_for() {
    let (folder, listener) = without_queue();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::sleep(Duration::from_millis(5));
            thread::spawn(move || respond_to_all(stream.ok()?));
        }
    });
    let mut load_of = workload("http://site.example/");
    load_of.transport.unix_socket = Some(folder.path().join("server.sock"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(100), None);
    load_of.connections = 20;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (100, 0), "{:?}", outcome.intervals);
}

// One at a time, and each connection carries one request: whoever has waited longest is next.
#[test]
fn connections_waiting_for_a_unix_socket_get_it_in_turn() {
    let (folder, listener) = without_queue();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.ok()?;
            crate::secure::read_request(&mut stream)?;
            thread::sleep(Duration::from_millis(1));
            stream.write_all(OK).ok()?;
        }
        Some(())
    });
    let mut load_of = workload("http://site.example/");
    load_of.transport.unix_socket = Some(folder.path().join("server.sock"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(400), None);
    (load_of.connections, load_of.keepalive, load_of.timeout_us) = (20, false, 30_000_000);
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (400, 0), "{:?}", outcome.intervals);
    // In turn, a request waits for nineteen others of 400. Without turns, some wait for nearly all of them.
    let longest_us = outcome.merged(|interval| &interval.response_time).dist().max.unwrap();
    assert!(longest_us < outcome.end.elapsed_us / 4 * 3, "{longest_us} of {}", outcome.end.elapsed_us);
}

#[test]
fn connections_begin_from_each_source_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(BTreeMap::<IpAddr, u32>::new()));
    let peers = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let peers = peers.clone();
            thread::spawn(move || {
                let stream = stream.ok()?;
                *peers.lock().unwrap().entry(stream.peer_addr().ok()?.ip()).or_default() += 1;
                respond_to_all(stream)
            });
        }
    });
    let mut load_of = workload(&format!("http://{address}/"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(30), None);
    load_of.connections = 3;
    load_of.keepalive = false;
    let sources: Vec<IpAddr> = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].map(|ip| ip.parse().unwrap()).into();
    load_of.transport.source_ips = sources.clone();
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (30, 0), "{:?}", outcome.intervals);
    let expected: BTreeMap<IpAddr, u32> = sources.iter().map(|ip| (*ip, 10)).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
    assert_eq!(seen.lock().unwrap()[&sources[0]], 11);
}

#[test]
fn connections_go_to_their_connect_to_address() {
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let mut load_of = workload("http://nowhere.invalid:81/");
    load_of.transport.connect_to = vec![ConnectTo {
        host: Some("nowhere.invalid".into()),
        port: Some(81),
        to_host: Some("127.0.0.1".into()),
        to_port: Some(server.address.port()),
    }];
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(20), None);
    let prepared = prepare(&load_of).unwrap();
    assert_eq!(prepared.addresses(), [server.address]);
    let destination = prepared.destinations().remove(0);
    assert_eq!((destination.host.as_str(), destination.port), ("127.0.0.1", server.address.port()));
    assert_eq!(load(&load_of).completed(), 20);
}

/// A server on the IPv6 loopback, if there is one here.
fn on_ipv6() -> Option<SocketAddr> {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok()?;
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || respond_to_all(stream.ok()?));
        }
    });
    Some(address)
}

#[test]
fn ipv6_is_as_good() {
    let Some(address) = on_ipv6() else {
        return crate::skip::skip("this machine has no IPv6 loopback");
    };
    let mut load_of = workload(&format!("http://{address}/"));
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(20), None);
    load_of.transport.source_ips = vec![Ipv6Addr::LOCALHOST.into()];
    assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200));
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (20, 0), "{:?}", outcome.intervals);
    // The family asked for decides also where a name has both.
    load_of.transport.source_ips = vec![];
    load_of.requests[0].url = format!("http://[::1]:{}/", address.port());
    load_of.transport.address_family = AddressFamily::Ipv6;
    assert_eq!(load(&load_of).completed(), 20);
    load_of.transport.address_family = AddressFamily::Ipv4;
    assert_eq!(prepare(&load_of).unwrap_err().exit_code(), 2);
}

#[test]
fn names_may_be_looked_up_for_each_connection() {
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec())]);
    let mut load_of = workload(&format!("http://localhost:{}/", server.address.port()));
    load_of.transport.resolve_each = true;
    load_of.keepalive = false;
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(100), None);
    load_of.connections = 8;
    load_of.threads = Some(2);
    let mut prepared = prepare(&load_of).unwrap();
    assert_eq!(probe(&mut prepared).unwrap().status, Some(200));
    load_of.transport.address_family = AddressFamily::Ipv4;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (100, 0), "{:?}", outcome.intervals);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 100);
}

#[test]
fn tls_works_with_each_look_up_and_each_source() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let server = crate::secure::Secure::start(authority.server(&identity), responding(OK.to_vec()));
    let mut load_of = server.load_of(&authority, 50);
    load_of.transport.resolve_each = true;
    load_of.transport.source_ips = vec!["127.0.0.7".parse().unwrap()];
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), outcome.failed()), (50, 0), "{:?}", outcome.intervals);
}

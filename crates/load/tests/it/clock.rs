//! Kernel timestamps against a real server: what is timestamped, and that the kernel's ends are never later than ours.

use crate::secure::{Authority, Secure, read_request, responding, response_of};
use crate::server::{OK, Outcome, Server, Step, load, workload};
use crate::skip::needs;
use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::Duration;
use webdyno_model::workload::Clock;

/// A second of load on this many connections, answered after 2 ms.
fn load_by(clock: Clock, connections: u32) -> Outcome {
    let pause = Duration::from_millis(2);
    let server = Server::start(vec![Step::Request, Step::Sleep(pause), Step::Send(OK.to_vec()), Step::Again]);
    let mut load_of = workload(&server.url());
    (load_of.clock, load_of.connections) = (clock, connections);
    load(&load_of)
}

fn stamped(outcome: &Outcome) -> (u64, u64, u64) {
    (
        outcome.sum(|interval| interval.stamps.connections),
        outcome.sum(|interval| interval.stamps.answers),
        outcome.sum(|interval| interval.stamps.answers_without),
    )
}

#[test]
fn the_kernel_clock_timestamps_every_connection() {
    let outcome = load_by(Clock::Kernel, 4);
    let (connections, answers, without) = stamped(&outcome);
    assert_eq!((connections, answers + without), (4, outcome.completed()));
    // The kernel switches timestamping on in its own time; from then on each response has a timestamp.
    assert!(answers > without, "{answers} {without}");
    let delay = outcome.merged(|interval| &interval.receive_delay);
    assert_eq!(delay.count(), answers);
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert!(service.p50.unwrap() >= 1_900, "{service:?}");
    // Reading takes its time: a response has lain in the kernel for at least some nanoseconds, mostly microseconds.
    assert!(delay.dist().max > Some(0), "{:?}", delay.dist());
}

#[test]
fn by_default_a_sample_is_timestamped() {
    let outcome = load_by(Clock::Auto, 20);
    let (connections, answers, without) = stamped(&outcome);
    assert_eq!(connections, 2);
    assert!(answers > 0 && answers + without < outcome.completed() / 5, "{answers} {without}");
}

#[test]
fn the_engine_clock_timestamps_nothing() {
    let outcome = load_by(Clock::Engine, 2);
    assert_eq!(stamped(&outcome), (0, 0, 0));
    assert!(outcome.merged(|interval| &interval.receive_delay).is_empty());
}

#[test]
fn large_bodies_and_their_heads_are_timestamped_too() {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_vec();
    response.resize(response.len() + 3_000_000, b'x');
    let server = Server::start(vec![Step::Request, Step::Send(response), Step::Again]);
    let mut load_of = workload(&server.url());
    load_of.clock = Clock::Kernel;
    let outcome = load(&load_of);
    let (_, answers, without) = stamped(&outcome);
    assert!(answers > without && answers + without == outcome.completed(), "{answers} {without}");
    let first = outcome.merged(|interval| &interval.first_byte);
    let service = outcome.merged(|interval| &interval.service_time);
    assert!(first.mean_us() < service.mean_us());
}

/// Loopback of a network namespace of this thread, and of those that it begins, that loses one in eight of its packets. Whether that can
/// be had here.
fn lose_packets() -> bool {
    let rules = "add table ip lossy; add chain ip lossy in { type filter hook input priority 0; };
        add rule ip lossy in ip length gt 1000 numgen random mod 8 0 drop";
    let succeeds = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
    };
    unshare(CloneFlags::CLONE_NEWNET).is_ok()
        && succeeds("ip", &["link", "set", "lo", "up"])
        && succeeds("nft", &[rules])
}

// Of an answer with a hole its end lies in the kernel until the hole is filled: that is no delay of the generator.
#[test]
fn what_waits_for_a_lost_packet_does_not_wait_for_its_reader() {
    let lossy = thread::spawn(|| {
        let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n".to_vec();
        response.resize(response.len() + 900_000, b'x');
        lose_packets().then(|| {
            let server = Server::start(vec![Step::Request, Step::Send(response), Step::Again]);
            let mut load_of = workload(&server.url());
            (load_of.clock, load_of.connections) = (Clock::Kernel, 8);
            load(&load_of)
        })
    });
    let outcome = lossy.join().unwrap();
    needs!(outcome.is_some(), "a network namespace that loses packets takes root, ip and nft");
    let outcome = outcome.unwrap();
    let (_, answers, without) = stamped(&outcome);
    assert!(without > 0 && answers + without == outcome.completed(), "{answers} {without}");
    // What is lost is sent again after 200 ms at the latest; a busy machine is not as late.
    let delay = outcome.merged(|interval| &interval.receive_delay);
    let long = delay.count_between(100_000, 10_000_000);
    assert!(long == 0, "{long} of {answers}: {:?}", delay.dist());
}

// What is timestamped over TLS is the record that ends the response, and not what the handshake or the response before
// left.
#[test]
fn tls_records_are_timestamped() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"], |_| {});
    let server = Secure::start(authority.server(&identity), |mut stream| {
        loop {
            read_request(&mut stream)?;
            thread::sleep(Duration::from_millis(2));
            stream.write_all(OK).ok()?;
        }
    });
    let mut load_of = server.load_of(&authority, 200);
    (load_of.clock, load_of.connections) = (Clock::Kernel, 2);
    let outcome = load(&load_of);
    let (connections, answers, without) = stamped(&outcome);
    assert_eq!((connections, answers + without, outcome.completed()), (2, 200, 200));
    assert!(answers > 0, "{without}");
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert!(service.min >= Some(1_900), "{service:?}");
    let large = Secure::start(authority.server(&identity), responding(response_of(2_000_000)));
    let mut load_of = large.load_of(&authority, 20);
    load_of.clock = Clock::Kernel;
    let outcome = load(&load_of);
    assert_eq!((stamped(&outcome).1 + stamped(&outcome).2, outcome.failed()), (20, 0));
    let first = outcome.merged(|interval| &interval.first_byte);
    let service = outcome.merged(|interval| &interval.service_time);
    assert!(first.mean_us() < service.mean_us());
}

#[test]
fn unix_sockets_are_not_timestamped_and_have_no_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(
                move || while read_request(&mut stream).is_some() && stream.write_all(OK).is_ok() {},
            );
        }
    });
    let mut load_of = workload("http://site.example/");
    load_of.transport.unix_socket = Some(path);
    (load_of.stop.requests, load_of.stop.duration_us) = (Some(100), None);
    load_of.clock = Clock::Kernel;
    let outcome = load(&load_of);
    assert_eq!((outcome.completed(), stamped(&outcome)), (100, (0, 0, 0)));
    assert_eq!(outcome.sum(|interval| interval.tcp.readings), 0);
}

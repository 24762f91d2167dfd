//! What the kernel's TCP tells of real connections: nothing lost over loopback, and SYNs that a full accept queue
//! drops.

use crate::server::{OK, Server, Step, load, workload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

#[test]
fn nothing_is_lost_over_loopback() {
    let server = Server::start(vec![Step::Request, Step::Send(OK.to_vec()), Step::Again]);
    let mut load_of = workload(&server.url());
    load_of.stop.duration_us = Some(300_000);
    let outcome = load(&load_of);
    let of =
        |pick: fn(&webdyno_model::interval::TcpCounts) -> u64| outcome.sum(|interval| pick(&interval.tcp));
    // A machine that is held up for long enough sends a probe.
    let again = of(|tcp| tcp.segments_retransmitted);
    assert!(again <= 1, "{again}");
    // Both connections are in the sample to their end: a SYN each, and each request is a segment.
    let started = outcome.sum(|interval| interval.started);
    assert_eq!(of(|tcp| tcp.segments_sent), started + 2 + again);
    assert_eq!(of(|tcp| tcp.readings), 4);
    let trips = outcome.merged(|interval| &interval.round_trip).dist();
    assert!(trips.count > 0 && trips.min > Some(0), "{trips:?}");
    assert!(outcome.intervals[0].tcp.round_trip_min_us.is_some());
}

// An accept queue of one place: the kernel drops the SYNs that come while it is full, and the clients send theirs again
// after a second. By then the queue is long.
#[test]
fn lost_syns_take_a_second_and_are_reported() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let acceptor = thread::spawn(move || {
        // From the first connection on, however late the load begins.
        let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
        thread::sleep(Duration::from_millis(700));
        listener.listen(64).unwrap();
        let listener: TcpListener = listener.into();
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                    thread::sleep(Duration::from_millis(5));
                    stream.write_all(OK).unwrap();
                }
            });
        }
    });
    let mut load_of = workload(&format!("http://{address}/"));
    load_of.connections = 4;
    load_of.stop.duration_us = Some(2_500_000);
    let outcome = load(&load_of);
    acceptor.join().unwrap();
    let times = outcome.merged(|interval| &interval.connect_time);
    assert_eq!((times.count(), outcome.failed()), (4, 0));
    let at_once = times.count_between(0, 690_000);
    let late = times.count_between(990_000, 2_500_000);
    assert!((1..=3).contains(&at_once) && at_once + late == 4, "{:?}", times.dist());
    // Each of these sent its SYN again, on an idle machine once, and all four connections are in the sample.
    let again = outcome.sum(|interval| interval.tcp.segments_retransmitted);
    assert!(again >= late && again < 3 * late, "{again} {late}");
}

//! Files of `/proc/net` from several kernels, and real listening sockets.

use super::*;
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream};

fn socket(address: &str, port: u16, queue: u32, limit: Option<u32>) -> ListenSocket {
    let address = address.parse().unwrap();
    ListenSocket { address, port, queue_count: queue, queue_max_count: limit, inode: 1, uid: 0 }
}

#[test]
fn the_fullest_address_is_the_queue() {
    let limit = Some(511);
    for (sockets, expected) in [
        (vec![], None),
        (vec![socket("0.0.0.0", 80, 3, limit), socket("::", 80, 0, limit)], Some((3, Some(511)))),
        // SO_REUSEPORT: one queue in two parts.
        (vec![socket("::", 80, 3, limit), socket("::", 80, 4, limit)], Some((7, Some(1022)))),
        (vec![socket("::", 80, 3, limit), socket("::", 81, 9, limit)], Some((3, Some(511)))),
        (vec![socket("::", 80, 3, None)], Some((3, None))),
    ] {
        assert_eq!(accept_queue(&sockets, 80), expected, "{sockets:?}");
    }
}

#[test]
fn counters_of_rules_are_there() {
    let reading = Sockets::default().read(&Target::default());
    for (name, ..) in COUNTERS {
        assert!(reading.value(name).is_some(), "{name} of {reading:?}");
    }
}

#[test]
fn sockstat_parses() {
    let text = "sockets: used 14\nTCP: inuse 1 orphan 0 tw 7 alloc 1 mem 230\nUDP: inuse 3\n";
    for (text, key, expected) in [
        (text, "inuse", Some(1)),
        ("TCP: inuse 2 orphan 0\n\nTCP6: inuse 5\nUDP6: inuse 1\n", "inuse", Some(7)),
        ("TCP: inuse 2 orphan 3\nTCP6: inuse 5\n", "orphan", Some(3)),
        (text, "tw", Some(7)),
        (text, "mem", Some(230)),
        ("TCP: inuse 1 orphan\n", "orphan", None),
        ("", "inuse", None),
    ] {
        assert_eq!(parse_sockstat(text, key), expected, "{text}");
    }
}

/// Both ways to ask agree with what was made: `waiting` connections that nobody accepts.
fn check_live(address: &str, waiting: u32) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..waiting).map(|_| TcpStream::connect(local).unwrap()).collect();
    let find = |sockets: Vec<ListenSocket>| {
        let mut sockets = sockets.into_iter().filter(|socket| socket.port == local.port());
        sockets.find(|socket| socket.address == local.ip()).unwrap()
    };
    let by_netlink = find(crate::os::sockets::netlink::listening().unwrap());
    let file = if local.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
    let by_file = find(listening(file).unwrap());
    assert_eq!(by_netlink.queue_count, waiting);
    assert!(by_netlink.queue_max_count.unwrap() > 0);
    assert_eq!(ListenSocket { queue_max_count: None, ..by_netlink }, by_file);
    let mut reading = Reading::default();
    let target = Target { port: Some(local.port()), ..Target::default() };
    Sockets::queues(&target, Place::Own, &mut reading);
    assert_eq!(reading.value("sockets.accept_queue_count"), Some(f64::from(waiting)));
    drop(clients);
}

#[test]
fn a_real_queue_is_seen_both_ways() {
    check_live("127.0.0.1", 3);
    // Machines without IPv6 have nothing to check there.
    if TcpListener::bind(("::1", 0)).is_ok() {
        check_live("::1", 2);
    }
}

#[test]
fn a_port_without_listener_is_told_and_the_counters_stay() {
    let target = Target { port: Some(1), ..Target::default() };
    let reading = Sockets::default().read(&target);
    assert_eq!(reading.error.as_deref(), Some("nothing listens on port 1"));
    assert_eq!(reading.value("sockets.accept_queue_count"), None);
    assert!(reading.value("sockets.listen_overflows_count").is_some());
}

#[test]
fn a_vanished_service_in_another_namespace_gives_nothing() {
    let mut sockets = Sockets::default();
    sockets.whereabouts.other_namespace_pid = Some(u32::MAX);
    let target = Target { port: Some(80), service_pid: Some(u32::MAX), ..Target::default() };
    let reading = sockets.read(&target);
    assert_eq!(reading.values, vec![]);
    assert!(reading.error.unwrap().contains("gone"));
}

proptest! {
    // A strange file gives fewer values, never a panic.
    #[test]
    fn any_text_is_survived(noise in "[0-9A-F:/ é\n-]{0,60}") {
        parse_sockstat(&format!("TCP: {noise}"), "tw");
    }
}

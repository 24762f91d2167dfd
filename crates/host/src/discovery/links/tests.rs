//! Tests of who serves whom, on pretended sockets and processes.

use super::*;
use crate::discovery::processes::ProcessSample;
use proptest::prelude::*;

const HERE: u64 = 1;
const CONTAINER: u64 = 2;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn listens(own: &str, inode: u64) -> Tcp {
    Tcp { state: TcpState::Listening, own: at(own), peer: at("0.0.0.0:0"), inode, uid: 0 }
}

fn connected(own: &str, peer: &str, inode: u64, uid: u32) -> Tcp {
    Tcp { state: TcpState::Connected, own: at(own), peer: at(peer), inode, uid }
}

fn unix(inode: u64, name: Option<&str>, peer: Option<u64>, listening: bool) -> Unix {
    Unix { inode, name: name.map(str::to_owned), peer, listening, uid: Some(33), ..Unix::default() }
}

/// The contacts of a party that holds these sockets, as `address -> sockets of the server x connections`.
fn contacts(spaces: &[Space], held: &[u64], users: &[u32], held_by_others: &[u64]) -> Vec<String> {
    let process = |sockets: &[u64]| ProcessSample { sockets: sockets.to_vec(), ..ProcessSample::default() };
    let processes = Processes::of([(10, process(held)), (20, process(held_by_others))]);
    let party = Party {
        sockets: held.iter().copied().collect(),
        users: users.iter().copied().collect(),
        spaces: [HERE].into(),
    };
    let message = |(contact, count): (Contact, u64)| match contact.remote {
        Some(_) => format!("{} elsewhere x{count}", contact.by),
        None => format!("{} -> {:?} x{count}", contact.by, contact.server),
    };
    View::of(spaces).contacts(&party, &processes).into_iter().map(message).collect()
}

fn here(tcp: Vec<Tcp>, unix: Vec<Unix>) -> Space {
    Space { id: HERE, tcp, unix }
}

#[test]
fn servers_of_connections_are_found() {
    let front = listens("0.0.0.0:80", 100);
    for (tcp, expected) in [
        // A visitor is none that we talk to.
        (vec![connected("10.0.0.1:80", "192.0.2.1:5000", 101, 33)], vec![]),
        (
            vec![listens("127.0.0.1:3306", 300), connected("127.0.0.1:40000", "127.0.0.1:3306", 101, 33)],
            vec!["127.0.0.1:3306 -> [300] x1"],
        ),
        // One that is bound to all addresses, and both ends there.
        (
            vec![
                listens("[::]:3306", 300),
                connected("10.0.0.1:40000", "10.0.0.1:3306", 101, 33),
                connected("10.0.0.1:3306", "10.0.0.1:40000", 301, 27),
            ],
            vec!["10.0.0.1:3306 -> [300] x1"],
        ),
        // Our own database is not the one of another machine, whatever its port.
        (
            vec![listens("0.0.0.0:3306", 300), connected("10.0.0.1:40000", "10.0.0.9:3306", 101, 33)],
            vec!["10.0.0.9:3306 elsewhere x1"],
        ),
        // It talks to itself.
        (
            vec![
                connected("127.0.0.1:40000", "127.0.0.1:80", 101, 33),
                connected("127.0.0.1:80", "127.0.0.1:40000", 102, 33),
            ],
            vec!["127.0.0.1:80 -> [100] x1"],
        ),
        // Who listened is gone, or handed the socket on: the other end tells.
        (
            vec![
                connected("127.0.0.1:40000", "127.0.0.1:9", 101, 33),
                connected("127.0.0.1:9", "127.0.0.1:40000", 301, 0),
            ],
            vec!["127.0.0.1:9 -> [301] x1"],
        ),
    ] {
        let mut all = vec![front];
        all.extend(tcp.clone());
        assert_eq!(contacts(&[here(all, vec![])], &[100, 101, 102], &[], &[300]), expected, "{tcp:?}");
    }
}

#[test]
fn a_server_in_a_container_is_found_by_its_end() {
    let ours = here(vec![connected("172.17.0.1:40000", "172.17.0.2:3306", 101, 33)], vec![]);
    let theirs = Space {
        id: CONTAINER,
        tcp: vec![listens("0.0.0.0:3306", 300), connected("172.17.0.2:3306", "172.17.0.1:40000", 301, 999)],
        unix: vec![],
    };
    assert_eq!(contacts(&[ours, theirs], &[101], &[], &[]), ["172.17.0.2:3306 -> [300] x1"]);
}

#[test]
fn servers_of_unix_sockets_are_found() {
    let listener = || Unix { waiting: vec![103], ..unix(300, Some("/run/db.sock"), None, true) };
    let all = || {
        vec![
            listener(),
            unix(101, None, Some(301), false),
            unix(301, Some("/run/db.sock"), Some(101), false),
            // Not accepted yet.
            unix(103, None, Some(0), false),
            // A pair that belongs to nobody but the processes that share it.
            unix(104, None, Some(105), false),
            unix(105, None, Some(104), false),
            // The journal, which is nobody's backend.
            unix(400, Some("/run/systemd/journal/stdout"), None, true),
            unix(106, None, Some(401), false),
            unix(401, Some("/run/systemd/journal/stdout"), Some(106), false),
        ]
    };
    let held = [101, 103, 104, 106];
    assert_eq!(contacts(&[here(vec![], all())], &held, &[], &[300, 301]), ["unix:/run/db.sock -> [300] x2"]);
    assert_eq!(contacts(&[here(vec![], all())], &[300, 301], &[], &[101]), Vec::<String>::new());
}

/// A page's connection of a millisecond: nobody was seen to hold it, but its user is one whom only the service acts as.
#[test]
fn what_ended_before_its_process_was_seen_is_told_by_its_user() {
    let tcp = vec![
        listens("127.0.0.1:3306", 300),
        connected("127.0.0.1:40000", "127.0.0.1:3306", 101, 33),
        connected("127.0.0.1:40001", "192.0.2.1:443", 102, 33),
    ];
    let unix = vec![
        unix(310, Some("/run/r.sock"), None, true),
        unix(111, None, Some(311), false),
        unix(311, Some("/run/r.sock"), Some(111), false),
    ];
    let spaces = [here(tcp, unix)];
    let check = |users: &[u32], held_by_others: &[u64], expected: &[&str]| {
        assert_eq!(contacts(&spaces, &[], users, held_by_others), expected);
    };
    check(&[33], &[300, 310], &["127.0.0.1:3306 -> [300] x1", "unix:/run/r.sock -> [310] x1"]);
    check(&[34], &[300, 310], &[]);
    check(&[], &[300, 310], &[]);
    // Somebody else holds them.
    check(&[33], &[300, 310, 101, 111], &[]);
}

#[test]
fn addresses_of_configurations_are_resolved() {
    let tcp = vec![listens("127.0.0.1:9000", 100), listens("[::]:9001", 101), listens("[::1]:9002", 102)];
    let named = |inode, file| Unix { file: Some(file), ..unix(inode, Some("/run/fpm.sock"), None, true) };
    let spaces = [here(tcp, vec![named(200, 7), named(201, 8)])];
    let view = View::of(&spaces);
    for (address, file, expected) in [
        ("127.0.0.1:9000", None, vec![100]),
        ("localhost:9000", None, vec![100]),
        ("localhost:9002", None, vec![102]),
        ("127.0.0.1:9001", None, vec![101]),
        ("[::1]:9001", None, vec![101]),
        ("[::ffff:127.0.0.1]:9000", None, vec![100]),
        ("127.0.0.1:9002", None, vec![]),
        ("backend.example.org:9000", None, vec![]),
        ("127.0.0.1", None, vec![]),
        ("unix:/run/fpm.sock", Some(8), vec![201]),
        ("unix:/run/fpm.sock", None, vec![200, 201]),
        ("unix:/run/fpm.sock", Some(9), vec![]),
        ("unix:/run/none.sock", Some(8), vec![]),
    ] {
        assert_eq!(view.listening_as(HERE, address, file), expected, "{address}");
    }
    let all = [100, 101, 102, 200].into();
    let message = ["127.0.0.1:9000", "[::1]:9002", "[::]:9001", "unix:/run/fpm.sock"];
    assert_eq!(view.addresses_of(&all), message);
}

proptest! {
    // Whatever sockets there are: never a panic, and servers are sockets that were seen.
    #[test]
    fn any_sockets_are_survived(
        tcp in prop::collection::vec((0u8..2, 0u16..4, 0u16..4, 0u64..8, 0u32..3), 0..20),
        unixes in prop::collection::vec((0u64..8, prop::option::of("[a-b]"), prop::option::of(0u64..8), any::<bool>()), 0..20),
        address in "[a-z0-9:.\\[\\]*]{0,20}",
    ) {
        let states = [TcpState::Listening, TcpState::Connected];
        let to = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let tcp = tcp.into_iter().map(|(state, own, peer, inode, uid)| {
            Tcp { state: states[state as usize], own: to(own), peer: to(peer), inode, uid }
        });
        let unixes = unixes.into_iter().map(|(inode, name, peer, listening)| unix(inode, name.as_deref(), peer, listening));
        let spaces = [here(tcp.collect(), unixes.collect())];
        contacts(&spaces, &[1, 2, 3], &[1], &[4]);
        let view = View::of(&spaces);
        view.listening_as(HERE, &address, None);
    }
}

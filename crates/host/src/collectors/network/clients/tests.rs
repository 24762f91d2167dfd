//! Which connections are whose, from ends as the kernel lists them. Real ones are in the integration tests.

use super::*;
use std::net::{SocketAddr, TcpListener};

fn end(cookie: u8, own: &str, peer: &str, open: bool, inode: u64) -> End {
    let ends = [own, peer].map(|end| end.parse::<SocketAddr>().unwrap());
    let [own, peer] = ends.map(|end| (end.ip(), end.port()));
    End {
        cookie: [cookie; 8],
        open,
        sending: cookie == 2,
        owes_answer: None,
        bytes: None,
        round_trip_us: Some((90 + u32::from(cookie), 80 + u32::from(cookie))),
        own,
        peer,
        inode,
    }
}

#[test]
fn what_is_not_on_this_machine_is_somebody_elses() {
    let servers = [
        end(1, "10.0.0.1:80", "10.0.0.9:5000", true, 7),
        end(2, "10.0.0.1:80", "10.0.0.1:6000", true, 8),
        end(3, "10.0.0.1:80", "10.0.0.1:6001", false, 9),
    ];
    // The same ports at another address are another connection.
    let clients =
        [end(4, "10.0.0.1:6000", "10.0.0.1:80", true, 20), end(5, "10.0.0.2:5000", "10.0.0.1:80", true, 21)];
    let look = |servers: &[End], clients: &[End]| ConnectionEnds {
        servers: servers.into(),
        clients: clients.into(),
    };
    let first = look(&servers, &clients);
    let open = open_throughout(&first, &first);
    let inode = |cookie: u8| open.iter().find(|c| c.cookie == [cookie; 8]).map(|c| c.client_inode);
    assert_eq!((inode(1), inode(2), inode(3)), (Some(None), Some(Some(20)), None));
    assert_eq!(without(&open, &BTreeSet::from([20])).len(), 1);
    let sending: Vec<_> = open.iter().filter(|c| c.sending).map(|c| c.cookie[0]).collect();
    assert_eq!(sending, [2]);
    let seen = PortConnections { all: open.clone(), others: None, left_count: 0 };
    let reading = Clients::default().reading_of(seen);
    let round_trips = ["clients.round_trip_us", "clients.round_trip_min_us"].map(|name| reading.value(name));
    assert_eq!(round_trips, [Some(91.0), Some(81.0)], "there is no path to a client here");
    // A client here that has closed its end is nobody, also while the server's end is open still.
    for (second, count) in [(look(&servers, &[]), 1), (look(&servers[1..], &clients), 1), (look(&[], &[]), 0)]
    {
        assert_eq!(open_throughout(&first, &second).len(), count);
    }
}

#[test]
fn between_dear_readings_the_server_s_ends_tell_of_clients_elsewhere() {
    let elsewhere = |cookie: u8| End {
        owes_answer: Some(cookie == 1),
        ..end(cookie, "10.0.0.1:80", &format!("10.0.0.9:{}", 5000 + u16::from(cookie)), cookie != 5, 7)
    };
    let here =
        |cookie: u8| end(cookie, "127.0.0.1:80", &format!("127.0.0.1:{}", 6000 + u16::from(cookie)), true, 8);
    let read = |are_remote, here_count: u8| {
        let mut clients = Clients { are_few: true, are_remote, ..Clients::default() };
        let servers = (1..=5).map(elsewhere).chain((10..10 + here_count).map(here)).collect();
        let reading = clients.reading_between(servers);
        ["connections", "sending", "idle", "owed", "unsure", "left"]
            .map(|what| reading.value(&format!("clients.{what}_count")))
    };
    assert_eq!(read(true, 1), [4.0, 1.0, 2.0, 1.0, 0.0, 1.0].map(Some));
    assert_eq!(read(false, 1), [None; 6], "whose those here are was not asked");
    assert_eq!(read(true, 2), [None; 6], "these are not the program's own");
}

#[test]
fn one_that_was_idle_and_is_asked_on_again_is_kept() {
    let mut clients = Clients::default();
    let mut read = |bytes: &[(u8, u64)]| {
        let connection = |(cookie, received): &(u8, u64)| {
            let peer = format!("10.0.0.9:{}", 5000 + u16::from(*cookie));
            End {
                owes_answer: Some(*cookie == 1),
                bytes: Some((*received, 700)),
                ..end(*cookie, "10.0.0.1:80", &peer, true, 7)
            }
        };
        let look = ConnectionEnds { servers: bytes.iter().map(connection).collect(), clients: vec![] };
        let seen = PortConnections { all: open_throughout(&look, &look), others: None, left_count: 0 };
        clients.reading_of(seen).value("clients.used_again_count")
    };
    assert_eq!(read(&[(1, 300), (3, 300), (4, 300)]), None, "none was read before");
    assert_eq!(read(&[(1, 900), (3, 650), (4, 300)]), Some(1.0), "the first one waited");
    assert_eq!(read(&[(5, 300), (6, 300)]), Some(0.0), "others have come in their place");
    assert_eq!(read(&[]), Some(0.0));
    assert_eq!(read(&[(5, 300)]), None);
}

#[test]
fn whether_a_request_waits_is_told_by_what_came_last() {
    let state = |inode, sending, owes_answer| {
        let here = ([127, 0, 0, 1].into(), 80);
        let end = End {
            cookie: [1; 8],
            open: true,
            sending,
            owes_answer,
            bytes: None,
            round_trip_us: None,
            own: here,
            peer: here,
            inode,
        };
        RequestState::of(&end)
    };
    assert_eq!(state(7, false, Some(true)), RequestState::Owed);
    assert_eq!(state(7, false, Some(false)), RequestState::Idle);
    assert_eq!(state(7, false, None), RequestState::Unsure, "both within a tick of the clock");
    assert_eq!(state(7, true, Some(false)), RequestState::Unknown, "its client takes an answer");
    assert_eq!(state(0, false, Some(false)), RequestState::Unknown, "nobody has accepted it");
}

#[test]
fn without_a_port_or_a_generator_that_lives_there_is_a_reason() {
    let reading = Clients::default().read(&Target::default());
    assert_eq!((reading.error, reading.missing[0].signal.as_str()), (None, "clients"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = Target { port: Some(port), client_pid: Some(u32::MAX), ..Target::default() };
    let reading = Clients::default().read(&target);
    let values = ["connections", "others", "left", "sending"]
        .map(|what| reading.value(&format!("clients.{what}_count")));
    assert_eq!(values, [Some(0.0), None, Some(0.0), Some(0.0)]);
    assert!(reading.error.unwrap().contains("/proc/"));
}

#[test]
fn few_connections_are_read_within_a_load_of_a_few_seconds_and_dear_readings_stay_rare() {
    let of =
        |took_ms, are_few| pause_after(Duration::from_millis(took_ms), are_few).map(|rest| rest.as_millis());
    for (took_ms, are_few, rest_ms) in [(0, true, None), (2, true, Some(2_400)), (5, true, Some(3_000))] {
        assert_eq!(of(took_ms, are_few), rest_ms, "{took_ms} {are_few}");
    }
    assert_eq!([of(5, false), of(20, true), of(20, false)], [Some(6_000), Some(10_000), Some(24_000)]);
}

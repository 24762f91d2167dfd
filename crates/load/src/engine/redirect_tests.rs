//! Redirects in the simulated world: what is sent next, and that a chain is one request in the counts.

use super::redirect::Targets;
use super::simulation::*;
use super::visit_tests;
use crate::plan::prepare;
use proptest::prelude::*;
use webdyno_model::workload::{Arrival, Expectation, RequestSpec, Workload};

/// A user that follows up to `redirects_max`, and sends so many requests.
fn following(redirects_max: u32, count: u64) -> Workload {
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.stop.requests = Some(count);
    load.stop.duration_us = None;
    load.redirects_max = redirects_max;
    load
}

fn redirect(act: &str) -> Vec<u8> {
    let (status, location) = act.split_once(' ').unwrap();
    let text = format!("HTTP/1.1 {status} x\r\nlocation: {location}\r\nContent-Length: 4\r\n\r\ngone");
    text.into_bytes()
}

/// Runs the load against a site that answers each path after a millisecond as the table says (`302 /b` is a redirect), and any
/// other one with OK; returns the outcome and the requests that arrived.
fn run(load: &Workload, table: &[(&str, &str)]) -> (Outcome, Vec<(u64, String)>) {
    visit_tests::run(load, |request| {
        let known = table.iter().find(|(known, _)| *known == visit_tests::path(request));
        (MS, known.map_or_else(|| OK.to_vec(), |(_, act)| redirect(act)))
    })
}

fn lines(received: &[(u64, String)]) -> Vec<&str> {
    received.iter().map(|(_, text)| text.split(" HTTP").next().unwrap()).collect()
}

#[test]
fn a_chain_is_one_request() {
    let mut load = following(5, 2);
    load.requests[0].url = "http://127.0.0.1:1/a/start".into();
    load.expect = vec![Expectation::Status(200), Expectation::Regex("^ok$".into())];
    let table = [("/a/start", "302 next?x=1"), ("/a/next?x=1", "301 http://127.0.0.1:1/c#part")];
    let (outcome, received) = run(&load, &table);
    assert_eq!(outcome.counts(), (2, 0, 0));
    assert_eq!(lines(&received), ["GET /a/start", "GET /a/next?x=1", "GET /c"].repeat(2));
    assert_eq!(outcome.sum(|interval| interval.started), 2);
    assert_eq!(outcome.sum(|interval| interval.redirects), 4);
    // The statuses of the responses that ended a request, nothing else.
    let status: Vec<_> = outcome.intervals[0].status.iter().collect();
    assert_eq!(status, [(&"200".to_owned(), &2)]);
    // Three answers of 1 ms on one connection, and the connection before the first.
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.min, response.max), (Some(3000), Some(3100)));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!((service.min, service.max), (Some(3000), Some(3000)));
    assert_eq!(outcome.merged(|interval| &interval.client_delay).count(), 2);
    assert_eq!(outcome.merged(|interval| &interval.first_byte).dist().max, Some(1000));
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 1);
}

#[test]
fn without_the_flag_a_redirect_is_the_response() {
    let (outcome, received) = run(&following(0, 3), &[("/", "302 /b")]);
    assert_eq!((outcome.counts(), received.len()), ((3, 0, 0), 3));
    assert_eq!(outcome.intervals[0].status["302"], 3);
    // And so is one that names no place.
    let nowhere = |text: &'static [u8]| -> Server<'static> {
        Box::new(move |visit| match visit.request {
            0 => vec![(0, ServerAction::Accept)],
            _ => vec![(MS, ServerAction::Send(text.to_vec()))],
        })
    };
    for text in
        [&b"HTTP/1.1 302 x\r\nContent-Length: 0\r\n\r\n"[..], b"HTTP/1.1 304 x\r\nLocation: /b\r\n\r\n"]
    {
        assert_eq!(simulate(&following(3, 3), nowhere(text)).counts(), (3, 0, 0));
    }
}

/// What a redirect makes of a request with a body, by status and method: RFC 9110, 15.4.
#[test]
fn methods_and_bodies_follow_the_rfc() {
    for (status, method, next, body) in [
        (301, "POST", "GET", false),
        (302, "POST", "GET", false),
        (303, "POST", "GET", false),
        (307, "POST", "POST", true),
        (308, "POST", "POST", true),
        (301, "PUT", "PUT", true),
        (302, "DELETE", "DELETE", true),
        (303, "PUT", "GET", false),
        (303, "HEAD", "HEAD", true),
        (302, "HEAD", "HEAD", true),
    ] {
        let mut load = following(1, 1);
        load.requests[0] = RequestSpec {
            method: method.into(),
            headers: vec![("Content-Type".into(), "text/x".into()), ("X-Mine".into(), "1".into())],
            body: "abc".into(),
            ..get("/a")
        };
        let act = format!("{status} /b");
        let mut sim = Sim::new(Box::new(|_| vec![]));
        let received = sim.received.clone();
        let response = redirect(&act);
        sim.serve(Box::new(move |visit| match visit.request {
            0 => vec![(0, ServerAction::Accept)],
            1 if method == "HEAD" => vec![(MS, ServerAction::Send(response[..response.len() - 4].to_vec()))],
            1 => vec![(MS, ServerAction::Send(response.clone()))],
            _ if method == "HEAD" => {
                vec![(MS, ServerAction::Send(b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\n".to_vec()))]
            }
            _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
        }));
        assert_eq!(simulate_on(&load, sim).counts(), (1, 0, 0), "{status} {method}");
        let received = received.take();
        let second = &received[1].1;
        assert!(second.starts_with(&format!("{next} /b HTTP/1.1\r\n")), "{status} {method}: {second}");
        assert!(second.contains("X-Mine: 1\r\n"), "{second}");
        for sign in ["Content-Type: text/x\r\n", "Content-Length: 3\r\n", "\r\n\r\nabc"] {
            assert_eq!(second.contains(sign), body, "{status} {method}: {second}");
        }
    }
}

#[test]
fn secrets_stay_with_the_server_they_were_given_for() {
    let headers = ["Host: site", "Authorization: s3cret", "Cookie: s3cret", "X-Api-Key: s3cret", "X-Mine: 1"];
    let mut load = following(3, 1);
    load.connections = 1;
    load.requests = vec![get("/a"), get("/other")];
    load.requests[1].url = "http://127.0.0.1:2/other".into();
    for request in &mut load.requests {
        request.headers = headers
            .iter()
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
    }
    let table =
        [("/a", "302 http://site/b"), ("/b", "302 //127.0.0.1:2/c"), ("/c", "302 http://127.0.0.1:1/d")];
    let (outcome, received) = run(&load, &table);
    assert_eq!(
        (outcome.counts(), lines(&received)),
        ((1, 0, 0), vec!["GET /a", "GET /b", "GET /c", "GET /d"])
    );
    // The server that was named by Host is the one that was connected to.
    assert_eq!(received[0].0, received[1].0);
    assert_ne!(received[1].0, received[2].0);
    for (index, text) in received.iter().map(|(_, text)| text).enumerate() {
        assert!(text.contains("X-Mine: 1"), "{text}");
        assert_eq!(text.matches("s3cret").count(), if index < 2 { 3 } else { 0 }, "{text}");
        let host = ["site", "site", "127.0.0.1:2", "127.0.0.1:1"][index];
        assert!(text.contains(&format!("Host: {host}\r\n")), "{text}");
    }
}

#[test]
fn a_redirect_that_cannot_be_followed_is_a_failure() {
    let long = format!("302 /{}", "x".repeat(9000));
    for (act, followed) in [
        ("302 /", 3),
        ("302 http://127.0.0.1:9/", 0),
        ("302 ftp://127.0.0.1:1/", 0),
        ("302 https://127.0.0.1:1/", 0),
        ("302 http://name:word@127.0.0.1:1/b", 0),
        ("302 http://[/", 0),
        (&long, 0),
    ] {
        let (outcome, received) = run(&following(3, 2), &[("/", act)]);
        assert_eq!((outcome.counts(), received.len() as u64), ((0, 2, 0), 2 * (followed + 1)), "{act}");
        assert_eq!(outcome.sum(|interval| interval.errors.status), 2, "{act}");
        assert_eq!(outcome.sum(|interval| interval.redirects), 2 * followed, "{act}");
        assert_eq!(outcome.intervals[0].status["302"], 2, "{act}");
    }
}

#[test]
fn one_timeout_covers_the_chain() {
    let mut load = workload(Arrival::Closed, 1, 100);
    load.redirects_max = 50;
    load.timeout_us = 10_500;
    let (outcome, _) = run(&load, &[("/", "307 /")]);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.min, response.max), (Some(10_500), Some(10_500)));
    assert_eq!(outcome.counts(), (0, 9, 1));
    assert_eq!(outcome.sum(|interval| interval.errors.timeout), 9);
}

#[test]
fn hops_close_their_connections_on_connection_close() {
    let closing =
        b"HTTP/1.1 302 x\r\nLocation: /b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec();
    for arrival in [Arrival::Closed, Arrival::Open { rate_per_s: 100.0, poisson: false }] {
        let mut load = following(1, 20);
        load.arrival = arrival;
        let closing = closing.clone();
        let server: Server<'_> = Box::new(move |visit| match visit.request {
            0 => vec![(0, ServerAction::Accept)],
            _ if visit.connection % 2 == 1 => {
                vec![(MS, ServerAction::Send(closing.clone())), (MS, ServerAction::Close)]
            }
            _ => vec![(MS, ServerAction::Send(OK.to_vec())), (MS, ServerAction::Close)],
        });
        let outcome = simulate(&load, server);
        assert_eq!(outcome.counts(), (20, 0, 0), "{arrival:?}");
        assert_eq!(outcome.sum(|interval| interval.redirects), 20);
        assert_eq!(outcome.sum(|interval| interval.connections.opened), 40);
    }
}

#[test]
fn a_hop_that_crosses_a_close_is_sent_again() {
    // Each connection gives one response and closes: the second hop crosses it.
    let response = redirect("302 /b");
    let server: Server<'_> = Box::new(move |visit| match (visit.connection % 2, visit.request) {
        (_, 0) => vec![(0, ServerAction::Accept)],
        (1, 1) => vec![(MS, ServerAction::Send(response.clone()))],
        (1, _) => vec![(MS, ServerAction::Close)],
        _ => vec![(MS, ServerAction::Send(OK.to_vec())), (MS, ServerAction::Close)],
    });
    let outcome = simulate(&following(1, 1), server);
    assert_eq!(outcome.counts(), (1, 0, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.resent), 1);
    assert_eq!(outcome.merged(|interval| &interval.service_time).dist().max, Some(3000));
}

#[test]
fn targets_are_made_once_and_bounded() {
    let prepared = prepare(&following(1, 1)).unwrap();
    let mut targets = Targets::new(&prepared.plan, 7);
    let mut target = |from, status, location: &str| {
        targets.target(&prepared.plan, (from, 0), status, location.as_bytes()).unwrap()
    };
    let (first, new) = target(0, 301, "/b");
    assert!(new && first == 1);
    assert_eq!(target(0, 302, "/b"), (first, false), "301 and 302 do the same");
    assert_eq!(target(0, 307, "/b"), (2, true));
    assert_eq!(target(first, 301, "/b"), (3, true), "from another place it may lead elsewhere");
    let numbers: Vec<_> = (0..2000).map(|number| target(0, 302, &format!("/{number}")).0).collect();
    assert_eq!(*numbers.iter().max().unwrap(), 7 + 256);
    // What made room is made again, and the latest are still there.
    assert!(target(0, 301, "/b").1 && !target(0, 301, "/1999").1);
}

#[test]
fn targets_that_never_repeat_make_room_for_each_other() {
    let mut number = 0;
    let server: Server<'_> = Box::new(move |visit| {
        number += 1;
        match visit.request {
            0 => vec![(0, ServerAction::Accept)],
            // Two redirects to a place of their own, then the response.
            _ if number % 3 != 0 => vec![(MS, ServerAction::Send(redirect(&format!("302 /{number}"))))],
            _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
        }
    });
    let mut load = following(5, 2000);
    load.connections = 7;
    let outcome = simulate(&load, server);
    assert_eq!(outcome.counts().2, 0);
    assert!(outcome.sum(|interval| interval.redirects) > 2000);
    assert!(outcome.counts().0 > 1900, "{:?}", outcome.counts());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    // Invariant: wherever servers redirect to, and however their connections end, no request is lost or doubled (see
    // `simulate`).
    #[test]
    fn no_redirect_makes_a_request_vanish(
        script in prop::collection::vec((0..6u8, any::<bool>(), 0..5 * MS), 1..12),
        closed: bool, keepalive: bool,
        connections in 1..9u32,
        redirects_max in 1..4u32,
    ) {
        let mut turn = 0;
        let server: Server<'_> = Box::new(move |visit| {
            if visit.request == 0 {
                return vec![(MS, ServerAction::Accept)];
            }
            turn += 1;
            let (kind, closes, after_ns) = script[turn % script.len()];
            let mut acts = vec![(after_ns, match kind {
                0 => ServerAction::Send(redirect("302 /b")),
                1 => ServerAction::Send(redirect("307 http://127.0.0.1:2/c")),
                2 => ServerAction::Send(redirect("301 http://127.0.0.1:3/d")),
                3 => ServerAction::Send(redirect(&format!("308 /{turn}"))),
                4 => ServerAction::Reset,
                _ => ServerAction::Send(OK.to_vec()),
            })];
            if closes {
                acts.push((after_ns + MS / 2, ServerAction::Close));
            }
            acts
        });
        let mut load = workload(Arrival::Closed, connections, 1300);
        if !closed {
            load.arrival = Arrival::Open { rate_per_s: 300.0, poisson: false };
        }
        load.requests.push(get("/other"));
        load.requests[1].url = "http://127.0.0.1:2/other".into();
        (load.redirects_max, load.keepalive, load.timeout_us) = (redirects_max, keepalive, 30_000);
        simulate(&load, server);
    }
}

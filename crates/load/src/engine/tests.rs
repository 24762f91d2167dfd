//! The engine against simulated servers: exact counts and exact times. Every run is also checked for what must
//! hold always (see `simulation::simulate`).

use super::simulation::*;
use proptest::prelude::*;
use webdyno_model::interval::{EndReason, ErrorCounts};
use webdyno_model::workload::{Arrival, Expectation, StatusSet};

fn open(rate_per_s: f64) -> Arrival {
    Arrival::Open { rate_per_s, poisson: false }
}

/// A server that treats every connection and every request alike.
fn doing(connect: ServerAction, acts: Vec<(u64, ServerAction)>) -> Server<'static> {
    Box::new(move |visit| match visit.request {
        0 => vec![(100_000, connect.clone())],
        _ => acts.clone(),
    })
}

#[test]
fn closed_users_send_when_they_have_their_response() {
    let outcome = simulate(&workload(Arrival::Closed, 4, 2500), answering(MS));
    // The connection takes 0.1 ms once, then each response 1 ms: 2,499 fit into 2.5 s for each user.
    assert_eq!(outcome.counts(), (4 * 2499, 0, 4));
    let connections = outcome.sum(|interval| interval.connections.opened);
    assert_eq!((connections, outcome.intervals[0].connections.peak), (4, 4));
    assert_eq!(outcome.sum(|interval| interval.connections.reused), 4 * 2499);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.min, response.p50, response.max), (Some(1000), Some(1000), Some(1100)));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!((service.min, service.max), (Some(1000), Some(1000)));
    assert_eq!(outcome.merged(|interval| &interval.connect_time).dist().max, Some(100));
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    let shape: Vec<_> =
        outcome.intervals.iter().map(|interval| (interval.length_us, interval.in_flight_us)).collect();
    assert_eq!(shape, [(1_000_000, 4_000_000), (1_000_000, 4_000_000), (500_000, 2_000_000)]);
    assert_eq!(outcome.end.reason, DURATION);
}

#[test]
fn open_starts_keep_their_rate_whatever_the_server_does() {
    for server in [answering(MS), answering(700 * MS), doing(ServerAction::Refuse, vec![])] {
        let outcome = simulate(&workload(open(100.0), 10, 2500), server);
        let started: Vec<_> = outcome.intervals.iter().map(|interval| interval.started).collect();
        assert_eq!(started, [100, 100, 50]);
    }
}

#[test]
fn a_start_that_waits_for_a_connection_counts_its_wait_as_response_not_as_our_delay() {
    // One connection, 100 ms a response, a start every 50 ms: the n-th request waits n * 50 ms and a little.
    let mut load = workload(open(20.0), 1, 1000);
    load.stop.requests = Some(5);
    let outcome = simulate(&load, answering(100 * MS));
    assert_eq!(outcome.counts(), (5, 0, 0));
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.min, response.max), (Some(100_100), Some(300_100)));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!((service.min, service.max), (Some(100_000), Some(100_000)));
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    assert_eq!(outcome.end.reason, EndReason::Requests);
    assert_eq!(outcome.end.elapsed_us, 500_100);
}

#[test]
fn starts_still_waiting_at_the_end_are_counted_apart() {
    let outcome = simulate(&workload(open(100.0), 3, 1000), doing(ServerAction::Accept, vec![]));
    assert_eq!(outcome.counts(), (0, 0, 100));
    assert_eq!(outcome.end.waiting_at_end, 97);
}

#[test]
fn our_own_slowness_is_client_delay() {
    // Each system call takes 1 ms, a request needs at least two, and one is due every millisecond: we fall behind.
    let mut sim = Sim::new(answering(0));
    sim.call_ns = MS;
    let outcome = simulate_on(&workload(open(1000.0), 2000, 1000), sim);
    let delay = outcome.merged(|interval| &interval.client_delay).dist();
    assert!(delay.max.unwrap() > 400_000, "{delay:?}");
}

#[test]
fn a_frozen_server_shows_in_every_request_that_was_due() {
    // Frozen for 500 ms of every 2 s: a request that arrives then is answered when it thaws.
    let server = Box::new(|visit: ServerRequest| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ => {
            let in_cycle_ns = visit.now_ns % (2000 * MS);
            let frozen_ns = (2000 * MS - in_cycle_ns) * u64::from(in_cycle_ns >= 1500 * MS);
            vec![(frozen_ns + MS, ServerAction::Send(OK.to_vec()))]
        }
    });
    let outcome = simulate(&workload(open(1000.0), 20, 9000), server);
    let response = outcome.merged(|interval| &interval.response_time);
    // 500 of 2,000 requests are due while it is frozen, evenly: a quarter of all waits, up to 501 ms.
    let slow = response
        .cumulative()
        .iter()
        .take_while(|&&(time_us, _)| time_us < 3000)
        .last()
        .map(|&(_, share)| 1.0 - share)
        .unwrap();
    assert!((0.22..0.30).contains(&slow), "{slow}");
    assert!(response.dist().max.unwrap() >= 500_000);
    let p90 = response.quantile_us(0.90).unwrap();
    assert!((250_000..350_000).contains(&p90), "{p90}");
}

#[test]
fn a_server_that_never_answers_times_out_exactly() {
    let mut load = workload(Arrival::Closed, 3, 1000);
    load.timeout_us = 250_000;
    let outcome = simulate(&load, doing(ServerAction::Accept, vec![]));
    assert_eq!(outcome.counts(), (0, 12, 0));
    assert_eq!(outcome.sum(|interval| interval.errors.timeout), 12);
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.count, response.min, response.max), (12, Some(250_000), Some(250_000)));
}

#[test]
fn an_answer_that_came_in_time_is_no_timeout_however_many_are_to_be_read() {
    // Held up from before they come until after their deadline; one wait gives two of ten.
    let mut sim = Sim::new(answering(100 * MS));
    (sim.stalls, sim.ready_max) = (vec![(50 * MS, 400 * MS)], 2);
    let mut load = workload(Arrival::Closed, 10, 1000);
    load.timeout_us = 300_000;
    let (completed, failed, _) = simulate_on(&load, sim).counts();
    assert!(completed >= 10 && failed == 0, "{completed} {failed}");
}

#[test]
fn a_timeout_bounds_no_wait_for_a_connection_and_the_times_hold_that_wait() {
    let mut load = workload(open(10.0), 1, 2200);
    load.timeout_us = 500_000;
    let outcome = simulate(&load, doing(ServerAction::Accept, vec![]));
    // One after the other, each 500 ms after it got the connection: due at 0, 100, 200, 300 ms.
    assert_eq!(outcome.counts(), (0, 4, 18));
    let response = outcome.merged(|interval| &interval.response_time).dist();
    assert_eq!((response.min, response.max), (Some(500_000), Some(1_700_000)));
    assert!(outcome.merged(|interval| &interval.service_time).dist().max.unwrap() <= 500_000);
    // One has the connection; the others were never sent, and wait since their start.
    assert_eq!((outcome.end.waiting_at_end, outcome.end.in_flight_at_end), (17, 18));
    assert_eq!(outcome.end.censored_time.as_ref().map(|censored| censored.max_us), Some(1_800_000));
}

#[test]
fn slow_bytes_do_not_stretch_a_timeout() {
    let mut load = workload(Arrival::Closed, 1, 1100);
    load.timeout_us = 500_000;
    let drip = |index: usize| (index as u64 * 40 * MS, ServerAction::Send(OK[index..=index].to_vec()));
    let outcome = simulate(&load, doing(ServerAction::Accept, (0..OK.len()).map(drip).collect()));
    assert_eq!(outcome.counts(), (0, 2, 1));
    assert_eq!(outcome.merged(|interval| &interval.response_time).dist().max, Some(500_000));
}

#[test]
fn a_connection_that_never_comes_about_is_a_connect_timeout_at_its_bound() {
    let mut load = workload(Arrival::Closed, 2, 900);
    load.timeout_us = 400_000;
    let outcome = simulate(&load, Box::new(|_| vec![]));
    assert_eq!(outcome.sum(|interval| interval.errors.connect_timeout), 4);
    assert_eq!(outcome.counts(), (0, 4, 2));
    assert_eq!(outcome.merged(|interval| &interval.response_time).dist().max, Some(400_000));
    assert_eq!(outcome.sum(|interval| interval.bytes_sent), 0);
    let served = outcome.merged(|interval| &interval.service_time).count();
    assert_eq!(served, 0, "nothing was sent that could be served");
}

// A silent name server is no server that takes long to connect: its name stands in the class.
#[test]
fn a_slow_name_lookup_is_not_a_server_timeout() {
    let mut load = workload(Arrival::Closed, 2, 900);
    load.timeout_us = 400_000;
    let mut sim = Sim::new(Box::new(|_| vec![]));
    sim.naming = true;
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.sum(|interval| interval.errors.dns), 4);
    assert_eq!(outcome.counts(), (0, 4, 2));
    assert_eq!(outcome.merged(|interval| &interval.response_time).count(), 0);
}

#[test]
fn users_of_a_refusing_server_pause() {
    let outcome = simulate(&workload(Arrival::Closed, 2, 2000), doing(ServerAction::Refuse, vec![]));
    // Attempts of a user at 0, 10, 30, 70, 150, 310, 630 and 1,270 ms, and a little for each refusal.
    assert_eq!(outcome.counts(), (0, 16, 0));
    assert_eq!(outcome.sum(|interval| interval.errors.connect_refused), 16);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 0);
}

/// A server that closes each connection after five answers, without saying so.
fn closing_quietly(after_ns: u64) -> Server<'static> {
    Box::new(move |visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        5 => vec![(MS, ServerAction::Send(OK.to_vec())), (MS + after_ns, ServerAction::Close)],
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    })
}

#[test]
fn a_quiet_close_is_no_failure_wherever_it_crosses() {
    for after_ns in [0, 1, 10_000, 500_000, 999_999] {
        let outcome = simulate(&workload(Arrival::Closed, 3, 1000), closing_quietly(after_ns));
        let (completed, failed, _) = outcome.counts();
        assert_eq!(failed, 0, "closed {after_ns} ns after the answer: {:?}", outcome.intervals[0].errors);
        let quiet = outcome.sum(|interval| interval.connections.quiet_closes);
        assert!((completed / 5).abs_diff(quiet) <= 3, "{completed} answers, {quiet} closes");
        assert!(outcome.sum(|interval| interval.connections.opened) >= quiet);
    }
}

#[test]
fn a_quiet_close_of_an_idle_connection_is_counted_and_costs_nothing() {
    let outcome = simulate(&workload(open(10.0), 2, 2000), closing_quietly(50 * MS));
    assert_eq!(outcome.counts(), (20, 0, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 4);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 4);
}

#[test]
fn what_is_not_idempotent_is_never_sent_twice() {
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.requests[0].method = "POST".into();
    let outcome = simulate(&load, closing_quietly(500_000));
    let (completed, failed, _) = outcome.counts();
    assert!(failed >= completed / 5 - 1 && failed > 10, "{completed} and {failed}");
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 0);
    let errors = outcome.sum(|interval| interval.errors.closed_early + interval.errors.reset);
    assert_eq!(errors, failed);
}

#[test]
fn a_retry_happens_once() {
    // Each connection gives one response; every other one dies without a byte: a retry meets a dying one.
    let server = Box::new(|visit: ServerRequest| match (visit.connection, visit.request) {
        (_, 0) => vec![(0, ServerAction::Accept)],
        (1, 1) => vec![(MS, ServerAction::Send(OK.to_vec()))],
        _ => vec![(MS, ServerAction::Close)],
    });
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.stop.requests = Some(2);
    let outcome = simulate(&load, server);
    assert_eq!(outcome.counts(), (1, 1, 0));
    assert_eq!(outcome.sum(|interval| interval.errors.closed_early), 1);
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 1);
}

#[test]
fn without_keepalive_each_request_has_its_connection() {
    let mut load = workload(Arrival::Closed, 3, 1000);
    load.keepalive = false;
    let closing = vec![(MS, ServerAction::Send(OK.to_vec())), (MS + 50_000, ServerAction::Close)];
    for acts in [closing, vec![(MS, ServerAction::Send(OK.to_vec()))]] {
        let outcome = simulate(&load, doing(ServerAction::Accept, acts));
        let (completed, failed, in_flight) = outcome.counts();
        // 1.1 ms each: 909 of a user fit.
        assert_eq!((completed, failed, in_flight), (3 * 909, 0, 3));
        assert_eq!(outcome.sum(|interval| interval.connections.reused), 0);
        assert!(outcome.sum(|interval| interval.connections.opened) >= completed);
        assert_eq!(outcome.intervals[0].connections.peak, 3);
    }
}

#[test]
fn so_many_requests_are_started_and_each_has_its_outcome() {
    let failing = Box::new(|visit: ServerRequest| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ if visit.connection.is_multiple_of(3) => vec![(MS, ServerAction::Reset)],
        3 => vec![(MS, ServerAction::Send(b"nonsense\r\n\r\n".to_vec()))],
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    });
    for (arrival, connections) in [(Arrival::Closed, 7), (Arrival::Closed, 300), (open(5000.0), 7)] {
        let mut load = workload(arrival, connections, 1);
        load.stop.duration_us = None;
        load.stop.requests = Some(101);
        let outcome = simulate(&load, failing.clone());
        let (completed, failed, in_flight) = outcome.counts();
        assert_eq!((completed + failed, in_flight), (101, 0));
        assert_eq!(outcome.end.reason, EndReason::Requests);
        assert!(failed > 10);
    }
}

/// The class that an exchange fails with.
fn check_failure(acts: Vec<(u64, ServerAction)>, expected: fn(&ErrorCounts) -> u64) {
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.stop.requests = Some(1);
    load.expect = vec![Expectation::Length(2)];
    let outcome = simulate(&load, doing(ServerAction::Accept, acts.clone()));
    assert_eq!(outcome.counts(), (0, 1, 0), "{acts:?}");
    assert_eq!(outcome.sum(|interval| expected(&interval.errors)), 1, "{acts:?}");
}

#[test]
fn failures_have_their_class() {
    let send = |text: &str| (MS, ServerAction::Send(text.replace('\n', "\r\n").into_bytes()));
    let close = (2 * MS, ServerAction::Close);
    let reset = (2 * MS, ServerAction::Reset);
    check_failure(vec![close.clone()], |errors| errors.closed_early);
    check_failure(vec![reset.clone()], |errors| errors.reset);
    let part = send("HTTP/1.1 200 OK\nContent-Length: 2\n\no");
    check_failure(vec![part.clone(), close.clone()], |errors| errors.closed_early);
    check_failure(vec![part, reset], |errors| errors.reset);
    check_failure(vec![send("SSH-2.0-x\n\n")], |errors| errors.protocol);
    check_failure(vec![send("HTTP/1.1 503 No\nContent-Length: 2\n\nno")], |errors| errors.status);
    check_failure(vec![send("HTTP/1.1 200 OK\nContent-Length: 3\n\nyes")], |errors| errors.expect);
    check_failure(vec![send("HTTP/1.1 200 OK\n\nyes"), close], |errors| errors.expect);
    check_failure(vec![send("HTTP/1.1 200 OK\nContent-Length: 2\n\nokMORE")], |errors| errors.protocol);
}

#[test]
fn a_request_that_the_kernel_takes_in_pieces_arrives_whole() {
    let mut load = workload(Arrival::Closed, 2, 1000);
    load.requests[0].method = "POST".into();
    load.requests[0].body = "x".repeat(1000).as_str().into();
    let mut sim = Sim::new(answering(MS));
    sim.send_max = 300;
    let outcome = simulate_on(&load, sim);
    let (completed, failed, _) = outcome.counts();
    assert!(completed > 1800 && failed == 0, "{completed}, {failed}");
    assert!(outcome.sum(|interval| interval.bytes_sent) > completed * 1000);
}

#[test]
fn large_bodies_are_dropped_and_still_counted() {
    let mut load = workload(Arrival::Closed, 2, 1000);
    load.expect = vec![Expectation::Length(300_000)];
    let mut big = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".to_vec();
    big.resize(big.len() + 300_000, b'x');
    let (first, rest) = big.split_at(100_000);
    let acts = vec![(MS, ServerAction::Send(first.to_vec())), (2 * MS, ServerAction::Send(rest.to_vec()))];
    let outcome = simulate(&load, doing(ServerAction::Accept, acts));
    let (completed, failed, _) = outcome.counts();
    assert_eq!((completed, failed), (2 * 499, 0));
    let received = outcome.sum(|interval| interval.bytes_received);
    assert!(received.abs_diff(completed * big.len() as u64) <= 4 * 100_000, "{received}");
    assert_eq!(outcome.merged(|interval| &interval.first_byte).dist().p50, Some(1000));
}

#[test]
fn names_are_counted_apart_when_there_are_several() {
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.requests = vec![get("/a"), get("/b"), get("/a")];
    load.stop.requests = Some(300);
    let outcome = simulate(&load, answering(MS));
    let named = |name: &str| outcome.sum(|interval| interval.by_name[name].completed);
    assert_eq!((named("/a"), named("/b")), (200, 100));
    let alone = simulate(&workload(Arrival::Closed, 1, 100), answering(MS));
    assert!(alone.intervals[0].by_name.is_empty());
}

#[test]
fn several_servers_have_connections_of_their_own() {
    let mut load = workload(Arrival::Closed, 4, 1000);
    load.requests = vec![get("/a"), get("/b")];
    load.requests[1].url = "http://127.0.0.1:2/b".into();
    let outcome = simulate(&load, answering(MS));
    let (completed, failed, in_flight) = outcome.counts();
    assert!(completed > 3900 && failed == 0 && in_flight == 4);
    assert!(outcome.sum(|interval| interval.connections.opened) <= 8);
    load.arrival = open(1000.0);
    let outcome = simulate(&load, answering(MS));
    assert_eq!(outcome.sum(|interval| interval.started), 1000);
    assert!(outcome.intervals[0].connections.peak <= 4);
}

#[test]
fn a_status_that_the_user_calls_good_is_good() {
    let mut load = workload(Arrival::Closed, 1, 100);
    load.ok_status = StatusSet::parse("404").unwrap();
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    let outcome = simulate(&load, doing(ServerAction::Accept, vec![(MS, ServerAction::Send(missing))]));
    assert_eq!(outcome.counts().1, 0);
    assert_eq!(outcome.intervals[0].status["404"], outcome.counts().0);
}

/// What a hostile server might do with a visit.
fn any_acts() -> impl Strategy<Value = Vec<(u64, ServerAction)>> {
    let response = prop_oneof![
        4 => Just(OK.to_vec()),
        1 => Just(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        1 => Just(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_vec()),
        1 => Just(b"HTTP/1.0 200 OK\r\n\r\nup to the close".to_vec()),
        1 => Just(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    let act = prop_oneof![
        6 => response.prop_map(ServerAction::Send),
        1 => Just(ServerAction::Close),
        1 => Just(ServerAction::Reset),
    ];
    prop::collection::vec((0..30 * MS, act), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Invariant: whatever a server does, no request is lost or doubled, at every boundary (see `simulate`); with a
    // bound on requests, each has its outcome.
    #[test]
    fn no_server_makes_a_request_vanish(
        script in prop::collection::vec(any_acts(), 1..12),
        connects in prop::collection::vec(0..8u8, 1..6),
        closed: bool, keepalive: bool, bounded: bool,
        connections in 1..12u32,
        call_ns in 0..20_000u64,
    ) {
        let mut turn = 0;
        let server = Box::new(move |visit: ServerRequest| {
            if visit.request == 0 {
                return match connects[visit.connection as usize % connects.len()] {
                    0 => vec![],
                    1 => vec![(MS, ServerAction::Refuse)],
                    2 => vec![(0, ServerAction::Accept), (MS, ServerAction::Close)],
                    _ => vec![(MS, ServerAction::Accept)],
                };
            }
            turn += 1;
            script[turn % script.len()].clone()
        });
        let mut load = workload(if closed { Arrival::Closed } else { open(300.0) }, connections, 1300);
        load.timeout_us = 70_000;
        load.keepalive = keepalive;
        if bounded {
            load.stop.requests = Some(60);
            load.stop.duration_us = None;
        }
        let mut sim = Sim::new(server);
        sim.call_ns = call_ns;
        let outcome = simulate_on(&load, sim);
        if bounded {
            let (completed, failed, in_flight) = outcome.counts();
            prop_assert_eq!((completed + failed, in_flight), (60, 0));
        }
    }
}

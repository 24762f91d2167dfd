//! Visitors as a load in the simulated world: users that come and go, rates, few connections, and servers that fail.

use super::simulation::*;
use super::visit_tests::{
    counts, ok, page, page_counts, page_time, pages, path, run, session, sessions, step, visits,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use webdyno_model::workload::Arrival;
use webdyno_model::workload::stage::{Shape, Stage};
use webdyno_model::workload::visit::Think;

#[test]
fn users_come_and_go_with_the_stages() {
    let mut load = page(2, 4, 3000);
    let retain = |level| Stage { duration_us: 1_000_000, shape: Shape::Hold { level }, measured: true };
    load.stages = vec![retain(1.0), retain(4.0), retain(2.0)];
    visits(&mut load).think = Think::Fixed { time_us: 100_000 };
    let outcome = simulate_threads(&load, (0..2).map(|_| Sim::new(answering(MS))).collect());
    let visitors: Vec<_> = outcome.intervals.iter().map(|interval| interval.visits.visitors).collect();
    assert_eq!(visitors, [1, 4, 2]);
    let started: Vec<_> = pages(&outcome).map(|pages| pages.started).collect();
    // One each 102 ms and a bit.
    assert_eq!(started, [10, 40, 20]);
    let counts = counts(&outcome);
    assert_eq!(counts.sessions_started, counts.sessions_completed + page_counts(&outcome).2);
}

#[test]
fn an_open_load_of_pages_starts_visitors_at_its_rate() {
    let mut load = page(5, 1, 2000);
    load.arrival = Arrival::Open { rate_per_s: 100.0, poisson: false };
    let outcome = simulate(&load, answering(MS));
    assert_eq!(pages(&outcome).map(|pages| pages.started).collect::<Vec<_>>(), [100, 100]);
    let (completed, failed, in_flight) = page_counts(&outcome);
    assert_eq!((completed + in_flight, failed), (200, 0));
    assert_eq!(page_time(&outcome).max, Some(100 + 1000 + 100 + 1000));
    assert!(counts(&outcome).visitors <= 1);
    let delay = outcome.merged(|interval| &interval.client_delay).dist();
    assert_eq!(delay.max, Some(0));
}

#[test]
fn a_number_of_starts_of_an_open_load_is_one_of_sessions() {
    let mut load = sessions(page(5, 1, 1), 37);
    load.arrival = Arrival::Open { rate_per_s: 1000.0, poisson: true };
    let outcome = simulate_threads(&load, (0..3).map(|_| Sim::new(answering(MS))).collect());
    assert_eq!((page_counts(&outcome), outcome.counts()), ((37, 0, 0), (37 * 6, 0, 0)));
}

#[test]
fn when_all_connections_are_in_use_visitors_share_them() {
    // Eight users, three connections: none starves, no more are open, and the wait is not counted as our own delay.
    let mut load = page(6, 8, 5000);
    load.connections = 3;
    let mut by_user = BTreeMap::new();
    for request in &mut load.requests {
        request.url.push_str("?${user}");
        request.has_variables = true;
    }
    let (outcome, received) = run(&load, |_| ok("x"));
    for (_, request) in &received {
        *by_user.entry(path(request).split('?').nth(1).unwrap().to_owned()).or_insert(0u32) += 1;
    }
    let (least, most) = (by_user.values().min().unwrap(), by_user.values().max().unwrap());
    assert_eq!(by_user.len(), 8);
    assert!(most - least <= 14, "{by_user:?}");
    assert!(outcome.intervals.iter().all(|interval| interval.connections.peak <= 3));
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!(service.max, Some(1000));
    assert!(outcome.merged(|interval| &interval.response_time).dist().p50 > Some(2000));
}

#[test]
fn kept_connections_that_the_server_closes_meanwhile_are_no_failure() {
    let mut load = session(vec![step(0)], vec![get("/")], 1, 1000);
    visits(&mut load).think = Think::Fixed { time_us: 50_000 };
    visits(&mut load).returning_fraction = 1.0;
    let server: Server<'_> = Box::new(|visit| match visit.request {
        0 => vec![(100_000, ServerAction::Accept)],
        _ => vec![(MS, ServerAction::Send(OK.to_vec())), (10 * MS, ServerAction::Close)],
    });
    let outcome = simulate(&load, server);
    assert_eq!(outcome.counts(), (20, 0, 0));
    assert_eq!(outcome.sum(|interval| interval.connections.quiet_closes), 20);
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 20);
}

/// What a moody server does, by a number that was drawn.
fn mood(number: u64, visit: &ServerRequest) -> Vec<(u64, ServerAction)> {
    let draw =
        (number ^ visit.connection.wrapping_mul(0x9E37_79B9) ^ visit.request.wrapping_mul(0x85EB_CA6B)) % 23;
    match (visit.request, draw) {
        (0, 0) => vec![(0, ServerAction::Refuse)],
        (0, 1) => vec![],
        (0, _) => vec![(100_000, ServerAction::Accept)],
        (_, 2) => vec![(MS, ServerAction::Reset)],
        (_, 3) => vec![(MS, ServerAction::Close)],
        (_, 4) => vec![(MS, ServerAction::Send(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n".to_vec()))],
        (_, 5) => vec![(MS, ServerAction::Send(OK[..30].to_vec())), (2 * MS, ServerAction::Close)],
        (_, 6) => vec![],
        (_, 7) => {
            vec![(
                MS,
                ServerAction::Send(b"HTTP/1.1 302 x\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n".to_vec()),
            )]
        }
        (_, 8) => vec![(MS, ServerAction::Send(OK.to_vec())), (MS, ServerAction::Close)],
        (_, 9) => vec![(MS, ServerAction::Send(b"nonsense".to_vec()))],
        _ => vec![(MS, ServerAction::Send(OK.to_vec()))],
    }
}

proptest! {
    // Whatever the server does: every request, page and session has one outcome or is in flight, limits hold, and the
    // load ends.
    #[test]
    fn no_server_makes_a_page_vanish(
        seed in any::<u64>(), users in 1u32..6, parts in 0usize..9, most in 1u32..8, connections in 1u32..12,
        shape in (any::<bool>(), any::<bool>(), any::<bool>(), 0u64..20), stop in prop::option::of(1u64..40),
    ) {
        let (open, cache, returning, think_ms) = shape;
        let mut load = page(parts, users, 700);
        load.timeout_us = 50_000;
        load.connections = connections;
        load.redirects_max = 2;
        load.seed = seed;
        if let Some(count) = stop {
            load.stop.requests = Some(count);
        }
        if open {
            load.arrival = Arrival::Open { rate_per_s: 90.0, poisson: true };
        }
        let visits = visits(&mut load);
        (visits.cache, visits.connections_per_host) = (cache, most);
        visits.returning_fraction = if returning { 0.5 } else { 0.0 };
        visits.think = Think::Exponential { mean_us: think_ms * 1000 };
        let outcome = simulate(&load, Box::new(move |visit| mood(seed, &visit)));
        let (completed, failed, in_flight) = page_counts(&outcome);
        let counts = counts(&outcome);
        prop_assert_eq!(counts.sessions_completed, completed + failed);
        prop_assert_eq!(counts.sessions_started, completed + failed + in_flight);
        prop_assert!(stop.is_none_or(|count| counts.sessions_started <= count));
        prop_assert!(outcome.intervals.iter().all(|interval| interval.connections.peak <= u64::from(connections)));
        let time = outcome.merged(|interval| &interval.pages.as_ref().unwrap().time);
        prop_assert_eq!(time.count(), completed);
    }
}

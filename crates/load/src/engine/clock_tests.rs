//! Whose clock ends a time: an engine that is held up, and a kernel that knows better.

use super::receiving::arrival_ns;
use super::simulation::*;
use proptest::prelude::*;
use webdyno_model::distribution::Dist;
use webdyno_model::workload::{Arrival, Clock};

/// Ten users whose responses take a millisecond, and an engine that is held up for 40 ms, twice a second.
fn held_up(clock: Clock, stamping: bool) -> Outcome {
    let mut sim = Sim::new(answering(MS));
    sim.stamping = stamping;
    sim.stalls = (0..4).map(|turn| ((turn * 500 + 250) * MS, 40 * MS)).rev().collect();
    let mut load = workload(Arrival::Closed, 10, 2000);
    load.clock = clock;
    simulate_on(&load, sim)
}

fn response(outcome: &Outcome) -> Dist {
    outcome.merged(|interval| &interval.response_time).dist()
}

fn receive_delay(outcome: &Outcome) -> Dist {
    outcome.merged(|interval| &interval.receive_delay).dist()
}

#[test]
fn the_engines_clock_counts_what_holds_the_engine_up() {
    let outcome = held_up(Clock::Engine, false);
    assert_eq!(response(&outcome).max, Some(41_000));
    assert_eq!(receive_delay(&outcome).count, 0);
    assert_eq!(outcome.sum(|interval| interval.stamps.connections + interval.stamps.answers), 0);
}

#[test]
fn rx_timestamps_show_delays_of_the_engine() {
    let outcome = held_up(Clock::Auto, true);
    let (response, delay) = (response(&outcome), receive_delay(&outcome));
    assert_eq!((response.max, delay.max, delay.p50), (Some(41_000), Some(40_000), Some(0)));
    assert_eq!(delay.count, outcome.counts().0);
    assert_eq!(outcome.sum(|interval| interval.stamps.answers), delay.count);
    assert_eq!(outcome.sum(|interval| interval.stamps.connections), 10);
}

#[test]
fn the_kernels_clock_leaves_it_out() {
    let outcome = held_up(Clock::Kernel, true);
    let response = response(&outcome);
    // The first request of each user waits for its connection.
    assert_eq!((response.min, response.p999, response.max), (Some(1000), Some(1000), Some(1100)));
    let service = outcome.merged(|interval| &interval.service_time).dist();
    assert_eq!((service.min, service.max), (Some(1000), Some(1000)));
    assert_eq!(outcome.merged(|interval| &interval.first_byte).dist().max, Some(1000));
    assert_eq!(receive_delay(&outcome).max, Some(40_000));
    // The next request is due when the engine could know of the response: the same number of them.
    assert_eq!(outcome.counts(), held_up(Clock::Engine, false).counts());
}

#[test]
fn responses_without_a_timestamp_end_by_the_engines_clock() {
    // The server closes to end its responses: the kernel timestamps bytes, no close.
    let unframed = b"HTTP/1.0 200 OK\r\n\r\nok".to_vec();
    let mut sim = Sim::new(Box::new(move |visit| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ => vec![(MS, ServerAction::Send(unframed.clone())), (3 * MS, ServerAction::Close)],
    }));
    sim.stamping = true;
    let mut load = workload(Arrival::Closed, 1, 1000);
    load.clock = Clock::Kernel;
    let outcome = simulate_on(&load, sim);
    assert_eq!(response(&outcome).max, Some(3000));
    assert_eq!(outcome.sum(|interval| interval.stamps.answers), 0);
    assert_eq!(outcome.sum(|interval| interval.stamps.answers_without), outcome.counts().0);
}

#[test]
fn a_clock_that_is_set_spoils_no_time() {
    let mut sim = Sim::new(answering(10 * MS));
    (sim.stamping, sim.clock_set_ns) = (true, 505 * MS);
    let mut load = workload(Arrival::Closed, 4, 1000);
    load.clock = Clock::Kernel;
    let outcome = simulate_on(&load, sim);
    assert_eq!((response(&outcome).min, response(&outcome).max), (Some(10_000), Some(10_100)));
    // Those that were in progress, once.
    assert_eq!(outcome.sum(|interval| interval.stamps.answers_without), 4);
}

#[test]
fn no_time_ends_before_it_begins_or_after_it_was_read() {
    for (clock, received_ns, ended_ns) in [
        (Clock::Kernel, Some(70), 70),
        // A response that did not wait for its request.
        (Clock::Kernel, Some(20), 50),
        (Clock::Kernel, Some(99), 90),
        (Clock::Kernel, None, 90),
        (Clock::Auto, Some(70), 90),
        (Clock::Engine, None, 90),
    ] {
        assert_eq!(arrival_ns(clock, received_ns, 50, 90), ended_ns, "{clock:?} {received_ns:?}");
    }
}

proptest! {
    // Invariant: wherever the engine is held up, also across the end of an interval or of the load, no request is lost,
    // Little's law holds with the kernel's ends (checked in every simulation), and no time exceeds the server's.
    #[test]
    fn stalls_never_show_by_the_kernels_clock(
        mut stalls in prop::collection::vec((0u64..1_500, 1u64..100), 0..5), connections in 1u32..20,
        after_ms in 5u64..30, open in any::<bool>()
    ) {
        stalls.sort_unstable();
        let mut sim = Sim::new(answering(after_ms * MS));
        sim.stamping = true;
        sim.stalls = stalls.iter().rev().map(|&(at, length)| (at * MS, length * MS)).collect();
        let arrival = match open {
            true => Arrival::Open { rate_per_s: 200.0, poisson: false },
            false => Arrival::Closed,
        };
        let mut load = workload(arrival, connections, 2500);
        load.clock = Clock::Kernel;
        let outcome = simulate_on(&load, sim);
        let service = outcome.merged(|interval| &interval.service_time).dist();
        prop_assert!(service.max.is_none_or(|max| max <= after_ms * 1000), "{service:?}");
    }
}

#[test]
fn tcp_is_read_of_a_sample_and_nothing_counts_twice() {
    let told = |keepalive: bool, telling: bool| {
        let mut sim = Sim::new(answering(10 * MS));
        sim.telling = telling;
        let mut load = workload(Arrival::Closed, 5, 2500);
        load.keepalive = keepalive;
        simulate_on(&load, sim)
    };
    let outcome = told(true, true);
    // Opened, and read at the end of each of three intervals.
    assert_eq!(outcome.sum(|interval| interval.tcp.readings), 5 + 3 * 5);
    // 249 answers and a request in flight on each connection; each third one was sent again.
    assert_eq!(outcome.sum(|interval| interval.tcp.segments_sent), 5 * (1 + 250 + 83));
    assert_eq!(outcome.sum(|interval| interval.tcp.segments_retransmitted), 5 * 83);
    let trips = outcome.merged(|interval| &interval.round_trip).dist();
    assert_eq!((trips.count, trips.min, trips.max), (20, Some(71), Some(75)));
    assert_eq!(outcome.intervals[1].tcp.round_trip_min_us, Some(60));
    let short = told(false, true);
    let opened = short.sum(|interval| interval.connections.opened);
    let sent = short.sum(|interval| interval.tcp.segments_sent);
    // A SYN and a request each, of those that were read.
    assert!(sent.is_multiple_of(2) && sent > 2 * 64 && sent <= 2 * opened, "{sent} {opened}");
    assert_eq!(told(true, false).sum(|interval| interval.tcp.readings), 0);
}

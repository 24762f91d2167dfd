//! What is promised about the figures, proved exactly against servers whose every response is known: on a simulated
//! machine nothing but the counting can be wrong. The same promises on real sockets: `tests/it/truth.rs`, and measured
//! with the real clock beside other tools: `bench/accuracy.sh`.

use super::simulation::*;
use proptest::prelude::*;
use std::cell::RefCell;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::Interval;
use webdyno_model::workload::{Arrival, Stop, Workload};

/// Histograms keep three digits: a percentile is at most so much above the time that it stands for.
const BUCKET: f64 = 1.001;
/// The upper end of the bucket that 5 ms fall into.
const IN_5_MS: u64 = 5003;
const QUANTILES: [f64; 8] = [0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

fn open(rate_per_s: f64, poisson: bool) -> Arrival {
    Arrival::Open { rate_per_s, poisson }
}

/// So many requests, each with its outcome.
fn requests(arrival: Arrival, connections: u32, requests: u64) -> Workload {
    let stop = Stop { duration_us: None, requests: Some(requests) };
    Workload { stop, ..workload(arrival, connections, 1) }
}

/// The time that a share of the times does not exceed: the nearest rank.
fn quantile(times_ns: &[u64], share: f64) -> u64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The histogram holds these times, and its figures are theirs: extremes and mean exactly, percentiles by their bucket.
pub(super) fn check_times(histogram: &TimeHistogram, times_ns: &[u64], what: &str) {
    let times_us: Vec<u64> = times_ns.iter().map(|ns| (ns + 500) / 1000).collect();
    assert_eq!(histogram.count(), times_us.len() as u64, "{what}");
    let dist = histogram.dist();
    assert_eq!(
        (dist.min, dist.max),
        (times_us.iter().min().copied(), times_us.iter().max().copied()),
        "{what}"
    );
    let mean = times_us.iter().sum::<u64>() as f64 / times_us.len() as f64;
    assert!((histogram.mean_us().unwrap() - mean).abs() < 1e-6 * mean, "{what}: mean {mean}, {dist:?}");
    for share in QUANTILES {
        let (told, true_us) =
            (histogram.quantile_us(share).unwrap() as f64, quantile(&times_us, share) as f64);
        assert!((true_us..=true_us * BUCKET).contains(&told), "{what}: q{share} {told}, {true_us} in truth");
    }
}

/// A server that takes so long for its n-th request.
fn taking(mut time_ns: impl FnMut(ServerRequest) -> u64 + 'static) -> Server<'static> {
    Box::new(move |visit| match visit.request {
        0 => vec![(0, ServerAction::Accept)],
        _ => vec![(time_ns(visit), ServerAction::Send(OK.to_vec()))],
    })
}

/// Answers in 5 ms; in the first 500 ms of every 2 s nothing is answered, and what became due is sent when they end.
pub(super) fn frozen_ns(arrived_ns: u64) -> u64 {
    let in_period_ns = (arrived_ns + 5 * MS) % (2000 * MS);
    5 * MS + (500 * MS).saturating_sub(in_period_ns)
}

#[test]
fn a_freezing_server_shows_exactly_as_a_quarter_of_the_starts_met_it() {
    // Ten periods, and connections for all that waits: a start every 5 ms, of which 100 in 400 fall into a freeze.
    let outcome = simulate(&requests(open(200.0, false), 200, 4000), taking(|visit| frozen_ns(visit.now_ns)));
    let truth: Vec<u64> = (0..4000).map(|n| frozen_ns(n * 5 * MS)).collect();
    check_times(&outcome.merged(|interval| &interval.response_time), &truth, "open");
    // P(time > 5 ms + w) = 0.25 (1 - w / 500 ms): 5 ms at p50, 305 ms at p90, 485 ms at p99, give or take a start.
    for (share, expected_ms) in [(0.5, 5), (0.9, 305), (0.99, 485)] {
        assert!(quantile(&truth, share).abs_diff(expected_ms * MS) <= 5 * MS);
    }
    // With ten connections ninety starts of a freeze wait for one: the response time holds that, the service time not.
    let few = simulate(&requests(open(200.0, false), 10, 4000), taking(|visit| frozen_ns(visit.now_ns)));
    let p90_us = |of: fn(&Interval) -> &Option<EncodedHistogram>| few.merged(of).quantile_us(0.9).unwrap();
    assert!((300_000..=330_000).contains(&p90_us(|interval| &interval.response_time)));
    assert_eq!(p90_us(|interval| &interval.service_time), IN_5_MS);
}

#[test]
fn a_closed_loop_hardly_sees_the_freeze() {
    let outcome = simulate(&workload(Arrival::Closed, 10, 20_000), taking(|visit| frozen_ns(visit.now_ns)));
    let response = outcome.merged(|interval| &interval.response_time);
    assert_eq!((response.quantile_us(0.9), response.quantile_us(0.99)), (Some(IN_5_MS), Some(IN_5_MS)));
    assert_eq!(response.dist().max, Some(505_000));
}

/// Responses that are constant, of two kinds, exponential: the n-th takes so long.
fn scripted(kind: u32, chance: f64) -> u64 {
    match kind {
        0 => 10 * MS,
        1 if chance < 0.1 => 50 * MS,
        1 => 2 * MS,
        _ => (-(1.0 - chance).ln() * 10e6) as u64,
    }
}

/// Even in [0, 1), the same for every run; Weyl's sequence is enough for a script.
fn chance(n: u64) -> f64 {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn scripted_times_come_out_as_they_were_given() {
    for kind in 0..3 {
        for (arrival, connections) in [
            (Arrival::Closed, 1),
            (Arrival::Closed, 20),
            (open(500.0, false), 1000),
            (open(500.0, true), 1000),
        ] {
            let truth = RefCell::new(vec![]);
            let server: Server<'_> = Box::new(|visit| {
                if visit.request == 0 {
                    return vec![(0, ServerAction::Accept)];
                }
                let mut truth = truth.borrow_mut();
                let time_ns = scripted(kind, chance(truth.len() as u64));
                truth.push(time_ns);
                vec![(time_ns, ServerAction::Send(OK.to_vec()))]
            });
            let outcome = simulate(&requests(arrival, connections, 5000), server);
            let what = format!("kind {kind}, {arrival:?}");
            check_times(&outcome.merged(|interval| &interval.service_time), &truth.borrow(), &what);
            check_times(&outcome.merged(|interval| &interval.response_time), &truth.borrow(), &what);
        }
    }
}

/// Answers in 1 ms, except every hundredth request in the order of arrival, which is never answered.
fn deaf_to_every_hundredth() -> Server<'static> {
    let mut number = 0;
    Box::new(move |visit| {
        if visit.request == 0 {
            return vec![(0, ServerAction::Accept)];
        }
        number += 1;
        if number % 100 == 0 { vec![] } else { vec![(MS, ServerAction::Send(OK.to_vec()))] }
    })
}

#[test]
fn a_request_without_response_is_a_timeout_or_in_flight() {
    for arrival in [Arrival::Closed, open(500.0, false), open(500.0, true)] {
        let mut load = requests(arrival, 20, 1000);
        load.timeout_us = 300_000;
        let outcome = simulate(&load, deaf_to_every_hundredth());
        assert_eq!(outcome.counts(), (990, 10, 0), "{arrival:?}");
        assert_eq!(outcome.sum(|interval| interval.errors.timeout), 10);
        let response = outcome.merged(|interval| &interval.response_time).dist();
        assert_eq!((response.count, response.p99, response.max), (1000, Some(1000), Some(300_000)));
        // The timeout lies beyond the end.
        load.timeout_us = 60_000_000;
        load.stop.duration_us = Some(10_000_000);
        let outcome = simulate(&load, deaf_to_every_hundredth());
        assert_eq!(outcome.counts(), (990, 0, 10), "{arrival:?}");
        assert_eq!(outcome.end.waiting_at_end, 0);
        let mut censored = TimeHistogram::new();
        censored.merge_encoded(outcome.end.censored_time.as_ref().unwrap()).unwrap();
        assert_eq!(censored.count(), 10);
        assert!(censored.dist().min.unwrap() > 7_000_000 && censored.dist().max.unwrap() < 10_000_000);
    }
}

#[test]
fn users_without_a_response_stay_in_flight() {
    // Each user is stuck sooner or later: ten times a hundred requests, then silence to the end.
    let outcome = simulate(&workload(Arrival::Closed, 10, 5000), deaf_to_every_hundredth());
    assert_eq!(outcome.counts(), (990, 0, 10));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    // Invariant: with any number of threads, requests with even gaps reach the server at n / rate, all of them and each
    // at its nanosecond; Poisson's at the starts of the pacers; and the generator claims no delay of its own.
    #[test]
    fn requests_arrive_when_they_were_meant_to(
        rate in 20f64..20_000.0, threads in 1u64..5, poisson: bool, seed: u64,
    ) {
        let load = Workload { seed, ..requests(open(rate, poisson), 64, 400) };
        let (arrived, outcome) = arrivals(&load, threads, 1000);
        prop_assert_eq!(outcome.counts(), (400, 0, 0));
        let starts = (0..threads).flat_map(|thread| {
            let mut pacer = match poisson {
                true => crate::schedule::pacer::Pacer::poisson(rate, thread, threads, Some(400), seed),
                false => crate::schedule::pacer::Pacer::even(rate, thread, threads, Some(400)),
            };
            std::iter::from_fn(move || {
                let next = pacer.next_ns();
                pacer.advance();
                next
            })
        });
        let mut intended: Vec<u64> = starts.collect();
        intended.sort_unstable();
        prop_assert_eq!(arrived, intended);
        prop_assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    }

    // Invariant (Little): over a whole run the mean in flight is the rate times the mean time, of all that was started:
    // answered, timed out, failed or cut off by the end. Any arrival, any number of threads, any share of failures.
    #[test]
    fn the_mean_in_flight_is_rate_times_time(
        kind in 0u32..3, arrival in 0u32..3, threads in 1usize..4, connections in 4u32..40,
        deaf_every in 3u64..200, reset_every in 3u64..200, seed: u64,
    ) {
        let arrival = match arrival {
            0 => Arrival::Closed,
            1 => open(700.0, false),
            _ => open(700.0, true),
        };
        let load = Workload { timeout_us: 130_000, seed, ..workload(arrival, connections, 1700) };
        let sim = |thread: usize| {
            let mut number = thread as u64;
            Sim::new(Box::new(move |visit: ServerRequest| {
                number += u64::from(visit.request > 0);
                let time_ns = scripted(kind, chance(number));
                match visit.request {
                    0 => vec![(MS, ServerAction::Accept)],
                    _ if number.is_multiple_of(deaf_every) => vec![],
                    _ if number.is_multiple_of(reset_every) => vec![(time_ns, ServerAction::Reset)],
                    _ => vec![(time_ns, ServerAction::Send(OK.to_vec()))],
                }
            }))
        };
        let outcome = simulate_threads(&load, (0..threads).map(sim).collect());
        let mut times = outcome.merged(|interval| &interval.response_time);
        times.merge(&outcome.merged(|interval| &interval.failed_time));
        if let Some(censored) = &outcome.end.censored_time {
            times.merge_encoded(censored).unwrap();
        }
        let length_us = outcome.end.elapsed_us as f64;
        let in_flight = outcome.sum(|interval| interval.in_flight_us) as f64 / length_us;
        let rate_per_us = outcome.sum(|interval| interval.started) as f64 / length_us;
        let told = rate_per_us * times.mean_us().unwrap();
        // Each time is rounded to a microsecond, and each interval loses less than one.
        let rounding = 0.5 * rate_per_us + 2.0 * outcome.intervals.len() as f64 / length_us;
        prop_assert!((in_flight - told).abs() <= rounding, "{in_flight} and {told}");
    }
}

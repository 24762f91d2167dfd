//! Loads that change over time, on the simulated machine: each start at its nanosecond, and as many users as the stages
//! say.

use super::simulation::*;
use crate::schedule::rate_profile::RateProfile;
use proptest::prelude::*;
use webdyno_model::interval::EndReason;
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::Stage;
use webdyno_model::workload::{Arrival, Workload};

const S: u64 = 1_000_000_000;

fn stages(texts: &[&str]) -> stage::CheckedStages {
    let written: Vec<_> = texts.iter().map(|text| stage::parse(text).unwrap()).collect();
    stage::check_stages(&written).unwrap()
}

fn load(texts: &[&str], poisson: bool) -> Workload {
    let mut load = workload(Arrival::Open { rate_per_s: 1.0, poisson }, 64, 1);
    load.set_stages(stages(texts));
    load
}

#[test]
fn requests_of_a_ramp_arrive_where_its_integral_reaches_them() {
    for threads in [1, 3] {
        // Up to 200/s in 2 s: request n at sqrt(n / 50); then 200/s for a second, and down again.
        let load = load(&["2s@0..200/s", "1s@200/s", "1s@200..0/s"], false);
        let (arrived, outcome) = arrivals(&load, threads, 1000);
        assert_eq!(outcome.end.reason, EndReason::Duration);
        assert_eq!((outcome.end.elapsed_us, arrived.len()), (4_000_000, 500));
        for n in 0..500u64 {
            let exact_s = match n {
                0..200 => (n as f64 / 50.0).sqrt(),
                200..400 => 2.0 + (n - 200) as f64 / 200.0,
                _ => 4.0 - ((500 - n) as f64 / 100.0).sqrt(),
            };
            let connect_delay_ns = arrived[n as usize] as f64 - exact_s * 1e9;
            assert!(connect_delay_ns.abs() <= 1.5, "{n}: {connect_delay_ns} ns with {threads} threads");
        }
        let by_second: Vec<u64> = outcome.intervals.iter().map(|interval| interval.started).collect();
        assert_eq!(by_second, [50, 150, 200, 100]);
        assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    }
}

#[test]
fn a_load_ends_with_its_last_stage_and_sends_nothing_in_a_pause() {
    let (arrived, outcome) = arrivals(&load(&["1s@3/s", "5s@0/s", "1s@2/s", "3s@0/s"], false), 1, 1000);
    assert_eq!(arrived, [0, S / 3, 2 * S / 3, 6 * S, 6 * S + S / 2]);
    assert_eq!((outcome.end.elapsed_us, outcome.end.reason), (10_000_000, EndReason::Duration));
}

/// When requests are in progress at the server: from, to.
fn closed(texts: &[&str], threads: u64, answer_ns: u64) -> (Vec<(u64, u64)>, Outcome) {
    let (arrived, outcome) = arrivals(&load(texts, false), threads, answer_ns);
    (arrived.into_iter().map(|at| (at, at + answer_ns)).collect(), outcome)
}

#[test]
fn users_come_and_go_with_the_stages() {
    let answer_ns = 7_300_000;
    for threads in [1, 3] {
        let texts = ["2s@0..10users", "1s@10users", "1s@10..2users", "2s@2users", "1s@6users"];
        let (spans, outcome) = closed(&texts, threads, answer_ns);
        let stages = stages(&texts).stages;
        let level = |ns: u64| {
            let mut user_profile = crate::schedule::user_profile::UserProfile::from_stages(&stages, 0);
            user_profile.active(ns)
        };
        for at_ns in (0..700).map(|step| step * 10 * MS + 3 * MS) {
            let busy = spans.iter().filter(|(from, to)| (*from..*to).contains(&at_ns)).count() as u32;
            // A user that leaves completes its request.
            let most = level(at_ns).max(level(at_ns.saturating_sub(answer_ns)));
            assert!((level(at_ns)..=most).contains(&busy), "{busy} of {} at {at_ns}", level(at_ns));
        }
        // Each user begins at the moment at which the level has room for it.
        for user in 1..=10 {
            let begins_ns = user * 200 * MS;
            assert!(spans.iter().any(|&(from, _)| from == begins_ns), "user {user} of {threads} threads");
        }
        assert_eq!(spans.iter().filter(|&&(from, _)| from == 6 * S).count(), 4);
        // Connections of users who left are closed: in the sixth second two are open.
        let peaks: Vec<u64> = outcome.intervals.iter().map(|interval| interval.connections.peak).collect();
        assert_eq!((peaks[2], peaks[5], peaks[6]), (10, 2, 6), "{peaks:?}");
        assert_eq!(outcome.end.reason, EndReason::Duration);
    }
}

proptest! {
    // Invariant: whatever the stages, the arrival and the number of threads, all requests reach the server at their
    // nanosecond, as many as the integral says, and (checked in all simulations) none is lost between seconds.
    #[test]
    fn any_stages_are_kept_to_the_nanosecond(
        user_profile in prop::collection::vec((0u32..300, 0u32..300, 100u64..1500), 1..4),
        threads in 1u64..4, poisson: bool, seed: u64,
    ) {
        let shape = |&(from, to, ms): &(u32, u32, u64)| Stage {
            duration_us: ms * 1000,
            shape: stage::Shape::Ramp { from: from.into(), to: to.into() },
            measured: true,
        };
        let stages: Vec<Stage> = user_profile.iter().map(shape).collect();
        prop_assume!(stage::highest(&stages) > 0.0);
        let mut load = workload(Arrival::Open { rate_per_s: 1.0, poisson }, 64, 1);
        load.seed = seed;
        load.set_stages(stage::CheckedStages { unit: stage::Unit::PerSecond, stages: stages.clone() });
        let (arrived, outcome) = arrivals(&load, threads, 1000);
        prop_assert_eq!(outcome.end.reason, EndReason::Duration);
        let pacers = (0..threads).map(|thread| {
            let rate_profile = std::sync::Arc::new(RateProfile::from_stages(&stages));
            crate::schedule::pacer::Pacer::rate_profile(rate_profile, thread, threads, None, poisson.then_some(seed))
        });
        let starts = pacers.flat_map(|mut pacer| std::iter::from_fn(move || {
            let next = pacer.next_ns();
            pacer.advance();
            next
        }));
        let mut intended: Vec<u64> = starts.collect();
        intended.sort_unstable();
        prop_assert_eq!(&arrived, &intended);
        if !poisson {
            let exact = stage::integral(&stages, f64::INFINITY);
            prop_assert!((arrived.len() as f64 - exact).abs() < 1.0 + 1e-6, "{} for {}", arrived.len(), exact);
        }
    }
}

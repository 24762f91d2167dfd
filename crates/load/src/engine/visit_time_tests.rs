//! Think times of visitors, on the simulated machine.

use super::simulation::*;
use super::visit_tests::{ok, path, run, session, sessions, step, visits};
use std::cell::RefCell;
use webdyno_model::workload::Arrival;
use webdyno_model::workload::visit::{SessionSpec, StepSpec, Think};

#[test]
fn visitors_who_think_do_not_begin_in_step() {
    for think in [Think::Fixed { time_us: 4_000_000 }, Think::Exponential { mean_us: 4_000_000 }] {
        let mut load = session(vec![step(0)], vec![get("/a")], 4000, 8000);
        visits(&mut load).think = think;
        let outcome = simulate(&load, answering(MS));
        // A thousand a second from the first one on, give or take four standard deviations.
        let each: Vec<u64> = outcome.intervals.iter().map(|interval| interval.completed).collect();
        assert!(each.iter().all(|count| (870..=1130).contains(count)), "{think:?}: {each:?}");
    }
}

#[test]
fn think_times_are_kept_to_the_microsecond() {
    let mut load = sessions(session(vec![step(0), step(1)], vec![get("/a"), get("/b")], 2, 1000), 6);
    visits(&mut load).think = Think::Fixed { time_us: 123_457 };
    visits(&mut load).returning_fraction = 1.0;
    let mut sim = Sim::new(answering(MS));
    // A timer that is not exact wakes late.
    sim.coarse_ns = 900_000;
    let outcome = simulate_on(&load, sim);
    assert_eq!(outcome.counts(), (12, 0, 0));
    // Three sessions each: six answers and five times of thinking, and nobody thinks after the last session. When the
    // load begins, each is in the midst of thinking.
    let before_us = outcome.end.elapsed_us - (100 + 6 * 1000 + 5 * 123_457);
    assert!((1..123_457).contains(&before_us), "{before_us}");
    assert_eq!(outcome.merged(|interval| &interval.client_delay).dist().max, Some(0));
    assert_eq!(outcome.sum(|interval| interval.connections.opened), 2);
}

/// Sessions in turn, ten a second: each step at its time since its session began, or when the step before has its answer.
#[test]
fn sessions_in_turn_make_their_steps_at_their_times() {
    let at = |request, at_ms: u64| StepSpec { at_us: Some(at_ms * 1000), ..step(request) };
    let mut load = session(vec![], ["/a", "/b", "/c", "/d"].map(get).to_vec(), 0, 1000);
    load.arrival = Arrival::Open { rate_per_s: 10.0, poisson: false };
    let steps = [vec![step(0), at(1, 250)], vec![step(2), at(3, 0), at(3, 0)]];
    let named = |(number, steps): (usize, &Vec<StepSpec>)| SessionSpec {
        name: number.to_string(),
        weight: 1.0,
        steps: steps.clone(),
    };
    visits(&mut load).sessions = steps.iter().enumerate().map(named).collect();
    visits(&mut load).in_turn = true;
    let order = RefCell::new(String::new());
    let (outcome, _) = run(&load, |request| {
        order.borrow_mut().push_str(path(request));
        ok("")
    });
    // The first one begins at 0 and goes on at 250 ms: after the third began at 200 ms, which goes on at 450 ms.
    assert_eq!(order.take(), "/a/c/d/d/a/b/c/d/d/a/b/c/d/d/a/b/c/d/d/a/b/c/d/d");
    // The tenth begins at 900 ms, and the ninth does not come to its second step.
    assert_eq!(outcome.counts(), (24, 0, 0));
}

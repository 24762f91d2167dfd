//! Coordinator, broker and workers in a simulated world: one seed is one run, with messages lost, delayed, repeated and overtaken,
//! links cut, processes paused and killed, clocks that differ and drift. The invariants are asserted as the run goes on.

mod engine;
mod machines;
mod random;

use machines::{Faults, Outcome, Simulation};
use random::Random;

/// Many seeds of every kind of fault at once.
const SEEDS: u64 = 2_000;

fn run(seed: u64, faults: &Faults) -> Outcome {
    Simulation::new(seed, faults).run()
}

#[test]
fn nothing_is_lost_sent_twice_or_orphaned_whatever_happens() {
    let (mut ended, mut failed, mut died, mut lost, mut late) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        match run(seed, &Faults::draw(&mut Random::new(seed ^ 0x5eed))) {
            Outcome::Ended(parts) => {
                ended += 1;
                lost += u32::from(parts.iter().any(|part| part.lost_at_s.is_some()));
                late += u32::from(parts.iter().any(|part| part.late_seconds > 0));
            }
            Outcome::Failed(_) => failed += 1,
            Outcome::CoordinatorDied => died += 1,
        }
    }
    println!(
        "{SEEDS} seeds: {ended} ended ({lost} with a loss, {late} with late results), {failed} failed, {died} without owner"
    );
    // The faults are such that each of these happens often, or nothing would be tested.
    assert!(ended > SEEDS / 4 && lost > 100 && died > 100, "{ended} {lost} {failed} {died}");
}

#[test]
fn a_bad_network_alone_costs_nothing() {
    for seed in 0..200 {
        let faults = Faults { loss: 0.1, repeat: 0.1, delay_ms_max: 200, ..Faults::default() };
        match run(seed, &faults) {
            Outcome::Ended(parts) => {
                assert!(parts.iter().all(|part| part.lost_at_s.is_none()), "seed {seed}: {parts:?}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn a_killed_worker_is_named_and_ends_the_load() {
    for seed in 0..100 {
        let faults = Faults { killed_worker_ms: Some(8_000), ..Faults::default() };
        let Outcome::Ended(parts) = run(seed, &faults) else { panic!("seed {seed}") };
        let lost: Vec<_> = parts.iter().filter(|part| part.lost_at_s.is_some()).collect();
        assert_eq!(lost.len(), 1, "seed {seed}: {parts:?}");
        assert_eq!(lost[0].instance, "w0");
    }
}

#[test]
fn workers_of_a_coordinator_that_died_stop() {
    for seed in 0..100 {
        let faults = Faults { killed_coordinator_ms: Some(8_000), ..Faults::default() };
        // That nobody loads for more than 10 s is asserted all the time.
        assert!(matches!(run(seed, &faults), Outcome::CoordinatorDied), "seed {seed}");
    }
}

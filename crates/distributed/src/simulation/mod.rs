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
    let (mut ended, mut failed, mut died, mut lost, mut late, mut resumed) = (0, 0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let faults = Faults::draw(&mut Random::new(seed ^ 0x5eed));
        match run(seed, &faults) {
            Outcome::Ended(parts) => {
                ended += 1;
                resumed +=
                    u32::from(faults.killed_coordinator_ms.is_some() && faults.resumed_after_ms.is_some());
                lost += u32::from(parts.iter().any(|part| part.lost_at_s.is_some()));
                late += u32::from(parts.iter().any(|part| part.late_seconds > 0));
            }
            Outcome::Failed(_) => failed += 1,
            Outcome::CoordinatorDied => died += 1,
        }
    }
    println!(
        "{SEEDS} seeds: {ended} ended ({lost} with a loss, {late} with late results, {resumed} resumed), {failed} failed, {died} without owner"
    );
    // The faults are such that each of these happens often, or nothing would be tested.
    assert!(ended > SEEDS / 4 && lost > 100 && died > 50 && resumed > 50);
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
        assert_eq!(lost[0].instance, "w0.0");
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

#[test]
fn what_was_measured_when_a_coordinator_died_is_in_the_log_in_the_end() {
    let mut whole = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let killed_ms = 9_000 + random.below(7_000);
        let faults = Faults {
            killed_coordinator_ms: Some(killed_ms),
            resumed_after_ms: Some(random.below(15_000)),
            loss: 0.1,
            delay_ms_max: 100,
            ..Faults::default()
        };
        match run(seed, &faults) {
            // That the log has each second of each worker once is asserted for every run.
            Outcome::Ended(parts) => {
                assert!(parts.iter().all(|part| part.lost_at_s.is_none()), "seed {seed}: {parts:?}");
                whole += 1;
            }
            Outcome::CoordinatorDied => {}
            Outcome::Failed(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(whole > 250, "{whole}");
}

#[test]
fn the_part_of_a_killed_worker_goes_to_others_within_five_seconds() {
    let mut moved = 0;
    for seed in 0..200 {
        let faults = Faults { killed_worker_ms: Some(8_000), moves: true, ..Faults::default() };
        let Outcome::Ended(parts) = run(seed, &faults) else { panic!("seed {seed}") };
        let lost: Vec<_> = parts.iter().filter(|part| part.lost_at_s.is_some()).collect();
        assert_eq!(lost.len(), 1, "seed {seed}: {parts:?}");
        let (at_s, from_s) = (lost[0].lost_at_s.unwrap(), lost[0].taken_over_at_s);
        // Its last whole second is up to one older than its death.
        let Some(from_s) = from_s else {
            // The others have threads for as much as they make already.
            let room: u32 = parts[1..].iter().map(|part| part.share.threads).sum();
            assert!(room < lost[0].share.threads, "seed {seed}: {parts:?}");
            continue;
        };
        moved += 1;
        assert!(from_s <= at_s + 6, "seed {seed}: {at_s} {from_s}");
        let taken: Vec<_> = parts.iter().filter(|part| part.from_s > 0).collect();
        assert_eq!(taken.iter().map(|part| part.share.threads).sum::<u32>(), lost[0].share.threads);
        // Each number of theirs from then on, once: that none is sent twice is asserted for every run.
        for part in taken {
            let numbers = from_s * engine::RATE..engine::SECONDS * engine::RATE;
            let threads =
                u64::from(part.share.first_thread)..u64::from(part.share.first_thread + part.share.threads);
            let due =
                numbers.filter(|number| threads.contains(&(number % u64::from(part.share.total_threads))));
            assert_eq!(part.completed, due.count() as u64, "seed {seed}: {part:?}");
        }
    }
    assert!(moved > 150, "{moved}");
}

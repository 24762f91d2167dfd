//! The limits of the harm guard, from both sides.

use super::super::reading::SiteState;
use super::*;
use proptest::prelude::*;

/// Readings every 200 ms from `from` on, the counters made by `at` from their number.
fn readings(from: u64, count: u64, at: impl Fn(u64, &mut Reading)) -> Vec<Reading> {
    let reading = |number: u64| {
        let zero = Counters {
            swapped_in_pages: Some(1000),
            swapped_out_pages: Some(1000),
            memory_full_us: Some(1000),
            oom_kills_count: Some(5),
            scanned_pages: Some(1000),
        };
        let mut reading = Reading {
            at_us: 1_000_000 + number * 200_000,
            machine: zero,
            group: zero,
            others_failed_count: Some(0),
            site: None,
        };
        at(number, &mut reading);
        reading
    };
    (from..from + count).map(reading).collect()
}

/// Three quiet seconds, then a load in which the counters are made by `at` from the number of the reading, from 1.
fn check(count: u64, at: impl Fn(u64, &mut Reading)) -> Option<(HarmCause, String, f64, f64)> {
    let base = readings(0, 15, |_, _| {});
    let load = readings(15, count, |number, reading| at(number - 14, reading));
    let brake = decide(History { base: &base, follows: true, load: &load })?;
    Some((brake.cause, brake.metric, brake.value.0, brake.limit.0))
}

fn add(counter: &mut Option<u64>, amount: u64) {
    *counter = counter.map(|value| value + amount);
}

#[test]
fn a_quiet_load_goes_on() {
    assert_eq!(check(100, |_, _| {}), None);
    assert_eq!(check(0, |_, _| {}), None);
    assert_eq!(decide(History { base: &[], follows: true, load: &[] }), None);
}

#[test]
fn one_kill_is_enough_and_the_groups_own_comes_first() {
    let machine = |number: u64, reading: &mut Reading| {
        add(&mut reading.machine.oom_kills_count, u64::from(number >= 3));
    };
    let expected = |metric: &str| Some((HarmCause::OutOfMemory, metric.to_owned(), 1.0, 1.0));
    assert_eq!(check(2, machine), None);
    assert_eq!(check(3, machine), expected("memory.oom_kills_count"));
    let both = |number: u64, reading: &mut Reading| {
        machine(number, reading);
        add(&mut reading.group.oom_kills_count, u64::from(number >= 3));
    };
    assert_eq!(check(3, both), expected("memory.group_oom_kills_count"));
    // Seen long after it happened, as on a machine that stood still: it still counts.
    assert_eq!(check(100, machine), expected("memory.oom_kills_count"));
}

#[test]
fn kills_that_went_on_before_are_not_ours() {
    let killing = |number: u64, reading: &mut Reading| {
        // One a second, before and since.
        add(&mut reading.machine.oom_kills_count, number / 5);
    };
    let (base, load) = (readings(0, 15, killing), readings(15, 25, killing));
    assert_eq!(decide(History { base: &base, follows: true, load: &load }), None);
    let more = readings(15, 25, |number, reading| {
        killing(number, reading);
        add(&mut reading.machine.oom_kills_count, (number - 14) * 2);
    });
    assert_eq!(
        decide(History { base: &base, follows: true, load: &more }).unwrap().cause,
        HarmCause::OutOfMemory
    );
}

/// A load that follows at once on another one is compared with the time before that one.
#[test]
fn what_was_there_before_an_earlier_load_is_not_ours_either() {
    let failing = |number: u64, reading: &mut Reading| {
        // Five a second: one a reading.
        add(&mut reading.others_failed_count, number);
    };
    let (base, load) = (readings(0, 15, failing), readings(500, 25, failing));
    let brake = |base: &[Reading], follows| decide(History { base, follows, load: &load });
    assert_eq!(brake(&base, false), None);
    assert_eq!(brake(&[], true).unwrap().cause, HarmCause::OthersFail);
}

#[test]
fn a_tenth_of_a_second_without_anything_that_runs_is_pressure() {
    let stalls = |per_reading_us: u64| {
        move |number: u64, reading: &mut Reading| {
            add(&mut reading.machine.memory_full_us, number * per_reading_us);
        }
    };
    let expected =
        |value| Some((HarmCause::MemoryPressure, "pressure.memory_full_us".to_owned(), value, 100_000.0));
    // 9% goes on for ever, 10% is seen after a second, all of the time at once.
    assert_eq!(check(100, stalls(18_000)), None);
    assert_eq!((check(4, stalls(20_000)), check(5, stalls(20_000))), (None, expected(100_000.0)));
    assert_eq!(check(1, stalls(200_000)), expected(200_000.0));
    let group = |number: u64, reading: &mut Reading| {
        add(&mut reading.group.memory_full_us, number * 100_000);
    };
    assert_eq!(check(1, group).unwrap().1, "pressure.group_memory_full_us");
    // A burst that is over does not add up with another one later.
    let bursts = |number: u64, reading: &mut Reading| {
        add(&mut reading.machine.memory_full_us, number / 20 * 90_000);
    };
    assert_eq!(check(100, bursts), None);
}

/// Where the limit of the service is varied only the machine's own want of memory ends a load; a kill does as ever.
#[test]
fn a_service_that_waits_within_a_varied_limit_does_no_harm() {
    let base = readings(0, 15, |_, _| {});
    let cause = |at: fn(u64, &mut Reading)| {
        let load = readings(15, 5, |number, reading| {
            for counters in [&mut reading.machine, &mut reading.group] {
                add(&mut counters.memory_full_us, number * 100_000);
            }
            at(number, reading);
        });
        decide_with_varied_memory(History { base: &base, follows: true, load: &load }).map(|trip| trip.cause)
    };
    assert_eq!(cause(|_, _| {}), None);
    assert_eq!(
        cause(|number, reading| add(&mut reading.machine.scanned_pages, number)),
        Some(HarmCause::MemoryPressure)
    );
    assert_eq!(cause(|_, reading| reading.machine.scanned_pages = None), Some(HarmCause::MemoryPressure));
    assert_eq!(cause(|_, reading| add(&mut reading.group.oom_kills_count, 1)), Some(HarmCause::OutOfMemory));
}

#[test]
fn swapping_is_pages_out_that_are_needed_again_or_very_many() {
    // Pages in and out per reading of 200 ms, and after how many readings it is swapping.
    for (pages_in, pages_out, after) in [
        (0, 0, None),
        // Fetched back after an idle time.
        (5000, 0, None),
        // A few cold pages.
        (0, 400, None),
        (10, 400, None),
        (400, 10, None),
        // Both.
        (26, 26, Some(3)),
        (2000, 2000, Some(3)),
        // In bulk.
        (0, 820, Some(3)),
    ] {
        let swaps = |number: u64, reading: &mut Reading| {
            add(&mut reading.machine.swapped_in_pages, number * pages_in);
            add(&mut reading.machine.swapped_out_pages, number * pages_out);
        };
        let first = (1..60).find(|count| check(*count, swaps).is_some());
        assert_eq!(first, after, "{pages_in} in, {pages_out} out");
        let cause = first.and_then(|count| check(count, swaps)).map(|found| found.0);
        assert_eq!(cause, after.map(|_| HarmCause::Swapping));
    }
}

#[test]
fn swapping_that_comes_and_goes_is_not_sustained() {
    // 2,000 pages both ways in every third reading.
    let gusts = |number: u64, reading: &mut Reading| {
        add(&mut reading.machine.swapped_in_pages, number / 3 * 2000);
        add(&mut reading.machine.swapped_out_pages, number / 3 * 2000);
    };
    assert_eq!(check(60, gusts), None);
}

#[test]
fn what_went_on_before_the_load_must_become_clearly_worse() {
    let swaps = |per_reading: u64| {
        move |number: u64, reading: &mut Reading| {
            add(&mut reading.machine.swapped_in_pages, number * per_reading);
            add(&mut reading.machine.swapped_out_pages, number * per_reading);
            add(&mut reading.machine.memory_full_us, number * per_reading * 100);
            add(&mut reading.others_failed_count, number * per_reading / 200);
        }
    };
    let base = readings(0, 15, swaps(400));
    for (times, fires) in [(1, false), (2, false), (4, true)] {
        let begin = swaps(400);
        let load = readings(15, 30, |number, reading| {
            begin(14, reading);
            swaps(400 * times)(number - 14, reading);
        });
        let found = decide(History { base: &base, follows: true, load: &load });
        assert_eq!(found.is_some(), fires, "{times} times: {found:?}");
    }
}

#[test]
fn three_errors_of_others_in_a_second_are_a_rise() {
    let fails = |numbers: &'static [u64]| {
        move |number: u64, reading: &mut Reading| {
            let so_far = numbers.iter().filter(|at| **at <= number).count() as u64;
            add(&mut reading.others_failed_count, so_far);
        }
    };
    let expected = Some((HarmCause::OthersFail, "brake.others_failed_count".to_owned(), 3.0, 3.0));
    assert_eq!(check(3, fails(&[1, 2, 3])), expected);
    assert_eq!(check(60, fails(&[1, 2, 20, 21, 40, 41])), None);
    let unknown = |_: u64, reading: &mut Reading| reading.others_failed_count = None;
    assert_eq!(check(20, unknown), None);
}

#[test]
fn a_site_is_gone_when_it_refuses_twice_or_answers_nobody() {
    let site = |refused_count, silent_us| {
        move |_: u64, reading: &mut Reading| {
            reading.site = Some(SiteState { refused_count, silent_us, silent_max_us: 10_000_000 });
        }
    };
    assert_eq!(check(1, site(1, 9_900_000)), None);
    let refused = check(1, site(2, 0)).unwrap();
    assert_eq!((refused.0, refused.1.as_str()), (HarmCause::Unreachable, "brake.site_refused_count"));
    let silent = check(1, site(0, 10_000_000)).unwrap();
    assert_eq!((silent.0, silent.1.as_str()), (HarmCause::Unreachable, HarmGuardTrip::SITE_SILENT));
}

#[test]
fn every_text_ends_a_sentence() {
    let texts = [
        check_text(|reading| add(&mut reading.machine.oom_kills_count, 2)),
        check_text(|reading| add(&mut reading.group.oom_kills_count, 1)),
        check_text(|reading| add(&mut reading.machine.memory_full_us, 132_000)),
        check_text(|reading| add(&mut reading.others_failed_count, 4)),
    ];
    assert_eq!(
        texts,
        [
            "the kernel killed 2 processes for want of memory",
            "the kernel killed 1 process of the service's control group for want of memory",
            "nothing could run for 132 ms of the last second for want of memory",
            "other clients got 4 responses of status 500 to 599 within a second",
        ]
    );
}

fn check_text(change: impl Fn(&mut Reading)) -> String {
    let base = readings(0, 15, |_, _| {});
    let load = readings(15, 1, |_, reading| change(reading));
    decide(History { base: &base, follows: true, load: &load }).unwrap().text
}

/// A reading with any counters at all.
fn any_reading() -> impl Strategy<Value = Reading> {
    let counters = || {
        prop::option::of(0u64..3000).prop_flat_map(|value| {
            prop::array::uniform4(prop::option::of(0u64..3000)).prop_map(move |rest| Counters {
                swapped_in_pages: value,
                swapped_out_pages: rest[0],
                memory_full_us: rest[1].map(|us| us * 100),
                oom_kills_count: rest[2],
                scanned_pages: rest[3],
            })
        })
    };
    (0u64..10_000_000, counters(), counters(), prop::option::of(0u64..20)).prop_map(
        |(at_us, machine, group, others_failed_count)| Reading {
            at_us,
            machine,
            group,
            others_failed_count,
            site: None,
        },
    )
}

proptest! {
    /// Whatever the counters do (set back, unknown, out of order): no panic, and what is told reached its limit.
    #[test]
    fn any_history_is_survived(
        base in prop::collection::vec(any_reading(), 0..8),
        load in prop::collection::vec(any_reading(), 0..12),
    ) {
        if let Some(brake) = decide(History { base: &base, follows: true, load: &load }) {
            prop_assert!(brake.value.0 >= brake.limit.0, "{:?}", brake);
            prop_assert!(!brake.text.is_empty());
        }
    }

    /// A load that changes nothing is never to blame: the same rise in every reading, before and since.
    #[test]
    fn what_goes_on_as_before_is_never_ours(
        pages_in in 0u64..100_000, pages_out in 0u64..100_000, full_us in 0u64..200_000, failed in 0u64..50,
        count in 1u64..40,
    ) {
        let same = |number: u64, reading: &mut Reading| {
            add(&mut reading.machine.swapped_in_pages, number * pages_in);
            add(&mut reading.machine.swapped_out_pages, number * pages_out);
            add(&mut reading.machine.memory_full_us, number * full_us);
            add(&mut reading.others_failed_count, number * failed);
        };
        let (base, load) = (readings(0, 15, same), readings(15, count, same));
        prop_assert_eq!(decide(History { base: &base, follows: true, load: &load }), None);
    }
}

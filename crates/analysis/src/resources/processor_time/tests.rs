//! Shares of kinds of work, and what is told of them.

use super::*;
use crate::facts::facts as facts_of;
use crate::facts::processor_time::{Places, SAMPLES_MIN, STACKS_MAX, processor_time};
use crate::facts::testing;
use crate::facts::testing::sample;
use crate::measurement::{Measurement, TimedSample};
use proptest::prelude::*;
use webdyno_model::sample::{CollectorInfo, Metric};

fn read(t_s: f64, places: &[(&str, f64)]) -> TimedSample {
    let flags =
        [("profile.samples_count", 400.0), ("profile.lost_count", 0.0), ("profile.with_kernel_bool", 1.0)];
    let all = [&flags[..], &[("profile.of_machine_bool", 1.0)], places].concat();
    sample(t_s, "profile", &all)
}

/// The facts of these readings, with what describes them.
fn of(samples: Vec<TimedSample>) -> Facts {
    let metric = |whose| Metric { name: format!("profile.{whose}.*.samples_count"), ..Metric::default() };
    let collectors =
        vec![CollectorInfo { name: "profile".into(), metrics: ["service", "others"].map(metric).into() }];
    facts_of(&Measurement { samples, collectors, measured_to_s: 10.0, ..Measurement::default() }, None)
        .unwrap()
}

// Readings add up, others' samples are told apart, and a place that a reading does not have was not met in it.
#[test]
fn shares_are_of_what_met_the_service() {
    let facts = of(vec![
        read(1.0, &[("profile.service.apache2;libz.so.1;deflate.samples_count", 100.0)]),
        read(
            2.0,
            &[
                ("profile.service.apache2;libz.so.1;deflate.samples_count", 50.0),
                ("profile.service.apache2;[kernel];sys_writev;tcp_sendmsg.samples_count", 50.0),
                ("profile.others.webdyno;webdyno.samples_count", 40.0),
            ],
        ),
    ]);
    let time = facts.processor_time.as_ref().unwrap();
    assert_eq!((time.samples_count, time.others_count, time.with_kernel), (200, Some(40), true));
    assert_eq!(share(&facts, ProcessorWork::Compression), Some(0.75));
    assert_eq!(share(&facts, ProcessorWork::Php), Some(0.0));
    assert_eq!(time.parts[0].ci95, [0.686, 0.805]);
    assert_eq!(
        sentence(&facts),
        " The service's CPU time: 75% compression (libz.so.1), 25% network (kernel)."
    );
    assert_eq!(
        cite(&facts, FactId::processor_time_fraction).iter().map(|fact| fact.value).collect::<Vec<_>>(),
        [0.75, 0.25]
    );
}

#[test]
fn without_a_profile_nothing_is_said_of_it() {
    for facts in [testing::facts(&[], &[]), of(vec![read(1.0, &[])])] {
        assert_eq!((facts.processor_time.as_ref(), sentence(&facts).as_str()), (None, ""));
        assert_eq!(share(&facts, ProcessorWork::Compression), None);
    }
}

proptest! {
    // However it is made up, the parts are all of it, each within its interval.
    #[test]
    fn parts_and_stacks_are_all_of_it(counts in prop::collection::vec((0usize..12, 0u32..500, 1u64..90), 1..600)) {
        let programs = ["apache2;libz.so.1", "php-fpm;php-fpm", "nginx;[kernel];sys_read", "x;[anon]", "mariadbd;libc.so.6"];
        let mut places = Places::new();
        for (program, function, count) in counts {
            *places.entry(format!("{};f{function}", programs[program % programs.len()])).or_default() += count;
        }
        let all: u64 = places.values().sum();
        let time = processor_time(places);
        prop_assert_eq!(time.is_some(), all >= SAMPLES_MIN);
        if let Some(time) = time {
            prop_assert!((time.parts.iter().map(|part| part.fraction).sum::<f64>() - 1.0).abs() < 1e-3);
            prop_assert_eq!(time.stacks.iter().map(|stack| stack.samples_count).sum::<u64>(), all);
            prop_assert!(time.stacks.len() <= STACKS_MAX + programs.len());
            let is_within = |part: &ProcessorTimePart| part.ci95[0] <= part.fraction && part.fraction <= part.ci95[1];
            prop_assert!(time.parts.iter().all(is_within));
        }
    }
}

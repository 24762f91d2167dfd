//! Verdicts on measurements that are made up.

use super::*;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::objective::Objective;
use webdyno_model::workload::Workload;

fn measured(rate: u64, failed: u64, time_us: u64, arrival: Arrival) -> Measurement {
    let second = |i: u64| {
        let mut times = TimeHistogram::new();
        let completed = rate + i % 2;
        (0..completed).for_each(|_| times.record(time_us + i % 3));
        let response_time = times.encode();
        Interval {
            t_s: i as f64,
            length_us: 1_000_000,
            completed,
            failed,
            response_time,
            ..Interval::default()
        }
    };
    let workload = Workload { arrival, connections: 10, timeout_us: 1_000_000, ..Workload::default() };
    Measurement {
        intervals: (0..8).map(second).collect(),
        workload: Some(workload),
        objectives: vec![Objective::parse("max<100ms").unwrap()],
        ..Measurement::default()
    }
}

#[test]
fn a_server_that_gets_faster_from_second_to_second_is_still_settling() {
    for (rates, expected) in [
        (&[37, 40, 47, 52, 57, 62][..], true),
        (&[77, 84, 98, 125, 175, 200], true),
        (&[84, 77, 98, 125, 120, 175, 170, 200], true),
        (&[198, 200, 196, 198, 200, 197], false),
        // Rising, and by less than what matters.
        (&[100, 101, 102, 103, 104, 105], false),
        (&[200, 175, 125, 98, 84, 77], false),
        (&[10, 90, 20, 80, 60, 50, 70], false),
        (&[10, 20, 30], false),
    ] {
        let closed = measured_seconds(rates, 1000, Arrival::Closed);
        assert_eq!(is_settling(&closed), expected, "{rates:?}");
        // At a given rate the times tell it.
        let mut open = measured_seconds(
            &vec![100; rates.len()],
            1000,
            Arrival::Open { rate_per_s: 100.0, poisson: false },
        );
        for (interval, rate) in open.intervals.iter_mut().zip(rates) {
            let mut times = TimeHistogram::new();
            (0..100).for_each(|_| times.record(1_000_000 / rate));
            interval.response_time = times.encode();
        }
        assert_eq!(is_settling(&open), expected, "{rates:?}");
    }
}

fn measured_seconds(rates: &[u64], time_us: u64, arrival: Arrival) -> Measurement {
    let mut all = measured(100, 0, time_us, arrival);
    all.intervals.truncate(rates.len());
    all.intervals.iter_mut().zip(rates).for_each(|(interval, rate)| interval.completed = *rate);
    all
}

#[test]
fn seconds_that_all_lie_above_the_others_are_better_however_unsteady_they_are() {
    let bursts = [0.0, 44.0, 0.0, 0.0, 0.0, 1.0];
    for (before, after, expected) in [
        (&bursts[..], &[90.0, 100.0, 110.0, 100.0, 100.0, 99.0][..], Verdict::Better),
        (&[90.0, 100.0, 110.0, 100.0, 100.0], &bursts, Verdict::Worse),
        // One second of many is as good as before.
        (&bursts, &[90.0, 100.0, 44.0, 100.0, 100.0, 99.0], Verdict::Better),
        // Half of them are, or there are too few.
        (&bursts, &[90.0, 0.0, 44.0, 0.0, 100.0, 0.0], Verdict::Inconclusive),
        (&bursts[..4], &[90.0, 100.0, 110.0, 100.0, 100.0, 99.0], Verdict::Inconclusive),
    ] {
        assert_eq!(compare(before, after).verdict, expected, "{before:?} {after:?}");
    }
}

#[test]
fn more_failures_are_no_chance_among_many() {
    for (before, after, expected) in [
        ((35, 128), (35, 124), false),
        ((0, 1000), (4, 1000), false),
        ((0, 1000), (30, 1000), true),
        ((10, 100), (13, 100), false),
        ((1000, 10_000), (1300, 10_000), true),
        ((0, 0), (5, 10), true),
    ] {
        assert_eq!(fails_more(before, after), expected, "{before:?} {after:?}");
    }
}

#[test]
fn far_fewer_failures_are_better_at_the_same_rate() {
    let closed = Arrival::Closed;
    for (rates, failed, expected) in [
        ((100, 100), (900, 0), Verdict::Better),
        ((100, 100), (900, 850), Verdict::Same),
        ((100, 60), (900, 0), Verdict::Worse),
    ] {
        let before = measured(rates.0, failed.0, 1000, closed);
        let after = measured(rates.1, failed.1, 1000, closed);
        assert_eq!(judge(&before, &after).unwrap().verdict, expected, "{rates:?} {failed:?}");
    }
}

#[test]
fn fewer_failures_among_few_may_be_chance() {
    let before = measured(4, 1, 1000, Arrival::Closed);
    // 8 of 44 before; 3 of 39, and none, after.
    for (seconds, expected) in [(3, Verdict::Inconclusive), (0, Verdict::Better)] {
        let mut after = before.clone();
        after.intervals[seconds..].iter_mut().for_each(|interval| interval.failed = 0);
        assert_eq!(judge(&before, &after).unwrap().verdict, expected, "{seconds}");
    }
}

#[test]
fn a_generator_that_is_the_limit_proves_a_gain_alone() {
    let with = |(completed, failed): (u64, u64)| {
        let mut after = measured(completed, failed, 1000, Arrival::Closed);
        for interval in &mut after.intervals {
            interval.cpu_us_max_thread = 900_000;
            interval.completed *= u64::from(completed > 0);
        }
        after
    };
    for (failed_before, after, expected) in [
        (0, (200, 0), Verdict::Better),
        (0, (60, 0), Verdict::Inconclusive),
        (0, (100, 0), Verdict::Inconclusive),
        (0, (200, 40), Verdict::Inconclusive),
        (900, (100, 0), Verdict::Inconclusive),
        // Whatever the generator did, nobody was answered.
        (0, (0, 100), Verdict::Worse),
    ] {
        let before = measured(100, failed_before, 1000, Arrival::Closed);
        assert_eq!(judge(&before, &with(after)).unwrap().verdict, expected, "{failed_before} {after:?}");
    }
}

#[test]
fn an_objective_on_the_verge_is_not_met_by_chance() {
    let closed = Arrival::Closed;
    for (before_us, after_us, expected) in
        [(101_000, 99_000, Verdict::Same), (150_000, 80_000, Verdict::Better)]
    {
        let (before, after) = (measured(100, 0, before_us, closed), measured(100, 0, after_us, closed));
        assert_eq!(judge(&before, &after).unwrap().verdict, expected, "{before_us} {after_us}");
    }
}

#[test]
fn a_percentile_that_a_load_is_too_short_for_is_measured_again() {
    let of = |rate, time_us| Measurement {
        objectives: vec![Objective::parse("p99<100ms").unwrap()],
        ..measured(rate, 0, time_us, Arrival::Closed)
    };
    // Of so few requests the slowest one or two are the p99.
    let (before, after) = (of(20, 50_000), of(60, 150_000));
    assert_eq!(judge(&before, &after).unwrap().verdict, Verdict::Inconclusive);
    let twice = [(&before, &after), (&before, &after)];
    assert_eq!(judge_pairs(&twice).unwrap().verdict, Verdict::Worse);
}

#[test]
fn failures_and_objectives_count_as_the_rate_does() {
    let open = Arrival::Open { rate_per_s: 100.0, poisson: false };
    let closed = Arrival::Closed;
    for (before, after, verdict) in [
        (measured(100, 0, 50_000, closed), measured(200, 0, 50_000, closed), Verdict::Better),
        // Fast error pages are no gain.
        (measured(100, 0, 50_000, closed), measured(200, 40, 50_000, closed), Verdict::Worse),
        // An objective that was met is missed.
        (measured(100, 0, 50_000, closed), measured(200, 0, 150_000, closed), Verdict::Worse),
        // At a given rate the times decide.
        (measured(100, 0, 90_000, open), measured(100, 0, 30_000, open), Verdict::Better),
        (measured(100, 0, 30_000, open), measured(100, 0, 90_000, open), Verdict::Worse),
        (measured(100, 0, 50_000, open), measured(100, 0, 50_000, open), Verdict::Same),
    ] {
        assert_eq!(judge(&before, &after).unwrap().verdict, verdict);
    }
}

/// The same with so many whole pages of 20 requests a second, and failed ones.
fn with_pages(mut measurement: Measurement, failed: u64, page_us: u64) -> Measurement {
    for interval in &mut measurement.intervals {
        let (mut times, completed) = (TimeHistogram::new(), interval.completed / 20);
        (0..completed).for_each(|page| times.record(page_us + page % 7));
        let started = completed + failed;
        let time = times.encode();
        let pages =
            webdyno_model::page::PageInterval { started, completed, failed, time, ..Default::default() };
        interval.pages = Some(Box::new(pages));
    }
    measurement
}

#[test]
fn pages_that_fail_or_come_later_are_worse() {
    let closed = |failed, page_us| with_pages(measured(1000, 0, 5_000, Arrival::Closed), failed, page_us);
    let rate = Arrival::Open { rate_per_s: 50.0, poisson: false };
    let open = |page_us| with_pages(measured(1000, 0, 5_000, rate), 0, page_us);
    assert_eq!(judge(&closed(0, 90_000), &closed(1, 90_000)).unwrap().verdict, Verdict::Worse);
    assert_eq!(judge(&closed(0, 90_000), &closed(0, 90_000)).unwrap().verdict, Verdict::Same);
    assert_eq!(judge(&open(90_000), &open(200_000)).unwrap().verdict, Verdict::Worse);
    assert_eq!(judge(&open(90_000), &open(50_000)).unwrap().verdict, Verdict::Better);
}

#[test]
fn a_change_after_which_the_load_had_to_be_stopped_is_worse() {
    let before = measured(100, 0, 50_000, Arrival::Closed);
    let trip = Some(crate::facts::testing::with_harm_guard_trip("memory.group_oom_kills_count"));
    let braked = Measurement { harm_guard_trip: trip, ..measured(300, 0, 10_000, Arrival::Closed) };
    let comparison = judge(&before, &braked).unwrap();
    assert_eq!((comparison.verdict, comparison.ratio), (Verdict::Worse, None));
    // A machine that another program fills.
    let memory =
        [("memory.total_bytes", 16e9), ("memory.limit_bytes", 16e9), ("memory.available_bytes", 0.4e9)];
    for (held, verdict) in [(200e6, Verdict::Inconclusive), (12e9, Verdict::Worse)] {
        let held = [("worker_memory.pss_sum_bytes", held)];
        let samples = vec![crate::facts::testing::sample(3.0, "memory", &[&memory[..], &held[..]].concat())];
        let trip = Some(crate::facts::testing::with_harm_guard_trip("memory.swapped_out_pages"));
        let stopped = Measurement { harm_guard_trip: trip, samples, measured_to_s: 8.0, ..braked.clone() };
        assert_eq!(judge(&before, &stopped).unwrap().verdict, verdict, "{held:?}");
    }
    // The same load after one that had to be stopped: that it runs to its end is what matters.
    assert_eq!(judge(&braked, &before).unwrap().verdict, Verdict::Better);
    let failing = measured(100, 40, 50_000, Arrival::Closed);
    assert_eq!(judge(&braked, &failing).unwrap().verdict, Verdict::Worse);
    assert_eq!(judge(&braked, &braked).unwrap().verdict, Verdict::Inconclusive);
}

#[test]
fn verdicts() {
    let steady = |rate: f64| [rate, rate * 1.01, rate * 0.99, rate * 1.005, rate * 0.995, rate];
    let wild = |rate: f64| [rate, rate * 2.0, rate * 0.3, rate * 1.5, rate * 0.5, rate];
    for (before, after, verdict) in [
        (steady(100.0), steady(200.0), Verdict::Better),
        (steady(100.0), steady(101.0), Verdict::Same),
        (steady(100.0), steady(80.0), Verdict::Worse),
        (wild(100.0), wild(110.0), Verdict::Inconclusive),
        (steady(100.0), [0.0; 6], Verdict::Worse),
        ([0.0; 6], steady(100.0), Verdict::Better),
        ([0.0; 6], [0.0; 6], Verdict::Same),
    ] {
        assert_eq!(compare(&before, &after).verdict, verdict, "{before:?} {after:?}");
    }
    assert_eq!(compare(&[], &steady(1.0)).verdict, Verdict::Inconclusive);
}

#[test]
fn the_noise_floor_is_what_a_server_goes_up_and_down_by_itself() {
    for (values, least, most) in [
        // Quiet, too short to tell, and wild.
        (vec![100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0], 0.03, 0.03),
        (vec![100.0, 300.0, 50.0, 20.0], 0.03, 0.03),
        (vec![], 0.03, 0.03),
        (vec![100.0, 300.0, 50.0, 20.0, 10.0, 5.0, 400.0, 500.0, 300.0], 0.10, 0.10),
        // It wanders by 2%, slower than from second to second.
        (vec![100.0, 100.0, 100.0, 102.0, 102.0, 102.0, 104.0, 104.0, 104.0], 0.035, 0.045),
    ] {
        let floor = noise_floor(&values);
        assert!((least..=most).contains(&floor), "{floor}: {values:?}");
    }
    // What lies beyond the constant and not beyond what the server does by itself is no change.
    let before = [100.0, 100.0, 100.0, 102.0, 102.0, 102.0, 104.0, 104.0, 104.0];
    let after = before.map(|rate| rate * 1.055);
    assert_ne!(compare(&before, &after).verdict, Verdict::Better);
}

#[test]
fn pairs_tell_what_one_of_them_does_not_and_contradict_each_other() {
    let seconds = |rates: [u64; 8]| measured_seconds(&rates, 1000, Arrival::Closed);
    let before = seconds([70, 130, 70, 130, 70, 130, 70, 130]);
    let better = seconds([90, 170, 90, 170, 90, 170, 90, 170]);
    let worse = seconds([60, 110, 60, 110, 60, 110, 60, 110]);
    let verdict = |afters: &[&Measurement]| {
        let pairs: Vec<_> = afters.iter().map(|after| (&before, *after)).collect();
        judge_pairs(&pairs).unwrap().verdict
    };
    assert_eq!(verdict(&[]), Verdict::Inconclusive);
    assert_eq!(verdict(&[&better]), Verdict::Inconclusive);
    assert_eq!(verdict(&[&better, &better, &better]), Verdict::Better);
    assert_eq!(verdict(&[&better, &better, &better, &worse]), Verdict::Inconclusive);
    // What fails or does harm in one of them does so.
    let failing = measured(200, 40, 50_000, Arrival::Closed);
    assert_eq!(verdict(&[&better, &failing]), Verdict::Worse);
    let trip = Some(crate::facts::testing::with_harm_guard_trip("memory.group_oom_kills_count"));
    let braked = Measurement { harm_guard_trip: trip, ..better.clone() };
    assert_eq!(verdict(&[&better, &braked]), Verdict::Worse);
}

#[test]
fn pairs_that_agree_tell_what_rises_within_each_of_their_loads() {
    // A pool that is started anew before each load, as it was seen: with it only the first second is slower.
    let seconds = |rates: [u64; 6]| measured_seconds(&rates, 1000, Arrival::Closed);
    let starting = [[9, 15, 29, 30, 47, 46], [7, 18, 23, 39, 44, 49], [8, 17, 28, 34, 45, 48]].map(seconds);
    let started = [[38, 50, 44, 44, 47, 52], [36, 52, 44, 55, 44, 44], [44, 44, 47, 52, 44, 53]].map(seconds);
    let verdict = |befores: &[&Measurement], afters: &[&Measurement]| {
        let pairs: Vec<_> = befores.iter().copied().zip(afters.iter().copied()).collect();
        judge_pairs(&pairs).unwrap().verdict
    };
    let ([a, b, c], [x, y, z]) = (starting.each_ref(), started.each_ref());
    assert_eq!(verdict(&[a, b], &[x, y]), Verdict::Inconclusive, "two may agree by chance");
    assert_eq!(verdict(&[a, b, c], &[x, y, z]), Verdict::Better);
    assert_eq!(verdict(&[x, y, z], &[a, b, c]), Verdict::Worse);
    assert_eq!(verdict(&[a, b, z], &[x, y, c]), Verdict::Inconclusive, "one contradicts the others");
    let fourth = seconds([8, 16, 27, 33, 46, 47]);
    assert_eq!(verdict(&[a, b, c, &fourth], &[x, y, z, x]), Verdict::Better);
}

#[test]
fn a_server_that_gets_faster_by_itself_is_not_better_by_the_change() {
    // Seconds that rise by half within each load.
    let load = |rate: u64| {
        let seconds = [70, 90, 100, 100, 110, 130].map(|percent| rate * percent / 100);
        measured_seconds(&seconds, 1000, Arrival::Closed)
    };
    let verdict = |rates: [(u64, u64); 3]| {
        let loads = rates.map(|(before, after)| (load(before), load(after)));
        judge_pairs(&loads.each_ref().map(|(before, after)| (before, after))).unwrap().verdict
    };
    assert_eq!(verdict([(1000, 1050), (1100, 1150), (1210, 1270)]), Verdict::Same, "5% a load");
    assert_eq!(verdict([(1000, 1100), (1000, 1098), (1001, 1102)]), Verdict::Better);
    assert_eq!(verdict([(1000, 1001), (1003, 1000), (1001, 1002)]), Verdict::Same);
    // The same of response times at a rate that is kept.
    let load = |time_us: u64| {
        let mut load = measured(100, 0, time_us, Arrival::Open { rate_per_s: 100.0, poisson: false });
        for (second, percent) in load.intervals.iter_mut().zip([130, 110, 100, 100, 90, 70]) {
            let mut times = TimeHistogram::new();
            times.record_many(time_us * percent / 100, 100);
            second.response_time = times.encode();
        }
        load
    };
    let verdict = |times_us: [(u64, u64); 3]| {
        let loads = times_us.map(|(before, after)| (load(before), load(after)));
        judge_pairs(&loads.each_ref().map(|(before, after)| (before, after))).unwrap().verdict
    };
    let faster = [(100_000, 95_200), (90_700, 86_400), (82_300, 78_400)];
    assert_ne!(verdict(faster), Verdict::Better, "5% a load");
    assert_eq!(verdict([(100_000, 90_000), (100_100, 90_200), (100_000, 90_100)]), Verdict::Better);
}

#[test]
fn seconds_that_say_worse_of_a_better_mean_tell_nothing() {
    let load = |rates: [u64; 6]| measured_seconds(&rates, 1000, Arrival::Closed);
    let (before, after) = (load([100; 6]), load([80, 80, 80, 80, 80, 500]));
    assert_eq!(judge_pairs(&[(&before, &after); 3]).unwrap().verdict, Verdict::Inconclusive);
}

#[test]
fn a_smaller_setting_is_as_good_only_if_nothing_is_worse() {
    let closed = Arrival::Closed;
    let before = measured(100, 0, 50_000, closed);
    for (after, rate_min, expected) in [
        (measured(100, 0, 50_000, closed), 99.0, true),
        (measured(100, 0, 50_000, closed), 105.0, false),
        // The slowest answers take longer, or some fail.
        (measured(100, 0, 60_000, closed), 99.0, false),
        (measured(100, 20, 50_000, closed), 99.0, false),
    ] {
        let comparison = judge(&before, &after).unwrap();
        assert_eq!(is_as_good(rate_min, (&before, &after), &comparison).unwrap(), expected, "{comparison:?}");
    }
}

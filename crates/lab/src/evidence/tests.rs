//! Signs and gains of loads that are written by hand.

use super::testing::{measured, read};
use super::*;
use webdyno_model::sample::MissingSignal;

fn sign(metric: &str, take: SignStatistic, of: Option<toml::Value>, at_least: Option<f64>) -> Sign {
    Sign { metric: metric.into(), take, of, at_least, at_most: None }
}

fn evidence() -> Evidence {
    let drops = [0.0, 5.0, 5.0, 9.0];
    let readings: Vec<Vec<(&str, f64)>> = drops
        .iter()
        .enumerate()
        .map(|(at, drops)| {
            let busy = if at == 3 { f64::NAN } else { 70.0 };
            vec![
                ("x.held_count", 10.0 * at as f64),
                ("x.limit_count", 40.0),
                ("x.drops_count", *drops),
                ("x.tries_count", 100.0 * at as f64),
                ("x.sda.busy_us", 20.0),
                ("x.sdb.1.busy_us", busy),
            ]
        })
        .collect();
    let readings: Vec<&[(&str, f64)]> = readings.iter().map(Vec::as_slice).collect();
    Evidence::from_measurement(read(measured(&[100, 102, 98], 0, 20_000), &readings)).unwrap()
}

#[test]
fn statistics_of_a_metric() {
    let evidence = evidence();
    let text = |text: &str| Some(toml::Value::String(text.into()));
    for (metric, take, of, value) in [
        ("x.held_count", SignStatistic::Max, None, 30.0),
        ("x.held_count", SignStatistic::Min, None, 0.0),
        ("x.held_count", SignStatistic::Mean, None, 15.0),
        ("x.held_count", SignStatistic::Last, None, 30.0),
        ("x.held_count", SignStatistic::Max, text("x.limit_count"), 0.75),
        ("x.held_count", SignStatistic::Max, Some(toml::Value::Integer(60)), 0.5),
        ("x.held_count", SignStatistic::Max, text("load.completed_count"), 0.1),
        ("x.drops_count", SignStatistic::Rise, None, 9.0),
        // The mean of a counter is what it rises a second.
        ("x.drops_count", SignStatistic::Mean, None, 3.0),
        ("x.drops_count", SignStatistic::Rise, text("x.tries_count"), 0.03),
        ("x.drops_count", SignStatistic::Rise, Some(toml::Value::Float(4.5)), 2.0),
        ("load.rate", SignStatistic::Max, None, 100.0),
        ("load.rate", SignStatistic::Max, Some(toml::Value::Integer(50)), 2.0),
        ("load.rate", SignStatistic::Max, text("x.limit_count"), 2.5),
        ("load.rate", SignStatistic::Max, text("load.completed_count"), 1.0 / 3.0),
    ] {
        let observed = evidence.check_sign(&sign(metric, take, of.clone(), Some(value - 1e-6)));
        assert!(observed.seen, "{metric} {take:?} of {of:?}: {observed:?}");
        assert!((observed.value.unwrap() - value).abs() < 1e-5, "{metric} {take:?} of {of:?}: {observed:?}");
        let observed = evidence.check_sign(&sign(metric, take, of, Some(value + 0.01)));
        assert!(!observed.seen && observed.value.is_some(), "{metric} {take:?}: {observed:?}");
    }
}

#[test]
fn of_several_one_is_enough_and_it_is_named() {
    let evidence = evidence();
    let observed = evidence.check_sign(&sign("x.*.busy_us", SignStatistic::Max, None, Some(50.0)));
    assert_eq!(
        (observed.metric.as_str(), observed.value, observed.seen),
        ("x.sdb.1.busy_us", Some(70.0), true)
    );
    // Of those that miss it, the nearest.
    let observed = evidence.check_sign(&sign("x.*.busy_us", SignStatistic::Max, None, Some(90.0)));
    assert_eq!((observed.metric.as_str(), observed.seen), ("x.sdb.1.busy_us", false));
}

#[test]
fn what_had_no_value_was_not_seen_and_the_reason_is_told() {
    let mut evidence = evidence();
    let lack = |signal: &str| MissingSignal::new(signal, "the page is closed", "open it");
    evidence.measurement.lacking = vec![lack("x.silent")];
    for (metric, part) in [
        ("x.silent_count", "the page is closed; open it"),
        ("y.unheard_count", "no collector reads it"),
        ("load.connect_p99_us", "this load has none"),
    ] {
        let mut at_most = sign(metric, SignStatistic::Max, None, None);
        // Also where only an upper bound is given: unknown is not little.
        at_most.at_most = Some(1e9);
        let observed = evidence.check_sign(&at_most);
        assert_eq!((observed.seen, observed.value), (false, None), "{metric}");
        assert!(observed.why.as_ref().unwrap().contains(part), "{metric}: {observed:?}");
    }
    // One moment without a divisor is none too many.
    let busiest = Some(toml::Value::String("x.tries_count".into()));
    let observed = evidence.check_sign(&sign("x.held_count", SignStatistic::Max, busiest, Some(0.1)));
    assert_eq!((observed.seen, observed.value), (true, Some(0.1)), "{observed:?}");
    let zero = Some(toml::Value::Integer(0));
    let observed = evidence.check_sign(&sign("x.held_count", SignStatistic::Max, zero, Some(0.0)));
    assert!(!observed.seen && observed.why.unwrap().contains("divided by 0"));
}

#[test]
fn readings_outside_of_the_measured_part_do_not_count() {
    let mut evidence = evidence();
    evidence.measurement.measured_from_s = 1.0;
    evidence.measurement.measured_to_s = 2.0;
    let observed = evidence.check_sign(&sign("x.held_count", SignStatistic::Max, None, Some(25.0)));
    assert_eq!((observed.value, observed.seen), (Some(20.0), false));
    evidence.measurement.measured_from_s = 1.2;
    evidence.measurement.measured_to_s = 1.8;
    let observed = evidence.check_sign(&sign("x.held_count", SignStatistic::Max, None, Some(0.0)));
    assert!(observed.why.unwrap().contains("not read within"));
}

fn gain(metric: &str, at_least: Option<f64>, at_most: Option<f64>) -> Gain {
    Gain { metric: metric.into(), take: None, over: None, at_least, at_most }
}

#[test]
fn the_worse_end_of_the_interval_counts_for_rates() {
    let slow = Evidence::from_measurement(measured(&[100, 104, 96, 101, 99], 0, 50_000)).unwrap();
    let fast = Evidence::from_measurement(measured(&[300, 312, 288, 303, 297], 0, 10_000)).unwrap();
    let held = fast.check_gain(&gain("load.rate", Some(2.5), None), "before", &slow);
    assert!(held.held && held.over == "before", "{held:?}");
    let [low, high] = held.ci95.unwrap();
    assert!(low < 3.0 && 3.0 < high && low > 2.5, "{held:?}");
    // The ratio itself would be enough.
    assert!(!fast.check_gain(&gain("load.rate", Some(2.99), None), "before", &slow).held);
    assert!(!slow.check_gain(&gain("load.rate", None, Some(0.334)), "before", &fast).held);
    assert!(slow.check_gain(&gain("load.rate", None, Some(0.4)), "before", &fast).held);
    // Percentiles have no interval.
    let held = fast.check_gain(&gain("load.p99_us", None, Some(0.21)), "before", &slow);
    assert!(held.held && held.ci95.is_none() && held.ratio == Some(0.2), "{held:?}");
}

#[test]
fn a_rate_without_an_interval_is_no_gain() {
    let slow = Evidence::from_measurement(measured(&[100, 104, 96], 0, 50_000)).unwrap();
    let short = Evidence::from_measurement(measured(&[900], 0, 10_000)).unwrap();
    for (now, before) in [(&short, &slow), (&slow, &short)] {
        let held = now.check_gain(&gain("load.rate", Some(0.01), None), "before", before);
        assert!(!held.held && held.ratio.is_some() && held.why.unwrap().contains("no interval"));
    }
    // Nothing at all is below any bound.
    let dead = Evidence::from_measurement(measured(&[0], 9, 50_000)).unwrap();
    assert!(dead.check_gain(&gain("load.rate", None, Some(0.5)), "before", &slow).held);
}

#[test]
fn a_server_that_answered_nothing_before_gained() {
    let dead = Evidence::from_measurement(measured(&[0, 0, 0], 9, 50_000)).unwrap();
    let alive = Evidence::from_measurement(measured(&[100, 100, 100], 0, 50_000)).unwrap();
    let held = alive.check_gain(&gain("load.rate", Some(2.0), None), "dead", &dead);
    assert!(held.held && held.ratio.is_none() && held.why.is_some(), "{held:?}");
    assert!(!dead.check_gain(&gain("load.rate", Some(2.0), None), "dead", &dead).held);
    assert!(!dead.check_gain(&gain("load.rate", Some(0.5), None), "alive", &alive).held);
    // Times of a load without answers are not known.
    let held = alive.check_gain(&gain("load.p99_us", None, Some(1.0)), "dead", &dead);
    assert!(!held.held && held.why.unwrap().contains("no request had a good answer"));
}

#[test]
fn metrics_of_the_samples_gain_by_their_means() {
    let (before, mut after) = (evidence(), evidence());
    for timed in &mut after.measurement.samples {
        if let Some(value) = timed.sample.values.get_mut("x.held_count") {
            value.0 /= 5.0;
        }
    }
    let held = after.check_gain(&gain("x.held_count", None, Some(0.25)), "before", &before);
    assert!(held.held && held.ratio == Some(0.2) && held.ci95.is_some(), "{held:?}");
    let rise = Gain { take: Some(SignStatistic::Rise), ..gain("x.drops_count", Some(0.9), Some(1.1)) };
    let held = after.check_gain(&rise, "before", &before);
    assert!(held.held && held.ratio == Some(1.0) && held.ci95.is_none(), "{held:?}");
}

#[test]
fn a_recording_without_a_load_is_told() {
    let reported = Evidence::of(&Recording::default()).unwrap_err();
    assert!(reported.message.contains("there was no load"), "{reported}");
}

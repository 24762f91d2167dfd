//! Truths of rounds whose figures are known.

use super::*;
use webdyno_lab::draw::{Seed, draw};
use webdyno_lab::evidence::GainResult;
use webdyno_lab::scenario::Group;

/// A server with so many faults, whichever they are.
fn server(faults: usize) -> DrawnServer {
    (0..200).map(|seed| draw(Seed { seed, attempt: 0 })).find(|server| server.faults.len() == faults).unwrap()
}

/// Rounds of these rates and medians in milliseconds; p99 is twice the median.
fn outcome(rounds: &[(f64, f64)]) -> ScenarioOutcome {
    let round = |(rate, p50_ms): &(f64, f64)| {
        let figures = [
            ("load.rate", *rate),
            ("load.p50_us", p50_ms * 1000.0),
            ("load.p99_us", p50_ms * 2000.0),
            ("load.failed_fraction", 0.0),
        ];
        RoundOutcome {
            name: "x".into(),
            figures: figures.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect(),
            expected: "x".into(),
            found: "x".into(),
            ..RoundOutcome::default()
        }
    };
    ScenarioOutcome {
        schema: "x".into(),
        scenario: "x".into(),
        title: "x".into(),
        group: Group::Drawn,
        rounds_in_all: rounds.len(),
        up_s: 1.0,
        run_s: 1.0,
        down_s: None,
        rounds: rounds.iter().map(round).collect(),
        proved: true,
        directory: String::new(),
    }
}

#[test]
fn one_fault_binds_where_its_removal_brings_something() {
    let server = server(1);
    for (rounds, binds) in [
        ([(100.0, 50.0), (300.0, 17.0)], true),
        ([(100.0, 50.0), (103.0, 49.0)], false),
        // The same rate, in half the time: an open loop.
        ([(100.0, 50.0), (100.0, 20.0)], true),
        ([(100.0, 2.0), (100.0, 1.0)], false),
        // Faster, and much less of it.
        ([(100.0, 50.0), (50.0, 20.0)], false),
        ([(0.0, 50.0), (50.0, 20.0)], true),
    ] {
        let found = truth(&server, &outcome(&rounds));
        assert_eq!(found.is_ok(), binds, "{rounds:?}: {found:?}");
        if let Ok(truth) = found {
            assert_eq!(truth.first, [server.faults[0].id]);
            assert_eq!(truth.findings, server.faults[0].findings);
        }
    }
}

#[test]
fn of_two_faults_the_one_that_brings_most_is_the_first() {
    let server = server(2);
    let [one, other] = [server.faults[0].id, server.faults[1].id];
    // As found, without the one, without the other, without both.
    for (rates, first) in [
        ([10.0, 40.0, 10.0, 90.0], vec![one]),
        ([10.0, 10.0, 40.0, 90.0], vec![other]),
        ([10.0, 40.0, 20.0, 90.0], vec![one]),
        ([10.0, 20.0, 21.0, 90.0], vec![one, other]),
        // Each hides the other.
        ([10.0, 10.0, 10.0, 90.0], vec![one, other]),
        // The other one is not felt.
        ([10.0, 40.0, 10.0, 40.0], vec![]),
        ([10.0, 10.0, 10.0, 10.0], vec![]),
    ] {
        let rounds: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, 1000.0 / rate)).collect();
        let found = truth(&server, &outcome(&rounds)).map(|truth| truth.first).unwrap_or_default();
        assert_eq!(found, first, "{rates:?}");
    }
}

#[test]
fn the_times_of_the_few_that_are_answered_are_nobodys_gain() {
    let server = server(2);
    // Without the one all is well; without the other most still fail, and the others are quick.
    let mut rounds = outcome(&[(10.0, 1012.0), (2600.0, 4.6), (18.0, 2.5), (4450.0, 4.3)]);
    let first = |rounds: &ScenarioOutcome| truth(&server, rounds).unwrap().first;
    assert_eq!(first(&rounds), [server.faults[1].id]);
    rounds.rounds[2].figures.insert("load.failed_fraction".into(), Some(0.12));
    assert_eq!(first(&rounds), [server.faults[0].id]);
}

#[test]
fn a_rate_that_rises_within_its_load_is_a_gain_where_it_is_far_higher() {
    let server = server(2);
    for (without_other, first) in [(35.2, 1), (13.0, 0)] {
        let mut rounds = outcome(&[(10.0, 998.0), (26.2, 998.0), (without_other, 998.0), (86.0, 400.0)]);
        // Workers are started under the load: no two seconds have the same rate.
        let over = rounds.rounds[0].name.clone();
        let wide =
            GainResult { metric: "load.rate".into(), over, ci95: Some([0.7, 9.0]), ..GainResult::default() };
        rounds.rounds[2].name = "without the other".into();
        rounds.rounds[2].gains.push(wide);
        assert_eq!(truth(&server, &rounds).unwrap().first, [server.faults[first].id], "{without_other}");
    }
}

#[test]
fn a_server_without_faults_is_one_that_keeps_up() {
    let mut healthy = server(0);
    (healthy.is_full, healthy.alone_ms, healthy.offered_per_s) = (false, 20.0, Some(100.0));
    let findings = |server: &DrawnServer, rate, p50_ms| {
        truth(server, &outcome(&[(rate, p50_ms)])).map(|truth| truth.findings)
    };
    assert_eq!(findings(&healthy, 100.0, 25.0), Ok(vec!["healthy".to_owned()]));
    assert!(findings(&healthy, 80.0, 25.0).is_err() && findings(&healthy, 100.0, 300.0).is_err());
    (healthy.is_full, healthy.offered_per_s) = (true, None);
    assert_eq!(findings(&healthy, 80.0, 300.0).map(|ids| ids[0].clone()), Ok("cpu-saturated".to_owned()));
    let mut failing = outcome(&[(100.0, 25.0)]);
    failing.rounds[0].figures.insert("load.failed_fraction".into(), Some(0.2));
    assert!(truth(&healthy, &failing).is_err());
}

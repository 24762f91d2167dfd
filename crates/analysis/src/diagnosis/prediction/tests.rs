//! Predictions of servers by hand.

use super::*;
use crate::facts::testing::{facts, of_pool, with_changes};

/// 20 workers of 0.2 s, 100 users who ask again at once; the processors have room.
const FULL: [(FactId, f64); 10] = [
    (FactId::workers_limit, 20.0),
    (FactId::workers_busy_mean, 20.0),
    (FactId::workers_writing_mean, 20.0),
    (FactId::accept_queue_mean, 80.0),
    (FactId::users, 100.0),
    (FactId::in_flight_mean, 100.0),
    (FactId::rate, 100.0),
    (FactId::response_time_mean_us, 1e6),
    (FactId::cores, 2.0),
    (FactId::cpu_busy_fraction, 0.2),
];

fn workers(to: f64) -> Supposition {
    Supposition { changes: vec![KNOWN[0].to(to, None)], ..Supposition::default() }
}

fn rate(changes: &[(FactId, f64)], supposed: &Supposition) -> Result<f64, String> {
    let facts = facts(&with_changes(&FULL, changes), &[]);
    let model = ServerModel::of(&facts)?;
    outcome(&facts, &model, supposed).map(|found| significant(found.rate, 3))
}

#[test]
fn a_pool_of_another_size_serves_as_many_more_until_something_else_binds() {
    for (to, expected) in [(20.0, 100.0), (10.0, 50.0), (40.0, 199.0)] {
        assert_eq!(rate(&[], &workers(to)), Ok(expected), "{to}");
    }
    // No more than the processors, of which 100 requests a second take 0.4 of 2 cores, nor than there are users.
    let most = rate(&[], &workers(400.0)).unwrap();
    assert!((380.0..=475.0).contains(&most), "{most}");
    // Four times as many users of 20 workers only wait.
    assert_eq!(rate(&[], &Supposition { users: Some(400.0), ..Supposition::default() }), Ok(100.0));
}

#[test]
fn full_processors_serve_no_more_with_more_workers() {
    let full = [(FactId::cpu_busy_fraction, 1.0), (FactId::service_cpu_cores, 1.9)];
    for to in [10.0, 40.0, 200.0] {
        assert_eq!(rate(&full, &workers(to)), Ok(100.0), "{to}");
    }
    let twice = Supposition { changes: vec![KNOWN[3].to(4.0, None)], ..Supposition::default() };
    assert!(rate(&full, &twice).unwrap() > 99.0);
}

#[test]
fn what_cannot_be_told_is_said() {
    for (changes, supposed, part) in [
        (
            vec![(FactId::in_flight_mean, 15.0), (FactId::users, 15.0)],
            workers(40.0),
            "held by something else",
        ),
        (vec![(FactId::pressure_memory_full_fraction, 0.3)], workers(40.0), "memory was short"),
        (
            vec![(FactId::cpu_busy_fraction, 1.0), (FactId::service_cpu_cores, 0.4)],
            workers(40.0),
            "other programs filled the processors",
        ),
        (vec![(FactId::rate, f64::NAN)], workers(40.0), "no successful request"),
        (vec![], Supposition { rate: Some(50.0), ..Supposition::default() }, "closed one"),
        (vec![], Supposition { users: Some(1e6), ..Supposition::default() }, "more than 20000 users"),
        (vec![], Supposition { changes: vec![KNOWN[1].to(9.0, None)], ..Supposition::default() }, "children"),
    ] {
        let why = rate(&changes, &supposed).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn beyond_twice_of_what_was_seen_the_interval_widens() {
    let of = |to: f64| {
        let facts = facts(&FULL, &[]);
        outcome(&facts, &ServerModel::of(&facts).unwrap(), &workers(to)).unwrap().error
    };
    assert_eq!(of(30.0), ERROR);
    assert!(of(80.0) > 1.5 * ERROR);
}

#[test]
fn a_short_time_in_a_long_cycle_is_as_unsure_as_the_cycle() {
    for (think_us, expected) in [(0.0, 0.12), (300e3, 0.48), (4900e3, 6.0)] {
        let error = report::time_error(Load::Closed { users: 10.0, think_us }, 0.12, 100e3);
        assert!((error - expected).abs() < 1e-9, "{think_us}: {error}");
    }
}

// The processors serve 475 requests a second, for which 95 workers would do if nobody waited.
#[test]
fn more_than_can_be_served_holds_all_workers() {
    let mut model = ServerModel::of(&facts(&FULL, &[])).unwrap();
    model.network.pools[0].places = 400.0;
    for (offered, served, connections, busy) in
        [(50.0, 50.0, 1000.0, 10.0), (900.0, 475.0, 1000.0, 400.0), (900.0, 475.0, 300.0, 300.0)]
    {
        let open = ServerModel { load: Load::Open { rate: offered, connections }, ..model.clone() };
        assert_eq!(open.busy(served)[0].round(), busy, "{offered} of {served}");
    }
}

// 20 more workers of 10 MB and 10 more children of 20 MB: 200 MB each.
#[test]
fn pools_that_grow_together_share_the_memory() {
    let with = |free: f64| {
        [
            (FactId::memory_total_bytes, 1e9),
            (FactId::memory_available_min_bytes, free),
            (FactId::worker_private_mean_bytes, 10e6),
        ]
    };
    let children = KNOWN[1].to(20.0, None);
    let both = Supposition { changes: [workers(40.0).changes, vec![children]].concat(), ..workers(40.0) };
    for (free, supposed, lacks) in
        [(400e6, &both, true), (400e6, &workers(40.0), false), (600e6, &both, false)]
    {
        let mut facts = facts(&with_changes(&FULL, &with(free)), &[]);
        let pool = [
            (FactId::ahead_fpm_processes_max, 10.0),
            (FactId::ahead_fpm_busy_mean, 10.0),
            (FactId::ahead_fpm_queue_mean, 10.0),
            (FactId::pool_memory_mean_bytes, 20e6),
        ];
        of_pool(&mut facts, "www", &pool);
        let now = ServerModel::of(&facts).unwrap();
        let found = outcome(&facts, &now, supposed).unwrap();
        assert_eq!(memory::lacking_bytes(&facts, &now, &found).is_some(), lacks, "{free} {supposed:?}");
    }
}

#[test]
fn memory_that_is_less_than_was_in_use_is_too_small() {
    let known = [(FactId::memory_total_bytes, 4e9), (FactId::memory_available_min_bytes, 1e9)];
    let facts = facts(&known, &[]);
    assert_eq!([2e9, 3.5e9, 8e9].map(|bytes| memory::is_too_small(&facts, bytes)), [true, false, false]);
}

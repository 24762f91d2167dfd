//! Each kind of limit on facts by hand.

use crate::facts::testing::{facts, of_pool, set};
use crate::facts::{FactId, Facts};
use crate::limits::ceiling::{Resource, ResourceUsage};
use crate::limits::{LimitId, ceilings, resource_ceilings};
use crate::resources::processors::rate_at_cpu;

fn with(values: &[(FactId, f64)], each: &[(FactId, &str, f64)]) -> Facts {
    let mut facts = facts(&[&[(FactId::rate, 100.0)], values].concat(), &[]);
    each.iter().for_each(|(name, instance, value)| of_pool(&mut facts, instance, &[(*name, *value)]));
    facts
}

/// The limit of this name: `(now, max, binds at)`.
fn error_of(facts: &Facts, name: &str) -> Option<(Option<f64>, Option<f64>, Option<f64>)> {
    let all = ceilings(facts);
    let found = all.iter().find(|ceiling| ceiling.limit == name);
    found.map(|ceiling| (ceiling.now, ceiling.max, ceiling.binds_at_rate))
}

#[test]
fn each_limit_says_where_it_binds() {
    let all = ceilings(&facts(
        &[
            (FactId::workers_limit, 150.0),
            (FactId::workers_busy_mean, 76.0),
            (FactId::cores, 2.0),
            (FactId::cpu_busy_fraction, 0.25),
            (FactId::rate, 375.0),
            (FactId::rate_ci95_fraction, 0.03),
            (FactId::ahead_workers_busy_ci95_fraction, 0.04),
            (FactId::accept_queue_max, 3.0),
            (FactId::accept_queue_limit, 511.0),
        ],
        &[],
    ));
    let binds: Vec<_> = all
        .iter()
        .map(|ceiling| (ceiling.limit.as_str(), ceiling.binds_at_rate, ceiling.binds_at_ci95))
        .collect();
    assert_eq!(
        binds,
        [
            ("apache workers", Some(750.0), Some([712.5, 787.5])),
            ("processor cores", Some(1500.0), Some([1455.0, 1545.0])),
            ("accept queue", None, None)
        ]
    );
}

// Kept connections are as many at any rate: none is told.
#[test]
fn fronts_of_few_processes_have_places_for_connections() {
    let settings_of_lighttpd = [("server.max-connections", 400), ("server.max-fds", 1024)];
    for (service, settings, limit, max) in [
        ("nginx", [("worker_connections", 1024), ("worker_processes", 2)], "nginx connections", 2048.0),
        ("lighttpd", settings_of_lighttpd, "lighttpd connections", 400.0),
    ] {
        let values = [(FactId::rate, 100.0), (FactId::client_connections_mean, 120.0)];
        let mut facts = facts(&values, &settings);
        assert_eq!(error_of(&facts, limit), None, "Apache has none");
        facts.service.as_mut().unwrap().service = service.into();
        assert_eq!(error_of(&facts, limit), Some((Some(120.0), Some(max), None)));
    }
}

#[test]
fn one_thread_that_serves_binds_when_it_has_a_core_to_itself() {
    let front = |service: &str, setting: &str, cores: f64| {
        let values = [(FactId::busiest_thread_fraction, 0.25), (FactId::rate, 100.0), (FactId::cores, cores)];
        let mut facts = facts(&values, &[(setting, 1)]);
        facts.service.as_mut().unwrap().service = service.into();
        let found = resource_ceilings(&facts).into_iter().find(|one| one.resource == Resource::Thread);
        found.and_then(|one| Some((one.finding?, one.ceiling.limit, one.ceiling.binds_at_rate?)))
    };
    let binds = |finding, limit: &str| Some((finding, limit.to_owned(), 400.0));
    assert_eq!(
        front("lighttpd", "server.max-worker", 2.0),
        binds(LimitId::SingleThreadSaturated, "one thread of lighttpd")
    );
    assert_eq!(
        front("nginx", "worker_processes", 2.0),
        binds(LimitId::NginxWorkersSaturated, "one thread of nginx")
    );
    assert_eq!(front("nginx", "worker_processes", 1.0), None, "it is the core");
    assert_eq!(front("apache", "MaxRequestWorkers", 2.0), None);
    let behind = |processes: f64| {
        let each = [
            (FactId::backend_busiest_thread_fraction, "unknown", 0.5),
            (FactId::backend_processes_mean, "unknown", processes),
            (FactId::backend_threads_mean, "unknown", processes),
        ];
        error_of(&with(&[(FactId::cores, 2.0)], &each), "one thread of unknown")
    };
    assert_eq!(behind(1.0), Some((Some(0.5), Some(1.0), Some(200.0))));
    assert_eq!(behind(4.0), None);
}

#[test]
fn kept_connections_hold_a_worker_but_not_under_event() {
    let values = [
        (FactId::workers_limit, 50.0),
        (FactId::workers_busy_mean, 41.0),
        (FactId::workers_keepalive_mean, 20.0),
    ];
    let mut facts = with(&values, &[]);
    assert_eq!(error_of(&facts, "apache workers").unwrap().2, Some(125.0));
    facts.service.as_mut().unwrap().mode = Some("event".into());
    assert_eq!(error_of(&facts, "apache workers").unwrap().2, Some(250.0));
}

#[test]
fn states_behind_a_lowered_limit_are_no_workers() {
    let values =
        [(FactId::workers_limit, 39.0), (FactId::workers_when_full, 10.0), (FactId::workers_busy_mean, 22.0)];
    let (now, max, binds) = error_of(&with(&values, &[]), "apache workers").unwrap();
    assert_eq!((now, max), (Some(10.0), Some(10.0)));
    assert_eq!(binds, Some(100.0), "all ten for 100 requests a second");
}

#[test]
fn fast_failures_do_not_flatter_the_workers() {
    let values = [
        (FactId::workers_limit, 50.0),
        (FactId::workers_busy_mean, 11.0),
        (FactId::ended_per_s, 500.0),
        (FactId::service_time_mean_us, 90_000.0),
    ];
    // 10 workers for 500 requests are 20 ms each; a successful response takes 90.
    for (failed, binds) in [(0.0, 2500.0), (0.8, 555.6)] {
        let facts = with(&[&values[..], &[(FactId::failed_fraction, failed)]].concat(), &[]);
        assert_eq!(error_of(&facts, "apache workers").unwrap().2, Some(binds), "{failed}");
    }
}

#[test]
fn of_several_pools_the_first_to_bind_is_told() {
    let of = |queue| {
        let each = [
            (FactId::ahead_fpm_processes_max, "www", 20.0),
            (FactId::ahead_fpm_busy_mean, "www", 10.0),
            (FactId::ahead_fpm_queue_mean, "www", queue),
            (FactId::ahead_fpm_processes_max, "api", 5.0),
            (FactId::ahead_fpm_busy_mean, "api", 5.0),
            (FactId::ahead_fpm_queue_mean, "api", queue),
        ];
        with(&[], &each)
    };
    let api = error_of(&of(3.0), "children of pool api");
    assert_eq!(api, Some((Some(5.0), Some(5.0), Some(100.0))));
    // A pool that never let a request wait may be allowed more children than it had.
    assert_eq!(error_of(&of(0.0), "children of pool api").and_then(|(_, max, _)| max), None);
}

#[test]
fn connections_that_are_kept_do_not_grow_with_the_rate() {
    // Of the 21 and of the 100, the one over which they are read is no answer's.
    for (attempts, binds) in [(100.0, Some(495.0)), (1.0, None)] {
        let facts = with(
            &[
                (FactId::ahead_database_limit, 100.0),
                (FactId::ahead_database_connected_mean, 21.0),
                (FactId::ahead_database_attempts_per_s, attempts),
            ],
            &[],
        );
        assert_eq!(error_of(&facts, "database connections"), Some((Some(21.0), Some(100.0), binds)));
    }
}

#[test]
fn readings_that_meet_the_waves_of_a_load_do_not_make_answers_longer() {
    // 100 responses a second of 0.2 s are 20 at once, of which each sample sees 25.
    let values = [
        (FactId::workers_limit, 51.0),
        (FactId::workers_busy_mean, 28.0),
        (FactId::workers_writing_mean, 26.0),
        (FactId::ahead_database_limit, 41.0),
        (FactId::ahead_database_connected_mean, 26.0),
        (FactId::ahead_database_attempts_per_s, 100.0),
    ];
    let at = |in_flight: &[(FactId, f64)]| {
        let facts = with(&[&values[..], in_flight].concat(), &[]);
        ["apache workers", "database connections"].map(|name| error_of(&facts, name).unwrap().2.unwrap())
    };
    assert_eq!(at(&[]), [188.9, 160.0]);
    // Two workers close and log, which is no request that is under way.
    assert_eq!(at(&[(FactId::in_flight_mean, 20.0)]), [231.8, 200.0]);
    assert_eq!(at(&[(FactId::in_flight_mean, 30.0)]), [188.9, 160.0]);
    // Pages with two connections each have twice as many.
    let two = [(FactId::in_flight_mean, 12.0), (FactId::ahead_database_attempts_per_s, 200.0)];
    let facts = with(&[&values[..5], &two[..]].concat(), &[]);
    assert_eq!(error_of(&facts, "database connections").unwrap().2, Some(166.7));
}

#[test]
fn what_is_used_without_requests_does_not_grow_with_the_limit() {
    let values = [
        (FactId::cores, 2.0),
        (FactId::ahead_group_cores, 1.0),
        (FactId::ahead_group_cpu_cores, 0.3),
        (FactId::service_cpu_cores, 0.25),
    ];
    let all = resource_ceilings(&with(&values, &[]));
    let group = all.iter().find(|limit| limit.ceiling.limit.contains("group")).unwrap();
    // 100 responses a second take 0.25 of 1 - 0.05 cores.
    assert_eq!(group.ceiling.binds_at_rate, Some(380.0));
    assert_eq!(group.rate_at_size(0.55).map(f64::round), Some(200.0));
    assert_eq!(group.rate_at_size(0.04), None);
}

#[test]
fn entries_live_two_minutes() {
    let opened = (FactId::new_connections_per_s, 100.0);
    let table = [(FactId::ahead_tracked_max, 500.0), (FactId::ahead_tracked_limit, 12_000.0)];
    let of = |values: &[(FactId, f64)]| {
        error_of(&with(&[&table[..], values].concat(), &[]), "tracked connections")
            .and_then(|reported| reported.2)
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[opened]), Some(100.0));
    // Each answer also has a connection to another machine.
    assert_eq!(of(&[opened, (FactId::ahead_tracked_rise_per_s, 200.0)]), Some(50.0));
    // A table that is full grows no more, and what comes and goes in it says nothing.
    assert_eq!(
        of(&[opened, (FactId::ahead_tracked_max, 11_900.0), (FactId::ahead_tracked_rise_per_s, 200.0)]),
        Some(100.0)
    );
    let own = [(FactId::ahead_tracked_service_max, 5.0), (FactId::ahead_tracked_service_limit, 24_000.0)];
    assert_eq!(of(&[&own[..], &[opened]].concat()), Some(200.0));
}

#[test]
fn the_fullest_link_is_told_with_what_it_carries() {
    let each = [
        (FactId::ahead_link_sent_bytes_per_s, "lo", 9e9),
        (FactId::ahead_link_speed_bits_per_s, "lo", 1e6),
        (FactId::ahead_link_sent_bytes_per_s, "eth0", 1e6),
        (FactId::ahead_link_speed_bits_per_s, "eth0", 1e9),
        (FactId::ahead_link_shaped_bits_per_s, "eth0", 16e6),
        (FactId::ahead_link_sent_bytes_per_s, "eth1", 2e6),
        (FactId::ahead_link_speed_bits_per_s, "eth1", 1e9),
        (FactId::ahead_link_sent_bytes_per_s, "eth2", 3e6),
    ];
    let binds = error_of(&with(&[], &each), "bits/s sent over eth0");
    assert_eq!(binds, Some((Some(8e6), Some(16e6), Some(180.0))));
}

#[test]
fn ports_bind_towards_other_machines_only() {
    for (remote, mode, binds) in [
        ("10.0.0.2:3306", 2.0, Some(Some(235.3))),
        ("10.0.0.2:3306", 1.0, Some(None)),
        ("127.0.0.1:80", 2.0, None),
    ] {
        let each = [
            (FactId::ahead_ports_used_max, remote, 510.0),
            (FactId::ahead_ports_time_wait_per_s, remote, 200.0),
        ];
        let facts =
            with(&[(FactId::ahead_ports_available, 28_232.0), (FactId::ahead_ports_reuse_mode, mode)], &each);
        let name = format!("local ports towards {remote}");
        let reported = error_of(&facts, &name);
        assert_eq!(reported.map(|reported| reported.2), binds, "{remote} {mode}");
        assert_eq!(reported.map(|reported| reported.0), binds.map(|_| Some(510.0)), "{remote} {mode}");
    }
}

#[test]
fn a_queue_that_the_rate_has_passed_binds_nowhere() {
    for (limit, binds) in [(511.0, Some(511.0)), (50.0, None)] {
        let facts = with(&[(FactId::accept_queue_limit, limit), (FactId::new_connections_per_s, 100.0)], &[]);
        assert_eq!(error_of(&facts, "accept queue").unwrap().2, binds);
    }
}

#[test]
fn the_group_counts_before_the_machine() {
    let values = [
        (FactId::cores, 8.0),
        (FactId::cpu_busy_fraction, 0.9),
        (FactId::ahead_group_cores, 2.0),
        (FactId::ahead_group_cpu_cores, 0.6),
        (FactId::service_cpu_cores, 0.4),
    ];
    let facts = with(&values, &[]);
    assert_eq!(error_of(&facts, "processor cores"), None);
    let all = resource_ceilings(&facts);
    let found = all.iter().find(|one| one.ceiling.limit.contains("group")).unwrap();
    // 0.4 of the group's 0.6 cores are the service's: 1.8 are left for it.
    assert_eq!((found.ceiling.binds_at_rate, found.finding), (Some(450.0), Some(LimitId::CpuSaturated)));
    // A fifth of what ends fails, and takes its part of the processors, too.
    let failing = resource_ceilings(&with(&[&values[..], &[(FactId::ended_per_s, 125.0)]].concat(), &[]));
    let found = failing.iter().find(|one| one.ceiling.limit.contains("group")).unwrap();
    assert_eq!(found.ceiling.binds_at_rate, Some(562.5));
    let quota = with(&[&values[..], &[(FactId::ahead_group_quota_cores, 2.0)]].concat(), &[]);
    assert!(resource_ceilings(&quota).iter().any(|limit| limit.finding == Some(LimitId::CpuThrottled)));
}

#[test]
fn what_others_use_is_not_charged_to_the_requests() {
    let observed = [
        (FactId::cpu_busy_fraction, 0.5),
        (FactId::cores, 2.0),
        (FactId::rate, 90.0),
        (FactId::ended_per_s, 100.0),
    ];
    let known = [(FactId::service_cpu_cores, 0.3), (FactId::client_cpu_cores, 0.1)];
    let yields = [(FactId::ahead_yielding_cpu_cores, 0.6)];
    for (values, at_full, at_most) in [
        (observed.to_vec(), 200.0, 190.0),
        ([&observed[..], &known[..]].concat(), 350.0, 325.0),
        // What runs at a low priority gives way.
        ([&observed[..], &known[..], &yields[..]].concat(), 500.0, 475.0),
    ] {
        let facts = facts(&values, &[]);
        let rates = [1.0, 0.95].map(|share| rate_at_cpu(&facts, share).unwrap().round());
        assert_eq!(rates, [at_full, at_most]);
    }
}

#[test]
fn a_database_that_scans_is_what_binds_the_processors() {
    let values = [
        (FactId::cores, 2.0),
        (FactId::cpu_busy_fraction, 0.5),
        (FactId::service_cpu_cores, 0.2),
        (FactId::ahead_database_scanned_rows_per_s, 5e6),
    ];
    for (selects, id) in [(50.0, LimitId::DbSlowQueries), (50_000.0, LimitId::CpuSaturated)] {
        let facts = with(
            &[&values[..], &[(FactId::ahead_database_selects_per_s, selects)]].concat(),
            &[(FactId::ahead_backend_cpu_cores, "mariadb", 0.7)],
        );
        assert!(resource_ceilings(&facts).iter().any(|limit| limit.finding == Some(id)), "{selects}");
    }
}

#[test]
fn without_load_the_servers_own_count_is_the_rate() {
    let values = [
        (FactId::server_requests_per_s, 101.0),
        (FactId::workers_busy_mean, 11.0),
        (FactId::workers_limit, 50.0),
    ];
    let mut facts = facts(&values, &[]);
    facts.loaded = false;
    assert_eq!(error_of(&facts, "apache workers").unwrap().2, Some(500.0));
    // Our own samples, and a few of who knows whom, are no traffic.
    set(&mut facts, FactId::server_requests_per_s, 3.0);
    assert_eq!(error_of(&facts, "apache workers").unwrap().2, None);
}

#[test]
fn unknown_limits_are_left_out() {
    assert_eq!(ceilings(&facts(&[], &[])), []);
}

/// Nothing saturates at less than what is served.
#[test]
fn no_ceiling_lies_below_what_is_served() {
    let facts = facts(&[(FactId::rate, 94.0), (FactId::rate_ci95_fraction, 0.02)], &[]);
    for (binds, shown) in [(24.4, None), (90.0, Some(94.0)), (93.0, Some(93.0)), (200.0, Some(200.0))] {
        let usage = ResourceUsage { max: Some(20.0), binds_at_rate: Some(binds), ..ResourceUsage::default() };
        let ceiling = usage.ceiling(Resource::Workers, "apache workers", "mod_status", None).unwrap();
        assert_eq!(ceiling.not_below_served(&facts).ceiling.binds_at_rate, shown, "{binds}");
    }
}

/// Where some requests fail, the time of good ones counts: without what they wait in queues, which no worker is held for.
#[test]
fn waiting_clients_hold_no_worker() {
    let facts = facts(
        &[
            (FactId::rate, 94.0),
            (FactId::failed_fraction, 0.05),
            (FactId::workers_limit, 20.0),
            (FactId::workers_busy_mean, 21.0),
            (FactId::ended_per_s, 99.0),
            (FactId::service_time_mean_us, 820_000.0),
        ],
        &[],
    );
    let workers = resource_ceilings(&facts);
    let workers = workers.iter().find(|one| one.resource == Resource::Workers).unwrap();
    assert_eq!(workers.ceiling.binds_at_rate, Some(94.0));
}

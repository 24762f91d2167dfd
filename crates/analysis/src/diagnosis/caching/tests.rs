//! What a cache in front would give, of facts by hand.

use super::*;
use crate::facts::FactId;
use crate::facts::testing::{facts, with_changes};
use webdyno_model::workload::Workload;
use webdyno_model::workload::visit::Visits;

/// Two cores full of pages of 10 ms each, half a millisecond of which is the generator's on the same machine.
const FULL: [(FactId, f64); 10] = [
    (FactId::cores, 2.0),
    (FactId::cpu_busy_fraction, 0.99),
    (FactId::pressure_cpu_some_fraction, 0.9),
    (FactId::service_cpu_cores, 1.88),
    (FactId::client_cpu_cores, 0.1),
    (FactId::rate, 200.0),
    (FactId::ended_per_s, 200.0),
    (FactId::in_flight_mean, 20.0),
    (FactId::failed_fraction, 0.0),
    (FactId::connections_reused_fraction, 1.0),
];

fn page(url: &str, share: f64) -> RepeatedAnswer {
    RepeatedAnswer {
        name: url.into(),
        url: format!("http://h{url}"),
        share_fraction: Some(share),
        status: Some(200),
        alone_us: Some(10_000),
        is_same: Some(true),
        ..RepeatedAnswer::default()
    }
}

fn cache_of(changes: &[(FactId, f64)], answers: &[RepeatedAnswer]) -> Option<SiteCache> {
    let facts = facts(&with_changes(&FULL, changes), &[]);
    let measurement = Measurement { repeated_answers: answers.to_vec(), ..Measurement::default() };
    site_cache(&facts, &measurement, None)
}

#[test]
fn what_is_kept_costs_as_much_as_a_file() {
    let cache = cache_of(&[], &[page("/a.php", 1.0)]).unwrap();
    assert_eq!((cache.cacheable_fraction, cache.known_fraction), (1.0, 1.0));
    // 2 cores for 40 us of a hit and 25 us of the generator each; at most 150 and 500 us.
    let (rate, ci95) = (cache.predicted_rate.unwrap(), cache.predicted_ci95.unwrap());
    assert!((28_000.0..31_500.0).contains(&rate), "{rate}");
    assert!(ci95[0] < rate && rate < ci95[1] && (2400.0..2800.0).contains(&ci95[0]), "{ci95:?}");
    assert_eq!(cache.application_rate, Some(1.0));
}

#[test]
fn what_is_not_kept_stays_the_limit() {
    let private = RepeatedAnswer { sets_cookie: true, ..page("/b.php", 0.5) };
    let cache = cache_of(&[], &[page("/a.php", 0.5), private.clone()]).unwrap();
    assert_eq!((cache.cacheable_fraction, cache.known_fraction), (0.5, 1.0));
    let rate = cache.predicted_rate.unwrap();
    assert!((330.0..400.0).contains(&rate), "half of the work is left: {rate}");
    // What was not looked at counts as it.
    let rate = cache_of(&[], &[page("/a.php", 0.5)]).unwrap().predicted_rate.unwrap();
    assert!((330.0..400.0).contains(&rate), "{rate}");
    // Many URLs that are seldom asked for are renewed as often as they are asked for.
    let many: Vec<RepeatedAnswer> = (0..64).map(|n| page(&format!("/{n}.php"), 1.0 / 3200.0)).collect();
    let cache = cache_of(&[], &[&many[..], &[private]].concat()).unwrap();
    assert!(cache.predicted_rate.is_none_or(|rate| rate < 210.0), "{cache:?}");
}

#[test]
fn clients_and_workers_bound_it() {
    let pages = [page("/a.php", 1.0)];
    let offered = cache_of(&[(FactId::offered_rate, 400.0)], &pages);
    // Open loops have a bound on their connections.
    let offered = offered.unwrap();
    assert!(offered.predicted_rate.is_none_or(|rate| rate <= 400.0), "{offered:?}");
    // Workers that wait: the processors have room, and half of the requests still need a worker.
    let waiting = [(FactId::service_cpu_cores, 0.1), (FactId::cpu_busy_fraction, 0.11)];
    let private = RepeatedAnswer { is_same: Some(false), ..page("/b.php", 0.5) };
    let cache = cache_of(&waiting, &[page("/a.php", 0.5), private]).unwrap();
    let rate = cache.predicted_rate.unwrap();
    assert!((380.0..=400.0).contains(&rate), "{rate}");
}

#[test]
fn what_was_not_seen_is_not_claimed() {
    let unknown = RepeatedAnswer { not_sent: Some("it is no GET".into()), is_same: None, ..page("/c", 1.0) };
    let file = RepeatedAnswer { is_file: true, is_same: None, ..page("/d.css", 1.0) };
    for nothing in [&[][..], std::slice::from_ref(&unknown), std::slice::from_ref(&file)] {
        assert_eq!(cache_of(&[], nothing), None);
    }
    // Quick, and of a server that says nothing of who makes it.
    let quick = RepeatedAnswer { alone_us: Some(300), ..page("/quick", 0.5) };
    let mut facts = facts(&FULL, &[]);
    facts.service = None;
    assert_eq!(verdict(&facts, &quick).0, None);
    assert_eq!(verdict(&facts, &page("/slow", 1.0)).0, Some(true));
    assert_eq!(verdict(&facts, &unknown).0, None);
    assert_eq!(verdict(&facts, &file).0, Some(false));
    let failing = cache_of(&[(FactId::failed_fraction, 0.3)], &[page("/a.php", 1.0)]).unwrap();
    assert!(failing.predicted_rate.is_none() && failing.not_predicted.is_some());
    let blind = cache_of(&[(FactId::service_cpu_cores, f64::NAN)], &[page("/a.php", 1.0)]).unwrap();
    assert!(blind.predicted_rate.is_none() && blind.not_predicted.is_some());
}

#[test]
fn visitors_carry_the_cookies_that_they_were_given() {
    let facts = facts(&FULL, &[]);
    for (cookies, cacheable) in [(true, 0.0), (false, 0.5)] {
        let visits = Visits { cookies, ..Visits::default() };
        let measurement = Measurement {
            repeated_answers: vec![
                page("/a.php", 0.5),
                RepeatedAnswer { sets_cookie: true, ..page("/in.php", 0.5) },
            ],
            workload: Some(Workload { visits: Some(Box::new(visits)), ..Workload::default() }),
            ..Measurement::default()
        };
        let cache = site_cache(&facts, &measurement, None).unwrap();
        assert_eq!(cache.cacheable_fraction, cacheable, "{cache:?}");
    }
}

#[test]
fn it_is_proposed_where_making_answers_limits() {
    let facts = facts(&FULL, &[]);
    let finding = |id: &str| Finding { id: id.into(), confidence: 0.9, ..Finding::default() };
    let proposed = |ids: &[&str], cache: Option<&SiteCache>| {
        let mut findings: Vec<Finding> = ids.iter().map(|id| finding(id)).collect();
        add_remedy(&facts, &mut findings, cache);
        findings.iter().position(|finding| !finding.remedies.is_empty())
    };
    let cache = cache_of(&[], &[page("/a.php", 1.0)]);
    assert_eq!(proposed(&["cpu-saturated"], cache.as_ref()), Some(0));
    assert_eq!(proposed(&["network-saturated", "app-workers-exhausted"], cache.as_ref()), Some(1));
    assert_eq!(proposed(&["healthy"], cache.as_ref()), None);
    assert_eq!(proposed(&["cpu-saturated"], None), None);
    let little = cache_of(&[], &[page("/a.php", 0.1)]);
    assert_eq!(proposed(&["cpu-saturated"], little.as_ref()), None);
}

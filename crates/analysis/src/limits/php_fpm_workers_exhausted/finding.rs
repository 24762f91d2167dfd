//! When `php-fpm-workers-exhausted` is found, what proves it, and what to change.

use super::pool::FullPool;
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::{LimitId, slow_upstream};
use crate::resources::concurrency::WAITING_CORES_MAX;
use crate::resources::{concurrency, memory_evidence, php_functions};
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Fires when requests wait for a process of a pool that may start no more.
pub fn check(facts: &Facts) -> Option<Finding> {
    let is_cpu_bound = concurrency::is_cpu_bound(facts) && !concurrency::is_mostly_refused(facts);
    if is_cpu_bound || memory_evidence::is_proven(facts) {
        return None;
    }
    let pools =
        facts.each(FactId::fpm_queue_mean).filter_map(|(pool, queue)| FullPool::of_pool(facts, pool, queue));
    let pool = pools.max_by(|a, b| a.queue.total_cmp(&b.queue));
    let pool = pool.or_else(|| FullPool::of_socket_queue(facts))?;
    let wait = facts.value(FactId::response_time_mean_us).zip(pool.explains(facts));
    let wait = wait.map_or(String::new(), |(response_us, share)| {
        format!(
            ", {} of the {} response time",
            crate::wording::format_time(response_us * share),
            crate::wording::format_time(response_us)
        )
    });
    let summary = format!(
        "{}{}{}; {} requests wait in its backlog{wait}.",
        pool.to_text(),
        if pool.is_address { " at " } else { " in pool " },
        pool.name,
        format_number(pool.queue),
    );
    let at_once = pool.processes.and_then(|processes| {
        concurrency::served_at_once_of_waiting(facts, processes, facts.value(FactId::fpm_cpu_cores))
    });
    let serialized = at_once.map_or(String::new(), |at_once| {
        let at_once = format_number(significant(at_once.max(1.0), 2));
        format!(" By the time that a request alone takes they serve {at_once} at once: the others wait for each other, and more children may not help.")
    });
    let upstream = slow_upstream::finding::may_be_slow(facts);
    let elsewhere = upstream.as_ref().map_or(String::new(), |upstream| {
        format!(
            " {} of them wait for the server at {}, {} each: if that is slow only under load, more children will not help (webdyno diagnose with a load tells).",
            format_number(significant(upstream.waiting, 2)),
            upstream.address,
            crate::wording::format_time(upstream.time_us),
        )
    });
    let summary = format!("{summary}{}{serialized}{elsewhere}", waiting_text(facts, &pool));
    let mut cited = facts.cite_of(OF_POOL, pool.name);
    cited.extend(facts.cite_of(&[FactId::backend_queue_mean, FactId::backend_waiting_fraction], pool.name));
    cited.extend(facts.cite(OF_ALL));
    cited.extend(php_functions::cite(facts, php_functions::WAITING));
    Some(Finding {
        id: LimitId::PhpFpmWorkersExhausted.into(),
        summary,
        confidence: pool.confidence.min(match at_once {
            Some(_) => CONFIDENCE_SERIALIZED,
            None if slow_upstream::finding::check(facts).is_some() => CONFIDENCE_SERIALIZED,
            None if upstream.is_some() || may_wait_unseen(facts, &pool) => CONFIDENCE_UNSEEN,
            None => 1.0,
        }),
        explains_fraction: pool.explains(facts).map(|share| significant(share, 3)),
        facts: cited,
        remedies: super::remedy::remedies(facts, &pool),
    })
}

/// Where children wait for each other, something else may be what is short: a row, a file, a server behind them.
const CONFIDENCE_SERIALIZED: f64 = 0.45;

/// Where nobody sees whom they ask, or whether that is slow for one request, too, children that hardly compute may wait for anything.
const CONFIDENCE_UNSEEN: f64 = 0.5;

fn may_wait_unseen(facts: &Facts, pool: &FullPool<'_>) -> bool {
    let cores = facts.value(FactId::fpm_cpu_cores).zip(pool.processes);
    backends::are_unseen(facts.topology.as_ref())
        && cores.is_none_or(|(cores, processes)| cores <= WAITING_CORES_MAX * processes)
}

/// What the processes wait for themselves, in a sentence, where that is known.
fn waiting_text(facts: &Facts, pool: &FullPool<'_>) -> String {
    let Some(processes) = pool.processes else { return String::new() };
    let cores = facts.value(FactId::fpm_cpu_cores).filter(|cores| *cores <= WAITING_CORES_MAX * processes);
    let what = cores.and_then(|cores| Some((cores, concurrency::wait_cause_text(facts, processes)?)));
    what.map_or(String::new(), |(cores, what)| {
        format!(" Together they use only {} cores: they wait themselves ({what}).", format_number(cores))
    })
}

const OF_POOL: &[FactId] = &fact_ids! {
    fpm_queue_mean, fpm_waiting_fraction, fpm_processes_max, fpm_processes_busy_mean, fpm_active_mean,
    fpm_full_fraction, fpm_limit_reached, fpm_limit_logged, fpm_process_memory_bytes,
};
const OF_ALL: &[FactId] = &fact_ids! {
    in_flight_mean, response_time_mean_us, response_time_alone_us, rate, offered_rate, cpu_busy_fraction, site_cpu_cores,
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several, of_pool, scoped_setting, with_changes};
    use crate::resources::php_fpm::tests::add_fpm_backend;
    use webdyno_model::service::SettingValue;
    use webdyno_model::topology::{Link, Topology};

    pub(crate) const FULL: &[(FactId, f64)] = &[
        (FactId::fpm_queue_mean, 35.0),
        (FactId::fpm_waiting_fraction, 1.0),
        (FactId::fpm_processes_max, 5.0),
        (FactId::fpm_processes_mean, 5.0),
        (FactId::fpm_processes_busy_mean, 5.0),
        (FactId::fpm_full_fraction, 1.0),
        (FactId::fpm_at_most_fraction, 1.0),
        (FactId::fpm_process_memory_bytes, 3e6),
    ];
    pub(crate) const LOAD: &[(FactId, f64)] = &[
        (FactId::in_flight_mean, 40.0),
        (FactId::rate, 33.0),
        (FactId::response_time_mean_us, 1_200_000.0),
        (FactId::cpu_busy_fraction, 0.2),
        (FactId::cores, 2.0),
    ];

    pub(crate) fn with(changes: &[(FactId, f64)], load: &[(FactId, f64)]) -> Option<Finding> {
        let mut facts = facts(&merged(LOAD, load), &[]);
        of_pool(&mut facts, "www", &merged(FULL, changes));
        check(&facts)
    }

    pub(crate) fn merged(base: &[(FactId, f64)], changes: &[(FactId, f64)]) -> Vec<(FactId, f64)> {
        with_changes(base, changes)
    }

    #[test]
    fn it_is_as_sure_as_what_is_seen() {
        let nan = f64::NAN;
        for (changes, sure) in [
            (vec![], Some(0.95)),
            (vec![(FactId::fpm_full_fraction, nan)], Some(0.7)),
            (vec![(FactId::fpm_full_fraction, nan), (FactId::fpm_limit_logged, 1.0)], Some(0.8)),
            (
                vec![
                    (FactId::fpm_full_fraction, nan),
                    (FactId::fpm_processes_max, nan),
                    (FactId::fpm_at_most_fraction, nan),
                ],
                Some(0.7),
            ),
            (vec![(FactId::fpm_full_fraction, nan), (FactId::fpm_active_mean, 4.8)], Some(0.95)),
            (vec![(FactId::fpm_at_most_fraction, 0.3)], None),
            (vec![(FactId::fpm_at_most_fraction, 0.3), (FactId::fpm_limit_reached, 1.0)], Some(0.95)),
            (vec![(FactId::fpm_queue_mean, 0.4)], None),
            (vec![(FactId::fpm_queue_mean, 1.5)], None),
            (vec![(FactId::fpm_waiting_fraction, 0.2)], None),
        ] {
            let found = with(&changes, &[]).map(|finding| finding.confidence);
            assert_eq!(found, sure, "{changes:?}");
        }
    }

    #[test]
    fn processes_that_wait_for_a_core_or_for_memory_are_not_the_limit() {
        assert!(with(&[], &[(FactId::cpu_busy_fraction, 0.99), (FactId::site_cpu_cores, 1.7)]).is_none());
        assert!(with(&[], &[(FactId::cpu_busy_fraction, 0.99), (FactId::site_cpu_cores, 0.1)]).is_some());
        let refused = [
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::site_cpu_cores, 1.9),
            (FactId::bad_gateway_fraction, 0.99),
        ];
        assert!(with(&[], &refused).is_some(), "making errors is what fills them");
        assert!(
            with(
                &[],
                &[(FactId::pressure_memory_full_fraction, 0.4), (FactId::swapped_in_pages_per_s, 900.0)]
            )
            .is_none()
        );
    }

    #[test]
    fn the_queue_of_its_socket_is_seen_from_outside() {
        let outside = |handler: &str, limit: Option<&str>| {
            let mut facts = facts(&merged(LOAD, &[(FactId::fpm_program_processes, 31.0)]), &[]);
            if let Some(limit) = limit {
                add_fpm_backend(&mut facts, &[], &[("www", "pm.max_children", limit)]);
            }
            let handler = scoped_setting("SetHandler", handler, &[]);
            facts.service.as_mut().unwrap().scoped = vec![handler];
            let observed = [(FactId::backend_queue_mean, 35.0), (FactId::backend_waiting_fraction, 1.0)];
            of_pool(&mut facts, "unix:/run/x.sock", &observed);
            check(&facts)
        };
        let finding = outside("unix:/run/x.sock|fcgi://localhost", None).unwrap();
        assert_eq!(finding.confidence, 0.5);
        assert!(finding.summary.contains("busy at unix:/run/x.sock"), "{}", finding.summary);
        assert!(finding.remedies[0].to.is_none(), "all 30 processes may be of several pools");
        assert!(outside("unix:/run/x.sock|http://localhost", None).is_none());
        // Its files can be read where its processes cannot.
        let finding = outside("unix:/run/x.sock|fcgi://localhost", Some("5")).unwrap();
        assert!(finding.summary.contains("All 5 PHP-FPM children (pm.max_children)"), "{}", finding.summary);
        assert_eq!((finding.confidence, &finding.remedies[0].from), (0.75, &Some(SettingValue::Integer(5))));
    }

    #[test]
    fn a_socket_is_known_by_any_address_that_leads_there() {
        let found = |handler: &str, listens: &str| {
            let mut facts = facts(LOAD, &[]);
            add_fpm_backend(&mut facts, &[], &[("www", "pm.max_children", "5")]);
            let fpm = &mut facts.topology.as_mut().unwrap().backends[0];
            fpm.endpoints[0].address = "[::]:9000".into();
            let handler = scoped_setting("SetHandler", handler, &[]);
            facts.service.as_mut().unwrap().scoped = vec![handler];
            let observed = [(FactId::backend_queue_mean, 35.0), (FactId::backend_waiting_fraction, 1.0)];
            of_pool(&mut facts, listens, &observed);
            check(&facts).map(|finding| (finding.confidence, finding.remedies[0].setting.pool.clone()))
        };
        let named = Some((0.75, Some("www".to_owned())));
        for (handler, listens, expected) in [
            ("proxy:fcgi://127.0.0.1:9000", "*:9000", named.clone()),
            ("proxy:fcgi://localhost:9000", "*:9000", named.clone()),
            ("proxy:fcgi://localhost:9000", "127.0.0.1:9000", named),
            ("proxy:fcgi://127.0.0.1:9001", "*:9000", None),
            ("proxy:http://localhost:9000", "*:9000", None),
        ] {
            assert_eq!(found(handler, listens), expected, "{handler} {listens}");
        }
    }

    #[test]
    fn only_watched_children_that_wait_for_another_machine_are_half_sure_to_be_too_few() {
        let at = "10.0.0.9:8080";
        let found = |waiting: f64, rate: f64, loaded: bool| {
            let pool = FULL.iter().map(|(fact, value)| (*fact, "www", *value));
            let several: Vec<_> = pool.chain([(FactId::upstream_waiting_mean, at, waiting)]).collect();
            let mut facts = facts_of_several(&merged(LOAD, &[(FactId::rate, rate)]), &several);
            facts.loaded = loaded;
            let links = vec![Link { by: at.into(), ..Link::default() }];
            facts.topology = Some(Topology { links, ..Topology::default() });
            check(&facts).unwrap()
        };
        let finding = found(5.0, 8.0, false);
        assert_eq!(finding.confidence, CONFIDENCE_UNSEEN);
        let part = "5 of them wait for the server at 10.0.0.9:8080, 625 ms each";
        assert!(finding.summary.contains(part), "{}", finding.summary);
        for (what, waiting, rate, loaded) in [
            ("it answers soon", 5.0, 50.0, false),
            ("few wait there", 1.0, 8.0, false),
            ("a load tells what it takes for one", 5.0, 8.0, true),
        ] {
            let finding = found(waiting, rate, loaded);
            assert_eq!(finding.confidence, 0.95, "{what}");
            assert!(!finding.summary.contains("10.0.0.9"), "{what}: {}", finding.summary);
        }
    }

    #[test]
    fn it_says_which_pool_and_how_long_the_wait_is() {
        let finding = with(&[], &[]).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.875));
        for part in ["All 5 PHP-FPM children busy", "pool www", "35 requests wait", "1.05 s of the 1.2 s"] {
            assert!(finding.summary.contains(part), "{}", finding.summary);
        }
    }
}

//! When `php-fpm-spawn-lag` is found, what proves it, and what to change.

use super::pool::SpawningPool;
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{concurrency, memory_evidence};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

const CONFIDENCE_DRAINED: f64 = 0.9;
const CONFIDENCE_COME_AND_GO: f64 = 0.75;
/// A queue that stands when many children came may wait for something else.
const CONFIDENCE_STANDS: f64 = 0.5;
/// Where less than this share of what is in flight waits for a child, children were started for what waits elsewhere.
const EXPLAINS_MIN: f64 = 0.25;

/// Fires when children of a pool are being started while requests wait for one, and more are allowed.
pub fn check(facts: &Facts) -> Option<Finding> {
    if concurrency::is_cpu_bound(facts) || memory_evidence::is_proven(facts) {
        return None;
    }
    let pools =
        facts.each(FactId::fpm_queue_mean).filter_map(|(pool, queue)| SpawningPool::of(facts, pool, queue));
    let pool = pools.max_by(|a, b| a.queue.total_cmp(&b.queue))?;
    let come_and_go = match pool.comes_and_goes {
        true => format!(", {} ended", format_number(pool.ended)),
        false => String::new(),
    };
    let end = match pool.last.filter(|_| pool.has_drained()) {
        Some(last) => format!(" At the end of the window {} waited.", format_number(last)),
        None => String::new(),
    };
    let mut cited = facts.cite_of(OF_POOL, pool.name);
    cited.extend(facts.cite(&fact_ids! {
        in_flight_mean, response_time_mean_us, response_time_p99_us, rate, offered_rate,
    }));
    let share = concurrency::requests_in_flight(facts).map(|at_once| (pool.queue / at_once).min(1.0));
    Some(Finding {
        id: LimitId::PhpFpmSpawnLag.into(),
        summary: format!(
            "Requests wait for children of PHP-FPM that are started only now: {} waited on average in pool {} (pm = {}), while {} children were started{come_and_go} (up to {} of {} allowed).{end}",
            format_number(pool.queue),
            pool.name,
            pool.mode,
            format_number(pool.started),
            format_number(pool.most),
            format_number(pool.limit)
        ),
        confidence: match () {
            () if share.is_some_and(|share| share < EXPLAINS_MIN) => CONFIDENCE_STANDS,
            () if pool.has_drained() => CONFIDENCE_DRAINED,
            () if pool.comes_and_goes => CONFIDENCE_COME_AND_GO,
            () => CONFIDENCE_STANDS,
        },
        explains_fraction: share.map(|share| significant(share, 3)),
        facts: cited,
        remedies: vec![super::remedy::remedy(facts, &pool)],
    })
}

const OF_POOL: &[FactId] = &fact_ids! {
    fpm_queue_mean, fpm_queue_last, fpm_waiting_fraction, fpm_children_started, fpm_children_ended, fpm_processes_max,
    fpm_process_memory_bytes,
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};
    use crate::resources::php_fpm::tests::add_fpm_backend;

    const RAMP: &[(FactId, f64)] = &[
        (FactId::fpm_queue_mean, 25.0),
        (FactId::fpm_queue_last, 0.0),
        (FactId::fpm_processes_max, 45.0),
        (FactId::fpm_children_started, 43.0),
        (FactId::fpm_children_ended, 0.0),
        (FactId::fpm_process_memory_bytes, 10e6),
    ];

    pub(in super::super) fn with(
        changes: &[(FactId, f64)],
        load: &[(FactId, f64)],
        mode: &str,
    ) -> Option<Finding> {
        let base = [(FactId::in_flight_mean, 60.0), (FactId::rate, 70.0), (FactId::cpu_busy_fraction, 0.2)];
        let mut facts = facts(&with_changes(&base, load), &[]);
        of_pool(&mut facts, "www", &with_changes(RAMP, changes));
        add_fpm_backend(&mut facts, &[], &[("www", "pm", mode), ("www", "pm.max_children", "80")]);
        check(&facts)
    }

    #[test]
    fn children_that_come_while_requests_wait_are_a_lag() {
        let nan = f64::NAN;
        for (name, changes, confidence) in [
            ("drained", vec![], Some(0.9)),
            ("stands", vec![(FactId::fpm_queue_last, 40.0)], Some(0.5)),
            ("not known whether it drains", vec![(FactId::fpm_queue_last, nan)], Some(0.5)),
            (
                "they come and go",
                vec![(FactId::fpm_queue_last, 40.0), (FactId::fpm_children_ended, 30.0)],
                Some(0.75),
            ),
            ("a few replaced", vec![(FactId::fpm_children_started, 8.0)], None),
            ("all that are allowed", vec![(FactId::fpm_processes_max, 80.0)], None),
            ("the limit is logged", vec![(FactId::fpm_limit_logged, 1.0)], None),
            ("nobody waits", vec![(FactId::fpm_queue_mean, 0.4)], None),
            ("hardly anybody waits", vec![(FactId::fpm_queue_mean, 2.0)], None),
            ("most wait elsewhere", vec![(FactId::fpm_queue_mean, 10.0)], Some(0.5)),
        ] {
            let found = with(&changes, &[], "dynamic").map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{name}");
        }
        assert!(with(&[], &[], "static").is_none());
        let full = [(FactId::cpu_busy_fraction, 0.99), (FactId::cores, 2.0), (FactId::site_cpu_cores, 1.7)];
        assert!(with(&[], &full, "dynamic").is_none(), "more of them would wait for a processor");
    }

    #[test]
    fn it_says_how_many_came_and_what_was_left_at_the_end() {
        let found = with(&[], &[], "ondemand").unwrap();
        for part in [
            "25 waited on average in pool www (pm = ondemand)",
            "43 children were started (up to 45 of 80",
            "At the end of the window 0 waited",
        ] {
            assert!(found.summary.contains(part), "{}", found.summary);
        }
        assert_eq!(found.explains_fraction, Some(0.417));
    }
}

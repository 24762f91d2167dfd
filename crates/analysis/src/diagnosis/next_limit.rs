//! What binds once the first finding is lifted: the lowest of the ceilings that are not its own.

use crate::facts::Facts;
use crate::limits;
use crate::limits::ceiling::{Limit, limits, rate};
use webdyno_model::diagnosis::{Fact, Finding, NextLimit};

const WORKERS: &str = limits::apache_workers_exhausted::ID;
const MEMORY: &str = limits::memory_exhausted::ID;
const PROCESSORS: [&str; 3] = [limits::cpu_saturated::ID, "cpu-throttled", "db-slow-queries"];
/// Limits of what is held while an answer is made: they bind later when that takes less time.
const HELD: [&str; 4] = [WORKERS, "php-fpm-workers-exhausted", "db-connections-exhausted", MEMORY];
/// Findings that make nobody hold anything longer, or of which it is known by how much: a queue for PHP-FPM. All others
/// stretch answers, by how much nobody knows.
const LEAVES_TIMES: [&str; 13] = [
    WORKERS,
    "accept-queue-overflow",
    "apache-scoreboard-full",
    "apache-setting-clamped",
    "apache-spawn-lag",
    "db-connections-exhausted",
    limits::healthy::ID,
    "keepalive-holds-workers",
    "open-files-exhausted",
    "php-fpm-workers-exhausted",
    "syn-queue-overflow",
    "time-wait-overflow",
    limits::unknown::ID,
];

/// Findings that are about the same workers, so that these are not what comes next.
const OF_WORKERS: [&str; 8] = [
    WORKERS,
    "apache-async-cap",
    "apache-scoreboard-full",
    "apache-setting-clamped",
    "apache-spawn-lag",
    "apache-worker-churn",
    "keepalive-holds-workers",
    "slow-clients",
];
/// Findings whose remedy changes what a request costs the processors.
const OF_PROCESSORS: [&str; 20] = [
    limits::cpu_saturated::ID,
    "apache-negotiation",
    "apache-symlink-checks",
    "apache-worker-churn",
    "cpu-stolen",
    "cpu-throttled",
    "db-cache-too-small",
    "db-slow-queries",
    "db-thread-churn",
    "foreign-load",
    "hostname-lookups",
    "htaccess-lookups",
    "keepalive-ineffective",
    "log-verbosity",
    MEMORY,
    "opcache-full",
    "opcache-off",
    "softirq-bound",
    "tls-handshakes",
    "worker-memory-growth",
];
const OF_MEMORY: [&str; 3] = [MEMORY, "worker-memory-growth", "db-connection-memory"];
const OF_LINK: [&str; 3] = ["network-saturated", "nic-negotiated-low", "upstream-bandwidth"];

/// After the first finding is lifted, the lowest of the ceilings that are not its own; `None` when no rate can be told, or
/// when the figures themselves are in doubt.
pub fn next_limit(facts: &Facts, findings: &[Finding]) -> Option<NextLimit> {
    after(facts, &findings.first()?.id)
}

/// The same after a finding of this id.
pub fn after(facts: &Facts, first: &str) -> Option<NextLimit> {
    if [limits::generator_saturated::ID, limits::kernel_limit_total::ID].contains(&first) {
        return None;
    }
    let all = limits(&lifted(facts, first));
    let next = |late: bool| {
        let those = all.iter().filter(move |limit| is_passed(facts, limit) == late);
        let rates =
            those.filter_map(|limit| Some((limit, told(limit, first)?, limit.ceiling.binds_at_rate?)));
        rates.min_by(|a, b| a.2.total_cmp(&b.2))
    };
    let (at_once, late) = (next(false), next(true));
    // By how much the rate can rise until something else stops it.
    let times = at_once.zip(rate(facts)).map_or(f64::INFINITY, |((_, _, then), now)| then / now);
    let fills = |limit: &Limit| limit.fills.is_some_and(|fills| fills.is_filled_by(times));
    let (_, id, rate) = late.filter(|(limit, ..)| fills(limit)).or(at_once).or(late)?;
    Some(NextLimit { id: id.into(), rate: Some(rate) })
}

/// Whether more is served than a table can take for long, which is not full yet: it binds by time, and not by a rate.
fn is_passed(facts: &Facts, limit: &Limit) -> bool {
    let passed = limit.ceiling.binds_at_rate.zip(rate(facts)).is_some_and(|(binds, now)| now >= binds);
    passed && limit.fills.is_some_and(|fills| fills.entries < fills.max)
}

/// The id of a limit that is still there, and binds at the same rate, when a finding is lifted.
pub fn told(limit: &Limit, first: &str) -> Option<&'static str> {
    let id = limit.finding?;
    let goes = id == first
        || (id == WORKERS && OF_WORKERS.contains(&first))
        || (PROCESSORS.contains(&id) && OF_PROCESSORS.contains(&first))
        || (HELD.contains(&id) && !LEAVES_TIMES.contains(&first))
        || (id == MEMORY && OF_MEMORY.contains(&first))
        || (OF_LINK.contains(&id) && OF_LINK.contains(&first));
    (!goes).then_some(id)
}

/// The facts as they will be without what waits for the first finding: Apache's workers wait with those requests that queue
/// for PHP-FPM.
fn lifted(facts: &Facts, first: &str) -> Facts {
    let mut after = facts.clone();
    if first != "php-fpm-workers-exhausted" {
        return after;
    }
    let queued: f64 = facts.each("ahead_fpm_queue_mean").map(|(_, queue)| queue).sum();
    let answered: f64 = facts.each("ahead_fpm_busy_mean").map(|(_, busy)| busy).sum();
    for fact in facts.cite(&["workers_busy_mean", "workers_writing_mean"]) {
        // The reading itself holds one, and those that are being answered hold theirs.
        let value = (fact.value - queued).max(answered + 1.0).min(fact.value);
        after.insert(Fact { value, ..fact });
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::ranking::findings;
    use crate::facts::testing::facts;

    fn finding(id: &str) -> Finding {
        let known = findings(&Facts::default()).remove(0);
        Finding { id: id.into(), ..known }
    }

    fn next(facts: &Facts, first: &str) -> Option<(String, f64)> {
        let next = next_limit(facts, &[finding(first)])?;
        Some((next.id, next.rate?))
    }

    /// 60 answers a second by 12 workers, each of which has a connection to the database meanwhile.
    const STACKED: [(&str, f64); 8] = [
        ("rate", 60.0),
        ("workers_limit", 12.0),
        ("workers_busy_mean", 13.0),
        ("ahead_database_limit", 20.0),
        ("ahead_database_connected_mean", 13.0),
        ("ahead_database_attempts_per_s", 60.0),
        ("cores", 2.0),
        ("cpu_busy_fraction", 0.2),
    ];

    #[test]
    fn the_lowest_of_the_others_comes_next() {
        let facts = facts(&STACKED, &[]);
        assert_eq!(next(&facts, WORKERS), Some(("db-connections-exhausted".into(), 95.0)));
        assert_eq!(next(&facts, "db-connections-exhausted"), Some((WORKERS.into(), 60.0)));
        assert_eq!(next(&facts, "healthy"), Some((WORKERS.into(), 60.0)));
    }

    #[test]
    fn what_goes_with_the_first_is_not_next() {
        let facts = facts(&STACKED, &[]);
        for (first, id) in [
            ("keepalive-holds-workers", Some("db-connections-exhausted")),
            ("db-slow-queries", None),
            ("open-files-exhausted", Some(WORKERS)),
            ("network-saturated", Some("cpu-saturated")),
            ("generator-saturated", None),
            ("kernel-limit-total", None),
        ] {
            assert_eq!(next(&facts, first).map(|(id, _)| id).as_deref(), id, "{first}");
        }
    }

    #[test]
    fn a_table_that_is_passed_binds_when_it_is_full() {
        // 60 answers a second of new connections are more than a table of 1200 takes for ever, which is 10 a second; the
        // workers bind at 240.
        let seen = |entries: f64| {
            let values = [
                ("rate", 60.0),
                ("workers_limit", 48.0),
                ("workers_busy_mean", 13.0),
                ("new_connections_per_s", 60.0),
                ("ahead_tracked_limit", 1200.0),
                ("ahead_tracked_max", entries),
            ];
            facts(&values, &[])
        };
        let (table, workers) = (Some(("conntrack-full".to_owned(), 10.0)), Some((WORKERS.to_owned(), 240.0)));
        // Another load at four times the rate adds 400 to 100, or 1200 to 300.
        assert_eq!(next(&seen(100.0), "db-connections-exhausted"), workers);
        assert_eq!(next(&seen(300.0), "db-connections-exhausted"), table);
        assert_eq!(next(&seen(100.0), WORKERS), table, "nothing else is known to bind");
    }

    #[test]
    fn workers_that_wait_for_php_are_free_when_it_has_children() {
        // 50 workers, of which 10 are answered by the 10 children of the pool and 40 wait for one.
        let mut facts = facts(&[("rate", 100.0), ("workers_limit", 50.0), ("workers_busy_mean", 51.0)], &[]);
        let known = |name: &str, value| Fact { name: name.into(), value, ..facts.cite(&["rate"]).remove(0) };
        let pool = [
            known("ahead_fpm_processes_max", 10.0),
            known("ahead_fpm_busy_mean", 10.0),
            known("ahead_fpm_queue_mean", 40.0),
        ];
        pool.into_iter().for_each(|fact| facts.insert_of("www", fact));
        assert_eq!(next(&facts, "php-fpm-workers-exhausted"), Some((WORKERS.into(), 500.0)));
        // Without the pool the queue is the workers' own.
        assert_eq!(next(&facts, "healthy"), Some((WORKERS.into(), 100.0)));
    }
}

//! What binds once the first finding is lifted: the lowest of the ceilings that are not its own.

use crate::diagnosis::prediction::sizes::resize;
use crate::facts::Facts;
use crate::limits::ceiling::{Resource, ResourceCeiling, rate_of_machine};
use crate::limits::{LimitId, by_id, resource_ceilings};
use crate::resources::utilisation::rate;
use webdyno_model::change::SettingChange;
use webdyno_model::diagnosis::{Finding, NextLimit};

/// After the first finding is lifted, the lowest of the ceilings that are not its own; `None` when no rate can be told, or
/// when the figures themselves are in doubt.
pub fn next_limit(facts: &Facts, findings: &[Finding]) -> Option<NextLimit> {
    let first = findings.first()?;
    let changes = first.remedies.first().map_or(vec![], |remedy| remedy.setting_changes());
    after(facts, &first.id, &changes)
}

/// The same after a finding of this id, lifted by these changes: what goes along with them binds at its new size.
pub fn after(facts: &Facts, first: &str, changes: &[SettingChange]) -> Option<NextLimit> {
    let lifted = by_id(first);
    if lifted.is_some_and(|limit| limit.invalidates_run) {
        return None;
    }
    let mut after = facts.clone();
    if let Some(lift) = lifted.and_then(|limit| limit.after_lifting) {
        lift(&mut after);
    }
    let mut all = resource_ceilings(&after);
    all.iter_mut().for_each(|one| resize(one, changes));
    let machine = rate_of_machine(facts, &all);
    all.retain(|one| !one.is_remote(machine));
    let next = |late: bool| {
        let those = all.iter().filter(move |one| is_already_exceeded(facts, one) == late);
        let rates =
            those.filter_map(|one| Some((one, remaining_limit(one, first)?, one.ceiling.binds_at_rate?)));
        rates.min_by(|a, b| a.2.total_cmp(&b.2))
    };
    let (at_once, late) = (next(false), next(true));
    // By how much the rate can rise until something else stops it.
    let times = at_once.zip(rate(facts)).map_or(f64::INFINITY, |((_, _, then), now)| then / now);
    let fills = |one: &ResourceCeiling| one.fills.is_some_and(|fills| fills.fills_at(times));
    let (_, id, rate) = late.filter(|(one, ..)| fills(one)).or(at_once).or(late)?;
    Some(NextLimit { id: id.into(), rate: Some(rate) })
}

/// Whether more is served than a table can take for long, which is not full yet: it binds by time, and not by a rate.
fn is_already_exceeded(facts: &Facts, one: &ResourceCeiling) -> bool {
    let passed = one.ceiling.binds_at_rate.zip(rate(facts)).is_some_and(|(binds, now)| now >= binds);
    passed && one.fills.is_some_and(|fills| fills.entries < fills.max)
}

/// The limit that is still there, and binds at the same rate, when a finding of this id is lifted.
pub fn remaining_limit(one: &ResourceCeiling, first: &str) -> Option<LimitId> {
    let id = one.finding?;
    let lifted = by_id(first);
    // One thread has less to do as well where requests are made cheaper.
    let resource = if one.resource == Resource::Thread { Resource::Processors } else { one.resource };
    let goes = id.as_str() == first
        || lifted.is_some_and(|limit| limit.relieves.contains(&resource))
        || (one.resource.is_held_by_requests() && !lifted.is_some_and(|limit| limit.keeps_hold_times));
    (!goes).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::ranking::findings;
    use crate::facts::FactId;
    use crate::facts::testing::{facts, of_pool};
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    const WORKERS: &str = "apache-workers-exhausted";

    fn finding(id: &str) -> Finding {
        let known = findings(&Facts::default()).remove(0);
        Finding { id: id.into(), ..known }
    }

    fn next(facts: &Facts, first: &str) -> Option<(String, f64)> {
        let next = next_limit(facts, &[finding(first)])?;
        Some((next.id, next.rate?))
    }

    /// 60 answers a second by 12 workers, each of which has a connection to the database meanwhile.
    const STACKED: [(FactId, f64); 8] = [
        (FactId::rate, 60.0),
        (FactId::workers_limit, 12.0),
        (FactId::workers_busy_mean, 13.0),
        (FactId::ahead_database_limit, 20.0),
        (FactId::ahead_database_connected_mean, 13.0),
        (FactId::ahead_database_attempts_per_s, 60.0),
        (FactId::cores, 2.0),
        (FactId::cpu_busy_fraction, 0.2),
    ];

    #[test]
    fn the_lowest_of_the_others_comes_next() {
        let facts = facts(&STACKED, &[]);
        assert_eq!(next(&facts, WORKERS), Some(("db-connections-exhausted".into(), 95.0)));
        assert_eq!(next(&facts, "db-connections-exhausted"), Some((WORKERS.into(), 60.0)));
        assert_eq!(next(&facts, "healthy"), Some((WORKERS.into(), 60.0)));
    }

    #[test]
    fn what_the_change_raises_along_binds_at_its_new_size() {
        let facts = facts(&STACKED, &[]);
        let change = |service: &str, name: &str, to: i64| SettingChange {
            setting: SettingId::of_service(service, name),
            to: SettingValue::Integer(to),
        };
        let next = |changes: &[SettingChange]| {
            after(&facts, WORKERS, changes).and_then(|next| Some((next.id, next.rate?)))
        };
        let database = |rate| Some(("db-connections-exhausted".to_owned(), rate));
        assert_eq!(next(&[change("apache", "MaxRequestWorkers", 60)]), database(95.0));
        // 12 of them for 60 answers a second: 39 beside the own one are 195.
        assert_eq!(next(&[change("mariadb", "max_connections", 40)]), database(195.0));
        let many = [change("apache", "MaxRequestWorkers", 60), change("mariadb", "max_connections", 76)];
        assert_eq!(next(&many), Some(("cpu-saturated".into(), 300.0)));
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
        let observed = |entries: f64| {
            let values = [
                (FactId::rate, 60.0),
                (FactId::workers_limit, 48.0),
                (FactId::workers_busy_mean, 13.0),
                (FactId::new_connections_per_s, 60.0),
                (FactId::ahead_tracked_limit, 1200.0),
                (FactId::ahead_tracked_max, entries),
            ];
            facts(&values, &[])
        };
        let (table, workers) = (Some(("conntrack-full".to_owned(), 10.0)), Some((WORKERS.to_owned(), 240.0)));
        // Another load at four times the rate adds 400 to 100, or 1200 to 300.
        assert_eq!(next(&observed(100.0), "db-connections-exhausted"), workers);
        assert_eq!(next(&observed(300.0), "db-connections-exhausted"), table);
        assert_eq!(next(&observed(100.0), WORKERS), table, "nothing else is known to bind");
    }

    #[test]
    fn workers_that_wait_for_php_are_free_when_it_has_children() {
        // 50 workers, of which 10 are answered by the 10 children of the pool and 40 wait for one.
        let mut facts = facts(
            &[(FactId::rate, 100.0), (FactId::workers_limit, 50.0), (FactId::workers_busy_mean, 51.0)],
            &[],
        );
        let pool = [
            (FactId::ahead_fpm_processes_max, 10.0),
            (FactId::ahead_fpm_busy_mean, 10.0),
            (FactId::ahead_fpm_queue_mean, 40.0),
        ];
        of_pool(&mut facts, "www", &pool);
        assert_eq!(next(&facts, "php-fpm-workers-exhausted"), Some((WORKERS.into(), 500.0)));
        // Without the pool the queue is the workers' own.
        assert_eq!(next(&facts, "healthy"), Some((WORKERS.into(), 100.0)));
    }
}

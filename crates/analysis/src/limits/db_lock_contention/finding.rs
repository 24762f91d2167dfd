//! When `db-lock-contention` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::db_slow_queries::finding::busiest_statement;
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::{database_account, manual};
use crate::resources::{concurrency, memory_evidence, processors, setting_source, worker_waits};
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// One that waits now and then is how transactions work.
const WAITING_MIN: f64 = 1.0;
/// What part of the requests that are worked on must wait for rows to be what limits: those in queues wait for these.
const SHARE_MIN: f64 = 0.25;
/// Where others (slow clients) have most of the workers, the few that wait for rows are not all that limits.
const CONFIDENCE_OF_FEW: f64 = 0.5;

/// So many of the requests must have waited for a table.
const TABLE_WAITS_MIN: f64 = 0.25;
/// Statements that have more of a core each compute rather than wait.
const COMPUTING_MAX: f64 = 0.5;

/// Kinds of the server's locks that have a state of their own: the other ones are of tables, or the application's own.
const KINDS: [FactId; 2] = fact_ids! { db_query_cache_lock_waiting_mean, db_metadata_lock_waiting_mean };

/// Fires when a good part of what is under way waits for rows, for the query cache, for definitions, or for tables: the remedy is that
/// of the kind that most wait for.
pub fn check(facts: &Facts) -> Option<Finding> {
    let of_kinds = [metadata_lock_finding(facts), query_cache_finding(facts), row_lock_finding(facts)];
    let share = |finding: &Finding| finding.explains_fraction.unwrap_or(0.0);
    let most = of_kinds.into_iter().flatten().max_by(|a, b| share(a).total_cmp(&share(b)));
    most.or_else(|| table_lock_finding(facts)).or_else(|| without_status(facts))
}

/// Of a database that does not tell: so large a part of the requests must be connected to it while it hardly computes,
const CONNECTED_FRACTION_MIN: f64 = 0.6;
const COMPUTING_UNREAD_MAX: f64 = 0.1;
/// nobody waits for the disk,
const IO_FRACTION_MAX: f64 = 0.2;
/// no connection is refused,
const FAILED_FRACTION_MAX: f64 = 0.05;
/// and those that are worked on must take this many times as long as one that is alone: more workers would not make them wait longer.
const TIMES_ALONE_MIN: f64 = 2.0;
const CONFIDENCE_UNREAD: f64 = 0.5;

/// Where the database does not let webdyno in: requests that are connected to it wait for each other, and it does nothing.
fn without_status(facts: &Facts) -> Option<Finding> {
    let cores = processors::unread_mariadb_cores(facts)?;
    let connected = facts.value(FactId::db_clients_mean).filter(|count| *count >= 1.0 + WAITING_MIN)?;
    let worked_on = concurrency::requests_worked_on(facts)?.min(concurrency::requests_in_children_max(facts));
    let alone_us = concurrency::mean_time_alone_us(facts)?;
    let each_us = worked_on / facts.ended_per_s()? * 1e6;
    let lacks_processors = processors::cpu_shortage(facts).is_some()
        || processors::used_up_quota(facts).is_some()
        || concurrency::is_cpu_bound(facts)
        || concurrency::is_full_in_bursts(facts);
    if connected < CONNECTED_FRACTION_MIN * worked_on
        || each_us < TIMES_ALONE_MIN * alone_us
        || cores > COMPUTING_UNREAD_MAX * connected
        || concurrency::disk_waits(facts).is_none_or(|part| part > IO_FRACTION_MAX)
        || facts.value(FactId::failed_fraction).is_some_and(|failed| failed > FAILED_FRACTION_MAX)
        || lacks_processors
        || memory_evidence::is_proven(facts)
        || slower_than_alone(facts).is_none()
    {
        return None;
    }
    Some(Finding {
        id: LimitId::DbLockContention.into(),
        summary: format!(
            "{} requests at a time are connected to the database, which hardly uses CPU or disk, and each takes {} where one alone takes {}: they probably wait for each other's locks. Only the database can confirm it.",
            format_number(connected),
            format_time(each_us),
            format_time(alone_us)
        ),
        confidence: CONFIDENCE_UNREAD,
        explains_fraction: Some(significant((connected / worked_on).min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            db_clients_mean, db_cpu_cores, cpu_busy_fraction, pressure_group_io_some_fraction,
            pressure_io_some_fraction, in_flight_mean, response_time_mean_us, response_time_alone_us, rate, ended_per_s,
        }),
        remedies: vec![database_account(
            "transactions",
            "none",
            "tells what is waited for; or look at SHOW FULL PROCESSLIST under load",
        )],
    })
}

/// What part of the work so many that wait are: of the requests that are worked on, else of the statements that run.
fn share_of_work(facts: &Facts, waiting: f64) -> f64 {
    let work = concurrency::requests_worked_on(facts).or(concurrency::statements_running(facts));
    (waiting / work.unwrap_or(waiting).max(waiting)).min(1.0)
}

/// How many statements wait for any lock of the server's, and for those without a state of their own.
fn waiting_for_locks(facts: &Facts) -> (f64, f64) {
    let of_kinds: f64 = KINDS.iter().filter_map(|kind| facts.value(*kind)).sum();
    let all = facts.value(FactId::db_lock_waiting_mean).unwrap_or(0.0).max(of_kinds);
    (all, all - of_kinds)
}

/// How many statements wait for a lock of this kind, and what part of the work they are: where those that wait for any lock are what
/// limits, and for no other kind wait more.
fn waiting_for_kind(facts: &Facts, kind: FactId) -> Option<(f64, f64)> {
    let waiting = facts.value(kind)?;
    let (all, others) = waiting_for_locks(facts);
    let most = KINDS.iter().filter_map(|kind| facts.value(*kind)).fold(others, f64::max);
    let share = share_of_work(facts, all);
    let limits = all >= WAITING_MIN && waiting >= most && share >= SHARE_MIN;
    (limits && !concurrency::is_cpu_bound(facts)).then(|| (waiting, share * waiting / all))
}

/// Statements wait for the one lock of the query cache.
fn query_cache_finding(facts: &Facts) -> Option<Finding> {
    let (waiting, share) = waiting_for_kind(facts, FactId::db_query_cache_lock_waiting_mean)?;
    let size = facts.value(FactId::db_query_cache_limit_bytes);
    Some(Finding {
        id: LimitId::DbLockContention.into(),
        summary: format!(
            "{} statements at a time wait for the database's query cache lock. Every statement takes it, and each change of a table holds it while its entries are invalidated.",
            format_number(waiting)
        ),
        confidence: 0.93,
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_query_cache_lock_waiting_mean, db_query_cache_limit_bytes, db_lock_waiting_mean,
            db_threads_running_mean, db_cpu_cores, cpu_busy_fraction, in_flight_mean, response_time_mean_us, rate,
        }),
        remedies: vec![Remedy {
            setting: SettingId::of_service("mariadb", "query_cache_size"),
            from: size.map(setting_source::kibibytes),
            to: Some(SettingValue::Integer(0)),
            class: ApplyClass::Live,
            risk: "repeated statements are executed each time; the cache's memory is freed".into(),
            why: "no cache, no lock; off by default since MariaDB 10.1.7".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

/// Statements wait for the definition of a table, which a transaction, a change of the table or `LOCK TABLES` keeps.
fn metadata_lock_finding(facts: &Facts) -> Option<Finding> {
    let (waiting, share) = waiting_for_kind(facts, FactId::db_metadata_lock_waiting_mean)?;
    Some(Finding {
        id: LimitId::DbLockContention.into(),
        summary: format!(
            "{} database statements at a time wait for metadata locks: a table is changed (ALTER, OPTIMIZE, TRUNCATE) or locked (LOCK TABLES), or a change of it waits for an open transaction, and all others wait behind it. More connections would make it worse.",
            format_number(waiting)
        ),
        confidence: 0.93,
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_metadata_lock_waiting_mean, db_lock_waiting_mean, db_threads_running_mean, db_cpu_cores,
            cpu_busy_fraction, in_flight_mean, response_time_mean_us, rate,
        }),
        remedies: vec![manual(
            SettingId::of_service("mariadb", "metadata locks"),
            "what is killed is rolled back, which may take as long as it ran",
            "end what holds the lock: the transaction that is open longest (`SELECT trx_mysql_thread_id, trx_started, trx_query FROM information_schema.INNODB_TRX ORDER BY trx_started`, then `KILL`), or the statement that changes or locks the table (SHOW FULL PROCESSLIST). Then commit at once, lock no tables in a page, and change tables with a short wait (`SET SESSION lock_wait_timeout = 5`), so that the change gives up instead of holding up all others",
        )],
    })
}

/// Statements wait for locks that are not of rows: by their states, or else by what they could be doing meanwhile.
fn table_lock_finding(facts: &Facts) -> Option<Finding> {
    let (waiting, reported, words) = waiting_by_states(facts).or_else(|| waiting_by_counts(facts))?;
    let all = waiting_for_locks(facts).0.max(waiting);
    let share = share_of_work(facts, all);
    if share < SHARE_MIN {
        return None;
    }
    (!concurrency::is_cpu_bound(facts)).then(|| Finding {
        id: LimitId::DbLockContention.into(),
        summary: format!(
            "{words} for table locks or the application's own locks. These serve one at a time; more connections would make it worse."
        ),
        confidence: if reported { 0.93 } else { 0.8 },
        explains_fraction: Some(significant(share * waiting / all, 3)),
        facts: facts.cite(&[FactId::db_lock_waiting_mean, FactId::db_table_lock_waits_per_s, FactId::db_threads_running_mean, FactId::db_cpu_cores, FactId::cpu_busy_fraction, FactId::in_flight_mean, FactId::response_time_mean_us, FactId::rate, FactId::ended_per_s]),
        remedies: vec![manual(SettingId::of_service("mariadb", "engine"),
            "the table is rebuilt and needs more space; backups and full-text indexes may differ",
            "convert tables to InnoDB, which locks rows: `SELECT table_schema, table_name FROM information_schema.tables WHERE engine IN ('MyISAM', 'Aria', 'MEMORY') AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')`; and do nothing slow in a statement that writes, or while holding a lock (LOCK TABLES, GET_LOCK)",
        )],
    })
}

/// How many wait, that it was told, and in words.
fn waiting_by_states(facts: &Facts) -> Option<(f64, bool, String)> {
    let (_, waiting) = Some(waiting_for_locks(facts)).filter(|(all, _)| *all >= WAITING_MIN)?;
    Some((waiting, true, format!("{} database statements at a time wait", format_number(waiting))))
}

fn waiting_by_counts(facts: &Facts) -> Option<(f64, bool, String)> {
    let waits_per_s = facts.value(FactId::db_table_lock_waits_per_s)?;
    let per_request = waits_per_s / facts.ended_per_s()?;
    let running =
        concurrency::statements_running(facts)? - concurrency::row_lock_waiting(facts).unwrap_or(0.0);
    let computes = facts.value(FactId::db_cpu_cores).is_some_and(|cores| cores > COMPUTING_MAX * running);
    let words = format!(
        "{} database statements run and hardly use CPU, while {} per second wait",
        format_number(running),
        format_number(waits_per_s)
    );
    (per_request >= TABLE_WAITS_MIN && running >= 1.0 + WAITING_MIN && !computes)
        .then_some((running, false, words))
}

fn row_lock_finding(facts: &Facts) -> Option<Finding> {
    let waiting = concurrency::row_lock_waiting(facts).filter(|waiting| *waiting >= WAITING_MIN)?;
    let share = (waiting
        / concurrency::requests_worked_on(facts).or(concurrency::statements_running(facts))?)
    .min(1.0);
    if share < SHARE_MIN || concurrency::is_cpu_bound(facts) {
        return None;
    }
    let both =
        facts.value(FactId::db_row_lock_waiting_mean).zip(facts.value(FactId::db_row_lock_time_fraction));
    let agree = both.is_some_and(|(observed, counted)| observed.min(counted) >= 0.5 * observed.max(counted));
    let holder = facts.value(FactId::db_row_lock_waits_per_s).filter(|rate| *rate > 0.0);
    let each = holder.map_or(String::new(), |rate| {
        format!(" ({} each)", crate::wording::format_time(waiting / rate * 1e6))
    });
    let statement = busiest_statement(facts)
        .map_or(String::new(), |text| format!(" Most frequent running statement: {text}"));
    Some(Finding {
        id: LimitId::DbLockContention.into(),
        summary: format!(
            "{} database statements at a time wait for row locks{each}. They are serialized, whatever the hardware; more connections would make it worse.{statement}",
            format_number(waiting)
        ),
        confidence: match () {
            () if worker_waits::are_most_held_otherwise(facts, waiting) => CONFIDENCE_OF_FEW,
            () if agree => 0.95,
            () => 0.8,
        },
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&fact_ids! {
            db_row_lock_waiting_mean, db_row_lock_time_fraction, db_row_lock_waits_per_s,
            db_threads_running_mean, db_cpu_cores, cpu_busy_fraction, in_flight_mean, response_time_mean_us,
            rate,
        }),
        remedies: vec![manual(
            SettingId::of_service("mariadb", "transactions"),
            "a code change",
            "change the contended row last, commit at once, do nothing slow in between; find it by an index",
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};

    fn with(observed: f64, counted: f64, in_flight: f64, busy: f64) -> Option<Finding> {
        let values = [
            (FactId::db_row_lock_waiting_mean, observed),
            (FactId::db_row_lock_time_fraction, counted),
            (FactId::db_row_lock_waits_per_s, 32.0),
            (FactId::in_flight_mean, in_flight),
            (FactId::cpu_busy_fraction, busy),
        ];
        let known: Vec<_> = values.into_iter().filter(|(_, value)| value.is_finite()).collect();
        check(&facts(&known, &[]))
    }

    #[test]
    fn the_few_that_wait_while_others_have_the_workers_are_half_of_it() {
        for (workers, confidence) in [(31.0, 0.5), (2.0, 0.95)] {
            let values = [
                (FactId::db_row_lock_waiting_mean, 1.26),
                (FactId::db_row_lock_time_fraction, 1.3),
                (FactId::in_flight_mean, 18.0),
                (FactId::accept_queue_mean, 16.0),
                (FactId::scoreboard_full_fraction, 1.0),
                (FactId::workers_limit, workers),
                (FactId::cpu_busy_fraction, 0.1),
            ];
            let found = check(&facts(&values, &[])).map(|finding| finding.confidence);
            assert_eq!(found, Some(confidence), "{workers} workers");
        }
    }

    #[test]
    fn a_line_in_front_of_a_row_is_the_limit() {
        let finding = with(22.7, 22.4, 23.5, 0.05).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.966)));
        assert!(finding.summary.contains("(709 ms each)"), "{}", finding.summary);
        assert_eq!(with(22.7, f64::NAN, 23.5, 0.05).unwrap().confidence, 0.8);
        // Those in queues in front of it wait for the same.
        for (queue, fires) in [(0.0, false), (180.0, true)] {
            let seen = [
                (FactId::db_row_lock_waiting_mean, 58.0),
                (FactId::in_flight_mean, 285.0),
                (FactId::accept_queue_mean, queue),
                (FactId::cpu_busy_fraction, 0.05),
            ];
            assert_eq!(check(&facts(&seen, &[])).is_some(), fires, "{queue}");
        }
    }

    #[test]
    fn tables_are_locked_as_a_whole() {
        let of = |waits: f64, running: f64, cores: f64, busy: f64| {
            check(&facts(
                &[
                    (FactId::db_table_lock_waits_per_s, waits),
                    (FactId::db_threads_running_mean, running),
                    (FactId::db_row_lock_waiting_mean, 0.0),
                    (FactId::db_cpu_cores, cores),
                    (FactId::cpu_busy_fraction, busy),
                    (FactId::ended_per_s, 33.0),
                    (FactId::in_flight_mean, 25.0),
                ],
                &[],
            ))
        };
        assert_eq!(of(33.0, 26.0, 0.02, 0.1).unwrap().confidence, 0.8);
        // LOCK TABLES and GET_LOCK are counted nowhere; the states tell.
        let states = [
            (FactId::db_lock_waiting_mean, 23.0),
            (FactId::in_flight_mean, 25.0),
            (FactId::cpu_busy_fraction, 0.1),
        ];
        assert_eq!(check(&facts(&states, &[])).unwrap().confidence, 0.93);
        for (waits, running, cores, busy) in
            [(2.0, 26.0, 0.02, 0.1), (33.0, 3.0, 0.02, 0.1), (33.0, 4.0, 1.9, 0.6), (33.0, 26.0, 0.02, 0.99)]
        {
            assert!(of(waits, running, cores, busy).is_none(), "{waits} {running} {cores} {busy}");
        }
    }

    #[test]
    fn a_few_of_the_statements_that_run_are_no_limit_where_requests_are_not_seen() {
        for (running, fires) in [(41.0, false), (3.0, true)] {
            let known = [(FactId::db_lock_waiting_mean, 2.0), (FactId::db_threads_running_mean, running)];
            assert_eq!(check(&facts(&known, &[])).is_some(), fires, "{running}");
        }
    }

    #[test]
    fn of_a_database_that_lets_nobody_in_its_clients_tell() {
        const SEEN: [(FactId, f64); 10] = [
            (FactId::db_cpu_cores, 0.01),
            (FactId::cpu_quota_cores, 0.1),
            (FactId::response_time_mean_us, 2e6),
            (FactId::cpu_busy_fraction, 0.05),
            (FactId::db_clients_mean, 11.8),
            (FactId::pressure_group_io_some_fraction, 0.01),
            (FactId::in_flight_mean, 12.0),
            (FactId::ended_per_s, 6.0),
            (FactId::response_time_alone_us, 180_000.0),
            (FactId::failed_fraction, 0.0),
        ];
        let with = |changes: &[(FactId, f64)]| {
            check(&facts(&with_changes(&SEEN, changes), &[])).map(|finding| finding.confidence)
        };
        assert_eq!(with(&[]), Some(CONFIDENCE_UNREAD));
        for (what, changes) in [
            ("it tells what it does", [(FactId::db_threads_running_mean, 12.0)]),
            ("it computes", [(FactId::db_cpu_cores, 1.9)]),
            ("it waits for the disk, in a group of its own", [(FactId::pressure_io_some_fraction, 0.8)]),
            ("the quota is used up", [(FactId::throttled_fraction, 0.9)]),
            ("of the disk nothing is seen", [(FactId::pressure_group_io_some_fraction, f64::NAN)]),
            ("few are connected", [(FactId::db_clients_mean, 4.0)]),
            ("they take as long as one alone", [(FactId::response_time_alone_us, 1_500_000.0)]),
            ("it refuses some", [(FactId::failed_fraction, 0.4)]),
        ] {
            assert_eq!(with(&changes), None, "{what}");
        }
        let mut few_workers = facts(&SEEN, &[]);
        of_pool(&mut few_workers, "127.0.0.1:9000", &[(FactId::backend_queue_mean, 10.0)]);
        assert!(check(&few_workers).is_none(), "two at a time take as long as one alone, the others queue");
    }

    #[test]
    fn the_tables_of_the_server_itself_are_not_to_be_converted() {
        let known = [(FactId::db_lock_waiting_mean, 23.0), (FactId::in_flight_mean, 25.0)];
        let remedy = check(&facts(&known, &[])).unwrap().remedies.remove(0);
        assert!(remedy.why.contains("table_schema NOT IN ('mysql'"), "{}", remedy.why);
    }

    #[test]
    fn the_lock_of_the_query_cache_goes_with_the_cache() {
        let of = |waiting: f64, all: f64, busy: f64| {
            check(&facts(
                &[
                    (FactId::db_query_cache_lock_waiting_mean, waiting),
                    (FactId::db_lock_waiting_mean, all),
                    (FactId::db_query_cache_limit_bytes, 512.0 * 1024.0 * 1024.0),
                    (FactId::in_flight_mean, 40.0),
                    (FactId::cpu_busy_fraction, busy),
                ],
                &[],
            ))
        };
        let finding = of(30.0, 31.0, 0.4).unwrap();
        let remedy = &finding.remedies[0];
        assert_eq!(
            (remedy.setting.full_name().as_str(), remedy.to.clone(), remedy.class),
            ("mariadb query_cache_size", Some(SettingValue::Integer(0)), ApplyClass::Live)
        );
        // Most wait for tables: another cause, and nothing that a setting lifts.
        assert_eq!(of(2.0, 30.0, 0.4).unwrap().remedies[0].setting.name, "engine");
        // A queue in front of saturated CPUs, and one that costs little.
        assert!(of(30.0, 31.0, 0.99).is_none() && of(3.0, 3.0, 0.4).is_none());
    }

    #[test]
    fn whoever_waits_for_a_definition_needs_no_other_engine() {
        let of = |waiting: f64, all: f64, busy: f64| {
            check(&facts(
                &[
                    (FactId::db_metadata_lock_waiting_mean, waiting),
                    (FactId::db_lock_waiting_mean, all),
                    (FactId::in_flight_mean, 40.0),
                    (FactId::cpu_busy_fraction, busy),
                ],
                &[],
            ))
        };
        let finding = of(30.0, 31.0, 0.1).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.93, Some(0.75)));
        let remedy = &finding.remedies[0];
        assert_eq!(remedy.setting.name, "metadata locks");
        for part in ["INNODB_TRX", "lock_wait_timeout"] {
            assert!(remedy.why.contains(part), "{}", remedy.why);
        }
        // Most wait for tables.
        let tables = of(2.0, 30.0, 0.1).unwrap();
        assert_eq!(
            (tables.remedies[0].setting.name.as_str(), tables.explains_fraction),
            ("engine", Some(0.7))
        );
        assert!(tables.summary.starts_with("28 database statements"), "{}", tables.summary);
        assert!(of(30.0, 31.0, 0.99).is_none() && of(3.0, 3.0, 0.1).is_none());
    }

    #[test]
    fn where_only_all_waits_together_limit_the_remedy_is_that_of_the_most() {
        let of = |cache: f64, metadata: f64, all: f64| {
            let known = [
                (FactId::db_query_cache_lock_waiting_mean, cache),
                (FactId::db_metadata_lock_waiting_mean, metadata),
                (FactId::db_lock_waiting_mean, all),
                (FactId::in_flight_mean, 40.0),
            ];
            let found = check(&facts(&known, &[]))?;
            Some((found.remedies[0].setting.name.clone(), found.explains_fraction?))
        };
        let expected = |name: &str, share: f64| Some((name.to_owned(), share));
        assert_eq!(of(0.0, 8.0, 12.0), expected("metadata locks", 0.2));
        assert_eq!(of(8.0, 1.0, 12.0), expected("query_cache_size", 0.2));
        assert_eq!(of(3.0, 3.0, 12.0), expected("engine", 0.15));
        assert_eq!(of(4.0, 5.0, 12.0), expected("metadata locks", 0.125));
        assert_eq!(of(0.0, 8.0, 9.0), None);
        for (rows, setting) in [(15.0, "metadata locks"), (25.0, "transactions")] {
            let known = [
                (FactId::db_row_lock_waiting_mean, rows),
                (FactId::db_metadata_lock_waiting_mean, 20.0),
                (FactId::in_flight_mean, 50.0),
            ];
            assert_eq!(check(&facts(&known, &[])).unwrap().remedies[0].setting.name, setting, "{rows}");
        }
    }

    #[test]
    fn waits_that_cost_nobody_much_are_not() {
        for (observed, counted, in_flight, busy) in [
            (0.0, 0.4, 4.0, 0.1),
            (2.0, 2.0, 40.0, 0.1),
            (22.0, 22.0, 24.0, 0.99),
            (f64::NAN, f64::NAN, 9.0, 0.1),
        ] {
            assert!(
                with(observed, counted, in_flight, busy).is_none(),
                "{observed} {counted} of {in_flight}"
            );
        }
    }
}

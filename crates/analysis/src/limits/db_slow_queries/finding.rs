//! When `db-slow-queries` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{concurrency, memory_evidence, processors};
use crate::wording::{format_number, format_time};
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

pub(crate) use super::named_statement::busiest as busiest_statement;

/// A statement that finds its rows by an index looks at tens of them. Small tables are scanned as well, and cost nothing.
const ROWS_PER_STATEMENT_MIN: f64 = 1000.0;
/// A core scans some ten million narrow rows a second, and a million wide ones: with half a million for each second of a
/// core that the database takes, scanning is what it does.
const ROWS_PER_CORE_S_MIN: f64 = 5e5;
/// A statement that finds its rows by an index takes 0.1 to 0.3 ms of a core with its connection, on slow machines three
/// times as much: of what was seen to do more than that a little above it is enough, else it must be far above.
const OBSERVED_COST_MIN_S: f64 = 0.0015;
const PRICE_MIN_S: f64 = 0.005;
/// From so many full joins, or merges of sorted parts, for each statement on they are what it does.
const JOINS_MIN: f64 = 0.2;
const MERGES_MIN: f64 = 0.2;
/// From this share on the CPUs are saturated.
const BUSY_FRACTION_MIN: f64 = 0.9;
/// What part of the saturated CPUs, or of the requests that are worked on, the database must be to be what limits.
const SHARE_MIN: f64 = 0.4;
/// Of one of which nothing but that is seen.
const CONFIDENCE_UNSEEN: f64 = 0.5;
/// Of one that is known to be the site's.
const CONFIDENCE_SILENT: f64 = 0.6;
/// Of one that was found to be the site's when most of the load was over.
const LATE: &str =
    "how often, was not read: it was seen behind the service only when most of the load was over";
/// Statements compute if they have at least this much of a core each; others wait for something.
const COMPUTING_MIN: f64 = 0.5;
/// Of what the site takes of the CPUs, the database's part where statements wait for a core.
const SHARE_OF_SITE_MIN: f64 = 0.5;

/// Fires when scans are what the CPUs, or the requests, spend their time on.
pub fn check(facts: &Facts) -> Option<Finding> {
    if memory_evidence::is_proven(facts) {
        return None;
    }
    by_statements(facts).or_else(|| by_program(facts)).or_else(|| silent(facts))
}

/// How such a database tells its statements and their plans.
fn how_to_see(program: &str) -> &'static str {
    if program == processors::POSTGRES {
        "pg_stat_statements, log_min_duration_statement; plans by EXPLAIN ANALYZE"
    } else {
        "slow_query_log, performance_schema; plans by EXPLAIN"
    }
}

/// The same of a database that nobody asks what it does.
fn silent(facts: &Facts) -> Option<Finding> {
    let (name, program, cores) = processors::silent_database(facts)?;
    let share = concurrency::share_of_full_processors(facts, cores, BUSY_FRACTION_MIN)
        .filter(|share| *share >= processors::MOST_FRACTION_MIN)?;
    let mut cited = facts.cite_of(&[FactId::backend_cpu_cores], &name);
    cited.extend(facts.cite(&fact_ids! { cpu_busy_fraction, usable_busy_fraction, cores, rate }));
    Some(Finding {
        id: LimitId::DbSlowQueries.into(),
        summary: format!(
            "The database uses most of the CPU: {program} {} cores, {:.0}% of what is used. Which statements, only its own statistics tell.",
            format_number(cores),
            share * 100.0
        ),
        confidence: CONFIDENCE_SILENT,
        explains_fraction: Some(significant(share, 3)),
        facts: cited,
        remedies: vec![manual(
            SettingId::application("statements"),
            RISK,
            format!(
                "find the statements that cost most ({}): an index is what most of them lack",
                how_to_see(program)
            ),
        )],
    })
}

/// Where nothing but what it takes of the processors can be seen of a database.
fn by_program(facts: &Facts) -> Option<Finding> {
    let (program, cores, share) = processors::unseen_database(facts)?;
    let (confidence, why, how) = if processors::late_database(facts).is_some() {
        (
            CONFIDENCE_SILENT,
            LATE,
            "diagnose again, for longer: then its statements are read, if it is MariaDB and lets webdyno in",
        )
    } else if processors::unread_mariadb_cores(facts).is_some() {
        (
            CONFIDENCE_UNSEEN,
            "how often, it does not tell webdyno",
            "let webdyno into the database (as root, or by --db-option-file): it then names the statements that cost most",
        )
    } else {
        (
            CONFIDENCE_UNSEEN,
            "for whom, only root can see",
            "run webdyno as root: it then names the statements that cost most",
        )
    };
    Some(Finding {
        id: LimitId::DbSlowQueries.into(),
        summary: format!(
            "The database uses most of the CPU: {program} {} cores, {:.0}% of what is used. Which statements, and {why}.",
            format_number(cores),
            share * 100.0
        ),
        confidence,
        explains_fraction: Some(significant(share, 3)),
        facts: facts
            .cite_of(&[FactId::foreign_program_cpu_cores], program)
            .into_iter()
            .chain(
                facts.cite(&fact_ids! { db_cpu_cores, cpu_busy_fraction, usable_busy_fraction, cores, rate }),
            )
            .collect(),
        remedies: vec![manual(
            if program == processors::POSTGRES {
                SettingId::application("statements")
            } else {
                SettingId::of_service("mariadb", "index")
            },
            RISK,
            format!("{how}; an index is what most of them lack"),
        )],
    })
}

fn by_statements(facts: &Facts) -> Option<Finding> {
    let cost = cost(facts)?;
    let named = super::named_statement::statement(facts);
    let in_words = named.as_ref().map_or(String::new(), super::named_statement::NamedStatement::to_text);
    let where_ = match cost.of {
        CostKind::Processors => {
            format!(
                "the database uses {} of {} cores",
                format_number(cost.cores),
                format_number(facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?)
            )
        }
        CostKind::Requests => {
            format!("{} statements at a time use CPU or wait for it", format_number(cost.cores))
        }
    };
    Some(Finding {
        id: LimitId::DbSlowQueries.into(),
        summary: format!("{}; {where_}.{in_words}", cost.reason.to_text(facts)),
        confidence: cost.reason.confidence(&cost.of),
        explains_fraction: Some(significant(cost.share, 3)),
        facts: facts.cite(&fact_ids! {
            db_rows_scanned_per_s, db_selects_per_s, db_statements_per_s, db_scans_per_s, db_full_joins_per_s,
            db_sort_merges_per_s, db_rows_read_in_order_per_s, db_cpu_cores, db_threads_running_mean,
            cpu_busy_fraction, cores, in_flight_mean, rate,
        }),
        remedies: vec![manual(
            SettingId::of_service("mariadb", "index"),
            RISK,
            super::named_statement::how_to_find(facts, named.as_ref()),
        )],
    })
}

const RISK: &str =
    "an index makes writes a little slower; building it blocks writers for a while on old versions";

/// What the statements cost, and of what.
struct StatementCost {
    reason: CostReason,
    cores: f64,
    of: CostKind,
    share: f64,
}

enum CostKind {
    Processors,
    Requests,
}

/// What makes statements expensive.
enum CostReason {
    /// So many rows that each reads in scans.
    Scans(f64),
    /// So many seconds of a core that each takes, and what it was seen to do, if anything was.
    Price(f64, Option<String>),
}

impl CostReason {
    fn of(facts: &Facts) -> Option<Self> {
        rows_per_statement(facts).map(Self::Scans).or_else(|| Self::price(facts))
    }

    fn price(facts: &Facts) -> Option<Self> {
        // Those that write, too: they are not what makes the few that read expensive.
        let all = facts.value(FactId::db_statements_per_s);
        let statements = [statements_per_s(facts), all].into_iter().flatten().reduce(f64::max)?;
        let each_s = facts.value(FactId::db_cpu_cores)? / statements;
        let per_statement = |name: FactId| facts.value(name).map(|rate| rate / statements);
        let observed: Vec<String> = [
            per_statement(FactId::db_full_joins_per_s)
                .filter(|share| *share >= JOINS_MIN)
                .map(|share| format!("{:.0}% join tables without an index", (share * 100.0).min(100.0))),
            per_statement(FactId::db_sort_merges_per_s)
                .filter(|merges| *merges >= MERGES_MIN)
                .map(|_| "sorts exceed the sort buffer".to_owned()),
            per_statement(FactId::db_rows_read_in_order_per_s)
                .filter(|rows| *rows >= ROWS_PER_STATEMENT_MIN)
                .map(|rows| format!("each skips {} rows of an index", format_number(rows))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let observed = (!observed.is_empty()).then(|| observed.join(", "));
        // So many for each second of a core that stepping over them is what it does, as with scans.
        let many = (ROWS_PER_STATEMENT_MIN * statements).max(ROWS_PER_CORE_S_MIN * each_s * statements);
        let steps = facts.value(FactId::db_rows_read_in_order_per_s).filter(|rows| *rows >= many);
        let price_min_s = match (steps, &observed) {
            (Some(_), _) => 0.0,
            (None, Some(_)) => OBSERVED_COST_MIN_S,
            (None, None) => PRICE_MIN_S,
        };
        (each_s >= price_min_s).then_some(Self::Price(each_s, observed))
    }

    fn to_text(&self, facts: &Facts) -> String {
        match self {
            Self::Scans(rows) => format!(
                "Full table scans in the database: {} rows per statement, {} rows/s",
                format_number(*rows),
                format_number(facts.value(FactId::db_rows_scanned_per_s).unwrap_or(0.0))
            ),
            Self::Price(each_s, observed) => format!(
                "Expensive database statements: {} of CPU time each, {} as with an index{}",
                format_time(each_s * 1e6),
                if *each_s >= OBSERVED_COST_MIN_S {
                    "tens of times as much"
                } else {
                    "several times as much"
                },
                observed.as_ref().map_or(String::new(), |observed| format!(" ({observed})"))
            ),
        }
    }

    /// How sure it is that an index, or another statement, would help.
    fn confidence(&self, of: &CostKind) -> f64 {
        match (self, of) {
            (Self::Scans(_), CostKind::Processors) => 0.93,
            (Self::Scans(_), CostKind::Requests) => 0.8,
            (Self::Price(_, Some(_)), CostKind::Processors) => 0.9,
            (Self::Price(..), _) => 0.75,
        }
    }
}

/// Whether the database spends its time on scans, whatever else limits: with more requests at once it would be next.
pub(crate) fn rows_per_statement(facts: &Facts) -> Option<f64> {
    let cores = facts.value(FactId::db_cpu_cores).filter(|cores| *cores > 0.0)?;
    let rows_per_s = facts.value(FactId::db_rows_scanned_per_s)?;
    let each = rows_per_s / statements_per_s(facts)?;
    (each >= ROWS_PER_STATEMENT_MIN && rows_per_s >= ROWS_PER_CORE_S_MIN * cores).then_some(each)
}

/// Statements that look for rows, where they are counted, a second.
fn statements_per_s(facts: &Facts) -> Option<f64> {
    let selects = facts.value(FactId::db_selects_per_s).filter(|rate| *rate > 0.0);
    selects.or(facts.value(FactId::db_statements_per_s)).map(|rate| rate.max(0.1))
}

fn cost(facts: &Facts) -> Option<StatementCost> {
    let why = CostReason::of(facts)?;
    let cores = facts.value(FactId::db_cpu_cores)?;
    let of_processors = concurrency::share_of_full_processors(facts, cores, BUSY_FRACTION_MIN);
    if let Some(share) = of_processors.filter(|share| *share >= SHARE_MIN) {
        return Some(StatementCost { reason: why, cores, of: CostKind::Processors, share });
    }
    let running =
        concurrency::statements_running(facts)? - concurrency::row_lock_waiting(facts).unwrap_or(0.0);
    let share = concurrency::share_of_requests(facts, running)?;
    if running < 1.0 || share < SHARE_MIN {
        return None;
    }
    // Where others saturate the CPUs, statements that would compute wait for one.
    let is_full = facts.value(FactId::cpu_busy_fraction).is_some_and(|busy| busy >= BUSY_FRACTION_MIN);
    let of_site = facts.value(FactId::site_cpu_cores).is_none_or(|site| cores >= SHARE_OF_SITE_MIN * site);
    // A price says nothing of statements that wait for their reader.
    let wants_to = is_full && of_site && matches!(why, CostReason::Scans(_));
    let computes = cores >= COMPUTING_MIN * running || wants_to;
    computes.then_some(StatementCost { reason: why, cores: running, of: CostKind::Requests, share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};
    use webdyno_model::sample::MissingSignal;
    use webdyno_model::topology::Topology;

    const SCANS: [(FactId, f64); 8] = [
        (FactId::db_rows_scanned_per_s, 29e6),
        (FactId::db_selects_per_s, 50.0),
        (FactId::db_cpu_cores, 1.9),
        (FactId::db_threads_running_mean, 17.0),
        (FactId::cpu_busy_fraction, 0.99),
        (FactId::cores, 2.0),
        (FactId::in_flight_mean, 16.0),
        (FactId::rate, 49.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&SCANS, changes);
        check(&facts(&values, &[]))
    }

    #[test]
    fn scans_that_fill_the_processors_or_the_requests_are_the_cause() {
        let finding = with(&[]).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.93, Some(0.96)));
        assert!(finding.summary.contains("580,000 rows per statement"), "{}", finding.summary);
        // Of the cores that it may use: a container of two on a machine of 64.
        let few = with(&[(FactId::cores, 64.0), (FactId::usable_cores, 2.0)]).unwrap();
        assert!(few.summary.contains("uses 1.9 of 2 cores"), "{}", few.summary);
        // Sixteen cores, of which ten statements at a time use eight: the rest of the machine is idle.
        let idle = [
            (FactId::cores, 16.0),
            (FactId::cpu_busy_fraction, 0.5),
            (FactId::db_cpu_cores, 8.0),
            (FactId::db_threads_running_mean, 11.0),
        ];
        assert_eq!(with(&idle).unwrap().confidence, 0.8);
        // Other programs take three quarters of the CPUs.
        assert_eq!(
            with(&[(FactId::db_cpu_cores, 0.44), (FactId::db_rows_scanned_per_s, 6e6)]).unwrap().confidence,
            0.8
        );
    }

    #[test]
    fn a_database_whose_clients_are_not_seen_is_known_by_what_it_takes() {
        let found = |program: &str, cores: f64, is_seen: bool| {
            let values = [(FactId::cpu_busy_fraction, 0.99), (FactId::cores, 2.0), (FactId::rate, 49.0)];
            let mut facts = facts(&values, &[]);
            of_pool(&mut facts, program, &[(FactId::foreign_program_cpu_cores, cores)]);
            let [signal, why, how_to_enable] =
                ["topology", "permission denied", "run it as root"].map(Into::into);
            let signal = MissingSignal { signal, why, how_to_enable };
            let missing = if is_seen { vec![] } else { vec![signal] };
            facts.topology = Some(Topology { missing, ..Topology::default() });
            check(&facts).map(|finding| finding.confidence)
        };
        assert_eq!(found("mariadbd", 1.8, false), Some(CONFIDENCE_UNSEEN));
        for (program, cores, is_seen) in
            [("mariadbd", 1.8, true), ("mariadbd", 0.9, false), ("rsync", 1.8, false)]
        {
            assert_eq!(found(program, cores, is_seen), None, "{program} {cores} {is_seen}");
        }
    }

    #[test]
    fn one_that_lets_nobody_in_is_known_by_what_it_takes() {
        for (cores, confidence) in [(1.8, Some(CONFIDENCE_UNSEEN)), (0.9, None)] {
            let values = [
                (FactId::cpu_busy_fraction, 0.99),
                (FactId::cores, 2.0),
                (FactId::rate, 49.0),
                (FactId::db_cpu_cores, cores),
            ];
            let facts = facts(&values, &[]);
            assert_eq!(check(&facts).map(|finding| finding.confidence), confidence, "{cores}");
        }
    }

    #[test]
    fn scans_beside_something_else_that_limits_are_not() {
        for changes in [
            // A few rows each.
            vec![(FactId::db_rows_scanned_per_s, 575.0), (FactId::db_selects_per_s, 3000.0)],
            vec![(FactId::db_rows_scanned_per_s, 400_000.0), (FactId::db_selects_per_s, 3000.0)],
            vec![(FactId::db_cpu_cores, 0.6), (FactId::db_threads_running_mean, 3.0)],
            vec![
                (FactId::db_cpu_cores, 0.2),
                (FactId::site_cpu_cores, 1.8),
                (FactId::db_rows_scanned_per_s, 6e6),
            ],
            // They wait: for memory, a disk, the reader.
            vec![
                (FactId::cpu_busy_fraction, 0.4),
                (FactId::db_cpu_cores, 0.3),
                (FactId::db_threads_running_mean, 48.0),
            ],
            // Few statements at a time, as too few workers ask for them.
            vec![
                (FactId::cpu_busy_fraction, 0.5),
                (FactId::db_cpu_cores, 0.4),
                (FactId::db_threads_running_mean, 1.4),
            ],
        ] {
            assert!(with(&changes).is_none(), "{changes:?}");
        }
    }

    #[test]
    fn statements_that_cost_much_without_a_scan_are_expensive() {
        let none = [(FactId::db_rows_scanned_per_s, 600.0)];
        for (changes, sure, word) in [
            // 12 joins a second of 3,000 rows with 4,000.
            (
                vec![(FactId::db_selects_per_s, 12.0), (FactId::db_full_joins_per_s, 12.0)],
                Some(0.9),
                "100% join tables",
            ),
            (
                vec![(FactId::db_selects_per_s, 50.0), (FactId::db_sort_merges_per_s, 400.0)],
                Some(0.9),
                "sorts exceed the sort buffer",
            ),
            (
                vec![(FactId::db_selects_per_s, 160.0), (FactId::db_rows_read_in_order_per_s, 2e7)],
                Some(0.9),
                "125,000 rows",
            ),
            (
                vec![(FactId::db_selects_per_s, 1600.0), (FactId::db_rows_read_in_order_per_s, 1.6e7)],
                Some(0.9),
                "10,000 rows",
            ),
            (vec![(FactId::db_selects_per_s, 50.0)], Some(0.75), "38 ms of CPU time"),
            // Honest work: many cheap ones. A join now and then changes nothing.
            (vec![(FactId::db_selects_per_s, 5000.0), (FactId::db_full_joins_per_s, 5000.0)], None, ""),
            (vec![(FactId::db_selects_per_s, 600.0), (FactId::db_full_joins_per_s, 2.0)], None, ""),
            (vec![(FactId::db_selects_per_s, 600.0)], None, ""),
            (vec![(FactId::db_selects_per_s, 20.0), (FactId::db_statements_per_s, 4000.0)], None, ""),
            // The CPUs have room, and statements wait for something else.
            (
                vec![
                    (FactId::db_selects_per_s, 5.0),
                    (FactId::cpu_busy_fraction, 0.3),
                    (FactId::db_cpu_cores, 0.1),
                ],
                None,
                "",
            ),
        ] {
            let found = with(&[&none[..], &changes].concat());
            assert_eq!(found.as_ref().map(|finding| finding.confidence), sure, "{changes:?}");
            let summary = found.map_or(String::new(), |finding| finding.summary);
            assert!(summary.contains(word), "{summary}");
        }
    }

    #[test]
    fn a_database_that_nobody_asks_is_suspected_where_it_takes_most() {
        let with = |program: &str, cores: f64, busy: f64| {
            let values = [(FactId::cpu_busy_fraction, busy), (FactId::cores, 2.0)];
            let taken = [(FactId::backend_cpu_cores, "unknown_2", cores)];
            let mut facts = crate::facts::testing::facts_of_several(&values, &taken);
            let backend = |pid, program: &str| webdyno_model::service::ServiceSnapshot {
                service: "unknown".into(),
                pid,
                executable: Some(format!("/usr/lib/x/bin/{program}")),
                ..Default::default()
            };
            let backends = vec![backend(3, "gunicorn"), backend(4, program)];
            facts.topology = Some(webdyno_model::topology::Topology { backends, ..Default::default() });
            check(&facts)
        };
        let found = with("postgres", 1.6, 0.99).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_SILENT, Some(0.808)));
        assert!(found.summary.contains("postgres 1.6 cores, 81%"), "{}", found.summary);
        for (program, way) in [("postgres", "pg_stat_statements"), ("mysqld", "slow_query_log")] {
            let why = with(program, 1.6, 0.99).unwrap().remedies.remove(0).why;
            assert!(why.contains(way), "{why}");
        }
        for (program, cores, busy) in [("postgres", 0.6, 0.99), ("postgres", 0.8, 0.5), ("node", 1.6, 0.99)] {
            assert!(with(program, cores, busy).is_none(), "{program} {cores} {busy}");
        }
    }
}

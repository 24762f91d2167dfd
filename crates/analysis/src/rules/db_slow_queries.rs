//! `db-slow-queries`: the database looks at far more rows than it gives, and that is what requests wait for.
//!
//! Without an index that fits, MariaDB reads a table from end to end for each statement. While the table is small nobody
//! notices; as it grows each page costs more of a processor, and a processor that is full of it looks like honest work.
//!
//! ## How it is recognised
//! The statements read thousands of rows each in scans (`Handler_read_rnd_next`), and that is what the database spends its
//! time on: so many rows for each second of a processor that little else can have been done in it. And it matters:
//! the processors are full and a good part of that is the database, or a good part of the requests under way are statements
//! that compute. While other processes protect the database from more of them, as too few workers do, those come first.
//!
//! ## What to do
//! An index for the statement, or another statement: a person has to choose. Where `performance_schema` is on the finding
//! names the statement; else the slow log does (`long_query_time = 0.05`, `log_queries_not_using_indexes`). Never a bigger
//! `join_buffer_size`: it makes the scan a little cheaper, and each connection takes it.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'` twice under load, over `Com_select`; `SHOW FULL PROCESSLIST`;
//! `EXPLAIN` of the statement says `type: ALL`.

use super::{memory_exhausted, say};
use crate::facts::Facts;
use crate::manual::manual;
use crate::work;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::service::Statement;

/// Stable id.
pub const ID: &str = "db-slow-queries";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[
    "cpu-saturated",
    "php-fpm-workers-exhausted",
    "apache-workers-exhausted",
    "db-connections-exhausted",
    "accept-queue-overflow",
];

/// A statement that finds its rows by an index looks at tens of them. Small tables are scanned as well, and cost nothing.
const ROWS_PER_STATEMENT_MIN: f64 = 1000.0;
/// A core scans some ten million narrow rows a second, and a million wide ones: with half a million for each second of a
/// core that the database takes, scanning is what it does.
const ROWS_PER_CORE_S_MIN: f64 = 5e5;
/// From this share on the processors are full.
const BUSY_FRACTION_MIN: f64 = 0.9;
/// What part of the full processors, or of the requests under way, the database must be to be what limits.
const SHARE_MIN: f64 = 0.4;
/// Statements compute if they have at least this much of a core each; others wait for something.
const COMPUTING_MIN: f64 = 0.5;
/// Of what the site takes of the processors, the database's part where statements wait for a processor.
const SHARE_OF_SITE_MIN: f64 = 0.5;

/// Fires when scans are what the processors, or the requests, spend their time on.
pub fn check(facts: &Facts) -> Option<Finding> {
    let cost = cost(facts).filter(|_| !memory_exhausted::is_proven(facts))?;
    let statement = statement(facts);
    let named =
        statement.map_or(String::new(), |statement| format!(" The statement: {}.", shown(&statement.text)));
    let where_ = match cost.of {
        Of::Processors => {
            format!("the database takes {} of the {} cores", say(cost.cores), say(facts.value("cores")?))
        }
        Of::Requests => format!("{} statements compute at a time, or want to", say(cost.cores)),
    };
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "The database reads tables from end to end: {} rows for each statement, {} rows a second, and {where_}.{named}",
            say(cost.rows_per_statement),
            say(facts.value("db_rows_scanned_per_s")?),
        ),
        confidence: match cost.of {
            Of::Processors => 0.93,
            Of::Requests => 0.8,
        },
        explains_fraction: Some(significant(cost.share, 3)),
        facts: facts.cite(&[
            "db_rows_scanned_per_s",
            "db_selects_per_s",
            "db_statements_per_s",
            "db_scans_per_s",
            "db_full_joins_per_s",
            "db_cpu_cores",
            "db_threads_running_mean",
            "cpu_busy_fraction",
            "cores",
            "in_flight_mean",
            "rate",
        ]),
        remedies: vec![manual(
            "mariadb",
            "index",
            "an index makes writing the table a little slower, and building it locks out writers for a while on old versions",
            statement.map_or(
                WHY,
                |_| "an index on what the statement compares, so that it finds its rows without reading all",
            ),
        )],
    })
}

const WHY: &str = "an index on what the statements compare; `performance_schema = ON` or the slow log with log_queries_not_using_indexes names them";

/// What the scans cost, and of what.
struct Cost {
    rows_per_statement: f64,
    cores: f64,
    of: Of,
    share: f64,
}

enum Of {
    Processors,
    Requests,
}

/// Whether the database spends its time on scans, whatever else limits: with more requests at once it would be next.
pub(crate) fn rows_per_statement(facts: &Facts) -> Option<f64> {
    let cores = facts.value("db_cpu_cores").filter(|cores| *cores > 0.0)?;
    let rows_per_s = facts.value("db_rows_scanned_per_s")?;
    let statements =
        facts.value("db_selects_per_s").filter(|rate| *rate > 0.0).or(facts.value("db_statements_per_s"))?;
    let each = rows_per_s / statements.max(0.1);
    (each >= ROWS_PER_STATEMENT_MIN && rows_per_s >= ROWS_PER_CORE_S_MIN * cores).then_some(each)
}

fn cost(facts: &Facts) -> Option<Cost> {
    let rows_per_statement = rows_per_statement(facts)?;
    let cores = facts.value("db_cpu_cores")?;
    let of_processors = work::share_of_full_processors(facts, cores, BUSY_FRACTION_MIN);
    if let Some(share) = of_processors.filter(|share| *share >= SHARE_MIN) {
        return Some(Cost { rows_per_statement, cores, of: Of::Processors, share });
    }
    let running = work::statements_running(facts)? - work::row_lock_waiting(facts).unwrap_or(0.0);
    let share = (running / work::at_once(facts)?).min(1.0);
    if running < 1.0 || share < SHARE_MIN {
        return None;
    }
    // Where others fill the processors, statements that would compute wait for one.
    let is_full = facts.value("cpu_busy_fraction").is_some_and(|busy| busy >= BUSY_FRACTION_MIN);
    let of_site = facts.value("site_cpu_cores").is_none_or(|site| cores >= SHARE_OF_SITE_MIN * site);
    let computes = cores >= COMPUTING_MIN * running || (is_full && of_site);
    computes.then_some(Cost { rows_per_statement, cores: running, of: Of::Requests, share })
}

/// The statement that examined most rows in this window; where nobody watched them, the one that did so far.
fn statement(facts: &Facts) -> Option<&Statement> {
    let known = || facts.backends("mariadb").flat_map(|database| &database.statements);
    let now = facts.each("db_statement_rows_per_s").max_by(|a, b| a.1.total_cmp(&b.1));
    let of_digest = |digest: &str| known().find(|statement| statement.digest == digest);
    let most = || known().max_by_key(|statement| statement.rows_examined_count);
    now.and_then(|(digest, _)| of_digest(digest))
        .or_else(most)
        .filter(|statement| statement.rows_examined_count > 0)
}

/// As much of a statement as stands in a sentence.
fn shown(text: &str) -> String {
    const LENGTH_MAX: usize = 160;
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(LENGTH_MAX) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    const SCANS: [(&str, f64); 8] = [
        ("db_rows_scanned_per_s", 29e6),
        ("db_selects_per_s", 50.0),
        ("db_cpu_cores", 1.9),
        ("db_threads_running_mean", 17.0),
        ("cpu_busy_fraction", 0.99),
        ("cores", 2.0),
        ("in_flight_mean", 16.0),
        ("rate", 49.0),
    ];

    fn with(changes: &[(&str, f64)]) -> Option<Finding> {
        let kept = SCANS.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let values: Vec<_> = kept.chain(changes).copied().collect();
        check(&facts(&values, &[]))
    }

    #[test]
    fn scans_that_fill_the_processors_or_the_requests_are_the_cause() {
        let finding = with(&[]).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.93, Some(0.96)));
        assert!(finding.summary.contains("580000 rows for each statement"), "{}", finding.summary);
        // Sixteen cores, of which ten statements at a time use eight: the rest of the machine is idle.
        let idle = [
            ("cores", 16.0),
            ("cpu_busy_fraction", 0.5),
            ("db_cpu_cores", 8.0),
            ("db_threads_running_mean", 11.0),
        ];
        assert_eq!(with(&idle).unwrap().confidence, 0.8);
        // Other programs take three quarters of the processors.
        assert_eq!(with(&[("db_cpu_cores", 0.44), ("db_rows_scanned_per_s", 6e6)]).unwrap().confidence, 0.8);
    }

    #[test]
    fn scans_beside_something_else_that_limits_are_not() {
        for changes in [
            // A few rows each, or the processors do something else.
            vec![("db_rows_scanned_per_s", 575.0)],
            vec![("db_rows_scanned_per_s", 400_000.0)],
            vec![("db_cpu_cores", 0.6), ("db_threads_running_mean", 3.0)],
            vec![("db_cpu_cores", 0.2), ("site_cpu_cores", 1.8), ("db_rows_scanned_per_s", 6e6)],
            // They wait: for memory, a disk, the reader.
            vec![("cpu_busy_fraction", 0.4), ("db_cpu_cores", 0.3), ("db_threads_running_mean", 48.0)],
            // Few statements at a time, as too few workers ask for them.
            vec![("cpu_busy_fraction", 0.5), ("db_cpu_cores", 0.4), ("db_threads_running_mean", 1.4)],
        ] {
            assert!(with(&changes).is_none(), "{changes:?}");
        }
    }

    #[test]
    fn long_statements_are_cut() {
        assert_eq!(shown("SELECT  1\n FROM t"), "SELECT 1 FROM t");
        assert_eq!(shown(&"ä".repeat(400)).chars().count(), 162);
    }
}

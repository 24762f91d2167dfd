//! Which statement reads so many rows, as far as the database tells; else how it is found.
//!
//! Facts: the statements of `performance_schema` and those that were seen to run when the database was discovered, and what
//! each of them did since ([`webdyno_model::service::Statement`]).

use crate::facts::{FactId, Facts};
use crate::resources::setting_source;
use crate::wording::format_number;
use crate::wording::format_time;
use webdyno_model::service::{LogKind, Statement};

/// What names the statement.
pub(crate) struct NamedStatement<'a> {
    /// What the database calls its form; empty where it was only seen to run.
    digest: &'a str,
    /// Its text without values, where that was read.
    text: Option<String>,
    /// What it did while the load ran.
    did: Option<StatementRates>,
    /// How often it was seen to run, where it is not counted.
    observed_count: Option<u64>,
}

/// What a statement did in each second.
struct StatementRates {
    per_s: f64,
    rows: f64,
    time_us: Option<f64>,
}

/// The statement that examined most rows in this window; where they were not counted, the one that did so far, or that was
/// seen to run most.
pub(crate) fn statement(facts: &Facts) -> Option<NamedStatement<'_>> {
    let known = || facts.backends("mariadb").flat_map(|database| &database.statements);
    let now = facts.each(FactId::db_statement_rows_per_s).filter(|(_, rows)| *rows > 0.0);
    if let Some((digest, rows)) = now.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let text = known()
            .find(|statement| statement.digest == digest)
            .map(|known| shortened_statement(&known.text));
        return Some(NamedStatement {
            digest,
            text,
            did: statement_rates(facts, digest, rows),
            observed_count: None,
        });
    }
    let counted = known().filter(|one| one.rows_examined_count > 0).max_by_key(|one| one.rows_examined_count);
    let observed = || known().filter(|one| is_observed_only(one)).max_by_key(|one| one.executions_count);
    let statement = counted.or_else(observed)?;
    let seen_count = is_observed_only(statement).then_some(statement.executions_count);
    Some(NamedStatement {
        digest: &statement.digest,
        text: Some(shortened_statement(&statement.text)),
        did: None,
        observed_count: seen_count,
    })
}

/// The text of the statement that is under way most of the time: of those that are counted in this window, else of those that
/// were seen to run.
pub(crate) fn busiest(facts: &Facts) -> Option<String> {
    let known = || facts.backends("mariadb").flat_map(|database| &database.statements);
    let now = facts.each(FactId::db_statement_running_mean).max_by(|a, b| a.1.total_cmp(&b.1));
    let counted = now.and_then(|(digest, _)| known().find(|statement| statement.digest == digest));
    let observed = || known().filter(|one| is_observed_only(one)).max_by_key(|one| one.executions_count);
    counted.or_else(observed).map(|statement| shortened_statement(&statement.text))
}

/// Whether it was only seen to run: its rows were not counted.
fn is_observed_only(statement: &Statement) -> bool {
    statement.digest.is_empty()
}

fn statement_rates(facts: &Facts, digest: &str, rows_per_s: f64) -> Option<StatementRates> {
    let per_s = facts.value_of(FactId::db_statement_per_s, digest).filter(|rate| *rate > 0.0)?;
    let running = facts.value_of(FactId::db_statement_running_mean, digest).filter(|running| *running > 0.0);
    Some(StatementRates {
        per_s,
        rows: rows_per_s / per_s,
        time_us: running.map(|running| running / per_s * 1e6),
    })
}

impl NamedStatement<'_> {
    /// A sentence for the summary.
    pub(crate) fn to_text(&self) -> String {
        let did = self.did.as_ref().map_or(String::new(), |did| {
            let time = did.time_us.map_or(String::new(), |us| format!(" and {}", format_time(us)));
            format!(" ({}/s, {} rows{time} each)", format_number(did.per_s), format_number(did.rows))
        });
        let observed = self.observed_count.map_or(String::new(), |_| " seen running most often".to_owned());
        match &self.text {
            Some(text) => format!(" Statement{did}{observed}: {text}"),
            None => format!(" Statement of digest {}{did}.", self.digest),
        }
    }
}

const INDEX: &str = "an index on the columns that the statement compares: `EXPLAIN` says `type: ALL` now, and `ref` with the right index";

/// Why an index, and how the statement is found where it is not known yet.
pub(crate) fn how_to_find(facts: &Facts, named: Option<&NamedStatement<'_>>) -> String {
    if named.is_some_and(|named| named.text.is_some()) {
        return INDEX.into();
    }
    if let Some(named) = named {
        return format!(
            "{INDEX}. Its text: `SELECT DIGEST_TEXT FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST = '{}'`",
            named.digest
        );
    }
    let is_off =
        setting_source::of(facts, "mariadb", "performance_schema").is_some_and(|value| value.is_off());
    let off = if is_off { " (off here)" } else { "" };
    let mut logs = facts.backends("mariadb").flat_map(|service| &service.logs);
    let log = logs.find(|log| log.kind == LogKind::Slow).map_or("FILE", |log| log.path.as_str());
    format!(
        "{INDEX}. To find the statement: `SHOW FULL PROCESSLIST` under load shows those running; `SET GLOBAL slow_query_log = ON, long_query_time = 0.05, log_queries_not_using_indexes = ON` logs those of new connections to the slow log at once (`mariadb-dumpslow -s t {log}` summarises; switch it off afterwards); performance_schema = ON{off} counts all from the next start"
    )
}

/// A statement as it stands in a sentence: of a long one the begin and the end, as conditions come last. `performance_schema`
/// puts a space around each sign.
fn shortened_statement(text: &str) -> String {
    const LENGTH_MAX: usize = 320;
    const PART: usize = 150;
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (spaced, plain) in [(" . ", "."), (" (", "("), ("( ", "("), (" )", ")"), (" ,", ",")] {
        text = text.replace(spaced, plain);
    }
    let length = text.chars().count();
    if length <= LENGTH_MAX {
        return text;
    }
    let begin: String = text.chars().take(PART).collect();
    let end: String = text.chars().skip(length - PART).collect();
    format!("{begin} .. {end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts_of_several;
    use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
    use webdyno_model::topology::Topology;

    fn with(several: &[(FactId, &str, f64)], statements: &[(&str, &str, u64, u64)]) -> Facts {
        let mut facts = facts_of_several(&[], several);
        let statement = |(digest, text, executions, rows): &(&str, &str, u64, u64)| Statement {
            digest: (*digest).into(),
            text: (*text).into(),
            executions_count: *executions,
            rows_examined_count: *rows,
            ..Statement::default()
        };
        let off =
            SettingInForce { running: Some(SettingValue::Text("OFF".into())), ..SettingInForce::default() };
        let database = ServiceSnapshot {
            service: "mariadb".into(),
            statements: statements.iter().map(statement).collect(),
            settings: [("performance_schema".to_owned(), off)].into(),
            ..ServiceSnapshot::default()
        };
        facts.topology = Some(Topology { backends: vec![database], ..Topology::default() });
        facts
    }

    #[test]
    fn the_statement_of_this_window_is_named_with_what_it_does() {
        let now = [
            (FactId::db_statement_rows_per_s, "d1", 600_000.0),
            (FactId::db_statement_per_s, "d1", 50.0),
            (FactId::db_statement_running_mean, "d1", 4.0),
            (FactId::db_statement_rows_per_s, "d2", 900.0),
        ];
        let before =
            [("d1", "SELECT stars FROM review WHERE article = ?", 9, 10), ("d2", "SELECT ?", 90, 99_999)];
        let facts = with(&now, &before);
        let named = statement(&facts).unwrap();
        assert_eq!(
            named.to_text(),
            " Statement (50/s, 12,000 rows and 80 ms each): SELECT stars FROM review WHERE article = ?"
        );
        assert!(how_to_find(&facts, Some(&named)).ends_with("with the right index"));
    }

    #[test]
    fn what_ran_before_is_not_taken_for_what_runs() {
        let facts = with(&[(FactId::db_statement_rows_per_s, "d7", 6e6)], &[("d1", "LOAD", 1, 9_999_999)]);
        let named = statement(&facts).unwrap();
        assert!(named.to_text().contains("digest d7"), "{}", named.to_text());
        assert!(how_to_find(&facts, Some(&named)).contains("DIGEST = 'd7'"));
    }

    #[test]
    fn without_counts_those_that_were_seen_to_run_tell_and_else_the_way_is_told() {
        let facts = with(&[], &[("", "SELECT a FROM t WHERE b = ?", 7, 0), ("", "SELECT 1", 2, 0)]);
        let words = statement(&facts).unwrap().to_text();
        assert!(words.contains("seen running most often: SELECT a FROM t"), "{words}");
        assert_eq!(busiest(&facts).unwrap(), "SELECT a FROM t WHERE b = ?");
        let waits = with(
            &[(FactId::db_statement_running_mean, "d1", 9.0)],
            &[("d1", "UPDATE t", 5, 0), ("d2", "X", 9, 9)],
        );
        assert_eq!(busiest(&waits).unwrap(), "UPDATE t");
        let nothing = with(&[], &[("d1", "SELECT ?", 5, 0)]);
        assert_eq!(busiest(&nothing), None);
        assert!(statement(&nothing).is_none());
        let how = how_to_find(&nothing, None);
        for part in ["SHOW FULL PROCESSLIST", "slow_query_log = ON", "off here"] {
            assert!(how.contains(part), "{how}");
        }
    }

    #[test]
    fn long_statements_are_cut() {
        assert_eq!(shortened_statement("SELECT  1\n FROM t"), "SELECT 1 FROM t");
        assert_eq!(
            shortened_statement("SELECT COUNT ( * ) , `a` . `b` FROM t"),
            "SELECT COUNT(*), `a`.`b` FROM t"
        );
        let long = shortened_statement(&format!("SELECT {} WHERE b = ?", "ä".repeat(400)));
        assert!(long.chars().count() == 304 && long.ends_with("ä WHERE b = ?"), "{long}");
    }
}

//! Statements that run just now, for a database that does not count them (`performance_schema` is off by default).
//!
//! Facts: <https://mariadb.com/kb/en/show-processlist/>; unlike the table information_schema.PROCESSLIST it needs no temporary table:
//! a MariaDB 10.11.19 ended with signal 11 as it dropped the one of such a question (ha_maria::drop_table). A statement that costs a database most of its time
//! is seen running most of the time: a few looks name it. Of its text only the form is kept: values stay with the database.

use super::access::{self, Refusal};
use mysql::prelude::Queryable;
use mysql::{Conn, Row};
use std::collections::BTreeMap;
use std::time::Duration;
use webdyno_model::service::Statement;

/// How often it is looked, and the pause between two looks: a tenth of a second in all.
const SAMPLES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// How much of a text is read.
const TEXT_MAX: usize = 1000;

/// What a connection does.
#[derive(Debug)]
pub struct Activity {
    /// `Query`, `Sleep`.
    pub command: String,
    /// `Waiting for table metadata lock`; empty for none.
    pub state: String,
    /// The text of its statement: the beginning, unless it is asked for in full.
    pub text: Option<String>,
}

/// What the connections do that this account may see, without this one.
pub fn activities(conn: &mut Conn, in_full: bool) -> Result<Vec<Activity>, Refusal> {
    let query = if in_full { "SHOW FULL PROCESSLIST" } else { "SHOW PROCESSLIST" };
    let rows: Vec<Row> = conn.query(query).map_err(|error| access::refusal(&error))?;
    let own = u64::from(conn.connection_id());
    let text = |row: &Row, name: &str| row.get_opt::<Option<String>, _>(name)?.ok()?;
    let others = rows.iter().filter(|row| {
        let id = row.get_opt::<u64, _>("Id").and_then(std::result::Result::ok);
        id != Some(own)
    });
    Ok(others
        .map(|row| Activity {
            command: text(row, "Command").unwrap_or_default(),
            state: text(row, "State").unwrap_or_default(),
            text: text(row, "Info"),
        })
        .collect())
}

/// The forms of statements that were seen to run, those that were seen most often first. How often is told as the number of
/// executions; nothing names or counts them otherwise.
pub fn running_statements(conn: &mut Conn) -> Result<Vec<Statement>, Refusal> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for look in 0..SAMPLES {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        for activity in activities(conn, true)? {
            let runs = ["Query", "Execute"].contains(&activity.command.as_str());
            let Some(text) = activity.text.filter(|_| runs) else { continue };
            let text: String = text.chars().take(TEXT_MAX).collect();
            *counts.entry(form(&text)).or_default() += 1;
        }
    }
    let statement = |(text, executions_count)| Statement { text, executions_count, ..Statement::default() };
    let mut found: Vec<Statement> = counts.into_iter().map(statement).collect();
    found.sort_by_key(|statement| std::cmp::Reverse(statement.executions_count));
    found.truncate(super::STATEMENTS_MAX);
    Ok(found)
}

/// A statement with a question mark in place of each value, and without comments: what stands in these may be anything.
fn form(text: &str) -> String {
    let mut form = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '\'' | '"' => quoted(rest, next),
            '#' => line(rest),
            '-' if rest.starts_with("-- ") => line(rest),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '0'..='9' if !form.ends_with(is_of_name) => rest.find(|c| !is_of_number(c)).unwrap_or(rest.len()),
            _ => {
                match next.is_whitespace() {
                    true if form.ends_with(' ') || form.is_empty() => {}
                    true => form.push(' '),
                    false => form.push(next),
                }
                rest = &rest[next.len_utf8()..];
                continue;
            }
        };
        if matches!(next, '\'' | '"' | '0'..='9') {
            form.push('?');
        }
        rest = &rest[length..];
    }
    form.trim_end().to_owned()
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$' | '`')
}

/// `12`, `1.5`, `0x1f`, `2e7`.
fn is_of_number(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '.'
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a text in quotes; all of what is left where it was cut.
fn quoted(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            letter if letter == quote => match letters.peek() {
                // Two of them are one that belongs to the text.
                Some((_, following)) if *following == quote => {
                    letters.next();
                }
                _ => return at + quote.len_utf8(),
            },
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_and_comments_stay_with_the_database() {
        for (text, expected) in [
            (
                "SELECT AVG(stars) FROM review WHERE article = 17",
                "SELECT AVG(stars) FROM review WHERE article = ?",
            ),
            ("SELECT *\n  FROM t1 WHERE a='it''s' AND b=\"x\\\"y\"", "SELECT * FROM t1 WHERE a=? AND b=?"),
            (
                "SELECT `a7` FROM x2.t_3 WHERE b IN (1, 2.5, 0x1F)",
                "SELECT `a7` FROM x2.t_3 WHERE b IN (?, ?, ?)",
            ),
            ("/* user 42 */ SELECT 1 -- secret\n+ 2 # key", "SELECT ? + ?"),
            ("INSERT INTO t VALUES ('cut off", "INSERT INTO t VALUES (?"),
            ("SELECT 'ä\\", "SELECT ?"),
            ("", ""),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_stands_in_quotes_is_never_told(secret in "[a-z]{8}", before in "[ -~]{0,20}") {
            let before: String = before.chars().filter(|c| !"'\"\\#/-*".contains(*c)).collect();
            let message = form(&format!("SELECT {before} '{secret}'"));
            prop_assert!(!message.contains(&secret) || before.contains(&secret), "{message}");
        }

        #[test]
        fn any_text_is_survived(text in ".{0,60}") {
            form(&text);
        }
    }
}

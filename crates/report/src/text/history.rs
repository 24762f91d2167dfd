//! The sessions below a directory, a line each: to be looked through, and to be searched by grep.

use crate::human::{rate, time};
use crate::plain::{sanitize, shorten_middle};
use webdyno_session::history::SessionSummary;

/// Longer targets and limits are shortened in their middle.
const WORDS_MAX: usize = 44;
/// Columns of numbers are set right.
const NUMBERS: [usize; 2] = [3, 4];

/// The list as text, newest first, with a final newline. Lines are as long as they need to be.
pub fn history(directory: &str, sessions: &[SessionSummary]) -> String {
    if sessions.is_empty() {
        return format!("No session below {}.\n", sanitize(directory));
    }
    let head = ["TIME (UTC)", "COMMAND", "STATE", "RATE", "P99", "LIMIT", "TARGET", "DIRECTORY"];
    let rows: Vec<[String; 8]> =
        std::iter::once(head.map(str::to_owned)).chain(sessions.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cell = |(column, text): (usize, &String)| {
            let padding = " ".repeat(widths[column] - text.chars().count());
            if NUMBERS.contains(&column) { format!("{padding}{text}") } else { format!("{text}{padding}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(session: &SessionSummary) -> [String; 8] {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let words = |text: &str| shorten_middle(&sanitize(text), WORDS_MAX);
    // 2026-11-24T10:47:37.123Z
    let at: String = session.started_at.chars().take(16).collect();
    [
        if at.is_empty() { "-".into() } else { sanitize(&at.replace('T', " ")) },
        sanitize(&session.command),
        sanitize(&session.state),
        session.rate.map_or_else(|| "-".into(), rate),
        session.p99_us.map_or_else(|| "-".into(), |us| time(Some(us))),
        words(&known(&session.limit_title.clone().or(session.limit.clone()).or(session.error.clone()))),
        words(&known(&session.target)),
        sanitize(&session.directory),
    ]
}

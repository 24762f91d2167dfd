//! Pages and visitors: how pages went by name, what visitors did, and the waterfalls of two pages.

use super::page::{ColumnAlign, TextPage};
use crate::human::{bytes, count, plural, rate_or_unknown, time, time_us};
use crate::phrases::{self, RemainingParts};
use crate::plain::{sanitize, shorten_middle};
use webdyno_model::page::{FetchedBy, PageTrace, PartTrace};
use webdyno_model::run::RunReport;

/// More names than this are summed up in a line.
const NAMES_MAX: usize = 20;
/// Longer names are shortened, so that the figures beside them stay on their line.
pub(super) const NAME_COLUMNS: usize = 32;
/// More parts than this are summed up.
const PARTS_MAX: usize = 25;
/// More failed parts than this are not told.
const FAILED_MAX: usize = 5;

/// The columns of a waterfall: name, bars, end, size; with the blanks between them and the indent 80.
const PART_COLUMNS: usize = 25;
const BAR_COLUMNS: usize = 34;
const TIME_COLUMNS: usize = 8;
const SIZE_COLUMNS: usize = 8;

/// What the letters of a waterfall are.
const WAITING: char = '\u{2591}';
const REQUESTED: char = '\u{2592}';
const RECEIVING: char = '\u{2588}';

/// Pages by name, when there are several.
pub(super) fn write_pages_by_name(page: &mut TextPage, run: &RunReport) {
    let named = phrases::pages_by_count(run);
    if named.len() < 2 {
        return;
    }
    page.heading("By page");
    let mut rows =
        vec![["page", "complete", "failed", "per second", "p50", "p99"].map(str::to_owned).to_vec()];
    for (name, figures) in named.iter().take(NAMES_MAX) {
        rows.push(vec![
            shorten_middle(name, NAME_COLUMNS),
            count(figures.completed),
            count(figures.failed),
            rate_or_unknown(figures.rate),
            time(figures.time_us.p50),
            time(figures.time_us.p99),
        ]);
    }
    page.table(&[ColumnAlign::Words].into_iter().chain([ColumnAlign::Number; 5]).collect::<Vec<_>>(), &rows);
    if named.len() > NAMES_MAX {
        page.paragraph(&format!("and {} more in the JSON", count((named.len() - NAMES_MAX) as u64)));
    }
}

/// What visitors did, and what they looked for in vain.
pub(super) fn visitors(page: &mut TextPage, run: &RunReport) {
    let (reported, missed) = (phrases::sessions(run), phrases::missed_captures(run));
    if reported.is_empty() {
        return;
    }
    page.heading("What the visitors did");
    reported.iter().for_each(|line| page.paragraph(&format!("{line}.")));
    for line in missed.iter().take(NAMES_MAX) {
        page.item("-", line);
    }
    if !missed.is_empty() {
        page.indented_item("Usual cause:", phrases::CAPTURES_USUALLY);
        page.indented_item("Remedy:", phrases::CAPTURES_ADVICE);
    }
}

/// How the two pages went of which the report has the parts.
pub(super) fn write_waterfalls(page: &mut TextPage, run: &RunReport) {
    let Some(pages) = &run.pages else { return };
    let displayed = phrases::traces(pages);
    for (title, trace) in &displayed {
        let summary = phrases::trace_summary(trace);
        page.heading(&format!(
            "{title}: {}, {summary}",
            shorten_middle(&sanitize(&trace.name), NAME_COLUMNS)
        ));
        write_waterfall(page, trace);
    }
    if !displayed.is_empty() {
        page.gap();
        page.item(
            &WAITING.to_string(),
            "known, and not sent yet: it waits for a connection, or for its opening",
        );
        page.item(&REQUESTED.to_string(), "sent, no byte of the answer yet");
        page.item(
            &RECEIVING.to_string(),
            "receiving. The times are those of the ends, since the page was due",
        );
    }
}

fn write_waterfall(page: &mut TextPage, trace: &PageTrace) {
    let ends = trace.parts.iter().map(|part| part.ended_us);
    let scale_us = ends.chain([trace.time_us]).max().unwrap_or(0).max(1);
    let (parts, rest) = phrases::parts_shown(trace, PARTS_MAX);
    for part in parts {
        let size = match (&part.failure, part.by) {
            (Some(_), _) => "FAILED".into(),
            (None, FetchedBy::Cache) => "cache".into(),
            (None, _) => bytes(part.bytes as f64),
        };
        page.verbatim(&line(&part.name, &bar(part, scale_us), part.ended_us, &size));
    }
    if let Some(RemainingParts { count: number, known_us, ended_us, bytes: amount }) = rest {
        let cells: String = cells(known_us, ended_us, scale_us, |_| '-');
        let name = format!("({} more)", count(number as u64));
        page.verbatim(&line(&name, &cells, ended_us, &bytes(amount as f64)));
    }
    let failed: Vec<&PartTrace> = trace.parts.iter().filter(|part| part.failure.is_some()).collect();
    for part in failed.iter().take(FAILED_MAX) {
        page.item("-", &format!("{}: {}", part.name, phrases::part_failure(part)));
    }
    if failed.len() > FAILED_MAX {
        page.item("-", &format!("and {} more", plural((failed.len() - FAILED_MAX) as u64, "failed part")));
    }
}

/// One line of a waterfall, never wider than the page.
fn line(name: &str, bar: &str, ended_us: u64, size: &str) -> String {
    let name = shorten_middle(&sanitize(name), PART_COLUMNS);
    let ended = shorten_middle(&time_us(ended_us as f64), TIME_COLUMNS);
    let size = shorten_middle(size, SIZE_COLUMNS);
    format!("{name:PART_COLUMNS$} {bar:BAR_COLUMNS$} {ended:>TIME_COLUMNS$} {size:>SIZE_COLUMNS$}")
}

/// A part's bar: each column is what the part did in the middle of it.
fn bar(part: &PartTrace, scale_us: u64) -> String {
    let sent_us = part.sent_us.unwrap_or(u64::MAX) as f64;
    let first_us = part.first_byte_us.unwrap_or(u64::MAX) as f64;
    cells(part.known_us, part.ended_us, scale_us, |at_us| match at_us {
        _ if part.by == FetchedBy::Cache => RECEIVING,
        at_us if at_us < sent_us => WAITING,
        at_us if at_us < first_us => REQUESTED,
        _ => RECEIVING,
    })
}

/// Letters for the columns between two times, at least one; each is asked for its time.
fn cells(from_us: u64, to_us: u64, scale_us: u64, letter: impl Fn(f64) -> char) -> String {
    let (columns, scale) = (BAR_COLUMNS as f64, scale_us as f64);
    let (from, to) = (from_us as f64, to_us.max(from_us) as f64);
    let first = ((from / scale * columns).floor() as usize).min(BAR_COLUMNS - 1);
    let last = ((to / scale * columns).round() as usize).clamp(first + 1, BAR_COLUMNS);
    let middle = |column: usize| ((column as f64 + 0.5) / columns * scale).clamp(from, to);
    let blank = std::iter::repeat_n(' ', first);
    blank.chain((first..last).map(|column| letter(middle(column)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(known_us: u64, sent_us: Option<u64>, first_byte_us: Option<u64>, ended_us: u64) -> PartTrace {
        PartTrace { known_us, sent_us, first_byte_us, ended_us, ..PartTrace::default() }
    }

    #[test]
    fn a_bar_shows_what_a_part_waited_for() {
        for (part, expected) in [
            (part(0, Some(10), Some(20), 34), "░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒██████████████"),
            (part(30, Some(30), Some(32), 34), "                              ▒▒██"),
            // Never sent, never answered.
            (part(30, None, None, 34), "                              ░░░░"),
            (part(30, Some(31), None, 34), "                              ░▒▒▒"),
            // Too short to have a length.
            (part(17, Some(17), Some(17), 17), "                 █"),
            (part(34, None, None, 34), "                                 ░"),
        ] {
            assert_eq!(bar(&part, 34), expected);
        }
    }

    #[test]
    fn a_line_is_as_wide_as_the_page_at_most() {
        let name = "/images/".repeat(20);
        let line = line(&name, &"#".repeat(BAR_COLUMNS), 12_000_000_000, "999 kB");
        assert_eq!(line.chars().count() + 2, 80, "{line}");
    }
}

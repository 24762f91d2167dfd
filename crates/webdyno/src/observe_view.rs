//! What an observation shows while it goes on, on stderr: made from its events and nothing else.
//!
//! On a terminal a small table that is rewritten each second; else a line each second. What is missing and what goes wrong
//! is told once, above it.

use crate::cli::OutputArgs;
use crate::recent_levels::RecentLevels;
use crate::terminal;
use std::collections::BTreeSet;
use std::io::Write;
use webdyno_analysis::run_report::host_levels::HostLevel;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::sample::{MissingSignal, Sample};
use webdyno_session::log::writer::EventObserver;

/// Levels of a line.
const IN_A_LINE: [(&str, &str); 7] = [
    ("CPU", "busy"),
    ("memory", "available"),
    ("accept queue", "waiting"),
    ("workers", "busy"),
    ("workers", "places"),
    ("requests", "served"),
    ("connections", "new"),
];

/// A watcher that shows the observation, as the output flags ask for it. One look shows only what is missing, at its end.
pub fn observer(output: &OutputArgs, once: bool) -> EventObserver {
    if output.quiet || once {
        return Box::new(|_| {});
    }
    let rewrites = terminal::is_stderr_terminal() && !output.no_tui && !output.verbose;
    let mut displayed = ObserveView { rewrites, ..ObserveView::default() };
    Box::new(move |event| {
        let text = displayed.render_event(event);
        if !text.is_empty() {
            let mut stderr = std::io::stderr().lock();
            // A closed stderr is nobody's loss.
            let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
        }
    })
}

#[derive(Default)]
struct ObserveView {
    rewrites: bool,
    recent: RecentLevels,
    /// The second that was shown last.
    second: Option<u64>,
    /// Lines of the table that stands on the terminal.
    lines: usize,
    reported_missing: BTreeSet<String>,
}

impl ObserveView {
    /// What is written for the next event.
    fn render_event(&mut self, event: &Event) -> String {
        self.recent.add(event);
        match &event.body {
            EventBody::Sample { host, sample } => {
                let mut text = self.missing(host.as_ref(), sample);
                let second = event.t_us / 1_000_000;
                // The readings of a second come within a few milliseconds of each other: it is shown when the next begins.
                if self.second.is_none_or(|displayed| second > displayed) {
                    let begins = self.second.is_some();
                    self.second = Some(second);
                    if begins {
                        text += &self.levels(second - 1);
                    }
                }
                text
            }
            EventBody::Incident { host, what, .. } => {
                let role = host.as_ref().map_or(String::new(), |role| format!("{role}: "));
                self.line_above_table(&format!("incident: {role}{what}"))
            }
            EventBody::Note { text } => self.line_above_table(&format!("note: {text}")),
            _ => String::new(),
        }
    }

    /// What is told of signals that are missing, each once.
    fn missing(&mut self, host: Option<&String>, sample: &Sample) -> String {
        let role = host.map_or(String::new(), |role| format!("{role}: "));
        let mut text = String::new();
        // What nothing helps against, and what is missing of nothing, would hide the rest here; the results have it.
        let helped = |missing: &&MissingSignal| !missing.how_to_enable.starts_with("nothing");
        for missing in sample.missing.iter().flatten().filter(helped) {
            if self.reported_missing.insert(format!("{role}{}", missing.signal)) {
                text += &self.line_above_table(&format!(
                    "missing: {role}{}: {} ({})",
                    missing.signal, missing.why, missing.how_to_enable
                ));
            }
        }
        text
    }

    /// A line that stays, above the table.
    fn line_above_table(&mut self, line: &str) -> String {
        let clear = self.clear();
        self.lines = 0;
        format!("{clear}{}\n", terminal::printable(line))
    }

    fn clear(&self) -> String {
        match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    /// The levels as they are now.
    fn levels(&mut self, second: u64) -> String {
        let hosts = self.recent.latest();
        if !self.rewrites {
            return hosts.iter().map(|(host, levels)| line(second, host.as_deref(), levels)).collect();
        }
        let rows: Vec<String> =
            hosts.iter().flat_map(|(host, levels)| table(second, host.as_deref(), levels)).collect();
        let text = format!("{}{}\n", self.clear(), rows.join("\n"));
        self.lines = rows.len();
        text
    }
}

fn level_text(level: &HostLevel, value: f64) -> String {
    webdyno_report::level(value, level.unit)
}

/// `  12 s  CPU busy 12%, memory available 3.2 GB, ...`.
fn line(second: u64, host: Option<&str>, levels: &[(&HostLevel, f64)]) -> String {
    let of = |(group, name): &(&str, &str)| {
        levels.iter().find(|(level, _)| level.group == *group && level.name == *name)
    };
    let figures: Vec<String> = IN_A_LINE
        .iter()
        .filter_map(of)
        .map(|(level, value)| format!("{} {} {}", level.group, level.name, level_text(level, *value)))
        .collect();
    let host = host.map_or(String::new(), |host| format!("{host}: "));
    format!("{second:4} s  {host}{}\n", figures.join(", "))
}

/// A line for each group: `CPU            busy 12%  softirq 0.1%`, within 80 columns.
fn table(second: u64, host: Option<&str>, levels: &[(&HostLevel, f64)]) -> Vec<String> {
    let mut rows = vec![format!("{second:4} s{}", host.map_or(String::new(), |host| format!("  {host}")))];
    let mut groups: Vec<&str> = levels.iter().map(|(level, _)| level.group).collect();
    groups.dedup();
    for group in groups {
        let own = levels.iter().filter(|(level, _)| level.group == group);
        let figures: Vec<String> =
            own.map(|(level, value)| format!("{} {}", level.name, level_text(level, *value))).collect();
        let mut row = format!("  {group:<13}");
        for figure in figures {
            if row.chars().count() + figure.chars().count() + 2 > 79 {
                rows.push(std::mem::replace(&mut row, " ".repeat(15)));
            }
            row += &format!("  {figure}");
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_analysis::run_report::host_levels::MAIN;
    use webdyno_model::number::Number;

    fn sample(t_us: u64, values: &[(&str, f64)], missing: Option<Vec<MissingSignal>>) -> Event {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
        let sample = Sample { source: "x".into(), values, missing, ..Sample::default() };
        Event { v: 1, seq: 0, t_us, body: EventBody::Sample { host: None, sample } }
    }

    const QUEUE: &str = "sockets.accept_queue_count";

    #[test]
    fn each_second_is_shown_once_and_what_is_missing_once() {
        let lack = || Some(vec![MissingSignal::new("mod_status", "off", "on")]);
        let mut displayed = ObserveView::default();
        assert_eq!(
            displayed.render_event(&sample(100, &[(QUEUE, 3.0)], lack())),
            "missing: mod_status: off (on)\n"
        );
        let none = MissingSignal::new("x", "none", "nothing: none");
        assert_eq!(displayed.render_event(&sample(150, &[], Some(vec![none]))), "");
        assert_eq!(displayed.render_event(&sample(2_100, &[("apache.workers_busy_count", 7.0)], None)), "");
        let line = displayed.render_event(&sample(1_000_100, &[(QUEUE, 4.0)], lack()));
        assert_eq!(line, "   0 s  accept queue waiting 4, workers busy 7\n");
        assert_eq!(displayed.render_event(&sample(1_002_000, &[], None)), "");
    }

    #[test]
    fn a_table_is_rewritten_and_lines_above_it_stay() {
        let mut displayed = ObserveView { rewrites: true, ..ObserveView::default() };
        displayed.render_event(&sample(0, &[(QUEUE, 3.0)], None));
        let first = displayed.render_event(&sample(1_000_000, &[(QUEUE, 4.0)], None));
        assert_eq!(first, "   0 s\n  accept queue   waiting 4\n");
        let second = displayed.render_event(&sample(2_000_000, &[(QUEUE, 5.0)], None));
        assert!(second.starts_with("\x1b[2A\r\x1b[J   1 s\n"), "{second:?}");
        let what = "full\x1b[2J".into();
        let body = EventBody::Incident { host: Some("db".into()), metric: "m".into(), what };
        let above = displayed.render_event(&Event { v: 1, seq: 0, t_us: 2_500_000, body });
        assert_eq!(above, "\x1b[2A\r\x1b[Jincident: db: full\u{fffd}[2J\n");
        assert!(displayed.render_event(&sample(3_000_000, &[(QUEUE, 5.0)], None)).starts_with("   2 s\n"));
    }

    #[test]
    fn a_table_stays_within_eighty_columns() {
        let levels: Vec<(&HostLevel, f64)> = MAIN.iter().map(|level| (level, 123_456.789)).collect();
        for row in table(3, Some("db"), &levels) {
            assert!(row.chars().count() < 80, "{row}");
        }
    }
}

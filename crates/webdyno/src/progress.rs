//! Progress on stderr, made from the session's events and nothing else: what happens now, and how long it still takes.

use crate::cli::OutputArgs;
use crate::terminal;
use std::io::Write;
use webdyno_model::event::{Event, EventBody, Purpose};
use webdyno_session::log::writer::Watcher;

/// Seconds between lines when nobody watches a terminal.
const LINE_EVERY_S: u64 = 5;
/// Usual seconds until a load has settled: before and after a change (new limits fill up slowly).
const SETTLE_S: f64 = 8.0;
const SETTLE_AFTER_CHANGE_S: f64 = 17.0;
/// Usual seconds to carry a change out.
const CHANGE_S: f64 = 3.0;

/// How the time left is estimated.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Seconds that each load measures, or lasts.
    pub measure_s: f64,
    /// Whether loads settle first.
    pub settles: bool,
    /// Whether a change and its verification are expected after the first load.
    pub changes: bool,
}

/// A watcher that writes progress, as the output flags ask for it.
pub fn watcher(output: &OutputArgs, pace: Pace) -> Watcher {
    if output.quiet {
        return Box::new(|_| {});
    }
    let rewrite = terminal::is_watched() && !output.no_tui && !output.verbose;
    let every_s = if rewrite || output.verbose { 1 } else { LINE_EVERY_S };
    let mut progress = Progress { pace, doing: String::new(), left_s: 0.0, began_us: 0, written_s: None };
    Box::new(move |event| {
        if let Some(line) = progress.line(event, every_s) {
            write(&line, rewrite, matches!(event.body, EventBody::Interval { .. }));
        }
    })
}

fn write(line: &str, rewrite: bool, passing: bool) {
    let mut stderr = std::io::stderr().lock();
    // A closed stderr is nobody's loss.
    let _ = match (rewrite, passing) {
        (true, true) => write!(stderr, "\r\x1b[K{line}"),
        (true, false) => writeln!(stderr, "\r\x1b[K{line}"),
        (false, _) => writeln!(stderr, "{line}"),
    };
    let _ = stderr.flush();
}

struct Progress {
    pace: Pace,
    doing: String,
    left_s: f64,
    began_us: u64,
    written_s: Option<u64>,
}

impl Progress {
    fn line(&mut self, event: &Event, every_s: u64) -> Option<String> {
        match &event.body {
            EventBody::LoadStart { purpose, workload, .. } => {
                self.began_us = event.t_us;
                self.written_s = None;
                (self.doing, self.left_s) = self.load(*purpose);
                Some(self.told(event.t_us, &format!("{} connections", workload.connections)))
            }
            EventBody::Interval { interval, .. } => {
                let second = event.t_us / 1_000_000;
                if self.written_s.is_some_and(|written| second < written + every_s) {
                    return None;
                }
                self.written_s = Some(second);
                let rate = interval.completed as f64 * 1e6 / interval.length_us.max(1) as f64;
                let failed =
                    if interval.failed > 0 { format!(", {} failed", interval.failed) } else { String::new() };
                Some(self.told(event.t_us, &format!("{rate:.0} good answers/s{failed}")))
            }
            EventBody::Planned { n, finding, changes, .. } => {
                let change = |change: &webdyno_model::change::Change| {
                    let from = change.from.as_ref().map_or("unset".to_owned(), ToString::to_string);
                    format!("{} {from} -> {} ({})", change.setting, change.to, change.class.name())
                };
                let changes: Vec<String> = changes.iter().map(change).collect();
                Some(format!("round {n}: {}: {}", finding.id, changes.join(", ")))
            }
            EventBody::RoundEnd { round, .. } => {
                let verdict = round.verdict?;
                let kept = if round.kept { "kept" } else { "put back" };
                let ratio = round.ratio.map_or(String::new(), |ratio| format!(", {ratio:.2} times the rate"));
                Some(format!("round {}: {}{ratio}: {kept}", round.n, verdict.name()))
            }
            EventBody::Brake { brake, .. } => {
                Some(format!("stopped: {}: {}", brake.cause.name(), brake.text))
            }
            EventBody::Note { text } => Some(format!("note: {text}")),
            _ => None,
        }
    }

    fn load(&self, purpose: Purpose) -> (String, f64) {
        let settle = |seconds: f64| if self.pace.settles { seconds } else { 0.0 };
        let verify = CHANGE_S + settle(SETTLE_AFTER_CHANGE_S) + self.pace.measure_s;
        let first = settle(SETTLE_S) + self.pace.measure_s;
        match purpose {
            Purpose::Run => ("loading".into(), self.pace.measure_s),
            Purpose::Diagnose => ("loading and observing".into(), first),
            Purpose::Baseline => {
                ("measuring as it is".into(), first + if self.pace.changes { verify } else { 0.0 })
            }
            Purpose::Verify => ("measuring after the change".into(), verify - CHANGE_S),
        }
    }

    fn told(&self, t_us: u64, what: &str) -> String {
        let left = (self.left_s - t_us.saturating_sub(self.began_us) as f64 / 1e6).max(1.0);
        format!("{:4.0} s  {}: {what}; about {left:.0} s left", t_us as f64 / 1e6, self.doing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::interval::Interval;

    fn interval(t_us: u64) -> Event {
        let interval = Box::new(Interval { length_us: 1_000_000, completed: 750, ..Interval::default() });
        Event { v: 1, seq: 0, t_us, body: EventBody::Interval { load: 1, interval } }
    }

    #[test]
    fn every_line_says_what_is_left() {
        let pace = Pace { measure_s: 10.0, settles: true, changes: true };
        let mut progress = Progress { pace, doing: String::new(), left_s: 0.0, began_us: 0, written_s: None };
        (progress.doing, progress.left_s) = progress.load(Purpose::Baseline);
        assert_eq!(
            progress.line(&interval(8_000_000), 5).unwrap(),
            "   8 s  measuring as it is: 750 good answers/s; about 40 s left"
        );
        assert_eq!(progress.line(&interval(9_000_000), 5), None);
        assert!(progress.line(&interval(99_000_000), 5).unwrap().ends_with("about 1 s left"));
    }
}

//! Progress on stderr, made from the session's events and nothing else: what happens now, and how long it still takes. On a
//! terminal it is the live view, elsewhere lines.

use crate::cli::OutputArgs;
use crate::live_view::{self, Headline, LiveView};
use crate::terminal;
use std::io::Write;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::interval::Interval;
use webdyno_model::number::human;
use webdyno_model::purpose::Purpose;
use webdyno_model::sweep::KnobValue;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_session::log::writer::EventObserver;

/// Seconds between lines when nobody watches a terminal.
const LINE_EVERY_S: u64 = 5;
/// To the first column, and nothing behind it.
const CLEAR_LINE: &str = "\r\x1b[K";
/// Usual seconds until a load has settled: before and after a change (new limits fill up slowly).
const SETTLE_S: f64 = 8.0;
const SETTLE_AFTER_CHANGE_S: f64 = 17.0;
/// Usual seconds to carry a change out.
const CHANGE_S: f64 = 3.0;

/// How the time left is estimated.
#[derive(Debug, Clone, Copy)]
pub struct ProgressPlan {
    /// Seconds that each load measures, or lasts.
    pub measure_s: f64,
    /// Whether loads settle first.
    pub settles: bool,
    /// Whether a change and its verification are expected after the first load.
    pub changes: bool,
}

/// A watcher that shows progress, as the output flags ask for it: the live view where the terminal can show it, else lines.
pub fn observer(output: &OutputArgs, pace: ProgressPlan) -> EventObserver {
    // In a browser the session is shown already, and its URL has to stay.
    if output.quiet || output.web.is_some() || !rewrites(output) || !live_view::is_possible() {
        return lines(output, pace);
    }
    let mut progress = Progress::new(pace);
    let mut view = LiveView::new(terminal::palette());
    Box::new(move |event| {
        let is_second = matches!(event.body, EventBody::Interval { .. });
        let line = progress.line(event, 1).filter(|_| !is_second);
        let is_before_load = progress.doing.is_empty() && pace.settles;
        let left_s = if is_before_load { None } else { progress.remaining_s(event.t_us) };
        view.show(event, &Headline { doing: &progress.doing, left_s, line: line.as_deref() });
    })
}

/// A watcher that writes progress in lines.
pub fn lines(output: &OutputArgs, pace: ProgressPlan) -> EventObserver {
    if output.quiet {
        return Box::new(|_| {});
    }
    let mut writer = LineWriter { rewrites: rewrites(output), is_passing: false };
    let every_s = if writer.rewrites || output.verbose { 1 } else { LINE_EVERY_S };
    let mut progress = Progress::new(pace);
    Box::new(move |event| {
        if let Some(line) = progress.line(event, every_s) {
            writer.write(&terminal::printable(&line), matches!(event.body, EventBody::Interval { .. }));
        }
    })
}

/// Whether somebody watches a terminal on which what is written may be replaced.
fn rewrites(output: &OutputArgs) -> bool {
    terminal::is_stderr_terminal() && !output.no_tui && !output.verbose
}

/// Writes lines, and on a terminal replaces the passing ones.
struct LineWriter {
    rewrites: bool,
    /// Whether a line stands there that the next one replaces.
    is_passing: bool,
}

impl LineWriter {
    fn write(&mut self, line: &str, passing: bool) {
        // Whoever writes also ends the load, and brakes it: a terminal that is held must hold neither. The recording has the line.
        if !terminal::stderr_takes_line() {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // A closed stderr is nobody's loss.
        let _ = match (self.rewrites, passing) {
            (true, true) => write!(stderr, "{CLEAR_LINE}{line}"),
            (true, false) => writeln!(stderr, "{CLEAR_LINE}{line}"),
            (false, _) => writeln!(stderr, "{line}"),
        };
        let _ = stderr.flush();
        self.is_passing = self.rewrites && passing;
    }
}

impl Drop for LineWriter {
    /// What comes next begins on an empty line.
    fn drop(&mut self) {
        if self.is_passing {
            let mut stderr = std::io::stderr().lock();
            let _ = stderr.write_all(CLEAR_LINE.as_bytes()).and_then(|()| stderr.flush());
        }
    }
}

struct Progress {
    pace: ProgressPlan,
    doing: String,
    remaining_s: f64,
    began_us: u64,
    written_s: Option<u64>,
    /// Requests after which the load ends, if it is by them that it ends.
    requests: Option<u64>,
    /// Requests a second that are due, if that is fixed.
    rate_per_s: Option<f64>,
    /// Requests that have ended.
    ended: u64,
    /// Of a sweep: when it began, the point under way, and how many loads are left with it.
    sweep: Option<SweepProgress>,
}

/// How far a sweep is.
struct SweepProgress {
    began_us: u64,
    done: u32,
    left: u32,
}

impl Progress {
    fn new(pace: ProgressPlan) -> Self {
        let doing = String::new();
        let (requests, rate_per_s) = (None, None);
        let remaining_s = pace.measure_s;
        Self {
            pace,
            doing,
            remaining_s,
            began_us: 0,
            written_s: None,
            requests,
            rate_per_s,
            ended: 0,
            sweep: None,
        }
    }

    fn line(&mut self, event: &Event, every_s: u64) -> Option<String> {
        match &event.body {
            EventBody::LoadStart { purpose, workload, .. } => {
                (self.doing, self.remaining_s) = self.load(*purpose, event.t_us);
                self.began_us = event.t_us;
                self.written_s = None;
                (self.requests, self.ended) = (workload.stop.requests, 0);
                // The rate of visitors is one of sessions, each of which is several requests.
                self.rate_per_s = match (workload.arrival, &workload.visits) {
                    (Arrival::Open { rate_per_s, .. }, None) => Some(rate_per_s),
                    _ => None,
                };
                Some(self.progress_line(event.t_us, &offered_text(*purpose, workload)))
            }
            EventBody::Interval { interval, .. } => {
                self.ended += interval.completed + interval.failed;
                let second = event.t_us / 1_000_000;
                if self.written_s.is_some_and(|written| second < written + every_s) {
                    return None;
                }
                self.written_s = Some(second);
                Some(self.progress_line(event.t_us, &ended_text(interval)))
            }
            EventBody::Planned { n, finding, changes, .. } => {
                let change = |change: &webdyno_model::change::Change| {
                    let from = change.from.as_ref().map_or("unset".to_owned(), ToString::to_string);
                    format!("{} {from} -> {} ({})", change.setting.name, change.to, change.class.name())
                };
                let changes: Vec<String> = changes.iter().map(change).collect();
                Some(format!("round {n}: {}: {}", finding.id, changes.join(", ")))
            }
            EventBody::RoundEnd { round, .. } => {
                let verdict = round.verdict?;
                let kept = if round.kept { "kept" } else { "reverted" };
                let ratio = round.ratio.map_or(String::new(), |ratio| format!(", {ratio:.2} times the rate"));
                Some(format!("round {}: {}{ratio}: {kept}", round.n, verdict.name()))
            }
            EventBody::SweepPointStart { values, n, expected, .. } => {
                let began_us = self.sweep.as_ref().map_or(event.t_us, |sweep| sweep.began_us);
                let done = self.sweep.as_ref().map_or(0, |sweep| sweep.done + 1);
                self.sweep = Some(SweepProgress { began_us, done, left: (expected + 1).saturating_sub(*n) });
                (self.began_us, self.doing) = (event.t_us, format!("point {n} of about {expected}"));
                (self.requests, self.remaining_s) = (None, self.sweep_s(event.t_us));
                Some(
                    self.progress_line(
                        event.t_us,
                        &values.iter().map(value_text).collect::<Vec<_>>().join(", "),
                    ),
                )
            }
            EventBody::SweepPointEnd { point } => Some(format!("not measured: {}", point.failed.as_ref()?)),
            EventBody::Brake { brake: trip, .. } => {
                Some(format!("stopped: {}: {}", trip.cause.name(), trip.text))
            }
            EventBody::Note { text } => Some(format!("note: {text}")),
            _ => None,
        }
    }

    fn load(&self, purpose: Purpose, t_us: u64) -> (String, f64) {
        let settle = |seconds: f64| if self.pace.settles { seconds } else { 0.0 };
        let verify = CHANGE_S + settle(SETTLE_AFTER_CHANGE_S) + self.pace.measure_s;
        let first = settle(SETTLE_S) + self.pace.measure_s;
        match purpose {
            Purpose::Run => ("loading".into(), self.pace.measure_s),
            Purpose::WithoutResources => ("loading documents only".into(), self.pace.measure_s),
            Purpose::WithoutKeepalive => ("loading without keep-alive".into(), first),
            Purpose::HalfLoad => ("loading half as much".into(), first),
            Purpose::FromLoopback => ("loading over loopback".into(), first),
            Purpose::Diagnose => ("loading and observing".into(), first),
            Purpose::Baseline => {
                ("measuring as it is".into(), first + if self.pace.changes { verify } else { 0.0 })
            }
            Purpose::Verify => ("measuring after the change".into(), verify - CHANGE_S),
            Purpose::Sweep | Purpose::WarmCache => (
                self.doing.clone(),
                (self.remaining_s - (t_us.saturating_sub(self.began_us)) as f64 / 1e6).max(1.0),
            ),
            // The pace is that of the whole search.
            Purpose::Capacity => ("measuring a step".into(), first - t_us as f64 / 1e6),
        }
    }

    /// Seconds that the points of a sweep still take: as long as those before, or as a load usually takes.
    fn sweep_s(&self, t_us: u64) -> f64 {
        let settle_s = if self.pace.settles { SETTLE_S } else { 0.0 };
        let change_s = if self.pace.changes { CHANGE_S } else { 0.0 };
        let usual_s = self.pace.measure_s + settle_s + change_s;
        let Some(sweep) = &self.sweep else { return usual_s };
        let each_s = match sweep.done {
            0 => usual_s,
            done => t_us.saturating_sub(sweep.began_us) as f64 / 1e6 / f64::from(done),
        };
        each_s * f64::from(sweep.left)
    }

    fn progress_line(&self, t_us: u64, what: &str) -> String {
        let left =
            self.remaining_s(t_us).map_or(String::new(), |left_s| format!("; about {left_s:.0} s left"));
        format!("{:4.0} s  {}: {what}{left}", t_us as f64 / 1e6, self.doing)
    }

    /// Seconds left; `None` where nothing tells that yet.
    fn remaining_s(&self, t_us: u64) -> Option<f64> {
        let lasted_s = t_us.saturating_sub(self.began_us) as f64 / 1e6;
        let Some(requests) = self.requests else {
            return Some((self.remaining_s - lasted_s).max(1.0));
        };
        let rate_per_s = self.rate_per_s.or((self.ended > 0).then_some(self.ended as f64 / lasted_s))?;
        let left = requests.saturating_sub(self.ended);
        (left > 0).then(|| (left as f64 / rate_per_s).max(1.0))
    }
}

/// A value of a knob.
fn value_text(value: &KnobValue) -> String {
    match value {
        KnobValue::Number(number) => human::number(*number),
        KnobValue::Word(word) => word.clone(),
    }
}

/// How many there are at most: `50 connections`, `400 users`.
fn concurrency_text(workload: &Workload) -> String {
    match (&workload.visits, workload.arrival) {
        (Some(visits), Arrival::Closed) => format!("{} users", visits.users),
        _ => format!("{} connections", workload.connections),
    }
}

/// What a load offers: of the steps of a search, which differ in it, the rate.
fn offered_text(purpose: Purpose, workload: &Workload) -> String {
    match (purpose, workload.arrival) {
        (Purpose::Capacity, Arrival::Open { rate_per_s, .. }) => {
            let what = if workload.page_names().is_empty() { "req/s" } else { "pages/s" };
            format!("{rate_per_s} {what} offered")
        }
        _ => concurrency_text(workload),
    }
}

/// What ended in an interval: pages, where there are some, and answers.
fn ended_text(interval: &Interval) -> String {
    let failed = |failed: u64| if failed > 0 { format!(", {failed} failed") } else { String::new() };
    match &interval.pages {
        Some(pages) if interval.length_us >= 900_000 => {
            let rate = pages.completed as f64 * 1e6 / interval.length_us as f64;
            format!("{rate:.0} pages/s{}, {}", failed(pages.failed), response_rate_text(interval))
        }
        _ => response_rate_text(interval) + &failed(interval.failed),
    }
}

/// The rate of a second; of a part of one the answers themselves, as its rate would be of next to nothing.
fn response_rate_text(interval: &Interval) -> String {
    match (interval.completed, interval.length_us) {
        (1, ..900_000) => "1 successful request".into(),
        (completed, ..900_000) => format!("{completed} successful requests"),
        (completed, length_us) => {
            format!("{:.0} req/s", completed as f64 * 1e6 / length_us as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::page::PageInterval;
    use webdyno_model::workload::Stop;
    use webdyno_model::workload::visit::Visits;

    fn interval(t_us: u64) -> Event {
        let interval = Box::new(Interval { length_us: 1_000_000, completed: 750, ..Interval::default() });
        Event { v: 1, seq: 0, t_us, body: EventBody::Interval { load: 1, interval } }
    }

    #[test]
    fn every_line_says_what_is_left() {
        let pace = ProgressPlan { measure_s: 10.0, settles: true, changes: true };
        let mut progress = Progress::new(pace);
        (progress.doing, progress.remaining_s) = progress.load(Purpose::Baseline, 0);
        assert_eq!(
            progress.line(&interval(8_000_000), 5).unwrap(),
            "   8 s  measuring as it is: 750 req/s; about 40 s left"
        );
        assert_eq!(progress.line(&interval(9_000_000), 5), None);
        assert!(progress.line(&interval(99_000_000), 5).unwrap().ends_with("about 1 s left"));
    }

    #[test]
    fn pages_come_before_their_answers() {
        let pages =
            |failed| Some(Box::new(PageInterval { completed: 40, failed, ..PageInterval::default() }));
        let second = Interval { length_us: 1_000_000, completed: 800, failed: 3, ..Interval::default() };
        for (pages, expected) in [
            (pages(0), "40 pages/s, 800 req/s"),
            (pages(2), "40 pages/s, 2 failed, 800 req/s"),
            (None, "800 req/s, 3 failed"),
        ] {
            assert_eq!(ended_text(&Interval { pages, ..second.clone() }), expected);
        }
        let visits = Some(Box::new(Visits { users: 400, ..Visits::default() }));
        let mut workload = Workload { visits, ..Workload::default() };
        assert_eq!(concurrency_text(&workload), "400 users");
        workload.arrival = Arrival::Open { rate_per_s: 5.0, poisson: false };
        assert_eq!(concurrency_text(&workload), "50 connections");
    }

    #[test]
    fn a_number_of_requests_tells_what_is_left() {
        let pace = ProgressPlan { measure_s: 1.0, settles: false, changes: false };
        let begun = |arrival: Arrival| {
            let stop = Stop { duration_us: None, requests: Some(7500) };
            let workload = Workload { arrival, stop, ..Workload::default() };
            let body = EventBody::LoadStart {
                load: 1,
                purpose: Purpose::Run,
                workload: workload.into(),
                alone_us: None,
            };
            let mut progress = Progress::new(pace);
            let line = progress.line(&Event { v: 1, seq: 0, t_us: 0, body }, 1).unwrap();
            (progress, line)
        };
        let (_, line) = begun(Arrival::Open { rate_per_s: 500.0, poisson: false });
        assert!(line.ends_with("; about 15 s left"), "{line}");
        // How fast the server answers is not known before it does.
        let (mut progress, line) = begun(Arrival::Closed);
        assert!(line.ends_with(" connections"), "{line}");
        let line = progress.line(&interval(1_000_000), 1).unwrap();
        assert!(line.ends_with("750 req/s; about 9 s left"), "{line}");
        // Also seconds that are not told count.
        progress.line(&interval(1_500_000), 5);
        assert_eq!(progress.ended, 1500);
        progress.requests = Some(2250);
        let line = progress.line(&interval(3_000_000), 1).unwrap();
        assert!(line.ends_with("750 req/s"), "{line}");
        let one = |completed| Interval { length_us: 78, completed, ..Interval::default() };
        assert_eq!(
            (response_rate_text(&one(1)), response_rate_text(&one(2))),
            ("1 successful request".into(), "2 successful requests".into())
        );
    }
}

//! What the live view shows, made from the session's events and nothing else: no terminal, no clock.
//!
//! Everything is bounded: a minute of seconds, the last lines, a histogram of the last second and one of the load.

use crate::recent_levels::RecentLevels;
use std::collections::VecDeque;
use webdyno_analysis::limits::LimitId;
use webdyno_analysis::run_report::host_levels::HostLevel;
use webdyno_model::change::Change;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::workload::Workload;
use webdyno_report::sanitize;

/// Seconds that are kept.
pub const SECONDS: usize = 60;
/// Lines of progress that are kept.
const LINES_MAX: usize = 20;
/// A shorter interval says nothing of a rate.
const SECOND_US_MIN: u64 = 900_000;

/// A value for each of the last seconds; NaN where it is not known.
#[derive(Default)]
pub struct LastMinute(VecDeque<f64>);

impl LastMinute {
    /// Adds the value of a second.
    pub fn push(&mut self, value: f64) {
        self.0.push_back(value);
        if self.0.len() > SECONDS {
            self.0.pop_front();
        }
    }

    fn replace_latest(&mut self, value: f64) {
        self.0.pop_back();
        self.0.push_back(value);
    }

    /// From the oldest on.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.0.iter().copied()
    }

    /// That of the last second, where it is known.
    pub fn latest(&self) -> Option<f64> {
        self.0.back().copied().filter(|value| !value.is_nan())
    }
}

/// A level of an observed host over the last minute.
pub struct HostSeries {
    /// The role of the host among several.
    pub host: Option<String>,
    /// Which level.
    pub level: &'static HostLevel,
    /// Its values.
    pub values: LastMinute,
}

/// The round of a tuning that goes on.
pub struct RoundState {
    /// From 1.
    pub n: u32,
    /// What limits.
    pub finding: String,
    /// What is tried.
    pub changes: String,
    /// Whether it stayed, once that is known.
    pub kept: Option<bool>,
}

/// What the lines of progress say of the same event.
pub struct Headline<'a> {
    /// What is done.
    pub doing: &'a str,
    /// Seconds left; `None` where nothing tells.
    pub left_s: Option<f64>,
    /// The line of an event that is not a mere second.
    pub line: Option<&'a str>,
}

/// Everything that is shown.
#[derive(Default)]
pub struct State {
    /// The command.
    pub command: String,
    /// What is loaded.
    pub target: String,
    /// What is done now.
    pub doing: String,
    /// Seconds since the session began.
    pub elapsed_s: f64,
    /// Seconds left; `None` where nothing tells.
    pub left_s: Option<f64>,
    /// Successful requests a second.
    pub rates: LastMinute,
    /// Response times of the last second, and of the load so far.
    pub second: TimeHistogram,
    /// See above.
    pub load: TimeHistogram,
    /// Requests of the load that succeeded.
    pub completed: u64,
    /// Requests of the load that failed.
    pub failed: u64,
    /// Why they failed.
    pub errors: ErrorCounts,
    /// Requests under way.
    pub in_flight: Option<u64>,
    /// The round that goes on, or the last one.
    pub round: Option<RoundState>,
    /// Rounds whose change stayed, and rounds whose change was reverted.
    pub rounds_kept: u32,
    /// See above.
    pub rounds_reverted: u32,
    /// The observed hosts.
    pub series: Vec<HostSeries>,
    /// The last lines of progress.
    pub lines: VecDeque<String>,
    recent: RecentLevels,
    sampled_second: Option<u64>,
    is_between_loads: bool,
}

impl State {
    /// Takes in the next event.
    pub fn update(&mut self, event: &Event, headline: &Headline<'_>) {
        self.elapsed_s = self.elapsed_s.max(event.t_us as f64 / 1e6);
        self.recent.add(event);
        match &event.body {
            EventBody::SessionStart { command, .. } => self.command = format!("webdyno {command}"),
            EventBody::Server { .. } if self.doing.is_empty() => self.doing = "observing the server".into(),
            EventBody::LoadStart { workload, .. } => self.begin_load(workload, headline.doing),
            EventBody::Interval { interval, .. } => self.add_interval(interval),
            EventBody::LoadEnd { .. } => {
                self.is_between_loads = true;
                self.doing = "analysing the load".into();
            }
            EventBody::Planned { n, finding, changes, .. } => {
                let title = LimitId::parse(&finding.id).map_or(&*finding.id, |id| id.limit().title);
                let (finding, changes) = (sanitize(title), changes_text(changes));
                self.round = Some(RoundState { n: *n, finding, changes, kept: None });
                self.doing = "preparing the change".into();
            }
            EventBody::Applied { .. } => self.doing = "change applied".into(),
            EventBody::Reverted { .. } => self.doing = "change reverted".into(),
            EventBody::RoundEnd { round, .. } if round.verdict.is_some() => self.end_round(round.kept),
            EventBody::Sample { .. } => self.add_sample(event.t_us / 1_000_000),
            _ => {}
        }
        self.left_s = headline.left_s.filter(|_| !self.is_between_loads);
        if let Some(line) = headline.line {
            self.lines.push_back(sanitize(line.trim_start()));
            if self.lines.len() > LINES_MAX {
                self.lines.pop_front();
            }
        }
    }

    fn begin_load(&mut self, workload: &Workload, doing: &str) {
        let others = workload.requests.len().saturating_sub(1);
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        let first = workload.requests.first().map_or("", |request| &request.url);
        self.target = sanitize(first) + &others;
        self.doing = doing.to_owned();
        self.is_between_loads = false;
        // A gap between the loads.
        self.rates.push(f64::NAN);
        self.second.clear();
        self.load.clear();
        (self.completed, self.failed, self.errors, self.in_flight) = (0, 0, ErrorCounts::default(), None);
    }

    fn add_interval(&mut self, interval: &Interval) {
        self.completed += interval.completed;
        self.failed += interval.failed;
        self.errors.add(&interval.errors);
        self.in_flight = Some(interval.in_flight);
        if interval.length_us < SECOND_US_MIN {
            return;
        }
        self.rates.push(interval.completed as f64 * 1e6 / interval.length_us as f64);
        self.second.clear();
        // What cannot be read was written by ourselves a moment ago; the report judges the whole.
        let _ = interval.response_time.iter().try_for_each(|times| self.second.merge_encoded(times));
        self.load.merge(&self.second);
    }

    fn end_round(&mut self, kept: bool) {
        if let Some(round) = &mut self.round {
            round.kept = Some(kept);
        }
        *(if kept { &mut self.rounds_kept } else { &mut self.rounds_reverted }) += 1;
    }

    /// The readings of a second come within a few milliseconds of each other: they count when the next begins.
    fn add_sample(&mut self, second: u64) {
        let begins = self.sampled_second.is_some_and(|sampled| second > sampled);
        self.sampled_second = self.sampled_second.max(Some(second));
        if !begins {
            return;
        }
        self.series.iter_mut().for_each(|series| series.values.push(f64::NAN));
        for (host, levels) in self.recent.latest() {
            for (level, value) in levels {
                let is_same = |series: &HostSeries| series.host == host && std::ptr::eq(series.level, level);
                match self.series.iter_mut().find(|series| is_same(series)) {
                    Some(series) => series.values.replace_latest(value),
                    None => {
                        let values = LastMinute([value].into());
                        self.series.push(HostSeries { host: host.clone(), level, values });
                    }
                }
            }
        }
    }
}

fn changes_text(changes: &[Change]) -> String {
    let text = |change: &Change| {
        let from = change.from.as_ref().map_or("unset".to_owned(), ToString::to_string);
        sanitize(&format!("{} {from} -> {} ({})", change.setting.name, change.to, change.class.name()))
    };
    changes.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use webdyno_model::number::Number;
    use webdyno_model::purpose::Purpose;
    use webdyno_model::sample::Sample;
    use webdyno_model::tune::{Round, Verdict};
    use webdyno_model::workload::RequestSpec;

    const NONE: Headline<'_> = Headline { doing: "loading", left_s: Some(7.0), line: None };

    fn event(t_s: u64, body: EventBody) -> Event {
        Event { v: 1, seq: 0, t_us: t_s * 1_000_000, body }
    }

    fn second(t_s: u64, completed: u64) -> Event {
        let mut times = TimeHistogram::new();
        (0..completed).for_each(|n| times.record(1_000 + n * 10));
        let interval = Interval {
            length_us: 1_000_000,
            completed,
            failed: 2,
            in_flight: 50,
            errors: ErrorCounts { connect_refused: 2, ..ErrorCounts::default() },
            response_time: times.encode(),
            ..Interval::default()
        };
        event(t_s, EventBody::Interval { load: 1, interval: Box::new(interval) })
    }

    fn sample(t_s: u64, values: &[(&str, f64)]) -> Event {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
        let sample = Sample { source: "x".into(), values, ..Sample::default() };
        event(t_s, EventBody::Sample { host: None, sample })
    }

    fn round_end(kept: bool) -> EventBody {
        let round = Round { n: 1, verdict: Some(Verdict::Better), kept, ..Round::default() };
        EventBody::RoundEnd { round: Box::new(round), load_before: 1, load_after: Some(2) }
    }

    /// A tuning in its second round, after `seconds` of its load.
    pub fn tuning(seconds: u64) -> State {
        let mut state = State::default();
        let url = "http://h/\x1b[2J\u{202e}app".to_owned();
        let requests = vec![RequestSpec { url, ..RequestSpec::default() }; 3];
        let workload = Workload { requests, ..Workload::default() };
        let start = EventBody::LoadStart {
            load: 1,
            purpose: Purpose::Run,
            workload: workload.into(),
            alone_us: None,
        };
        state.update(&event(0, start), &Headline { line: Some("   0 s  loading: 50 connections"), ..NONE });
        for t_s in 1..=seconds {
            let busy = [("apache.workers_busy_count", t_s as f64), ("sockets.accept_queue_count", 511.0)];
            state.update(&sample(t_s, &busy), &NONE);
            state.update(&second(t_s, 815), &NONE);
        }
        state.round = Some(RoundState {
            n: 2,
            finding: "All Apache workers busy".into(),
            changes: "MaxRequestWorkers 10 -> 30 (restart)".into(),
            kept: None,
        });
        state.update(&event(seconds, round_end(true)), &NONE);
        state
    }

    #[test]
    fn seconds_become_figures_and_the_minute_is_bounded() {
        let state = tuning(100);
        assert_eq!((state.completed, state.failed, state.errors.connect_refused), (81_500, 200, 200));
        assert_eq!((state.rates.values().len(), state.rates.latest()), (SECONDS, Some(815.0)));
        assert_eq!((state.second.count(), state.load.count()), (815, 81_500));
        assert_eq!((state.elapsed_s, state.left_s, state.in_flight), (100.0, Some(7.0), Some(50)));
        assert_eq!((state.rounds_kept, state.rounds_reverted), (1, 0));
        assert_eq!(state.lines, ["0 s  loading: 50 connections"]);
        let busy = state.series.iter().find(|series| series.level.group == "workers").unwrap();
        assert_eq!((busy.values.latest(), busy.values.values().len()), (Some(100.0), SECONDS));
    }

    #[test]
    fn a_new_load_begins_with_nothing_and_a_gap() {
        let mut state = tuning(3);
        state.update(&second(4, 0), &NONE);
        assert_eq!((state.second.quantile_us(0.5), state.rates.latest()), (None, Some(0.0)));
        state.begin_load(&Workload::default(), "measuring after the change");
        assert_eq!((state.completed, state.failed, state.in_flight), (0, 0, None));
        assert!(state.load.is_empty() && state.rates.latest().is_none());
        assert_eq!(state.rates.values().len(), 6);
        state.end_round(false);
        assert_eq!(state.round.as_ref().unwrap().kept, Some(false));
    }

    #[test]
    fn what_a_host_does_not_tell_any_more_is_unknown() {
        let mut state = tuning(4);
        for t_s in 5..10 {
            state.update(&sample(t_s, &[("sockets.accept_queue_count", 1.0)]), &NONE);
        }
        let latest = |group: &str| {
            state.series.iter().find(|series| series.level.group == group).unwrap().values.latest()
        };
        assert_eq!((latest("accept queue"), latest("workers")), (Some(1.0), None));
    }

    #[test]
    fn names_of_others_have_no_control_characters() {
        let state = tuning(1);
        assert_eq!(state.target, "http://h/\u{fffd}[2J\u{fffd}app and 2 more");
    }
}

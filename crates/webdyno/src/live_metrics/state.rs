//! What a session came to so far, for those who ask while it goes on: made from its events and nothing else. Counts are of
//! the whole session, over all its loads; a level that nothing tells any more is unknown.

use crate::recent_levels::{LatestLevel, RecentLevels};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use webdyno_model::event::{Event, EventBody};
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::workload::Workload;

/// Upper bounds of the buckets of times, in seconds: those that the clients of Prometheus have by default (5 ms to 10 s),
/// and finer ones below, as servers answer on a local network. What is longer counts above the last one.
pub const BOUNDS_S: [f64; 16] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Requests that are told apart by their names; further ones are counted together.
const NAMES_MAX: usize = 20;
/// What these are called.
const OTHERS: &str = "(other)";

/// Times by bucket; the last one has no upper bound.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Samples of each bucket.
    pub counts: [u64; BOUNDS_S.len() + 1],
    /// Their sums, in seconds.
    pub sums_s: [f64; BOUNDS_S.len() + 1],
}

impl Times {
    fn add(&mut self, encoded: Option<&EncodedHistogram>) {
        let Some(encoded) = encoded else { return };
        let mut times = TimeHistogram::new();
        // What cannot be read was written by ourselves a moment ago; the report judges the whole.
        let _ = times.merge_encoded(encoded);
        let lowest_us = |value_us| times.buckets().lowest_equivalent(value_us) as f64;
        let steps = || {
            times
                .buckets()
                .iter_recorded()
                .map(|step| (lowest_us(step.value_iterated_to()), step.count_at_value()))
        };
        // The sum is known exactly: what the width of buckets leaves out is spread over all.
        let rough_us: f64 = steps().map(|(time_us, count)| time_us * count as f64).sum();
        let exact = if rough_us > 0.0 { encoded.sum_us / rough_us } else { 1.0 };
        for (time_us, count) in steps() {
            let bucket = BOUNDS_S.partition_point(|bound_s| *bound_s < time_us / 1e6);
            self.counts[bucket] += count;
            self.sums_s[bucket] += time_us / 1e6 * count as f64 * exact;
        }
    }
}

/// Page loads.
#[derive(Debug, Clone, Default)]
pub struct PageTotals {
    /// Begun.
    pub started: u64,
    /// Whole.
    pub completed: u64,
    /// Without a part, or without the document.
    pub failed: u64,
    /// Of those that are whole.
    pub time: Times,
}

/// What the session is.
#[derive(Debug, Clone, Default)]
pub struct SessionLabels {
    /// `run`, `tune`.
    pub command: String,
    /// Scheme, host and port of what is loaded, without anything that could be secret.
    pub target: String,
}

/// What is known so far.
#[derive(Default)]
pub struct State {
    /// What the session is; `None` before it began.
    pub session: Option<SessionLabels>,
    /// The load that goes on or was made last, and why.
    pub load: Option<(u32, &'static str)>,
    /// Requests whose intended start has come.
    pub started: u64,
    /// Requests that succeeded, and failed ones by class.
    pub completed: u64,
    /// See above.
    pub errors: ErrorCounts,
    /// Responses by status code.
    pub responses: BTreeMap<String, u64>,
    /// Of those that succeeded, and timeouts at their bound.
    pub response_time: Times,
    /// By name of the request: succeeded, failed.
    pub named: BTreeMap<String, (u64, u64)>,
    /// On the wire.
    pub bytes_received: u64,
    /// See above.
    pub bytes_sent: u64,
    /// Established.
    pub connections_opened: u64,
    /// Most at once in the last second.
    pub connections_peak: Option<u64>,
    /// At the end of the last second.
    pub in_flight: Option<u64>,
    /// CPU of the engine's threads.
    pub cpu_us: u64,
    /// The share of the last second in which the busiest of them was at work.
    pub busiest_thread: Option<f64>,
    /// `None` as long as there were none.
    pub pages: Option<PageTotals>,
    /// Users of the last second.
    pub visitors: Option<u64>,
    /// The round of a tuning that goes on, or the last one.
    pub round: Option<u32>,
    /// Rounds that ended, by verdict and whether the change stayed.
    pub rounds: BTreeMap<(&'static str, bool), u64>,
    /// Incidents by the role of the host.
    pub incidents: BTreeMap<String, u64>,
    /// The levels of the observed hosts now, by role.
    pub levels: Vec<(Option<String>, Vec<LatestLevel>)>,
    recent: RecentLevels,
    sampled_second: Option<u64>,
    has_visitors: bool,
}

/// The state that the session writes and the exporters read.
#[derive(Clone, Default)]
pub struct SharedState(Arc<Mutex<State>>);

impl SharedState {
    /// The state, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes in the next event.
    pub fn update(&mut self, event: &Event) {
        match &event.body {
            EventBody::SessionStart { command, .. } => {
                self.session = Some(SessionLabels { command: command.clone(), ..SessionLabels::default() });
            }
            EventBody::LoadStart { load, purpose, workload, .. } => {
                self.load = Some((*load, purpose.name()));
                self.has_visitors = workload.visits.is_some();
                self.session.get_or_insert_default().target = origin(workload);
            }
            EventBody::Interval { interval, .. } => self.add_interval(interval),
            EventBody::LoadEnd { .. } => {
                (self.in_flight, self.connections_peak) = (None, None);
                (self.busiest_thread, self.visitors) = (None, None);
            }
            EventBody::Planned { n, .. } => self.round = Some(*n),
            EventBody::RoundEnd { round, .. } => {
                if let Some(verdict) = round.verdict {
                    *self.rounds.entry((verdict.name(), round.kept)).or_default() += 1;
                }
            }
            EventBody::Incident { host, .. } => {
                *self.incidents.entry(host.clone().unwrap_or_default()).or_default() += 1;
            }
            EventBody::Server { .. } => self.recent.add(event),
            EventBody::Sample { .. } => {
                self.recent.add(event);
                self.add_levels(event.t_us / 1_000_000);
            }
            _ => {}
        }
    }

    fn add_interval(&mut self, interval: &Interval) {
        self.started += interval.started;
        self.completed += interval.completed;
        self.errors.add(&interval.errors);
        for (code, count) in &interval.status {
            *self.responses.entry(code.clone()).or_default() += count;
        }
        self.response_time.add(interval.response_time.as_ref());
        for (name, one) in &interval.by_name {
            let (completed, failed) = self.named_counts(name);
            (*completed, *failed) = (*completed + one.completed, *failed + one.failed);
        }
        self.bytes_received += interval.bytes_received;
        self.bytes_sent += interval.bytes_sent;
        self.connections_opened += interval.connections.opened;
        self.connections_peak = Some(interval.connections.peak);
        self.in_flight = Some(interval.in_flight);
        self.cpu_us += interval.cpu_us;
        let busiest = interval.cpu_us_max_thread as f64 / interval.length_us as f64;
        self.busiest_thread = (interval.length_us > 0).then_some(busiest);
        self.visitors = self.has_visitors.then_some(interval.visits.visitors);
        if let Some(pages) = &interval.pages {
            let totals = self.pages.get_or_insert_default();
            totals.started += pages.started;
            totals.completed += pages.completed;
            totals.failed += pages.failed;
            totals.time.add(pages.time.as_ref());
        }
    }

    /// The counts of a name: without what a query could hold, and of the first names only.
    fn named_counts(&mut self, name: &str) -> &mut (u64, u64) {
        let name = name.split(['?', '#']).next().unwrap_or_default();
        let is_counted = self.named.len() < NAMES_MAX || self.named.contains_key(name);
        self.named.entry(if is_counted { name } else { OTHERS }.to_owned()).or_default()
    }

    /// The readings of a second come within a few milliseconds of each other: they count when the next begins.
    fn add_levels(&mut self, second: u64) {
        let begins = self.sampled_second.is_some_and(|sampled| second > sampled);
        self.sampled_second = self.sampled_second.max(Some(second));
        if begins {
            self.levels = self.recent.latest();
        }
    }
}

/// Scheme, host and port of the first URL.
fn origin(workload: &Workload) -> String {
    let first = workload.requests.first().and_then(|request| url::Url::parse(&request.url).ok());
    first.map_or_else(String::new, |url| url.origin().ascii_serialization())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use webdyno_model::interval::{ConnectionCounts, NamedInterval};
    use webdyno_model::number::Number;
    use webdyno_model::page::PageInterval;
    use webdyno_model::purpose::Purpose;
    use webdyno_model::sample::Sample;
    use webdyno_model::tune::{Round, Verdict};
    use webdyno_model::workload::RequestSpec;

    pub fn event(t_s: u64, body: EventBody) -> Event {
        Event { v: 1, seq: 0, t_us: t_s * 1_000_000, body }
    }

    /// A second in which ten requests succeeded and one timed out.
    pub fn second(t_s: u64) -> Event {
        let mut times = TimeHistogram::new();
        (0..10).for_each(|n| times.record(1_000 + n * 1_000));
        times.record(10_000_000);
        let name =
            |n: u32| (format!("/{n}?token=secret{n}"), NamedInterval { completed: 1, ..Default::default() });
        let pages =
            PageInterval { started: 3, completed: 2, failed: 1, time: times.encode(), ..Default::default() };
        let interval = Interval {
            length_us: 1_000_000,
            started: 12,
            completed: 10,
            failed: 1,
            in_flight: 1,
            bytes_received: 1000,
            bytes_sent: 100,
            status: [("200".to_owned(), 10)].into(),
            errors: ErrorCounts { timeout: 1, ..ErrorCounts::default() },
            connections: ConnectionCounts { opened: 4, peak: 4, ..ConnectionCounts::default() },
            response_time: times.encode(),
            cpu_us: 250_000,
            cpu_us_max_thread: 200_000,
            by_name: (0..25).map(name).collect(),
            pages: Some(Box::new(pages)),
            ..Interval::default()
        };
        event(t_s, EventBody::Interval { load: 1, interval: Box::new(interval) })
    }

    pub fn load_start() -> Event {
        let url = "https://user:secret@h.example:8443/a?token=secret".to_owned();
        let requests = vec![RequestSpec { url, ..RequestSpec::default() }];
        let workload = Workload { requests, ..Workload::default() };
        event(
            0,
            EventBody::LoadStart {
                load: 1,
                purpose: Purpose::Baseline,
                workload: workload.into(),
                alone_us: None,
            },
        )
    }

    fn sample(t_s: u64, waiting: f64) -> Event {
        let values = [("sockets.accept_queue_count".to_owned(), Number(waiting))].into();
        event(
            t_s,
            EventBody::Sample {
                host: None,
                sample: Sample { source: "x".into(), values, ..Sample::default() },
            },
        )
    }

    /// A tuning with two seconds of load, a round and an observed host.
    pub fn tuning() -> State {
        let mut state = State::default();
        let round = Round { n: 1, verdict: Some(Verdict::Better), kept: true, ..Round::default() };
        let round_end = EventBody::RoundEnd { round: Box::new(round), load_before: 1, load_after: Some(2) };
        let incident = EventBody::Incident { host: None, metric: "m".into(), what: "full".into() };
        let events =
            [load_start(), second(1), second(2), sample(1, 3.0), sample(2, 9.0), event(3, round_end)];
        events.iter().chain([&event(3, incident)]).for_each(|event| state.update(event));
        state
    }

    #[test]
    fn seconds_add_up_and_times_have_their_buckets() {
        let state = tuning();
        assert_eq!((state.started, state.completed, state.errors.timeout), (24, 20, 2));
        assert_eq!((state.bytes_received, state.connections_opened, state.cpu_us), (2000, 8, 500_000));
        assert_eq!(
            (state.in_flight, state.connections_peak, state.busiest_thread),
            (Some(1), Some(4), Some(0.2))
        );
        // 1 ms lies in the bucket up to 1 ms; 2 ms in the one up to 2.5 ms; 3 to 5 ms and 6 to 10 ms in theirs.
        assert_eq!(state.response_time.counts[3..=6], [2, 2, 6, 10]);
        assert_eq!(state.response_time.counts.iter().sum::<u64>(), state.completed + state.errors.timeout);
        let sum_s: f64 = state.response_time.sums_s.iter().sum();
        assert!((sum_s - 20.11).abs() < 1e-9, "{sum_s}");
        assert_eq!(state.pages.as_ref().map(|pages| (pages.started, pages.failed)), Some((6, 2)));
        assert_eq!((state.rounds[&("better", true)], state.incidents[""]), (1, 1));
        assert_eq!(state.levels[0].1[0].1, 9.0);
    }

    #[test]
    fn labels_are_bounded_and_hold_no_secret() {
        let state = tuning();
        assert_eq!((state.named.len(), state.named[OTHERS]), (NAMES_MAX + 1, (10, 0)));
        assert!(state.named.keys().all(|name| !name.contains("secret")), "{:?}", state.named);
        assert_eq!(state.session.unwrap().target, "https://h.example:8443");
    }

    #[test]
    fn levels_of_a_load_that_ended_are_unknown() {
        let mut state = tuning();
        let end = webdyno_model::interval::LoadEnd {
            elapsed_us: 2_000_000,
            in_flight_at_end: 1,
            ..Default::default()
        };
        let (warmup_why, measured_to_s) = (None, None);
        let body = EventBody::LoadEnd { load: 1, end, measured_from_s: 0.0, warmup_why, measured_to_s };
        state.update(&event(3, body));
        assert_eq!((state.in_flight, state.busiest_thread, state.completed), (None, None, 20));
    }
}

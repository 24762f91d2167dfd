//! What a page that shows a session under way is sent (server-sent events): `second` with the figures of each second,
//! `changed` when the report would say more, `end`. Made by following the event log, which is read once and then only where it
//! grows: the session does not know of it.

use crate::recent_levels::{LatestLevel, RecentLevels};
use axum::response::sse::Event as Message;
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use webdyno_analysis::run_report::interval_report;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::histogram::EncodedHistogram;
use webdyno_model::interval::Interval;
use webdyno_session::heat_map::{HeatMap, heat_map};
use webdyno_session::log::LogFollower;

/// Between two looks into the log, which is written once a second.
const EVERY: Duration = Duration::from_millis(500);
/// Seconds that are sent again to a page that begins to listen: what it may have missed since it read the report.
const REPEATED_MAX: usize = 10;
/// A log that grows no more is one of a session that was killed.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// A shorter interval says nothing of a rate.
const SECOND_US_MIN: u64 = 900_000;

/// The messages of a session until its end. The permit is held as long as somebody listens.
pub fn messages(
    directory: &Path,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Message, Infallible>> + use<> {
    let feed = Feed {
        follower: LogFollower::new(directory),
        seconds: LiveSeconds::default(),
        queue: VecDeque::new(),
        grew_at: Instant::now(),
        is_first: true,
        is_over: false,
    };
    stream::unfold((feed, permit), |(mut feed, permit)| async move {
        loop {
            if let Some(message) = feed.queue.pop_front() {
                return Some((Ok(message), (feed, permit)));
            }
            if feed.is_over {
                return None;
            }
            if !feed.is_first {
                tokio::time::sleep(EVERY).await;
            }
            feed = tokio::task::spawn_blocking(move || feed.read()).await.ok()?;
        }
    })
}

/// A log with what is to be sent of it.
struct Feed {
    follower: LogFollower,
    seconds: LiveSeconds,
    queue: VecDeque<Message>,
    grew_at: Instant,
    /// Whether what was there before anybody listened is still to be read.
    is_first: bool,
    is_over: bool,
}

impl Feed {
    /// Reads on.
    fn read(mut self) -> Self {
        let mut has_changed = false;
        loop {
            let Ok(events) = self.follower.next_events() else {
                self.is_over = true;
                break;
            };
            if events.is_empty() {
                break;
            }
            self.grew_at = Instant::now();
            for event in &events {
                match self.seconds.add(event) {
                    Some(PageEvent::Second(second)) => {
                        self.queue.push_back(message("second", &second.to_string()))
                    }
                    Some(PageEvent::Changed) => has_changed = true,
                    Some(PageEvent::End) => self.is_over = true,
                    None => {}
                }
            }
            if self.is_first {
                self.queue.drain(..self.queue.len().saturating_sub(REPEATED_MAX));
            }
        }
        self.is_over |= self.grew_at.elapsed() > SILENCE_MAX;
        // Once for all that changed.
        match (self.is_over, has_changed && !self.is_first) {
            (true, _) => self.queue.push_back(message("end", "{}")),
            (false, true) => self.queue.push_back(message("changed", "{}")),
            (false, false) => {}
        }
        self.is_first = false;
        self
    }
}

fn message(name: &str, data: &str) -> Message {
    Message::default().event(name).data(data)
}

/// What an event means to a page.
#[derive(Debug, PartialEq)]
enum PageEvent {
    /// The figures of a second.
    Second(Value),
    /// The report says more than before.
    Changed,
    /// The session is over.
    End,
}

/// Makes seconds of events.
#[derive(Default)]
struct LiveSeconds {
    levels: RecentLevels,
    /// The load that goes on, and when it began.
    load: Option<(u32, u64)>,
    /// The second of the last reading.
    second: Option<u64>,
}

impl LiveSeconds {
    fn add(&mut self, event: &Event) -> Option<PageEvent> {
        let second = event.t_us / 1_000_000;
        let reads = matches!(event.body, EventBody::Sample { .. });
        let is_next = reads && self.load.is_none() && self.second.is_some_and(|before| second > before);
        // Readings come within a moment of each other: their second is whole when the next one begins.
        let whole = is_next.then(|| PageEvent::Second(self.without_load()));
        self.levels.add(event);
        match &event.body {
            EventBody::Sample { .. } => {
                self.second = Some(second);
                whole
            }
            EventBody::Interval { load, interval } if interval.length_us >= SECOND_US_MIN => {
                Some(PageEvent::Second(self.of_load(*load, interval)))
            }
            EventBody::LoadStart { load, .. } => {
                self.load = Some((*load, event.t_us));
                Some(PageEvent::Changed)
            }
            EventBody::LoadEnd { .. } => {
                self.load = None;
                Some(PageEvent::Changed)
            }
            EventBody::SessionEnd { .. } => Some(PageEvent::End),
            EventBody::Planned { .. }
            | EventBody::Applied { .. }
            | EventBody::Reverted { .. }
            | EventBody::RoundEnd { .. }
            | EventBody::TuneEnd { .. }
            | EventBody::Brake { .. }
            | EventBody::Watch { .. }
            | EventBody::Incident { .. }
            | EventBody::Note { .. } => Some(PageEvent::Changed),
            _ => None,
        }
    }

    fn of_load(&self, load: u32, interval: &Interval) -> Value {
        let begins_us = self.load.filter(|(going, _)| *going == load).map_or(0, |(_, begins_us)| begins_us);
        // What cannot be read is unknown here; the report says why.
        let report = interval_report(interval).ok();
        json!({
            "load": load,
            // In the middle of it, as the report has it.
            "t_s": begins_us as f64 / 1e6 + interval.t_s + 0.5,
            "page_rate": report.as_ref().and_then(|report| report.page_rate),
            "rate": report.as_ref().map(|report| report.rate),
            "p50_us": report.as_ref().and_then(|report| report.p50_us),
            "p99_us": report.as_ref().and_then(|report| report.p99_us),
            "failed": interval.failed,
            "in_flight": interval.in_flight,
            "latency": interval.response_time.as_ref().and_then(column),
            "signals": self.signals(),
        })
    }

    fn without_load(&self) -> Value {
        let t_s = self.second;
        json!({
            "load": null, "t_s": t_s, "rate": null, "p50_us": null, "p99_us": null, "failed": null, "in_flight": null,
            "signals": self.signals(),
        })
    }

    /// The levels of all hosts, by the names that their lines have in the report.
    fn signals(&self) -> Value {
        let named = |(host, levels): (Option<String>, Vec<LatestLevel>)| {
            let role = host.map_or(String::new(), |role| format!("{role}: "));
            levels
                .into_iter()
                .map(move |(level, value)| (format!("{role}{}: {}", level.group, level.name), json!(value)))
        };
        self.levels.latest().into_iter().flat_map(named).collect()
    }
}

/// The responses of a second, as a column of the heat map: bounds in microseconds, one more than there are counts.
fn column(times: &EncodedHistogram) -> Option<Value> {
    let HeatMap { edges_us, counts, .. } = heat_map(&[(0.0, times)]).ok()??;
    Some(json!({ "edges_us": edges_us, "counts": counts.first()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::event::VERSION;
    use webdyno_model::interval::LoadEnd;
    use webdyno_model::purpose::Purpose;
    use webdyno_model::sample::Sample;

    fn second_of(event: Option<PageEvent>) -> Value {
        match event {
            Some(PageEvent::Second(second)) => second,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn seconds_are_of_a_load_or_else_of_readings() {
        let mut seconds = LiveSeconds::default();
        let mut add = |t_us, body| seconds.add(&Event { v: VERSION, seq: 0, t_us, body });
        let reading = || EventBody::Sample { host: None, sample: Sample::default() };
        assert_eq!(add(100_000, reading()), None);
        assert_eq!(add(900_000, reading()), None, "the second may still have more");
        let read = second_of(add(1_100_000, reading()));
        assert_eq!((&read["load"], &read["t_s"], &read["rate"]), (&Value::Null, &json!(0), &Value::Null));

        let start =
            EventBody::LoadStart { load: 2, purpose: Purpose::Run, workload: Box::default(), alone_us: None };
        assert_eq!(add(1_500_000, start), Some(PageEvent::Changed));
        assert_eq!(add(2_500_000, reading()), None, "the load has seconds");
        let interval = |length_us| {
            let interval =
                Interval { t_s: 2.0, length_us, completed: 750, in_flight: 3, ..Interval::default() };
            EventBody::Interval { load: 2, interval: Box::new(interval) }
        };
        let loaded = second_of(add(4_500_000, interval(1_000_000)));
        assert_eq!(
            (&loaded["load"], &loaded["t_s"], &loaded["rate"]),
            (&json!(2), &json!(4.0), &json!(750.0))
        );
        assert_eq!((&loaded["p99_us"], &loaded["in_flight"]), (&Value::Null, &json!(3)), "nothing was timed");
        assert_eq!(add(4_600_000, interval(100_000)), None);
        let end = LoadEnd { elapsed_us: 3_000_000, ..LoadEnd::default() };
        let end =
            EventBody::LoadEnd { load: 2, end, measured_from_s: 0.0, warmup_why: None, measured_to_s: None };
        assert_eq!(add(4_700_000, end), Some(PageEvent::Changed));
        assert_eq!(second_of(add(5_000_000, reading()))["load"], Value::Null);
        assert_eq!(add(6_000_000, EventBody::SessionEnd { exit_code: 0, error: None }), Some(PageEvent::End));
    }
}

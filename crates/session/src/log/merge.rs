//! The segments of a ring as one log: each begins with what explains it, and several sessions may have followed upon each
//! other, each with times of its own.

use super::lines::{damage_error, parse};
use jiff::Timestamp;
use std::path::PathBuf;
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::event::{Event, EventBody, VERSION};

/// Between two sessions, when the clock does not tell how much lay between them.
const GAP_US: u64 = 1_000_000;

/// Several segments, on the time axis of the first one's session.
#[derive(Debug, Default)]
pub(super) struct MergedSegments {
    /// In the order of the segments.
    pub events: Vec<Event>,
    /// How much later the times of the last segment's session are here.
    pub shift_us: u64,
    /// When the last one's session began.
    started_at: Option<Timestamp>,
    ends_us: u64,
}

/// Reads these segments. One that went meanwhile, or was begun a moment ago, has nothing to say.
pub(super) fn merged(segments: &[PathBuf]) -> Result<MergedSegments> {
    let mut merged = MergedSegments::default();
    for path in segments {
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| io_error("read", path.display(), &error))?,
        };
        let has_a_line = text.contains(&b'\n');
        if has_a_line {
            merged.add(parse(&text).map_err(|(line, why)| damage_error(path, line, &why))?);
        }
    }
    Ok(merged)
}

impl MergedSegments {
    fn add(&mut self, events: Vec<Event>) {
        let started = events.iter().find_map(|event| match &event.body {
            EventBody::SessionStart { started_at, .. } => started_at.parse::<Timestamp>().ok(),
            _ => None,
        });
        let is_first = self.events.is_empty();
        let is_new = !is_first && started.is_some() && started != self.started_at;
        if is_new {
            self.next_session(started);
        }
        self.started_at = started.or(self.started_at);
        for mut event in events {
            // The first one stands for all: times are since its session began.
            if !is_first && matches!(event.body, EventBody::SessionStart { .. }) {
                continue;
            }
            event.t_us += self.shift_us;
            self.ends_us = self.ends_us.max(event.t_us);
            event.seq = self.events.len() as u64;
            self.events.push(event);
        }
    }

    /// Another session goes on with the ring: by the clock, but never before the end of the one before.
    fn next_session(&mut self, started: Option<Timestamp>) {
        let between = started.zip(self.started_at);
        let between_us = between.map_or(0, |(now, before)| now.as_microsecond() - before.as_microsecond());
        let by_clock_us = self.shift_us.saturating_add(u64::try_from(between_us).unwrap_or(0));
        self.shift_us = by_clock_us.max(self.ends_us + GAP_US);
        // The end of the one before is not the end of the recording.
        self.events.retain(|event| !matches!(event.body, EventBody::SessionEnd { .. }));
        let (seq, t_us) = (self.events.len() as u64, self.shift_us);
        let clock = started.map(|wall| EventBody::Clock { wall: wall.to_string() });
        self.events.extend(clock.map(|body| Event { v: VERSION, seq, t_us, body }));
    }
}

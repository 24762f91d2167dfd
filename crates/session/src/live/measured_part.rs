//! How long a load lasts, what of it is measured, and when it has lasted long enough for that.
//!
//! Facts: the load's own seconds, as they are in the recording, and what the server's samples say of old workers.

use super::LiveSession;
use webdyno_analysis::measurement::warmup;
use webdyno_analysis::measurement::warmup::settled;
use webdyno_model::Result;
use webdyno_model::interval::Interval;
use webdyno_model::worker::WorkersStart;
use webdyno_model::workload::stage;
use webdyno_model::workload::stage::{Shape, Stage};

/// From this share of the timeout on, the mean wait says that some requests wait for all of it.
const TIMEOUT_FRACTION: f64 = 0.5;

/// How long a load lasts and what of it is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadLength {
    /// As the workload says; all of it from this second on is measured. Of a workload with stages, what these say is.
    Fixed {
        /// Seconds cut from the start; `None`: detected. Stages leave nothing to detect.
        warmup_s: Option<f64>,
    },
    /// Until the rate has settled and was measured for `measure_s` seconds, at most `at_most_s` in all.
    Settled {
        /// Seconds that are measured.
        measure_s: u32,
        /// Bound on the whole.
        at_most_s: u32,
    },
}

impl LoadLength {
    pub(super) fn workers_start(self, session: String, on: String) -> WorkersStart {
        let (warmup_s, measure_s) = match self {
            Self::Fixed { warmup_s } => (warmup_s, None),
            Self::Settled { measure_s, .. } => (None, Some(measure_s)),
        };
        WorkersStart { session, on, warmup_s, measure_s }
    }
}

/// Why the beginning of a load with stages is not measured.
fn unmeasured_reason(stages: &[Stage]) -> &'static str {
    match stages.first() {
        Some(Stage { shape: Shape::Ramp { .. }, .. }) => "ramp-up",
        _ => "these stages are not measured",
    }
}

/// What of a load is measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Part {
    /// Where it begins, and why what lies before is cut.
    pub(super) from_s: f64,
    pub(super) reason: Option<String>,
    /// Where it ends; `None` for the end of the load.
    pub(super) to_s: Option<f64>,
}

impl LiveSession {
    pub(super) fn is_long_enough(&self, load: u32, length: LoadLength) -> bool {
        let LoadLength::Settled { measure_s, at_most_s } = length else {
            return false;
        };
        let rates = self.rates(load);
        rates.len() >= at_most_s as usize
            || (settled(&rates, measure_s as usize).is_some()
                && !self.has_old_workers()
                && !self.awaits_timeouts(load, measure_s))
    }

    /// Whether requests wait for so long that those of the beginning are still to time out: a load that ended before would have no
    /// failure, and a longer one after a change many.
    fn awaits_timeouts(&self, load: u32, measure_s: u32) -> bool {
        let Some(record) = self.recording.load(load) else { return false };
        let seconds = self.whole_seconds(load);
        let Some(last) = seconds.last() else { return false };
        let timeout_s = record.workload.timeout_us as f64 / 1e6;
        let waits_s = last.in_flight as f64 / rate(last).max(1.0);
        waits_s > TIMEOUT_FRACTION * timeout_s && (seconds.len() as f64) < timeout_s + f64::from(measure_s)
    }

    /// After a graceful reload workers of the old generation finish what they have: until they are gone, the new
    /// setting is not what is measured. A count that has not moved for three readings is not waited for: prefork
    /// never clears the slots above a lowered limit.
    fn has_old_workers(&self) -> bool {
        let counts = self.recording.samples.iter().rev().filter_map(|(_, sample)| {
            sample.values.get("apache.workers_finishing_count").map(|count| count.0)
        });
        let latest: Vec<f64> = counts.take(3).collect();
        latest.first().is_some_and(|now| *now > 0.0 && latest.iter().any(|count| count != now))
    }

    pub(super) fn whole_seconds(&self, load: u32) -> Vec<Interval> {
        let intervals = self.recording.load(load).map_or(&[][..], |record| &record.intervals);
        intervals.iter().filter(|interval| interval.length_us >= 900_000).cloned().collect()
    }

    fn rates(&self, load: u32) -> Vec<f64> {
        self.whole_seconds(load).iter().map(rate).collect()
    }

    /// Whether a load that sent something ended before its measured part began.
    pub(super) fn ended_before_measuring(&self, load: u32, measured_from_s: f64) -> bool {
        let intervals = self.recording.load(load).map_or(&[][..], |record| &record.intervals);
        let is_cut = |interval: &Interval| interval.t_s < measured_from_s - 0.0005;
        intervals.iter().any(|interval| interval.started > 0) && intervals.iter().all(is_cut)
    }

    /// What of a load is measured.
    pub(super) fn measured_part(&self, load: u32, length: LoadLength) -> Result<Part> {
        let cut = |seconds: f64, why: &str| Part {
            from_s: seconds,
            reason: (seconds > 0.0).then(|| why.to_owned()),
            to_s: None,
        };
        let stages = self.recording.load(load).map_or(&[][..], |record| &record.workload.stages);
        Ok(match length {
            LoadLength::Fixed { .. } if !stages.is_empty() => {
                let (from_s, to_s) = stage::measured_s(stages).unwrap_or_default();
                Part { to_s: to_s.map(|to_s| to_s as f64), ..cut(from_s as f64, unmeasured_reason(stages)) }
            }
            LoadLength::Fixed { warmup_s: Some(warmup_s) } => cut(warmup_s, "as requested"),
            LoadLength::Fixed { warmup_s: None } => match warmup::detect(&self.whole_seconds(load))? {
                Some(warm_up) => cut(warm_up.seconds as f64, &warm_up.reason),
                None => Part::default(),
            },
            LoadLength::Settled { measure_s, .. } => {
                let rates = self.rates(load);
                let begin = settled(&rates, measure_s as usize);
                let begin = begin.unwrap_or_else(|| rates.len().saturating_sub(measure_s as usize));
                cut(begin as f64, "the rate had not settled in them")
            }
        })
    }
}

fn rate(interval: &Interval) -> f64 {
    interval.completed as f64 * 1e6 / interval.length_us as f64
}

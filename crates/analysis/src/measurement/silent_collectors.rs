//! Collectors that fell silent before the end.

use super::{Measurement, TimedSample};
use std::collections::BTreeSet;
use webdyno_model::interval::EndReason;

/// The slowest collector reads this often: so long must a window be before silence in it says anything, and so often
/// does a collector read of which there are not two readings to tell.
pub(crate) const CADENCE_S_MAX: f64 = 5.0;
/// A collector that is late by this many of its own cadences has stopped,
const LATE_CADENCES: f64 = 3.0;
/// if that is more than a reading can take: two seconds, and the way of its result.
const LATE_S_MIN: f64 = 3.0;

/// Whether every collector fell silent before the end: then it was the agent that died, or the way to it. The quickest
/// collector tells, since those that read rarely are not late for long. A load of our own ends with the agent at once.
pub(crate) fn all_stopped(measurement: &Measurement) -> bool {
    let is_braked = measurement.end.as_ref().is_some_and(|end| end.reason == EndReason::Braked);
    if is_braked && measurement.harm_guard_trip.is_none() {
        return true;
    }
    let names: BTreeSet<&str> =
        measurement.samples.iter().map(|timed| timed.sample.source.as_str()).collect();
    let quickest = names.into_iter().map(|name| cadence_s(&times(measurement, name))).reduce(f64::min);
    let last = measurement.samples.iter().map(ended_s).reduce(f64::max);
    quickest.zip(last).is_some_and(|(cadence_s, last)| is_late(measurement, cadence_s, last))
}

/// The times at which a collector's readings ended, in order: a status page may take two seconds to fail.
pub(crate) fn times(measurement: &Measurement, name: &str) -> Vec<f64> {
    let own = measurement.samples.iter().filter(|timed| timed.sample.source == name);
    let mut times: Vec<f64> = own.map(ended_s).collect();
    times.sort_by(f64::total_cmp);
    times
}

pub(crate) fn ended_s(timed: &TimedSample) -> f64 {
    timed.t_s + timed.sample.duration_us as f64 / 1e6
}

/// Seconds between readings: the widest gap of those that there are, since some slow down under load.
pub(crate) fn cadence_s(times: &[f64]) -> f64 {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.into_iter().reduce(f64::max).unwrap_or(CADENCE_S_MAX)
}

pub(crate) fn is_late(measurement: &Measurement, cadence_s: f64, last_s: f64) -> bool {
    // Half a millisecond of tolerance: times went through decimal text.
    measurement.measured_to_s - last_s >= (LATE_CADENCES * cadence_s).max(LATE_S_MIN) - 0.0005
}

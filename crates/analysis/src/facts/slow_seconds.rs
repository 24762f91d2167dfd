//! What is different in the seconds in which slow responses come, where they come together: who uses the processors then, and whether
//! the service waits for them or for a disk.
//!
//! Readings come once a second, as the intervals of the load do, and not at the same time: a reading belongs to the interval in whose time the
//! middle between it and the one before lies.

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::statistics::mean;
use webdyno_model::interval::Interval;

fact_table! {
    "cores": slow_seconds_service_cores, other_seconds_service_cores, slow_seconds_foreign_cores,
        other_seconds_foreign_cores;
    "fraction": slow_seconds_cpu_wait_fraction, other_seconds_cpu_wait_fraction, slow_seconds_io_fraction,
        other_seconds_io_fraction;
}

/// What may stop a service for a while: the counter, what makes a second's share or cores of it, and its facts in both kinds of seconds.
const TELLING: [(&str, f64, [FactId; 2]); 5] = [
    ("process.cpu_s", 1.0, [FactId::slow_seconds_service_cores, FactId::other_seconds_service_cores]),
    ("process.foreign_cpu_s", 1.0, [FactId::slow_seconds_foreign_cores, FactId::other_seconds_foreign_cores]),
    ("pressure.cpu_some_us", 1e-6, CPU_WAIT),
    // The service's own group knows better.
    ("pressure.group_cpu_some_us", 1e-6, CPU_WAIT),
    ("pressure.io_full_us", 1e-6, [FactId::slow_seconds_io_fraction, FactId::other_seconds_io_fraction]),
];
const CPU_WAIT: [FactId; 2] =
    [FactId::slow_seconds_cpu_wait_fraction, FactId::other_seconds_cpu_wait_fraction];

/// Readings of each kind of seconds that say something.
const READINGS_MIN: usize = 2;

impl FactBuilder<'_> {
    /// For the intervals of the measured part, whether each is one of the few in which most slow responses ended.
    pub(super) fn slow_seconds(&mut self, measurement: &Measurement, is_slow: &[bool]) {
        let seconds: Vec<(&Interval, bool)> = measurement.measured().zip(is_slow.iter().copied()).collect();
        let kind_at = |t_s: f64| {
            let within = |one: &Interval| one.t_s <= t_s && t_s < one.t_s + one.length_us as f64 / 1e6;
            seconds.iter().find(|(one, _)| within(one)).map(|(_, is_slow)| *is_slow)
        };
        for (metric, factor, [in_slow, in_others]) in TELLING {
            let (mut slow, mut others) = (vec![], vec![]);
            for pair in self.series.all(metric).windows(2) {
                let [(from_s, before), (to_s, after)] = *pair else { continue };
                if to_s > from_s && after >= before {
                    let rate = (after - before) / (to_s - from_s) * factor;
                    match kind_at((from_s + to_s) / 2.0) {
                        Some(true) => slow.push(rate),
                        Some(false) => others.push(rate),
                        None => {}
                    }
                }
            }
            if slow.len().min(others.len()) >= READINGS_MIN {
                self.add_from(in_slow, mean(&slow), (metric, Derivation::Rate(factor)));
                self.add_from(in_others, mean(&others), (metric, Derivation::Rate(factor)));
            }
        }
    }
}

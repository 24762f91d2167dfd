//! Measurements by hand, for tests.

use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::Interval;
use webdyno_model::number::Number;
use webdyno_model::sample::{CollectorInfo, Metric, MetricKind, Sample};
use webdyno_model::workload::Workload;

/// A load with so many good answers in each second, so many failures, and about this response time.
pub fn measured(rates: &[u64], failed: u64, time_us: u64) -> Measurement {
    let second = |(at, completed): (usize, &u64)| {
        let mut times = TimeHistogram::new();
        (0..*completed).for_each(|n| times.record(time_us + n % 3));
        Interval {
            t_s: at as f64,
            length_us: 1_000_000,
            completed: *completed,
            failed,
            response_time: times.encode(),
            ..Interval::default()
        }
    };
    Measurement {
        workload: Some(Workload { connections: 10, timeout_us: 1_000_000, ..Workload::default() }),
        intervals: rates.iter().enumerate().map(second).collect(),
        measured_to_s: rates.len() as f64,
        ..Measurement::default()
    }
}

/// Readings of one collector, `x`, at the seconds from 0; values that are not finite are left out.
pub fn read(mut measurement: Measurement, readings: &[&[(&str, f64)]]) -> Measurement {
    for (at, values) in readings.iter().enumerate() {
        let finite = values.iter().filter(|(_, value)| value.is_finite());
        let values = finite.map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
        let sample = Sample { source: "x".into(), duration_us: 1, values, ..Sample::default() };
        measurement.samples.push(TimedSample { t_s: at as f64, sample });
    }
    let metric =
        |(name, kind): &(&str, MetricKind)| Metric { name: (*name).into(), kind: *kind, ..Metric::default() };
    let known = [
        ("x.held_count", MetricKind::Gauge),
        ("x.limit_count", MetricKind::Gauge),
        ("x.drops_count", MetricKind::Counter),
        ("x.tries_count", MetricKind::Counter),
        ("x.*.busy_us", MetricKind::Gauge),
        ("x.silent_count", MetricKind::Gauge),
    ];
    measurement.collectors =
        vec![CollectorInfo { name: "x".into(), metrics: known.iter().map(metric).collect() }];
    measurement
}

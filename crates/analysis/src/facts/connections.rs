//! Facts of the way to the server and back, as the load engine saw it: connecting, lost packets, bytes.

use super::{FactBuilder, FactId};
use crate::measurement::Measurement;
use crate::measurement::statistics;
use webdyno_model::distribution::Dist;
use webdyno_model::run::RunReport;

fact_table! {
    "requests": answered_in_flight_mean, given_up_in_flight_mean;
    "us": connect_time_p99_us, round_trip_mean_us;
    "connections": lost_syn_connections;
    "fraction": lost_syn_fraction, connecting_fraction, received_spread_fraction, receiving_fraction;
    "connections/s": connection_attempts_per_s;
    "bytes/s": received_bytes_per_s;
    "bytes": received_bytes_per_answer;
}

impl FactBuilder<'_> {
    pub(super) fn connections(&mut self, measurement: &Measurement, run: &RunReport) {
        let opened = run.connections.opened as f64;
        let timeouts = run.errors.connect_timeout as f64;
        let again: f64 = run.connect_peaks.iter().map(|peak| peak.count as f64).sum();
        let attempts = opened + timeouts;
        let lost = (attempts > 0.0).then(|| (again + timeouts) / attempts);
        let per_s = |count: u64| (run.elapsed_s > 0.0).then(|| count as f64 / run.elapsed_s);
        let ended = (run.requests.completed + run.requests.failed) as f64;
        let per_answer = (ended > 0.0).then(|| run.bytes.received as f64 / ended);
        let (answered, given_up) = in_flight_by_end(measurement, run).unzip();
        let facts = [
            (FactId::answered_in_flight_mean, answered),
            (FactId::given_up_in_flight_mean, given_up),
            (FactId::connect_time_p99_us, run.connect_time_us.p99.map(|us| us as f64)),
            (FactId::lost_syn_connections, Some(again + timeouts)),
            (FactId::lost_syn_fraction, lost),
            (FactId::connecting_fraction, connecting(measurement, run)),
            (FactId::connection_attempts_per_s, attempts_per_s(measurement, run)),
            (FactId::received_bytes_per_s, per_s(run.bytes.received)),
            (FactId::received_bytes_per_answer, per_answer),
            (FactId::received_spread_fraction, relative_deviation(measurement)),
            (FactId::receiving_fraction, receiving(run)),
            (FactId::round_trip_mean_us, run.round_trip_us.mean),
            (FactId::round_trip_min_us, run.tcp.round_trip_min_us.map(|us| us as f64)),
        ];
        for (name, value) in facts {
            self.add_client(measurement, name, value);
        }
    }
}

fn sum_us(times: &Dist) -> f64 {
    times.mean.unwrap_or(0.0) * times.count as f64
}

/// Of the time that requests took from the moment on at which they were begun, the share in which they connected. What is
/// begun and given up counts with the time that it was given.
fn connecting(measurement: &Measurement, run: &RunReport) -> Option<f64> {
    let timeout_us = measurement.workload.as_ref()?.timeout_us as f64;
    let connecting = sum_us(&run.connect_time_us) + run.errors.connect_timeout as f64 * timeout_us;
    let serving = sum_us(&run.service_time_us) + run.errors.timeout as f64 * timeout_us;
    (connecting + serving > 0.0).then(|| connecting / (connecting + serving))
}

/// By Little's law: the requests under way that were answered later, and those that had been sent and got no answer in time.
/// `None` where nothing was answered.
fn in_flight_by_end(measurement: &Measurement, run: &RunReport) -> Option<(f64, f64)> {
    let timeout_us = measurement.workload.as_ref()?.timeout_us as f64;
    let times = &run.response_time_us;
    // Those that were given up, connected or not, count among the times with their bound.
    let late_us = times.count.saturating_sub(run.requests.completed) as f64 * timeout_us;
    let elapsed_us = run.elapsed_s * 1e6;
    (elapsed_us > 0.0 && run.requests.completed > 0).then(|| {
        let given_up = run.errors.timeout as f64 * timeout_us;
        ((sum_us(times) - late_us).max(0.0) / elapsed_us, given_up / elapsed_us)
    })
}

/// Connections that clients would begin in a second: those of the rate that was ordered where each request has its own,
/// else those that were begun in the busiest second.
fn attempts_per_s(measurement: &Measurement, run: &RunReport) -> Option<f64> {
    let workload = measurement.workload.as_ref()?;
    let begun = measurement.intervals.iter().filter(|interval| interval.length_us >= 900_000);
    let begun = begun.map(|second| {
        (second.connections.opened + second.errors.connect_timeout) as f64 * 1e6 / second.length_us as f64
    });
    let busiest = begun.reduce(f64::max)?;
    let ordered = match workload.arrival {
        webdyno_model::workload::Arrival::Open { rate_per_s, .. }
            if !workload.keepalive && run.pages.is_none() =>
        {
            rate_per_s
        }
        _ => 0.0,
    };
    Some(busiest.max(ordered))
}

/// How much the bytes of a second differ from those of another: the standard deviation as a share of the mean.
fn relative_deviation(measurement: &Measurement) -> Option<f64> {
    let whole = measurement.measured().filter(|interval| interval.length_us >= 900_000);
    let rates: Vec<f64> =
        whole.map(|second| second.bytes_received as f64 * 1e6 / second.length_us as f64).collect();
    let described = statistics::describe(&rates).filter(|rates| rates.mean > 0.0)?;
    Some(described.variance.sqrt() / described.mean)
}

/// Of the time in which answers are awaited and received, the share after their first byte.
fn receiving(run: &RunReport) -> Option<f64> {
    let (service, first_byte) = (run.service_time_us.mean?, run.first_byte_us.mean?);
    (service > 0.0).then(|| ((service - first_byte) / service).max(0.0))
}

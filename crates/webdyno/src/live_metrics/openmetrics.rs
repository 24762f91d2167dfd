//! The metrics as OpenMetrics text, which Prometheus reads (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use super::instruments::{ALL, Instrument, Point, Values};
use super::state::{BOUNDS_S, SharedState, State, Times};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// The media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that is known now, from one moment.
pub struct Exposition(Registry);

impl Exposition {
    /// Of this state, each time anew.
    pub fn of(state: SharedState) -> Self {
        let mut registry = Registry::with_prefix("webdyno");
        registry.register_collector(Box::new(Exported(state)));
        Self(registry)
    }

    /// The text as of now.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0).map(|()| text)
    }
}

struct Exported(SharedState);

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exported")
    }
}

impl Collector for Exported {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.0.lock();
        ALL.iter().try_for_each(|instrument| encode_instrument(instrument, &state, &mut encoder))
    }
}

fn encode_instrument(
    instrument: &Instrument,
    state: &State,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let unit = match instrument.unit {
        "" => None,
        "seconds" => Some(Unit::Seconds),
        "bytes" => Some(Unit::Bytes),
        other => Some(Unit::Other(other.to_owned())),
    };
    let (points, kind) = match &instrument.values {
        Values::Counter(points) => (points(state), MetricType::Counter),
        Values::Gauge(points) => (points(state), MetricType::Gauge),
        Values::Histogram(times) => {
            let Some(times) = times(state) else { return Ok(()) };
            let kind = MetricType::Histogram;
            let mut metric =
                encoder.encode_descriptor(&instrument.name, &instrument.help, unit.as_ref(), kind)?;
            let (sum_s, count) = (times.sums_s.iter().sum(), times.counts.iter().sum());
            return metric.encode_histogram::<NoLabelSet>(sum_s, count, &buckets(times), None);
        }
    };
    if points.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(&instrument.name, &instrument.help, unit.as_ref(), kind)?;
    // Braces without a label between them would be valid, and unusual.
    if let [Point { labels, value }] = &points[..]
        && labels.is_empty()
    {
        return encode_value(kind, *value, metric);
    }
    points.iter().try_for_each(|point| encode_value(kind, point.value, metric.encode_family(&point.labels)?))
}

fn encode_value(kind: MetricType, value: f64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Gauge => ConstGauge::new(value).encode(encoder),
        _ => ConstCounter::new(value).encode(encoder),
    }
}

/// Upper bounds and counts, each of its bucket alone: the encoder adds them up.
fn buckets(times: &Times) -> Vec<(f64, u64)> {
    BOUNDS_S.into_iter().chain([f64::INFINITY]).zip(times.counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_metrics::state::tests::tuning;

    #[test]
    fn the_text_has_what_is_known() {
        let shared = SharedState::default();
        *shared.lock() = tuning();
        let text = Exposition::of(shared).text().unwrap();
        for line in [
            "# HELP webdyno_requests_completed Requests that succeeded.",
            "# TYPE webdyno_requests_completed counter",
            "webdyno_requests_completed_total 20.0",
            "webdyno_requests_failed_total{class=\"timeout\"} 2.0",
            "webdyno_requests_failed_total{class=\"reset\"} 0.0",
            "# TYPE webdyno_response_time_seconds histogram",
            "# UNIT webdyno_response_time_seconds seconds",
            "webdyno_response_time_seconds_bucket{le=\"0.001\"} 2",
            "webdyno_response_time_seconds_bucket{le=\"0.01\"} 20",
            "webdyno_response_time_seconds_bucket{le=\"+Inf\"} 22",
            "webdyno_response_time_seconds_count 22",
            "webdyno_received_bytes_total 2000.0",
            "webdyno_requests_in_flight 1.0",
            "webdyno_generator_cpu_seconds_total 0.5",
            "webdyno_generator_busiest_thread_ratio 0.2",
            "webdyno_tune_rounds_total{verdict=\"better\",kept=\"true\"} 1.0",
            "webdyno_host_accept_queue_waiting{host=\"\"} 9.0",
            "webdyno_named_requests_total{request=\"(other)\",outcome=\"completed\"} 10.0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is none of\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("secret"), "{text}");
        assert!(
            !text.contains("visitors") && !text.contains("tune_round "),
            "nothing is known of them: {text}"
        );
    }

    #[test]
    fn before_anything_happened_counts_are_zero_and_levels_unknown() {
        let text = Exposition::of(SharedState::default()).text().unwrap();
        assert!(text.contains("webdyno_requests_started_total 0.0"), "{text}");
        assert!(!text.contains("in_flight") && !text.contains("host_"), "{text}");
    }
}

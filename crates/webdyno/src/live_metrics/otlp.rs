//! The metrics, pushed to an OpenTelemetry collector: OTLP over HTTP in protobuf (<https://opentelemetry.io/docs/specs/otlp/>), by
//! OpenTelemetry's own SDK. Its variables of the environment hold, where the flag does not say otherwise.
//!
//! A collector that is away, or does not answer, costs the session nothing but a warning and a bounded time at its end.

use super::instruments::{ALL, Instrument, Point, Values};
use super::state::{BOUNDS_S, SharedState, State, Times};
use crate::https;
use async_trait::async_trait;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Histogram, Meter, MeterProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::resource::EnvResourceDetector;
use std::env;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use url::Url;
use webdyno_model::{Result, UserError};

/// How often is pushed, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long a push takes at most, unless OTEL_EXPORTER_OTLP_TIMEOUT says otherwise.
const TIMEOUT_MS: u64 = 10_000;
/// How long the end of the session waits for the last push.
const LAST_PUSH_MAX: Duration = Duration::from_secs(2);
/// An answer that is longer is none of a collector.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What pushes; when it is dropped it pushes for the last time.
pub struct Pusher {
    provider: SdkMeterProvider,
    histograms: Vec<Recorder>,
    state: SharedState,
    failure: FirstFailure,
}

/// A histogram of the SDK, and what was recorded in it.
struct Recorder {
    times: fn(&State) -> Option<&Times>,
    histogram: Histogram<f64>,
    recorded: Times,
}

impl Recorder {
    /// Takes over what these times have gained.
    fn record(&mut self, now: Times) {
        for bucket in 0..now.counts.len() {
            let count = now.counts[bucket] - self.recorded.counts[bucket];
            if count > 0 {
                // Their mean: the sum stays what it is, and so does the bucket, whatever rounding adds.
                let mean_s = (now.sums_s[bucket] - self.recorded.sums_s[bucket]) / count as f64;
                let bound_s = BOUNDS_S.get(bucket).copied().unwrap_or(f64::MAX);
                (0..count).for_each(|_| self.histogram.record(mean_s.min(bound_s), &[]));
            }
        }
        self.recorded = now;
    }
}

impl Pusher {
    /// Begins to push to the collector at this URL. An error when that cannot be; whether it answers is another matter.
    pub fn start(collector: &Url, state: SharedState) -> Result<Self> {
        let wrong = |error: String| {
            UserError::cannot_run(format!("cannot push metrics to {}: {error}", without_secrets(collector)))
                .hint("--otlp takes the base of a collector that speaks OTLP over HTTP, as http://127.0.0.1:4318")
        };
        let failure = FirstFailure { collector: without_secrets(collector), state: Arc::default() };
        let exporter = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint(collector))
            .with_http_client(Client {
                agent: agent(collector.scheme() == "https"),
                failure: failure.clone(),
            })
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let reader = PeriodicReader::builder(exporter);
        let is_set = env::var_os("OTEL_METRIC_EXPORT_INTERVAL").is_some();
        let reader = if is_set { reader } else { reader.with_interval(INTERVAL) };
        let provider =
            SdkMeterProvider::builder().with_reader(reader.build()).with_resource(resource()).build();
        let meter = provider.meter("webdyno");
        let histograms = ALL.iter().filter_map(|one| register(one, &meter, &state)).collect();
        Ok(Self { provider, histograms, state, failure })
    }

    /// Takes over what the histograms have gained. The SDK asks for everything else itself.
    pub fn record_times(&mut self) {
        for recorder in &mut self.histograms {
            let now = (recorder.times)(&self.state.lock()).cloned();
            if let Some(now) = now {
                recorder.record(now);
            }
        }
    }

    /// What went wrong first, once.
    pub fn warning(&self) -> Option<String> {
        self.failure.take()
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.record_times();
        let (provider, (sender, ended)) = (self.provider.clone(), mpsc::channel());
        // The push that goes on now may have to come to its own end first.
        let last = thread::Builder::new().name("last push".into());
        let started = last.spawn(move || drop(sender.send(provider.shutdown())));
        if started.is_ok() && ended.recv_timeout(LAST_PUSH_MAX).is_err() {
            self.failure.record(&format!("no answer within {} s", LAST_PUSH_MAX.as_secs()));
        }
        if let Some(warning) = self.warning() {
            crate::terminal::print_status(&format!("webdyno: {warning}"));
        }
    }
}

/// Makes the instrument. What it records is asked for at each push, but of histograms, which it gives back.
fn register(instrument: &'static Instrument, meter: &Meter, state: &SharedState) -> Option<Recorder> {
    let (name, state) = (format!("webdyno.{}", instrument.name), state.clone());
    let (help, unit) = (instrument.help.as_str(), ucum_unit(instrument.unit));
    match &instrument.values {
        Values::Counter(points) => {
            let counter = meter.f64_observable_counter(name).with_description(help).with_unit(unit);
            let observe = move |observer: &dyn AsyncInstrument<f64>| observe(observer, points(&state.lock()));
            counter.with_callback(observe).build();
            None
        }
        Values::Gauge(points) => {
            let gauge = meter.f64_observable_gauge(name).with_description(help).with_unit(unit);
            let observe = move |observer: &dyn AsyncInstrument<f64>| observe(observer, points(&state.lock()));
            gauge.with_callback(observe).build();
            None
        }
        Values::Histogram(times) => {
            let histogram = meter.f64_histogram(name).with_description(help).with_unit(unit);
            let histogram = histogram.with_boundaries(BOUNDS_S.into()).build();
            Some(Recorder { times: *times, histogram, recorded: Times::default() })
        }
    }
}

fn observe(observer: &dyn AsyncInstrument<f64>, points: Vec<Point>) {
    for Point { labels, value } in points {
        let attributes: Vec<KeyValue> =
            labels.into_iter().map(|(name, value)| KeyValue::new(name, value)).collect();
        observer.observe(value, &attributes);
    }
}

/// Units as OpenTelemetry writes them (<https://ucum.org>).
fn ucum_unit(unit: &'static str) -> &'static str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        other => other,
    }
}

/// What the metrics are of, as the environment may have it otherwise.
fn resource() -> Resource {
    let resource = Resource::builder_empty()
        .with_service_name("webdyno")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => resource.with_service_name(name).build(),
        _ => resource.build(),
    }
}

/// The collector's address for metrics: the path that the protocol gives it, below the base that was given.
fn endpoint(collector: &Url) -> String {
    let base = collector.as_str().trim_end_matches('/');
    if base.ends_with("/v1/metrics") { base.to_owned() } else { format!("{base}/v1/metrics") }
}

/// A URL without what may be secret.
fn without_secrets(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn agent(is_secure: bool) -> ureq::Agent {
    let number = |name| env::var(name).ok().and_then(|text: String| text.parse().ok());
    let timeout_ms =
        number("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT").or_else(|| number("OTEL_EXPORTER_OTLP_TIMEOUT"));
    let timeout = Duration::from_millis(timeout_ms.unwrap_or(TIMEOUT_MS));
    let config = ureq::Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
    let config = config.max_redirects(0);
    if is_secure { config.tls_config(https::tls()).build().into() } else { config.build().into() }
}

/// The first failure, until it was reported.
#[derive(Debug, Clone)]
struct FirstFailure {
    collector: String,
    state: Arc<Mutex<FailureState>>,
}

#[derive(Debug, Default)]
enum FailureState {
    #[default]
    None,
    Unreported(String),
    Reported,
}

impl FirstFailure {
    fn record(&self, cause: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, FailureState::None) {
            let collector = &self.collector;
            *state = FailureState::Unreported(format!(
                "the OTLP collector at {collector} does not take metrics: {cause}; the session goes on without it"
            ));
        }
    }

    /// The text to report, once.
    fn take(&self) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let FailureState::Unreported(text) = &mut *state else { return None };
        let text = std::mem::take(text);
        *state = FailureState::Reported;
        Some(text)
    }
}

/// Sends requests, on the thread that asks for it.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    failure: FirstFailure,
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let answer = self.send(request);
        match &answer {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => self.failure.record(&format!("it answers with status {}", answer.status())),
            Err(error) => self.failure.record(&error.to_string()),
        }
        answer.map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_protocol_is_added_once() {
        for (url, expected) in [
            ("http://h:4318", "http://h:4318/v1/metrics"),
            ("http://h:4318/", "http://h:4318/v1/metrics"),
            ("https://h/otlp", "https://h/otlp/v1/metrics"),
            ("http://h:4318/v1/metrics", "http://h:4318/v1/metrics"),
        ] {
            assert_eq!(endpoint(&url.parse().unwrap()), expected);
        }
        assert_eq!(without_secrets(&"http://name:secret@h:4318/secret".parse().unwrap()), "http://h:4318");
    }

    #[test]
    fn a_failure_is_reported_once() {
        let failure = FirstFailure { collector: "http://h:4318".into(), state: Arc::default() };
        assert_eq!(failure.take(), None);
        failure.record("connection refused");
        failure.record("another");
        let text = failure.take().unwrap();
        assert!(text.contains("http://h:4318") && text.contains("connection refused"), "{text}");
        failure.record("once more");
        assert_eq!(failure.take(), None);
    }
}

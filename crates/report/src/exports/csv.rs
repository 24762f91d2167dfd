//! Every second of every load as a row of CSV (RFC 4180). Unknown is an empty field, never 0.

use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::histograms::merged;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::number::significant;
use webdyno_model::workload::Workload;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::{LoadRecord, Recording};

/// Columns before the failures by class.
const BEFORE: [&str; 20] = [
    "load",
    "purpose",
    "t_s",
    "length_s",
    "part",
    "rate_per_s",
    "started",
    "completed",
    "failed",
    "in_flight",
    "mean_us",
    "p50_us",
    "p90_us",
    "p99_us",
    "max_us",
    "bytes_received",
    "bytes_sent",
    "connections_opened",
    "connections_peak",
    "client_cpu_s",
];
/// Columns behind them.
const BEHIND: [&str; 13] = [
    "pages_rate_per_s",
    "pages_started",
    "pages_completed",
    "pages_failed",
    "pages_in_flight",
    "pages_p50_us",
    "pages_p95_us",
    "pages_max_us",
    "visitors",
    "sessions_started",
    "sessions_completed",
    "sessions_broken",
    "cache_hits",
];

/// The seconds of all loads, with a line of titles. An error without any load, or when a histogram is damaged.
pub fn csv(recording: &Recording) -> Result<String> {
    if recording.loads.is_empty() {
        return Err(super::no_load_error("CSV", recording));
    }
    let wrong =
        |error: csv::Error| UserError::cannot_run(format!("cannot write the results as csv: {error}"));
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(vec![]);
    let classes = ErrorCounts::default().named().map(|(class, _)| format!("errors_{class}"));
    let titles = BEFORE.map(str::to_owned).into_iter().chain(classes).chain(BEHIND.map(str::to_owned));
    writer.write_record(titles).map_err(wrong)?;
    for load in &recording.loads {
        let parts = LoadParts::of_measurement(&recording.measurement(load));
        for interval in &load.intervals {
            writer.write_record(row(load, interval, parts.part_of(interval))?).map_err(wrong)?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| wrong(error.into_error().into()))?;
    super::utf8_text(bytes, "csv")
}

fn row(load: &LoadRecord, interval: &Interval, part: &str) -> Result<Vec<String>> {
    let length_s = interval.length_us as f64 / 1e6;
    let times = merged(interval.response_time.iter())?;
    let at = |quantile: f64| cell(times.quantile_us(quantile));
    let mut row = vec![
        load.load.to_string(),
        load.purpose.name().to_owned(),
        decimal(interval.t_s),
        decimal(length_s),
        part.to_owned(),
        per_second(interval.completed, length_s),
        interval.started.to_string(),
        interval.completed.to_string(),
        interval.failed.to_string(),
        interval.in_flight.to_string(),
        cell(times.mean_us().map(|mean| significant(mean, 6))),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        interval.bytes_received.to_string(),
        interval.bytes_sent.to_string(),
        interval.connections.opened.to_string(),
        interval.connections.peak.to_string(),
        decimal(interval.cpu_us as f64 / 1e6),
    ];
    row.extend(interval.errors.named().map(|(_, failed)| failed.to_string()));
    row.extend(pages(interval, length_s)?);
    row.extend(visits(interval, &load.workload));
    Ok(row)
}

fn pages(interval: &Interval, length_s: f64) -> Result<[String; 8]> {
    let Some(pages) = &interval.pages else { return Ok([const { String::new() }; 8]) };
    let times: TimeHistogram = merged(pages.time.iter())?;
    Ok([
        per_second(pages.completed, length_s),
        pages.started.to_string(),
        pages.completed.to_string(),
        pages.failed.to_string(),
        pages.in_flight.to_string(),
        cell(times.quantile_us(0.5)),
        cell(times.quantile_us(0.95)),
        cell(times.quantile_us(1.0)),
    ])
}

fn visits(interval: &Interval, workload: &Workload) -> [String; 5] {
    if workload.visits.is_none() {
        return [const { String::new() }; 5];
    }
    let visits = &interval.visits;
    [
        visits.visitors,
        visits.sessions_started,
        visits.sessions_completed,
        visits.sessions_broken,
        visits.cache_hits,
    ]
    .map(|count| count.to_string())
}

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// To the millisecond, as far as seconds are cut.
fn decimal(value: f64) -> String {
    ((value * 1e3).round() / 1e3).to_string()
}

fn per_second(count: u64, length_s: f64) -> String {
    cell((length_s > 0.0).then(|| significant(count as f64 / length_s, 6)))
}

/// Where the parts of a load lie, in seconds since it began.
struct LoadParts {
    ramped_s: f64,
    measured: Option<(f64, f64)>,
}

impl LoadParts {
    fn of_measurement(measurement: &Measurement) -> Self {
        let ramp = |workload: &Workload| {
            let before = workload.stages.iter().take_while(|stage| !stage.measured);
            before.map(|stage| stage.duration_us as f64 / 1e6).sum()
        };
        let begins: Vec<f64> = measurement.measured().map(|interval| interval.t_s).collect();
        Self {
            ramped_s: measurement.workload.as_ref().map_or(0.0, ramp),
            measured: begins.first().copied().zip(begins.last().copied()),
        }
    }

    fn part_of(&self, interval: &Interval) -> &'static str {
        let Some((first_s, last_s)) = self.measured else { return "warm-up" };
        if interval.t_s > last_s {
            "ramp-down"
        } else if interval.t_s >= first_s {
            "measured"
        } else if interval.t_s < self.ramped_s - 0.0005 {
            "ramp-up"
        } else {
            "warm-up"
        }
    }
}

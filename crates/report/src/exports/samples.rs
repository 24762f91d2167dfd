//! The table of what was read of the hosts: a row for each value of each metric (docs/metrics.md), by host, metric and time.
//! Values that a reading left out because they had not changed are in it.

use super::table::{Cell, Column, Kind, RowSink};
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_model::sample::{CollectorInfo, MetricKind, Sample};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

const COLUMNS: [(&str, Kind); 6] = [
    ("host", Kind::Text),
    ("metric", Kind::Text),
    ("unit", Kind::Text),
    ("kind", Kind::Text),
    ("t_s", Kind::Real),
    ("value", Kind::Real),
];

pub fn columns() -> Vec<Column> {
    COLUMNS.map(|(name, kind)| Column { name: name.to_owned(), kind }).into()
}

/// The readings of all hosts, the one under load first: its role is unknown. An error without any.
pub fn rows(recording: &Recording, wanted: &str, sink: RowSink<'_>) -> Result<()> {
    let others = recording.hosts.iter();
    let others = others.map(|(role, host)| (Some(role.as_str()), &host.samples, &host.collectors));
    let first = (None, &recording.samples, &recording.collectors);
    let mut any = false;
    for (role, samples, collectors) in std::iter::once(first).chain(others) {
        any |= !samples.is_empty();
        host_rows(role, samples, collectors, sink)?;
    }
    if any { Ok(()) } else { Err(nothing_observed_error(wanted, recording)) }
}

fn host_rows(
    role: Option<&str>,
    samples: &[(u64, Sample)],
    collectors: &[CollectorInfo],
    sink: RowSink<'_>,
) -> Result<()> {
    let timed =
        |(t_us, sample): &(u64, Sample)| TimedSample { t_s: *t_us as f64 / 1e6, sample: sample.clone() };
    let samples = samples.iter().map(timed).collect();
    let measurement = Measurement { samples, collectors: collectors.to_vec(), ..Measurement::default() };
    let series = SeriesSet::of(&measurement);
    let host = role.map_or(Cell::Unknown, Cell::Text);
    for name in series.names() {
        let metric = series.metric(name);
        let unit = metric.map_or(Cell::Unknown, |metric| Cell::Text(&metric.unit));
        let kind = metric.map_or(Cell::Unknown, |metric| Cell::Text(kind_name(metric.kind)));
        for (t_s, value) in series.all(name) {
            sink(&[host, Cell::Text(name), unit, kind, Cell::Real(*t_s), Cell::Real(*value)])?;
        }
    }
    Ok(())
}

fn kind_name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Gauge => "gauge",
        MetricKind::Counter => "counter",
    }
}

fn nothing_observed_error(wanted: &str, recording: &Recording) -> UserError {
    UserError::cannot_run(format!(
        "the `{}` of {} observed no host, so that there are no samples for {wanted}",
        recording.command, recording.started_at
    ))
    .hint("`diagnose`, `tune` and `observe` read the server's host; `run` has the seconds of its load alone")
}

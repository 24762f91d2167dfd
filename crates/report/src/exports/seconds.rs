//! The table of every second of every load.

use super::table::{Cell, Column, Kind, RowSink};
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::histograms::merged;
use webdyno_model::Result;
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::interval::{ErrorCounts, Interval};
use webdyno_model::number::significant;
use webdyno_model::workload::Workload;
use webdyno_session::recording::{LoadRecord, Recording};

/// Columns before the failures by class.
const BEFORE: [(&str, Kind); 20] = [
    ("load", Kind::Integer),
    ("purpose", Kind::Text),
    ("t_s", Kind::Real),
    ("length_s", Kind::Real),
    ("part", Kind::Text),
    ("rate_per_s", Kind::Real),
    ("started", Kind::Integer),
    ("completed", Kind::Integer),
    ("failed", Kind::Integer),
    ("in_flight", Kind::Integer),
    ("mean_us", Kind::Real),
    ("p50_us", Kind::Integer),
    ("p90_us", Kind::Integer),
    ("p99_us", Kind::Integer),
    ("max_us", Kind::Integer),
    ("bytes_received", Kind::Integer),
    ("bytes_sent", Kind::Integer),
    ("connections_opened", Kind::Integer),
    ("connections_peak", Kind::Integer),
    ("client_cpu_s", Kind::Real),
];
/// Columns behind them.
const BEHIND: [(&str, Kind); 13] = [
    ("pages_rate_per_s", Kind::Real),
    ("pages_started", Kind::Integer),
    ("pages_completed", Kind::Integer),
    ("pages_failed", Kind::Integer),
    ("pages_in_flight", Kind::Integer),
    ("pages_p50_us", Kind::Integer),
    ("pages_p95_us", Kind::Integer),
    ("pages_max_us", Kind::Integer),
    ("visitors", Kind::Integer),
    ("sessions_started", Kind::Integer),
    ("sessions_completed", Kind::Integer),
    ("sessions_broken", Kind::Integer),
    ("cache_hits", Kind::Integer),
];

pub fn columns() -> Vec<Column> {
    let named = |(name, kind): (&str, Kind)| Column { name: name.to_owned(), kind };
    let classes = ErrorCounts::default().named();
    let classes =
        classes.into_iter().map(|(class, _)| Column { name: format!("errors_{class}"), kind: Kind::Integer });
    BEFORE.into_iter().map(named).chain(classes).chain(BEHIND.into_iter().map(named)).collect()
}

/// The seconds of all loads. An error when a histogram is damaged.
pub fn rows(recording: &Recording, sink: RowSink<'_>) -> Result<()> {
    for load in &recording.loads {
        let parts = LoadParts::of_measurement(&recording.measurement(load));
        for interval in &load.intervals {
            sink(&row(load, interval, parts.part_of(interval))?)?;
        }
    }
    Ok(())
}

fn row<'a>(load: &LoadRecord, interval: &Interval, part: &'a str) -> Result<Vec<Cell<'a>>> {
    let length_s = interval.length_us as f64 / 1e6;
    let times = merged(interval.response_time.iter())?;
    let at = |quantile: f64| Cell::integer(times.quantile_us(quantile));
    let mut row = vec![
        Cell::Integer(load.load.into()),
        Cell::Text(load.purpose.name()),
        Cell::rounded(interval.t_s),
        Cell::rounded(length_s),
        Cell::Text(part),
        per_second(interval.completed, length_s),
        Cell::Integer(interval.started),
        Cell::Integer(interval.completed),
        Cell::Integer(interval.failed),
        Cell::Integer(interval.in_flight),
        Cell::real(times.mean_us().map(|mean| significant(mean, 6))),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        Cell::Integer(interval.bytes_received),
        Cell::Integer(interval.bytes_sent),
        Cell::Integer(interval.connections.opened),
        Cell::Integer(interval.connections.peak),
        Cell::rounded(interval.cpu_us as f64 / 1e6),
    ];
    row.extend(interval.errors.named().map(|(_, failed)| Cell::Integer(failed)));
    row.extend(pages(interval, length_s)?);
    row.extend(visits(interval, &load.workload));
    Ok(row)
}

fn pages(interval: &Interval, length_s: f64) -> Result<[Cell<'static>; 8]> {
    let Some(pages) = &interval.pages else { return Ok([Cell::Unknown; 8]) };
    let times: TimeHistogram = merged(pages.time.iter())?;
    Ok([
        per_second(pages.completed, length_s),
        Cell::Integer(pages.started),
        Cell::Integer(pages.completed),
        Cell::Integer(pages.failed),
        Cell::Integer(pages.in_flight),
        Cell::integer(times.quantile_us(0.5)),
        Cell::integer(times.quantile_us(0.95)),
        Cell::integer(times.quantile_us(1.0)),
    ])
}

fn visits(interval: &Interval, workload: &Workload) -> [Cell<'static>; 5] {
    if workload.visits.is_none() {
        return [Cell::Unknown; 5];
    }
    let visits = &interval.visits;
    [
        visits.visitors,
        visits.sessions_started,
        visits.sessions_completed,
        visits.sessions_broken,
        visits.cache_hits,
    ]
    .map(Cell::Integer)
}

fn per_second(count: u64, length_s: f64) -> Cell<'static> {
    Cell::real((length_s > 0.0).then(|| significant(count as f64 / length_s, 6)))
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

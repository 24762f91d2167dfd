//! The points of a curve as a table, with the names that `webdyno fit` reads.

use super::table::{Cell, Column, Kind, RowSink};
use webdyno_model::sweep::{KnobValue, SweepPoint};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::sweep::recorded_report;

/// Those of every curve, and behind them those of the axes of a study, by their names.
pub fn columns(recording: &Recording) -> Vec<Column> {
    let axes = recorded_report(recording).and_then(|sweep| sweep.study).map(|study| study.axes);
    let axes = axes.unwrap_or_default().into_iter().map(|axis| Column { name: axis.name, kind: Kind::Text });
    let column = |(name, kind): (&str, Kind)| Column { name: name.into(), kind };
    [
        ("value", Kind::Text),
        ("value_2", Kind::Text),
        ("rate", Kind::Real),
        ("ci_low", Kind::Real),
        ("ci_high", Kind::Real),
        ("p50_us", Kind::Integer),
        ("p99_us", Kind::Integer),
        ("errors", Kind::Integer),
        ("memory_bytes", Kind::Integer),
        ("cpu_fraction", Kind::Real),
        ("loads", Kind::Integer),
        ("failed", Kind::Text),
    ]
    .map(column)
    .into_iter()
    .chain(axes)
    .collect()
}

/// A row for each point, in their order. An error for a session that is no sweep.
pub fn rows(recording: &Recording, wanted: &str, sink: RowSink<'_>) -> Result<()> {
    let sweep = recorded_report(recording).ok_or_else(|| {
        UserError::cannot_run(format!(
            "the `{}` of {} has no points of a curve for {wanted}",
            recording.command, recording.started_at
        ))
        .hint("--table seconds has its loads; `webdyno sweep` measures a curve")
    })?;
    let axes = sweep.study.map_or(0, |study| study.axes.len());
    sweep.points.iter().try_for_each(|point| row(point, axes, sink))
}

fn row(point: &SweepPoint, axes: usize, sink: RowSink<'_>) -> Result<()> {
    let text = |value: &KnobValue| match value {
        KnobValue::Number(number) => number.to_string(),
        KnobValue::Word(word) => word.clone(),
    };
    let values: Vec<String> = point.values.iter().map(text).collect();
    let first = values.first().cloned().or_else(|| point.value.map(|value| value.to_string()));
    let second = values.get(1);
    let [low, high] = point.ci95.map_or([None; 2], |ends| ends.map(Some));
    let cells = [
        optional(first.as_deref()),
        optional(second.map(String::as_str)),
        Cell::real(point.rate),
        Cell::real(low),
        Cell::real(high),
        Cell::integer(point.p50_us),
        Cell::integer(point.p99_us),
        Cell::integer(point.errors),
        Cell::integer(point.memory_bytes),
        Cell::real(point.cpu_fraction),
        Cell::Integer(point.loads.len() as u64),
        optional(point.failed.as_deref()),
    ];
    let of_axes = values.iter().take(axes).map(|value| Cell::Text(value));
    sink(&cells.into_iter().chain(of_axes).collect::<Vec<_>>())
}

fn optional(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Unknown, Cell::Text)
}

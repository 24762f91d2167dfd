//! The points of a curve as a table, with the names that `webdyno fit` reads.

use super::table::{Cell, Column, Kind, RowSink};
use webdyno_model::sweep::{KnobValue, SweepPoint};
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;
use webdyno_session::sweep::recorded_report;

pub fn columns() -> Vec<Column> {
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
    .into()
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
    sweep.points.iter().try_for_each(|point| row(point, sink))
}

fn row(point: &SweepPoint, sink: RowSink<'_>) -> Result<()> {
    let text = |value: &KnobValue| match value {
        KnobValue::Number(number) => number.to_string(),
        KnobValue::Word(word) => word.clone(),
    };
    let first = point.values.first().map(text).or_else(|| point.value.map(|value| value.to_string()));
    let second = point.values.get(1).map(text);
    let [low, high] = point.ci95.map_or([None; 2], |ends| ends.map(Some));
    sink(&[
        optional(first.as_deref()),
        optional(second.as_deref()),
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
    ])
}

fn optional(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Unknown, Cell::Text)
}

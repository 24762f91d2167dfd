//! A curve on one screen: what to choose and why, the plot, the points, what the points cannot tell.

use super::curve_plot::{CurvePlot, PlotPoint, write_curve};
use super::page::{COLUMNS, ColumnAlign, TextPage, Tone};
use crate::human::number;
use crate::phrases::sweep::{headline, other_notes, points_table, value_label, why};
use webdyno_model::sweep::{SweepPoint, SweepReport};

/// More points are thinned on one screen.
const ROWS_MAX: usize = 7;

/// A curve that is no session, as text with a final newline.
pub fn sweep(sweep: &SweepReport) -> String {
    let mut page = TextPage::default();
    write_sweep(&mut page, sweep, ROWS_MAX);
    page.finish()
}

/// The curve, with at most so many rows of its points.
pub(super) fn write_sweep(page: &mut TextPage, sweep: &SweepReport, rows_max: usize) {
    let tone = if sweep.choice.is_some() || sweep.best.is_some() { Tone::Good } else { Tone::Warning };
    page.title(tone, &headline(sweep), "");
    for sentence in why(sweep) {
        page.paragraph(&sentence);
    }
    plot(page, sweep);
    page.gap();
    points(page, sweep, rows_max);
    let notes = other_notes(sweep);
    if !notes.is_empty() {
        page.gap();
        notes.iter().for_each(|note| page.item("-", note));
    }
}

fn plot(page: &mut TextPage, sweep: &SweepReport) {
    let point = |point: &SweepPoint| Some(PlotPoint { x: point.value?, y: point.rate?, ci95: point.ci95 });
    let line = sweep.usl.iter().flat_map(|law| law.curve.iter().map(|point| (point.value, point.rate)));
    let value = |value: f64| value_label(sweep, value);
    if sweep.knobs.len() < 2 {
        write_curve(
            page,
            &CurvePlot {
                axes: [sweep.knob.clone(), "successful req/s".into()],
                labels: [&value, &number],
                points: sweep.points.iter().filter_map(point).collect(),
                line: line.collect(),
                span: sweep.plateau,
                mark: sweep.choice.map(|choice| (choice, "choice")),
                bound: None,
            },
        );
    }
}

/// The points as a table; of many the first, the last, the choice and every so many.
fn points(page: &mut TextPage, sweep: &SweepReport, rows_max: usize) {
    let every = sweep.points.len().div_ceil(rows_max.max(1)).max(1);
    let is_kept = |at: usize| {
        let point = &sweep.points[at];
        at.is_multiple_of(every)
            || point.value.is_some() && point.value == sweep.choice
            || at + 1 == sweep.points.len()
    };
    let rows = points_table(sweep).into_iter().enumerate();
    let rows: Vec<Vec<String>> =
        rows.filter(|(at, _)| *at == 0 || is_kept(at - 1)).map(|(_, row)| row).collect();
    // Words are wrapped: remarks always, everything where figures are so long that a line would not hold them.
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let width: usize = (0..rows[0].len()).map(|column| widest(column) + 2).sum();
    // The name of the knob is none: it is looked for as it is written.
    let align = |(at, title): (usize, &String)| match title.as_str() {
        "" => ColumnAlign::Words,
        _ if width > COLUMNS && at > 0 => ColumnAlign::Words,
        _ => ColumnAlign::Number,
    };
    let aligned: Vec<ColumnAlign> = rows[0].iter().enumerate().map(align).collect();
    page.table(&aligned, &rows);
    if every > 1 {
        page.paragraph(&format!("{} of {} points; --json has all.", rows.len() - 1, sweep.points.len()));
    }
}

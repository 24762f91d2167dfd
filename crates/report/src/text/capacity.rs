//! A search for the capacity in full: the answer, every step, what limits.

use super::curve_plot::{CurvePlot, PlotPoint, write_curve};
use super::page::{ColumnAlign, TextPage, Tone};
use crate::human::{number, time};
use crate::phrases;
use webdyno_model::capacity::{CapacityReport, CapacityStep};
use webdyno_session::view::View;

/// How the columns of the steps are set.
pub(super) const STEP_COLUMNS: [ColumnAlign; 7] = {
    use ColumnAlign::{Number, Words};
    [Number, Number, Number, Number, Number, Number, Words]
};

/// Steps that are shown in full.
const STEPS_MAX: usize = 100;

pub(super) fn write_capacity(page: &mut TextPage, view: &View, found: &CapacityReport) {
    write_answer(page, view, found, 10);
    write_plot(page, found);
    page.heading(phrases::capacity_steps_title(found));
    page.table(&STEP_COLUMNS, &phrases::capacity_steps(found, STEPS_MAX));
    let notes: Vec<&String> = found.notes.iter().filter(|note| !view.notes.contains(note)).collect();
    if !notes.is_empty() {
        page.heading("How sure");
        notes.iter().for_each(|note| page.item("-", note));
    }
}

/// The answer, and what to do next.
pub(super) fn write_answer(page: &mut TextPage, view: &View, found: &CapacityReport, lines_max: usize) {
    let tone = match (&found.generator, found.rate) {
        (Some(_), _) => Tone::Warning,
        (None, Some(_)) => Tone::Good,
        (None, None) => Tone::Bad,
    };
    page.title(tone, &phrases::capacity_headline(found), "");
    for (label, text) in phrases::capacity_points(found) {
        page.short_item(&format!("{label}:"), &text, lines_max);
    }
    if let Some(next) = phrases::capacity_next(view, found) {
        page.verbatim(&format!("Next: {next}"));
    }
}

/// p99 over what was offered, of the steps that count.
pub(super) fn write_plot(page: &mut TextPage, found: &CapacityReport) {
    let point = |step: &CapacityStep| Some(PlotPoint { x: step.offered, y: step.p99_us? as f64, ci95: None });
    write_curve(
        page,
        &CurvePlot {
            axes: [format!("{} offered", found.unit.name()), "p99".into()],
            labels: [&number, &|time_us| time(Some(time_us as u64))],
            points: found.steps.iter().filter(|step| step.discarded.is_none()).filter_map(point).collect(),
            line: vec![],
            span: None,
            mark: found.rate.map(|rate| (rate, "capacity")),
            bound: None,
        },
    );
}

//! A search for the capacity: every step by what it offered.

use super::AddSection;
use super::blocks::{Align, Block, CurvePlot, CurvePoint, figure, interval};
use crate::phrases;
use webdyno_model::capacity::{CapacityReport, CapacityStep};

/// What stands before the plots.
pub(super) fn sections(found: &CapacityReport, section: &mut AddSection<'_>) {
    section("steps", phrases::capacity_steps_title(found), &|b| {
        let plot = plot(found);
        if plot.points.len() > 1 {
            b.add(Block::Curve { plot: Box::new(plot) });
        }
        let mut rows = phrases::capacity_steps(found, found.steps.len());
        let head = rows.remove(0);
        let last = head.len() - 1;
        let align = |at: usize| if at == last { Align::Words } else { Align::Number };
        let columns: Vec<(&str, Align)> =
            head.iter().enumerate().map(|(at, title)| (title.as_str(), align(at))).collect();
        b.table("Steps of the search", &columns, rows);
        b.list(&found.notes);
    });
}

/// p99 over what was offered, of the steps that count.
fn plot(found: &CapacityReport) -> CurvePlot {
    let point = |step: &CapacityStep| {
        let p99_ms = step.p99_us? as f64 / 1000.0;
        Some(CurvePoint { at: figure(Some(step.offered))?, value: figure(Some(p99_ms))?, ci95: None })
    };
    CurvePlot {
        id: "curve-latency",
        title: format!("p99 over the {} offered", found.unit.name()),
        note: "Circles: steps of the search; tinted: the 95% interval of the capacity.".into(),
        axis: format!("{} offered", found.unit.name()),
        axis_unit: "",
        unit: "ms",
        points: found.steps.iter().filter(|step| step.discarded.is_none()).filter_map(point).collect(),
        line: vec![],
        span: interval(found.ci95),
        mark: super::curve::mark(found.rate, "capacity"),
        bound: None,
    }
}

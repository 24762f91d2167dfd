//! Curves of a page: the rate over a setting or a load with the law behind it, its plateau and choice.

use super::AddSection;
use super::blocks::{Align, Block, Blocks, CurvePlot, CurvePoint, figure, interval};
use crate::phrases::sweep::study::{content_table, effect_table, interaction_table};
use crate::phrases::sweep::{other_notes, points_table};
use webdyno_model::number::Number;
use webdyno_model::sweep::{SweepPoint, SweepReport};

/// What stands before the plots over time.
pub(super) fn sections(sweep: &SweepReport, section: &mut AddSection<'_>) {
    let title = if sweep.study.is_some() { "Effects" } else { "The curve" };
    section("curve", title, &|b| {
        if sweep.knobs.len() < 2 && sweep.points.iter().filter(|point| point.rate.is_some()).count() > 1 {
            b.add(Block::Curve { plot: Box::new(plot(sweep)) });
        }
        if let Some(study) = &sweep.study {
            for (title, rows) in [
                ("Effects", effect_table(sweep, study)),
                ("Contents against each other", content_table(sweep, study)),
                ("Interactions", interaction_table(sweep, study, usize::MAX)),
            ] {
                rows_with_titles(b, title, rows);
            }
        }
        points(b, sweep);
        b.list(other_notes(sweep));
    });
}

fn plot(sweep: &SweepReport) -> CurvePlot {
    let curve = sweep.usl.iter().flat_map(|law| &law.curve);
    let is_bytes = sweep.knobs.first().is_some_and(|knob| knob.unit.as_deref() == Some("B"));
    let point = |point: &SweepPoint| {
        Some(CurvePoint { at: figure(point.value)?, value: figure(point.rate)?, ci95: interval(point.ci95) })
    };
    let line = |point: &webdyno_model::sweep::LawPoint| {
        Some(CurvePoint {
            at: figure(Some(point.value))?,
            value: figure(Some(point.rate))?,
            ci95: interval(point.ci95),
        })
    };
    CurvePlot {
        id: "curve-rate",
        title: format!("Successful requests over {}", sweep.knob),
        note: "Circles: measured, with their 95% intervals; line and band: the law and its 95% interval; tinted: the plateau.".into(),
        axis: sweep.knob.clone(),
        axis_unit: if is_bytes { "bytes" } else { "" },
        unit: "req/s",
        points: sweep.points.iter().filter_map(point).collect(),
        line: curve.filter_map(line).collect(),
        span: interval(sweep.plateau),
        mark: mark(sweep.choice, "choice"),
        bound: None,
    }
}

/// A place of the axis with its name.
pub(super) fn mark(at: Option<f64>, name: &'static str) -> Option<(Number, &'static str)> {
    Some((figure(at)?, name))
}

fn points(b: &mut Blocks, sweep: &SweepReport) {
    rows_with_titles(b, "Points of the curve", points_table(sweep));
}

fn rows_with_titles(b: &mut Blocks, title: &'static str, mut rows: Vec<Vec<String>>) {
    if rows.len() < 2 {
        return;
    }
    let titles = rows.remove(0);
    let last = titles.len().saturating_sub(1);
    let column = |(at, title)| (title, if at == last { Align::Words } else { Align::Number });
    let columns: Vec<(&str, Align)> = titles.iter().map(String::as_str).enumerate().map(column).collect();
    b.table(title, &columns, rows);
}

//! Values that are added to a first look at a range: where the curve bends.

use super::NumberRange;
use crate::scaling::{CurveAnalysis, curve};
use webdyno_model::sweep::SweepPoint;

/// So many values are added at most.
pub(super) const REFINED_MAX: usize = 5;
/// Two values that differ by less than this ratio are one.
const RATIO_MIN: f64 = 1.08;
/// Two values beside the plateau that are nearer than this leave nothing between them that matters.
const RATIO_EDGE: f64 = 1.3;

/// The values that tell most beside these points: none where the choice is sure.
pub(super) fn more_values(points: &[SweepPoint], range: NumberRange) -> Vec<f64> {
    let mut known: Vec<(f64, f64)> = points.iter().filter_map(|point| Some((point.value?, point.rate?))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let analysis = curve(points);
    let measured: Vec<f64> = points.iter().filter_map(|point| point.value).collect();
    let targets = match &analysis.usl {
        Some(_) => by_law(&analysis, &measured),
        None => by_points(&known),
    };
    let mut chosen: Vec<f64> = vec![];
    for target in targets.into_iter().map(|target| range.nearest(target)) {
        let is_new = |other: &f64| (target / other).max(other / target) >= RATIO_MIN;
        if target > 0.0 && measured.iter().all(is_new) && chosen.iter().all(is_new) {
            chosen.push(target);
        }
    }
    chosen
}

/// With a law: a value well within the plateau, which will be the choice, and those where the law bends.
fn by_law(analysis: &CurveAnalysis, measured: &[f64]) -> Vec<f64> {
    let (Some([low, high]), Some(n_star)) = (analysis.plateau, analysis.usl.as_ref().and_then(|law| law.n_star))
    else {
        return vec![];
    };
    let within = |from: f64, to: f64| measured.iter().any(|value| (from..=to).contains(value));
    let mut targets = vec![];
    if !within(low * 1.05, n_star) {
        targets.push((low * n_star).sqrt());
    }
    if !within(low / 1.6, low / 1.05) {
        targets.push(low / 1.3);
    }
    if !within(high * 1.05, high * 1.6) {
        targets.push(high * 1.3);
    }
    targets
}

/// Without one: between the best value and its neighbours, and at the lower edge of what is as good.
fn by_points(known: &[(f64, f64)]) -> Vec<f64> {
    let Some((best, peak)) = known.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1)) else { return vec![] };
    let between = |a: usize, b: usize| {
        let (a, b) = (known[a].0, known[b].0);
        (b / a.max(f64::MIN_POSITIVE) >= RATIO_EDGE).then(|| if a > 0.0 { (a * b).sqrt() } else { b / 2.0 })
    };
    let edge = known[..best].iter().rev().take_while(|point| point.1 >= 0.97 * peak.1).count();
    let edge = best - edge;
    let below = edge.checked_sub(1).and_then(|below| between(below, edge));
    let beside = best.checked_sub(1).and_then(|before| between(before, best));
    let behind = (best + 1 < known.len()).then(|| between(best, best + 1)).flatten();
    [below, beside, behind].into_iter().flatten().collect()
}

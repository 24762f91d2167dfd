//! What is added to a first look at a range: values where the curve bends, and further loads where noise decides.

use super::NumberRange;
use crate::scaling::{CurveAnalysis, curve};
use webdyno_model::sweep::SweepPoint;

/// So many values are added at most, each as often as the first ones, or as many loads at values that are known.
pub(super) const REFINED_MAX: usize = 5;
/// A curve of fewer values may bend between them.
const FLAT_MIN: usize = 6;
/// Where no law tells more than the points do, so many of these are new values.
const BY_POINTS_MAX: usize = 3;
/// Two values that differ by less than this ratio are one.
const RATIO_MIN: f64 = 1.08;
/// Two values beside the plateau that are nearer than this leave nothing between them that matters.
const RATIO_EDGE: f64 = 1.3;
/// The share of the peak that belongs to the plateau, and one below which nothing is nearly as good.
const SHARE: f64 = 0.99;
const NEARLY: f64 = 0.97;

/// What tells most.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum More {
    /// Values that were not measured.
    Values(Vec<f64>),
    /// One more load at each of these.
    Again(Vec<f64>),
}

/// What tells most beside these points, to which `refined` values were added; nothing where the choice is sure.
pub(super) fn more(points: &[SweepPoint], range: NumberRange, refined: usize) -> More {
    let is_known =
        |point: &&SweepPoint| point.failed.is_none() && point.value.is_some() && point.rate.is_some();
    let known: Vec<&SweepPoint> = points.iter().filter(is_known).collect();
    let analysis = curve(points);
    if is_flat(&known, &analysis) {
        return More::Values(vec![]);
    }
    let measured: Vec<f64> = points.iter().filter_map(|point| point.value).collect();
    let targets = match &analysis.usl {
        Some(_) => by_law(&analysis, &measured),
        None if refined < BY_POINTS_MAX => by_points(&known),
        None => vec![],
    };
    let mut chosen: Vec<f64> = vec![];
    for target in targets.into_iter().map(|target| range.nearest(target)) {
        let is_new = |other: &f64| (target / other).max(other / target) >= RATIO_MIN;
        if target > 0.0 && measured.iter().all(is_new) && chosen.iter().all(is_new) {
            chosen.push(target);
        }
    }
    match chosen.is_empty() && analysis.usl.is_none() {
        true => More::Again(contested(&known)),
        false => More::Values(chosen),
    }
}

/// Whether all values are as good as each other: then no further one tells more, and the smallest will be the choice.
fn is_flat(known: &[&SweepPoint], analysis: &CurveAnalysis) -> bool {
    let [smallest, .., largest] = known else { return false };
    let ends = smallest.value.zip(largest.value).map(|(a, b)| [a, b]);
    known.len() >= FLAT_MIN && analysis.plateau.is_some() && analysis.plateau == ends
}

/// The best value and those beside it that may be as good, when that is not sure: the best of several is the luckiest, too.
fn contested(known: &[&SweepPoint]) -> Vec<f64> {
    let Some(best) = known.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else { return vec![] };
    let half = |point: &SweepPoint| point.ci95.map_or(0.0, |[low, high]| (high - low) / 2.0);
    let mut others: Vec<&&SweepPoint> = known.iter().filter(|point| point.value != best.value).collect();
    others.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let is_open = |other: &&&SweepPoint| {
        let noise = half(best).hypot(half(other));
        let short = SHARE * rate(best) - rate(other);
        noise > (1.0 - SHARE) * rate(best) && short.abs() < noise
    };
    let open: Vec<f64> = others.into_iter().filter(is_open).take(2).filter_map(|point| point.value).collect();
    if open.is_empty() { open } else { best.value.into_iter().chain(open).collect() }
}

fn rate(point: &SweepPoint) -> f64 {
    point.rate.unwrap_or(0.0)
}

/// With a law: a value well within the plateau, which will be the choice, and those where the law bends.
fn by_law(analysis: &CurveAnalysis, measured: &[f64]) -> Vec<f64> {
    let (Some([low, high]), Some(n_star)) =
        (analysis.plateau, analysis.usl.as_ref().and_then(|law| law.n_star))
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
fn by_points(known: &[&SweepPoint]) -> Vec<f64> {
    let Some((best, peak)) = known.iter().enumerate().max_by(|a, b| rate(a.1).total_cmp(&rate(b.1))) else {
        return vec![];
    };
    let value = |at: usize| known[at].value.unwrap_or(0.0);
    let between = |below: usize| {
        let (a, b) = (value(below), value(below + 1));
        (b >= RATIO_EDGE * a).then(|| if a > 0.0 { (a * b).sqrt() } else { b / 2.0 })
    };
    let as_good = known[..best].iter().rev().take_while(|point| rate(point) >= NEARLY * rate(peak)).count();
    let edge = (best - as_good).checked_sub(1).and_then(between);
    let beside = best.checked_sub(1).and_then(between);
    let behind = if best + 1 < known.len() { between(best) } else { None };
    [edge, beside, behind].into_iter().flatten().collect()
}

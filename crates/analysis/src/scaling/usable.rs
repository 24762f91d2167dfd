//! The points that a curve is read from: those with a value and a rate, one for each value, in order.

use super::law::Observed;
use webdyno_model::sweep::SweepPoint;

/// What counts of the points.
pub(super) fn usable(points: &[SweepPoint]) -> Vec<Observed> {
    let mut usable: Vec<Observed> = points.iter().filter_map(observed).collect();
    usable.sort_by(|a, b| a.value.total_cmp(&b.value));
    usable.dedup_by(|later, kept| {
        let is_repeat = later.value == kept.value;
        if is_repeat {
            *kept = merged(kept, later);
        }
        is_repeat
    });
    usable
}

fn observed(point: &SweepPoint) -> Option<Observed> {
    let positive = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
    let (value, rate) = (positive(point.value)?, positive(point.rate)?);
    let counted = point.loads.iter().filter(|load| load.discarded.is_none() && load.rate.is_some()).count();
    let noise = point.ci95.map(|[low, high]| (high - low) / 2.0 / rate);
    point.failed.is_none().then_some(Observed { value, rate, weight: counted.max(1) as f64, noise })
}

/// Two measurements of one value: their mean. Intervals of the single ones say nothing of how far they lie apart.
fn merged(a: &Observed, b: &Observed) -> Observed {
    let weight = a.weight + b.weight;
    Observed { rate: (a.weight * a.rate + b.weight * b.rate) / weight, weight, noise: None, ..*a }
}

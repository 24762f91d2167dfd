//! The plateau of the points themselves, where no law stands for them: the values around the best one whose mean is within 1% of it.

use super::law::Observed;

/// The share of the peak that belongs to the plateau.
pub(super) const SHARE: f64 = 0.99;

/// Where the best point is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// Smallest and largest value of the plateau.
    Plateau([f64; 2]),
    /// The largest value is better than all others: the peak may lie beyond.
    Rises,
    /// The smallest value is better than all others: the peak may lie below.
    Falls,
}

/// The shape of two or more points in order of their values; `None` of fewer.
pub(super) fn shape(points: &[Observed]) -> Option<Shape> {
    let (first, last) = (points.first()?, points.last()?);
    let (best, peak) = points.iter().enumerate().max_by(|a, b| a.1.rate.total_cmp(&b.1.rate))?;
    let is_within = |point: &&Observed| point.rate >= SHARE * peak.rate;
    let low = points[..best].iter().rev().take_while(is_within).last().unwrap_or(peak).value;
    let high = points[best..].iter().take_while(is_within).last().unwrap_or(peak).value;
    if first.value == last.value {
        return None;
    }
    // Nothing is smaller than 1 of what is counted.
    Some(match low == high {
        true if low == last.value => Shape::Rises,
        true if low == first.value && low != 1.0 => Shape::Falls,
        _ => Shape::Plateau([low, high]),
    })
}

//! The plateau of the points themselves, where no law stands for them: the values around the best one whose mean is within 1% of it.

use super::law::Observed;

/// The share of the peak that belongs to the plateau.
pub(super) const SHARE: f64 = 0.99;

/// Smallest and largest value of the plateau of two or more points in order of their values; `None` of fewer, and where the largest or
/// the smallest value is better than all others: the peak may lie beyond.
pub(super) fn ends(points: &[Observed]) -> Option<[f64; 2]> {
    let (first, last) = (points.first()?, points.last()?);
    let (best, peak) = points.iter().enumerate().max_by(|a, b| a.1.rate.total_cmp(&b.1.rate))?;
    let is_within = |point: &&Observed| point.rate >= SHARE * peak.rate;
    let low = points[..best].iter().rev().take_while(is_within).last().unwrap_or(peak).value;
    let high = points[best..].iter().take_while(is_within).last().unwrap_or(peak).value;
    // Nothing is smaller than 1 of what is counted.
    let is_at_end = low == high && (low == last.value || (low == first.value && low != 1.0));
    (first.value != last.value && !is_at_end).then_some([low, high])
}

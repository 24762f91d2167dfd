//! The small picture of how times are spread: 10 to 16 bars where the times allow it, between round times that lie about
//! evenly on a logarithmic scale.

use super::page::{ColumnAlign, TextPage, bar};
use crate::human::{percent_coarse, time_us};

/// More bars than this are no longer a small picture.
const BARS_MAX: usize = 16;
const BAR_COLUMNS: usize = 40;
/// Round times in each power of ten, the finest first; before them come scales that are finer still.
const SCALES: [&[f64]; 5] = [
    &[
        1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0, 2.2, 2.4, 2.7, 3.0, 3.3, 3.6, 3.9, 4.3, 4.7, 5.1, 5.6, 6.2,
        6.8, 7.5, 8.2, 9.1,
    ],
    &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0],
];

/// The picture under its title; nothing when all times are alike.
pub(super) fn write_histogram(page: &mut TextPage, title: &str, cumulative: &[(u64, f64)]) {
    let bars = bins(cumulative);
    let largest = bars.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    if bars.len() < 2 || largest <= 0.0 {
        return;
    }
    page.heading(title);
    let row = |&(upper_us, share): &(f64, f64)| {
        vec![format!("up to {}", time_us(upper_us)), percent_coarse(share), bar(share / largest, BAR_COLUMNS)]
    };
    let rows: Vec<_> = bars.iter().map(row).collect();
    page.table(&[ColumnAlign::Number, ColumnAlign::Number, ColumnAlign::Words], &rows);
}

/// So many steps in each power of ten, evenly, with three digits.
fn fine_bounds(steps: u32) -> Vec<f64> {
    (0..steps).map(|step| (100.0 * 10f64.powf(f64::from(step) / f64::from(steps))).round() / 100.0).collect()
}

/// Shares of times between round ones: `(upper bound in microseconds, share)`. The finest scale that needs no more than
/// [`BARS_MAX`] bars.
fn bins(cumulative: &[(u64, f64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (cumulative.first(), cumulative.last()) else {
        return vec![];
    };
    let fine = [fine_bounds(96), fine_bounds(48)];
    for scale in fine.iter().map(Vec::as_slice).chain(SCALES) {
        let bounds: Vec<f64> =
            (0..11).flat_map(|decade| scale.iter().map(move |step| step * 10f64.powi(decade))).collect();
        let from = bounds.partition_point(|&bound| bound < first.0 as f64);
        let to = bounds.partition_point(|&bound| bound < last.0 as f64).min(bounds.len() - 1);
        if to + 1 - from.min(to) <= BARS_MAX || scale.len() == 1 {
            return shares(cumulative, &bounds[from.min(to)..=to]);
        }
    }
    vec![]
}

fn shares(cumulative: &[(u64, f64)], bounds: &[f64]) -> Vec<(f64, f64)> {
    let up_to = |bound: f64| {
        let index = cumulative.partition_point(|&(us, _)| us as f64 <= bound);
        if index == 0 { 0.0 } else { cumulative[index - 1].1 }
    };
    let mut below = 0.0;
    let share = |&bound: &f64| {
        let now = up_to(bound);
        let share = (now - below).max(0.0);
        below = now;
        (bound, share)
    };
    bounds.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cumulative(times: &[u64]) -> Vec<(u64, f64)> {
        let total = times.len() as f64;
        times.iter().enumerate().map(|(index, &us)| (us, (index + 1) as f64 / total)).collect()
    }

    proptest! {
        // Invariant: the bars hold every time once, and there are few enough of them.
        #[test]
        fn bars_lose_no_request(mut times in prop::collection::vec(0u64..3_600_000_000, 1..100)) {
            times.sort_unstable();
            let bars = bins(&cumulative(&times));
            let sum: f64 = bars.iter().map(|(_, share)| share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{:?}", bars);
            prop_assert!(bars.len() <= BARS_MAX, "{:?}", bars);
        }

        // Invariant: times that are not all alike have bars enough to see how they are spread.
        #[test]
        fn there_are_bars_enough(first in 1_000u64..1_000_000, factor in 1.5f64..1e4) {
            let bars = bins(&cumulative(&[first, (first as f64 * factor) as u64]));
            prop_assert!(bars.len() >= 7, "{:?}", bars);
        }
    }
}

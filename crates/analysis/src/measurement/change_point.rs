//! Whether a series begins on a lower level than it goes on with, and where that ends: a robust change-point test.
//!
//! For each possible end of the head the means of head and rest are compared as by Student's t, and the largest
//! difference is tested (Worsley, "On the likelihood ratio test for a shift in location of normal populations", JASA 74
//! (1979)), each of them at its share of the level (Bonferroni). Before, every value is bounded around the median of the
//! rest, in units of its median absolute deviation, so that one outlier moves no mean by much (Durre and Fried, "Robust
//! change point tests by bounded transformations", arXiv:1905.06201). Values one after the other are correlated, which
//! makes means less certain: the effective numbers of values are those of an AR(1) process, as in [`crate::measurement::statistics`].

use crate::measurement::statistics;

/// The test finds a change where there is none in fewer than so many series.
const LEVEL: f64 = 0.01;
/// With fewer values nothing can be told from noise.
const VALUES_MIN: usize = 6;
/// Values of the rest further from its median than so many (normal) standard deviations count as if they were there.
const REST_BOUND: f64 = 4.0;
/// The same for the head, whose median needs less of it: how far it lies away is what tells it from noise.
const HEAD_BOUND: f64 = 20.0;
/// The same where the end of the head is sought: a ramp shall not count as the lower the earlier it is.
const PLACE_BOUND: f64 = 6.0;
/// The variance of the bounded rest is never taken for less than this.
const VARIANCE_MIN: f64 = 0.25;
/// The median absolute deviation of a normal distribution is its standard deviation divided by this.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// Differences below this share of the level are no noise either, but nothing that a reader would call a change.
const DEVIATION_MIN_FRACTION: f64 = 0.002;
/// Heads longer than this are not looked for: it bounds the work for loads of many hours.
const HEAD_MAX: usize = 900;

/// The number of leading values that lie lower than the rest, at most half of all; 0 when they do not, or when chance
/// would have it.
pub fn lower_head(values: &[f64]) -> usize {
    let heads = (values.len() / 2).min(HEAD_MAX);
    if values.len() < VALUES_MIN {
        return 0;
    }
    let tail = LEVEL / heads as f64;
    let splits = (1..=heads).filter_map(|head| HeadSplit::of(values, head));
    let beyond = |split: &HeadSplit| split.difference / statistics::t_above(tail, split.freedom);
    let clearest = splits.max_by(|a, b| beyond(a).total_cmp(&beyond(b)));
    clearest.filter(|split| beyond(split) > 1.0).map_or(0, |split| end_of_head(values, heads, &split))
}

/// Where the head ends, once it is sure that there is one: the cut at which the means on both sides differ most, each
/// counted by its length (the CUSUM estimator).
fn end_of_head(values: &[f64], heads: usize, split: &HeadSplit) -> usize {
    let bounded: Vec<f64> = values.iter().map(|value| split.bounded(*value, PLACE_BOUND)).collect();
    let (count, total) = (values.len() as f64, bounded.iter().sum::<f64>());
    let (mut sum, mut best) = (0.0, (0, 0.0));
    for (index, value) in bounded.iter().enumerate().take(heads) {
        sum += value;
        let head = (index + 1) as f64;
        let difference =
            ((total - sum) / (count - head) - sum / head) * (head * (count - head) / count).sqrt();
        if difference > best.1 {
            best = (index + 1, difference);
        }
    }
    best.0
}

/// A head and the rest, and how they differ.
struct HeadSplit {
    /// Degrees of freedom of what is known of the rest.
    freedom: f64,
    /// In standard errors, by the median of the head, which no single value moves.
    difference: f64,
    /// Where the rest lies.
    centre: f64,
    /// How far its values usually are from there.
    unit: f64,
}

impl HeadSplit {
    fn of(values: &[f64], head: usize) -> Option<Self> {
        let (first, rest) = values.split_at(head);
        let (centre, unit) = centre_and_unit(rest)?;
        let mut split = Self { freedom: 0.0, difference: 0.0, centre, unit };
        let bounded = |part: &[f64], bound| -> Vec<f64> {
            part.iter().map(|value| split.bounded(*value, bound)).collect()
        };
        let rest = statistics::describe(&bounded(rest, REST_BOUND))?;
        let low = upper_median(bounded(first, HEAD_BOUND));
        let certainty = rest.effective / (values.len() - head) as f64;
        let effective = (head as f64 * certainty).max(1.0);
        // A median is less certain than a mean; of one or two values it is the larger one.
        let factor = if head < 3 { 1.0 } else { std::f64::consts::FRAC_PI_2 };
        // The rest of a perfectly even series has no variance: the unit of the bounds is what counts then.
        let variance = rest.variance.max(VARIANCE_MIN) * (factor / effective + 1.0 / rest.effective);
        (split.freedom, split.difference) = (rest.effective - 1.0, (rest.mean - low) / variance.sqrt());
        Some(split)
    }

    /// A value in units from the centre.
    fn bounded(&self, value: f64, bound: f64) -> f64 {
        ((value - self.centre) / self.unit).clamp(-bound, bound)
    }
}

/// Where the rest lies, and how far its values usually are from there.
fn centre_and_unit(rest: &[f64]) -> Option<(f64, f64)> {
    if rest.is_empty() {
        return None;
    }
    let centre = upper_median(rest.to_vec());
    let distances: Vec<f64> = rest.iter().map(|value| (value - centre).abs()).collect();
    let unit = (MAD_TO_DEVIATION * upper_median(distances)).max(DEVIATION_MIN_FRACTION * centre.abs());
    // A rest of zeros: whatever differs is far away.
    Some((centre, if unit > 0.0 { unit } else { f64::MIN_POSITIVE }))
}

/// The middle value, of an even number the larger one of the two.
fn upper_median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal noise of an AR(1) process with deviation 1, from a seed.
    fn noise(seed: u64, correlation: f64, count: usize) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut uniform = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut normal = move || {
            let (a, b) = (uniform().max(1e-300), uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        };
        let mut last = normal();
        let step = (1.0 - correlation * correlation).sqrt();
        let mut next = || {
            last = correlation * last + step * normal();
            last
        };
        for _ in 0..20 {
            next();
        }
        (0..count).map(|_| next()).collect()
    }

    /// The share of seeds for which a series of this shape gives a head that `wanted` accepts.
    fn share(
        count: usize,
        correlation: f64,
        shape: impl Fn(usize) -> f64,
        wanted: impl Fn(usize) -> bool,
    ) -> f64 {
        const SEEDS: u64 = 200;
        let of_seed = |seed| {
            let noise = noise(seed, correlation, count);
            let values: Vec<f64> =
                noise.iter().enumerate().map(|(index, noise)| shape(index) * (1.0 + 0.05 * noise)).collect();
            lower_head(&values)
        };
        (0..SEEDS).filter(|seed| wanted(of_seed(*seed))).count() as f64 / SEEDS as f64
    }

    #[test]
    fn noise_is_no_change() {
        for count in [4, 6, 8, 10, 20, 60] {
            for correlation in [0.0, 0.3, 0.6] {
                let false_alarms = share(count, correlation, |_| 1000.0, |head| head > 0);
                assert!(false_alarms <= 0.05, "{count} values, {correlation}: {false_alarms}");
            }
        }
    }

    #[test]
    fn steps_and_ramps_end_where_they_end() {
        for correlation in [0.0, 0.5] {
            for (count, head) in [(8, 1), (10, 2), (10, 4), (20, 1), (20, 8), (40, 2), (60, 25)] {
                let step = |index| if index < head { 500.0 } else { 1000.0 };
                let found = share(count, correlation, step, |found| found.abs_diff(head) <= 1);
                let least = if count < 20 { 0.75 } else { 0.94 };
                assert!(found >= least, "step of {head} in {count}, {correlation}: {found}");
            }
            for (count, head) in [(10, 3), (15, 5), (20, 8), (30, 10)] {
                let ramp = |index| 1000.0 * (0.1 + 0.9 * index as f64 / head as f64).min(1.0);
                let found = share(count, correlation, ramp, |found| found.abs_diff(head) <= 2);
                assert!(found >= 0.9, "ramp of {head} in {count}, {correlation}: {found}");
            }
        }
    }

    #[test]
    fn one_outlier_is_no_change() {
        for count in [8, 10, 20, 60] {
            for factor in [0.0, 0.3, 3.0] {
                // What is at the very beginning and lower is a head of one.
                for at in [1, 2, 3, count / 2 - 1, count / 2, count - 1] {
                    let shape = |index| if index == at { factor * 1000.0 } else { 1000.0 };
                    let moved = share(count, 0.0, shape, |head| head > 0);
                    assert!(moved <= 0.05, "{factor} at {at} of {count}: {moved}");
                }
            }
        }
    }

    #[test]
    fn what_begins_higher_is_kept_and_half_is_the_most() {
        assert_eq!(share(20, 0.0, |index| if index < 5 { 2000.0 } else { 1000.0 }, |head| head > 0), 0.0);
        assert_eq!(share(20, 0.0, |index| 100.0 * (index + 1) as f64, |head| head > 10), 0.0);
        assert!(share(20, 0.0, |index| if index < 14 { 500.0 } else { 1000.0 }, |head| head > 10) == 0.0);
    }

    #[test]
    fn even_series_have_no_head_unless_it_differs() {
        for (values, head) in [
            (&[5.0; 10][..], 0),
            (&[0.0; 10], 0),
            (&[], 0),
            (&[1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0], 1),
            (&[1.0, 5.0, 5.0, 5.0, 5.0], 0),
            (&[-9.0, -9.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0], 2),
            (&[-1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 2),
        ] {
            assert_eq!(lower_head(values), head, "{values:?}");
        }
    }
}

//! Statistics: means with intervals of correlated series, and Student's t.
//!
//! Per-second rates are correlated, so a plain standard error would be too small. The effective sample size follows
//! from the lag-1 autocorrelation r of an AR(1) process: n (1 - r) / (1 + r) (Zwiers and von Storch 1995, J. Climate).

/// Mean, variance and effective size of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// Arithmetic mean.
    pub mean: f64,
    /// Variance of one value (n - 1 in the denominator).
    pub variance: f64,
    /// Independent values that carry as much information.
    pub effective: f64,
}

impl Series {
    /// Half the width of the 95% interval of the mean.
    pub fn half_width_95(&self) -> f64 {
        t_95(self.effective - 1.0) * (self.variance / self.effective).sqrt()
    }
}

/// The 95% interval of a share, so many of so many: E. B. Wilson's (JASA 22, 1927), which holds near 0 and 1 and for few. `None` of
/// none.
pub fn share_ci95(part: u64, of: u64) -> Option<[f64; 2]> {
    const Z: f64 = 1.959_964;
    let (count, share) = (of as f64, part as f64 / of as f64);
    let middle = share + Z * Z / (2.0 * count);
    let half = Z * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
    let by = 1.0 + Z * Z / count;
    (of > 0).then(|| [((middle - half) / by).max(0.0), ((middle + half) / by).min(1.0)])
}

/// The 95% interval of a mean; `None` for fewer than two values.
pub fn mean_ci95(values: &[f64]) -> Option<[f64; 2]> {
    let series = describe(values)?;
    let half = series.half_width_95();
    Some([series.mean - half, series.mean + half])
}

/// Describes a series; `None` for fewer than two values.
pub fn describe(values: &[f64]) -> Option<Series> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let products: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    // Negative correlation would promise more information than there are values; it is not believed.
    let correlation = if squares > 0.0 { (products / squares).clamp(0.0, 0.9) } else { 0.0 };
    let effective = (count * (1.0 - correlation) / (1.0 + correlation)).max(2.0);
    Some(Series { mean, variance: squares / (count - 1.0), effective })
}

/// Arithmetic mean; `None` for an empty series.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// How far the order of a series speaks for one that rises, in standard deviations of chance; below 0 for one that falls (the rank
/// test of Mann, Econometrica 13, 1945, with its normal approximation). `None` for fewer than four values.
pub fn trend(values: &[f64]) -> Option<f64> {
    if values.len() < 4 {
        return None;
    }
    let pairs = values
        .iter()
        .enumerate()
        .flat_map(|(at, early)| values[at + 1..].iter().map(move |late| (early, late)));
    let sum: f64 = pairs.map(|(early, late)| f64::from(late.total_cmp(early) as i8)).sum();
    let count = values.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    // A step of the sum is 2: half of it is the correction for what is continuous.
    Some((sum.abs() - 1.0).max(0.0).copysign(sum) / deviation)
}

/// Median; `None` for an empty series.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The two-sided 95% point of Student's t with `freedom` degrees of freedom: Cornish-Fisher expansion around the
/// normal point (Abramowitz and Stegun 26.7.5), exact table below 5 where the expansion is poor.
pub fn t_95(freedom: f64) -> f64 {
    const SMALL: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    let freedom = freedom.max(1.0);
    if freedom < 5.0 {
        let below = (freedom.floor() as usize).clamp(1, 4);
        return SMALL[below - 1];
    }
    cornish_fisher(1.959_964, freedom)
}

/// The point of Student's t that belongs to the point `z` of the normal distribution.
fn cornish_fisher(z: f64, freedom: f64) -> f64 {
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

/// The point that Student's t with `freedom` degrees of freedom exceeds with probability `tail` (below a half). The
/// normal point by Abramowitz and Stegun 26.2.23, then the expansion of [`t_95`]: within 4% from three degrees on. Below them it has
/// closed forms, of one degree and of two.
pub fn t_above(tail: f64, freedom: f64) -> f64 {
    let tail = tail.clamp(1e-12, 0.5);
    if freedom < 2.0 {
        return 1.0 / (std::f64::consts::PI * tail).tan();
    }
    if freedom < 3.0 {
        return (1.0 - 2.0 * tail) / (2.0 * tail * (1.0 - tail)).sqrt();
    }
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + 0.802_853 * t + 0.010_328 * t.powi(2);
    let below = 1.0 + 1.432_788 * t + 0.189_269 * t.powi(2) + 0.001_308 * t.powi(3);
    cornish_fisher(t - above / below, freedom)
}

/// A ratio of two means with its 95% interval, on the log scale with Welch's degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// `after / before`.
    pub ratio: f64,
    /// 95% interval.
    pub ci95: [f64; 2],
}

/// Compares two series of positive values; `None` when either has fewer than two values or a mean that is not positive.
pub fn ratio_of_means(before: &[f64], after: &[f64]) -> Option<Ratio> {
    let (before, after) = (describe(before)?, describe(after)?);
    if before.mean <= 0.0 || after.mean <= 0.0 {
        return None;
    }
    // Delta method: the variance of log(mean) is var(mean) / mean^2.
    let error =
        |series: &Series| (series.variance / series.effective / series.mean.powi(2), series.effective - 1.0);
    Some(ratio_with_errors(after.mean / before.mean, error(&before), error(&after)))
}

/// The 95% interval of a ratio from the variance of the logarithm of either side, each with its degrees of freedom (Welch).
pub fn ratio_with_errors(ratio: f64, before: (f64, f64), after: (f64, f64)) -> Ratio {
    let total = before.0 + after.0;
    let freedom = if total > 0.0 {
        total.powi(2) / (before.0.powi(2) / before.1 + after.0.powi(2) / after.1)
    } else {
        f64::MAX
    };
    let spread = (t_95(freedom) * total.sqrt()).exp();
    Ratio { ratio, ci95: [ratio / spread, ratio * spread] }
}

/// The ratio of means of several pairs of series together, on the log scale, with an interval that leaves out `tail` on either side;
/// `None` without any, or where one of them has fewer than two values or a mean that is not positive.
pub fn pooled_ratio(pairs: &[(Vec<f64>, Vec<f64>)], tail: f64) -> Option<Ratio> {
    let (mut logarithms, mut total, mut by_freedom) = (0.0, 0.0, 0.0);
    for (before, after) in pairs {
        let (before, after) = (describe(before)?, describe(after)?);
        if before.mean <= 0.0 || after.mean <= 0.0 {
            return None;
        }
        logarithms += (after.mean / before.mean).ln();
        for series in [before, after] {
            let error = series.variance / series.effective / series.mean.powi(2);
            total += error;
            by_freedom += error.powi(2) / (series.effective - 1.0);
        }
    }
    let count = pairs.len() as f64;
    let freedom = if by_freedom > 0.0 { total.powi(2) / by_freedom } else { 1e9 };
    let ratio = (logarithms / count).exp();
    let spread = (t_above(tail, freedom) * total.sqrt() / count).exp();
    (!pairs.is_empty()).then_some(Ratio { ratio, ci95: [ratio / spread, ratio * spread] })
}

/// The geometric mean of ratios that were each measured in loads of their own, with an interval by how much they differ from each other
/// (Student's t of their logarithms); `None` of fewer than three, or where one is not positive.
pub fn mean_of_ratios(ratios: &[f64], tail: f64) -> Option<Ratio> {
    if ratios.len() < 3 || ratios.iter().any(|ratio| *ratio <= 0.0 || !ratio.is_finite()) {
        return None;
    }
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let series = describe(&logarithms)?;
    let count = ratios.len() as f64;
    let spread = (t_above(tail, count - 1.0) * (series.variance / count).sqrt()).exp();
    let ratio = series.mean.exp();
    Some(Ratio { ratio, ci95: [ratio / spread, ratio * spread] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_an_interval_from_two_values_on() {
        assert_eq!(mean_ci95(&[5.0]), None);
        assert_eq!(mean_ci95(&[5.0; 4]), Some([5.0, 5.0]));
        // 10 independent values of 100 and 110: 105 and 2.262 standard errors of 5.27 / sqrt(10).
        let [low, high] = mean_ci95(&[100.0, 110.0].repeat(5)).unwrap();
        assert!((low - 101.23).abs() < 0.02 && (high - 108.77).abs() < 0.02, "{low} {high}");
    }
    use proptest::prelude::*;

    #[test]
    fn t_matches_the_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)]
        {
            assert!((t_95(freedom) - expected).abs() < 0.004, "t({freedom}) = {}", t_95(freedom));
        }
    }

    #[test]
    fn other_points_of_t_match_the_tables() {
        for (tail, freedom, expected) in [
            (0.05 / 12.0, 1.0, 76.39),
            (0.05 / 12.0, 2.0, 10.89),
            (0.05, 10.0, 1.812),
            (0.005, 4.0, 4.604),
            (0.005, 10.0, 3.169),
            (0.001, 20.0, 3.552),
            (0.0005, 1e9, 3.291),
        ] {
            let point = t_above(tail, freedom);
            assert!((point / expected - 1.0).abs() < 0.02, "t({tail}, {freedom}) = {point}");
        }
    }

    #[test]
    fn correlation_widens_the_interval() {
        let independent = [10.0, 12.0, 9.0, 11.0, 10.0, 12.0, 9.0, 11.0];
        let drifting = [9.0, 9.0, 10.0, 10.0, 11.0, 11.0, 12.0, 12.0];
        assert_eq!(describe(&independent).unwrap().effective, 8.0);
        assert!(describe(&drifting).unwrap().effective < 4.0);
    }

    #[test]
    fn too_little_is_no_answer() {
        assert!(ratio_of_means(&[1.0], &[1.0, 2.0]).is_none());
        assert!(ratio_of_means(&[0.0, 0.0], &[1.0, 2.0]).is_none());
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
    }

    #[test]
    fn pairs_tell_more_than_one_of_them() {
        let pair = (vec![10.0, 12.0, 9.0, 11.0, 10.0, 12.0], vec![12.0, 13.0, 11.0, 14.0, 12.0, 13.0]);
        let width = |ratio: Ratio| ratio.ci95[1] / ratio.ci95[0];
        let one = pooled_ratio(std::slice::from_ref(&pair), 0.025).unwrap();
        let plain = ratio_of_means(&pair.0, &pair.1).unwrap();
        assert!((width(one) / width(plain) - 1.0).abs() < 0.02 && (one.ratio - plain.ratio).abs() < 1e-9);
        let three = pooled_ratio(&[pair.clone(), pair.clone(), pair.clone()], 0.025).unwrap();
        assert!(width(three).ln() < 0.6 * width(one).ln());
        assert!(width(pooled_ratio(&[pair.clone(), pair], 0.005).unwrap()) > width(three));
        assert!(pooled_ratio(&[], 0.025).is_none());
    }

    #[test]
    fn ratios_that_agree_tell_more_than_their_loads() {
        let spread = |ratios: &[f64]| {
            mean_of_ratios(ratios, 0.025).map(|mean| (mean.ratio, (mean.ci95[1] / mean.ratio).ln()))
        };
        // t(0.025) is 4.303 with two degrees of freedom, 3.182 with three; the logarithms differ by 0.1 and 0.082.
        let e = |logarithm: f64| logarithm.exp();
        for (ratios, mean, half) in [
            (vec![e(0.1), e(0.2), e(0.3)], e(0.2), 4.303 * 0.1 / 3f64.sqrt()),
            (vec![e(0.1), e(0.2), e(0.3), e(0.2)], e(0.2), 3.182 * 0.081_65 / 2.0),
        ] {
            let (ratio, found) = spread(&ratios).unwrap();
            assert!(
                (ratio - mean).abs() < 1e-9 && (found / half - 1.0).abs() < 0.04,
                "{ratio} {found} {half}"
            );
        }
        for too_little in [&[1.1, 1.1][..], &[1.1, 0.0, 1.1], &[1.1, f64::INFINITY, 1.1]] {
            assert_eq!(spread(too_little), None, "{too_little:?}");
        }
    }

    proptest! {
        // Invariant: the interval contains the ratio, and swapping the sides inverts both.
        #[test]
        fn ratios_invert(before in prop::collection::vec(1.0..100.0f64, 2..30), after in prop::collection::vec(1.0..100.0f64, 2..30)) {
            let forward = ratio_of_means(&before, &after).unwrap();
            let backward = ratio_of_means(&after, &before).unwrap();
            prop_assert!(forward.ci95[0] <= forward.ratio && forward.ratio <= forward.ci95[1]);
            prop_assert!((forward.ratio * backward.ratio - 1.0).abs() < 1e-9);
            prop_assert!((forward.ci95[0] * backward.ci95[1] - 1.0).abs() < 1e-9);
        }
    }
}

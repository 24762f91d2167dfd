//! Where the warm-up ends: the truncation point that makes the mean of the rest most certain (MSER).
//!
//! White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69 (1997): cut the
//! first d values so that the squared standard error of the mean of the rest, `sum (x - mean)^2 / (n - d)^2`, is least.

/// The number of leading values to cut, at most half of them: a minimum further right means that the series has not
/// settled. Without at least `4` values nothing is cut.
pub fn truncation(values: &[f64]) -> usize {
    let cut_max = values.len() / 2;
    if values.len() < 4 {
        return 0;
    }
    let score = |cut: usize| {
        let rest = &values[cut..];
        let count = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / count;
        // A perfectly even tail would score zero whatever its length: the longer one must win.
        let floor = (mean * 1e-6).powi(2) * count;
        (rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() + floor) / count.powi(2)
    };
    (0..=cut_max).min_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(0)
}

/// Whether the last `wanted` values are settled: over them the regression line rises or falls by less than a tenth of
/// their mean, or no more than chance would have it (t below 2). Gives where they begin.
///
/// This is the question while a load still runs; the truncation point cannot answer it, since on a steep ramp it
/// prefers many values to flat ones.
pub fn settled(values: &[f64], wanted: usize) -> Option<usize> {
    let begin = values.len().checked_sub(wanted).filter(|_| wanted >= 4)?;
    let tail = &values[begin..];
    let count = wanted as f64;
    let mean = tail.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let centred = |i: usize| i as f64 - middle;
    let spread: f64 = (0..wanted).map(|i| centred(i).powi(2)).sum();
    let slope = tail.iter().enumerate().map(|(i, value)| centred(i) * (value - mean)).sum::<f64>() / spread;
    let rest: f64 =
        tail.iter().enumerate().map(|(i, value)| (value - mean - slope * centred(i)).powi(2)).sum();
    let slope_error = (rest / (count - 2.0) / spread).sqrt();
    let drift = (slope * (count - 1.0)).abs();
    (drift <= DRIFT_MAX * mean || slope.abs() < T_MAX * slope_error).then_some(begin)
}

/// Drift over the measured values, as a share of their mean, that spoils no comparison.
const DRIFT_MAX: f64 = 0.10;
/// A slope of fewer standard errors than this may be chance.
const T_MAX: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp_then_flat(ramp: usize, flat: usize) -> Vec<f64> {
        let noise = |i: usize| [0.0, 6.0, -5.0, 3.0, -4.0][i % 5];
        let rising = (0..ramp).map(|i| 100.0 + 1000.0 * i as f64 / ramp as f64);
        rising.chain((0..flat).map(|i| 1100.0 + noise(i))).collect()
    }

    #[test]
    fn the_ramp_is_cut_and_the_plateau_stays() {
        for (ramp, flat) in [(0, 10), (5, 10), (8, 12), (18, 20)] {
            let cut = truncation(&ramp_then_flat(ramp, flat));
            assert!(cut.abs_diff(ramp) <= 2, "ramp {ramp}: cut {cut}");
        }
    }

    #[test]
    fn a_rising_series_is_not_settled() {
        let linear = ramp_then_flat(18, 12);
        // As Apache's prefork fills up: a power of two more each second, then 32 a second (measured).
        let measured =
            [22.0, 34.0, 45.0, 67.0, 110.0, 182.0, 347.0, 515.0, 709.0, 877.0, 1030.0, 1190.0, 1350.0];
        let plateau = [1350.0, 1380.0, 1340.0, 1360.0, 1290.0, 1400.0, 1370.0, 1350.0, 1330.0, 1360.0];
        let prefork = [&measured[..], &plateau[..]].concat();
        for (values, ramp) in [(linear, 18), (prefork, 12)] {
            let first = (1..=values.len()).find(|&n| settled(&values[..n], 10).is_some()).unwrap();
            assert!(
                (ramp + 8..=ramp + 12).contains(&first),
                "settled after {first} values, the ramp has {ramp}"
            );
        }
    }

    #[test]
    fn noise_is_no_drift() {
        let noisy = [100.0, 140.0, 90.0, 120.0, 70.0, 130.0, 110.0, 80.0, 125.0, 115.0];
        assert_eq!(settled(&noisy, 10), Some(0));
    }

    #[test]
    fn even_values_keep_all() {
        assert_eq!(truncation(&[5.0; 10]), 0);
        assert_eq!(settled(&[0.0; 10], 8), Some(2));
        assert_eq!(settled(&[5.0; 3], 8), None);
    }
}

//! Where the warm-up ends: the truncation point that makes the mean of the rest most certain (MSER).
//!
//! White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69 (1997): cut the
//! first d values so that the squared standard error of the mean of the rest, `sum (x - mean)^2 / (n - d)^2`, is least.

/// The number of leading values to cut, at most half of them: a minimum further right means that the series has not
/// settled. Without at least `4` values nothing is cut.
pub fn truncation(values: &[f64]) -> usize {
    best_cut(values, values.len() / 2)
}

/// Whether the last `wanted` values are settled: the best cut, wherever it lies, leaves at least that many.
pub fn settled(values: &[f64], wanted: usize) -> Option<usize> {
    let tail_min = 4.min(wanted);
    let cut = best_cut(values, values.len().saturating_sub(tail_min));
    (values.len() >= wanted && values.len() - cut >= wanted).then_some(cut)
}

fn best_cut(values: &[f64], cut_max: usize) -> usize {
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
    (0..=cut_max)
        .min_by(|a, b| score(*a).total_cmp(&score(*b)))
        .unwrap_or(0)
}

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
        let values = ramp_then_flat(18, 12);
        assert_eq!((1..18).find(|&n| settled(&values[..n], 8).is_some()), None);
        let first = (18..=30).find(|&n| settled(&values[..n], 8).is_some()).unwrap();
        assert!((24..=28).contains(&first), "settled after {first} values");
    }

    #[test]
    fn even_values_keep_all() {
        assert_eq!(truncation(&[5.0; 10]), 0);
        assert_eq!(settled(&[0.0; 10], 8), Some(0));
        assert_eq!(settled(&[5.0; 3], 8), None);
    }
}

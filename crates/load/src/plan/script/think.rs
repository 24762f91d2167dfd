//! Think times, drawn from their distributions.
//!
//! Exponential by inversion; log-normal through the Box-Muller transform (Box and Muller, A Note on the Generation of
//! Random Normal Deviates, 1958).

use crate::random::SplitMix;
use webdyno_model::workload::visit::Think;

/// One think time in microseconds. Each draw of a kind takes the same number of random numbers.
pub(crate) fn draw(think: &Think, random: &mut SplitMix) -> u64 {
    match *think {
        Think::None => 0,
        Think::Fixed { time_us } => time_us,
        Think::Uniform { min_us, max_us } => {
            let (low, high) = (min_us.min(max_us), min_us.max(max_us));
            low.saturating_add((random.fraction() * ((high - low) as f64 + 1.0)) as u64).min(high)
        }
        // A float beyond 64 bits becomes the largest number: no overflow.
        Think::Exponential { mean_us } => (-(above_zero(random)).ln() * mean_us as f64).round() as u64,
        Think::LogNormal { median_us, sigma } => {
            ((normal(random) * sigma).exp() * median_us as f64).round() as u64
        }
    }
}

/// The residual think time at an independent moment, in microseconds: a visitor that was present before
/// the load began is in the midst of one. Of a time of length t it is even in (0, t), and the moment falls into a long
/// one more often, in proportion to its length (Feller, An Introduction to Probability Theory II, XI.4).
pub(crate) fn residual(think: &Think, random: &mut SplitMix) -> u64 {
    let length_us = match *think {
        Think::Uniform { min_us, max_us } => {
            let (low, high) = (min_us.min(max_us) as f64, min_us.max(max_us) as f64);
            (low * low + random.fraction() * (high * high - low * low)).sqrt()
        }
        // The sum of two exponential times has this density, and the first of them is left of it.
        Think::Exponential { .. } => return draw(think, random),
        Think::LogNormal { median_us, sigma } => {
            ((normal(random) * sigma + sigma * sigma).exp() * median_us as f64).min(1e18)
        }
        Think::None | Think::Fixed { .. } => draw(think, random) as f64,
    };
    (random.fraction() * length_us) as u64
}

/// Even in (0, 1].
fn above_zero(random: &mut SplitMix) -> f64 {
    1.0 - random.fraction()
}

/// Standard normal.
fn normal(random: &mut SplitMix) -> f64 {
    let radius = (-2.0 * above_zero(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.fraction()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 20_000;

    /// Kolmogorov-Smirnov: the largest distance of the drawn times from a distribution, which is below 1.63 / sqrt(n)
    /// in 99 of 100 samples. The seed is fixed, so it holds or does not.
    fn check_distribution(think: Think, distribution: impl Fn(f64) -> f64) {
        for seed in 1..6 {
            let mut random = SplitMix::new(seed);
            let mut drawn: Vec<u64> = (0..DRAWS).map(|_| draw(&think, &mut random)).collect();
            drawn.sort_unstable();
            let distance = drawn.iter().enumerate().fold(0f64, |most, (place, &time_us)| {
                let expected = distribution(time_us as f64);
                let (low, high) = (place as f64 / DRAWS as f64, (place + 1) as f64 / DRAWS as f64);
                most.max((expected - low).abs()).max((high - expected).abs())
            });
            let bound = 1.63 / (DRAWS as f64).sqrt();
            assert!(distance < bound, "{think:?} with seed {seed}: {distance} > {bound}");
        }
    }

    #[test]
    fn the_residual_think_time_has_the_mean_of_renewal_theory() {
        // The mean is E(t^2) / 2 E(t).
        let second = 1e6;
        for (think, mean_us) in [
            (Think::None, 0.0),
            (Think::Fixed { time_us: 1_000_000 }, 0.5 * second),
            (Think::Uniform { min_us: 1_000_000, max_us: 3_000_000 }, 13.0 / 12.0 * second),
            (Think::Exponential { mean_us: 1_000_000 }, second),
            (Think::LogNormal { median_us: 1_000_000, sigma: 0.5 }, 0.5 * (1.5 * 0.25f64).exp() * second),
        ] {
            let mut random = SplitMix::new(7);
            let sum: f64 = (0..DRAWS).map(|_| residual(&think, &mut random) as f64).sum();
            assert!((sum / DRAWS as f64 - mean_us).abs() <= 0.02 * mean_us, "{think:?}: {sum}");
        }
    }

    /// Normal distribution function by Hart's rational approximation of its tail: Abramowitz and Stegun, 26.2.17, which
    /// errs by less than 7.5e-8.
    fn normal_below(x: f64) -> f64 {
        let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
        let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
        let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
        let tail = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum;
        if x < 0.0 { tail } else { 1.0 - tail }
    }

    #[test]
    fn times_are_distributed_as_they_are_named() {
        let (min_us, max_us) = (2_000_000, 9_000_000);
        check_distribution(Think::Uniform { min_us, max_us }, |x| (x - 2e6) / 7e6);
        check_distribution(Think::Exponential { mean_us: 30_000_000 }, |x| 1.0 - (-x / 3e7).exp());
        let (median_us, sigma) = (7_000_000, 0.8);
        check_distribution(Think::LogNormal { median_us, sigma }, |x| normal_below((x / 7e6).ln() / sigma));
    }

    #[test]
    fn odd_times_are_times_too() {
        let mut random = SplitMix::new(1);
        for _ in 0..1000 {
            let same = Think::Uniform { min_us: 7, max_us: 7 };
            let swapped = Think::Uniform { min_us: 9, max_us: 8 };
            let all = Think::Uniform { min_us: 0, max_us: u64::MAX };
            let median = Think::LogNormal { median_us: 5, sigma: 0.0 };
            assert_eq!(draw(&Think::None, &mut random), 0);
            assert_eq!(draw(&Think::Fixed { time_us: 3 }, &mut random), 3);
            assert_eq!(draw(&same, &mut random), 7);
            assert!((8..10).contains(&draw(&swapped, &mut random)));
            draw(&all, &mut random);
            assert_eq!(draw(&median, &mut random), 5);
            draw(&Think::LogNormal { median_us: u64::MAX, sigma: 900.0 }, &mut random);
            assert_eq!(draw(&Think::Exponential { mean_us: 0 }, &mut random), 0);
        }
    }

    #[test]
    fn both_ends_of_a_uniform_time_are_drawn() {
        let mut random = SplitMix::new(1);
        let drawn: std::collections::BTreeSet<u64> =
            (0..1000).map(|_| draw(&Think::Uniform { min_us: 1, max_us: 4 }, &mut random)).collect();
        assert_eq!(drawn, (1..=4).collect());
    }
}

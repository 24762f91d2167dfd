//! How large the files of a tree are.
//!
//! Sizes are drawn, then scaled so that they add up to the total to the byte: scaling leaves each of these
//! distributions what it is. Files of web servers are log-normal with sigma 1.318 in their body, and Pareto in their
//! tail: Barford and Crovella, Generating Representative Web Workloads for Network and Server Performance Evaluation,
//! SIGMETRICS 1998.

use crate::random::SplitMix;
use webdyno_model::{Result, UserError};

/// The stream of random numbers that sizes are drawn with.
const STREAM: u64 = 0x7369_7a65;
/// How far total and mean may deviate from the requested ones.
const TOLERANCE: f64 = 0.01;
/// Most files that are believed to be meant.
const FILES_MAX: u64 = 20_000_000;

/// The distribution of sizes around their mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// The logarithm is normal, with this standard deviation.
    LogNormal {
        /// Of the natural logarithm.
        sigma: f64,
    },
    /// Anything up to twice the mean, equally often.
    Uniform,
    /// All the same.
    Fixed,
    /// Few large files hold most of the bytes.
    Pareto {
        /// Exponent of the tail, above 1: the nearer to 1, the heavier.
        shape: f64,
    },
}

/// The sizes of files that hold `total_bytes` together, `mean_bytes` each on average. An error when no whole number of
/// files comes near both.
pub fn sizes(law: Sizes, total_bytes: u64, mean_bytes: u64, seed: u64) -> Result<Vec<u64>> {
    let count = (total_bytes as f64 / mean_bytes.max(1) as f64).round().max(1.0);
    if (count * mean_bytes as f64 / total_bytes.max(1) as f64 - 1.0).abs() > TOLERANCE {
        let hint = format!("as in --total {}", (count as u64).saturating_mul(mean_bytes));
        let message =
            format!("{total_bytes} bytes are no whole number of files of {mean_bytes} bytes on average");
        return Err(UserError::usage(message).hint(hint));
    }
    if count > FILES_MAX as f64 {
        let message = format!(
            "{total_bytes} bytes in files of {mean_bytes} are {count} files, {FILES_MAX} are the most"
        );
        return Err(UserError::usage(message).hint("give a larger --mean-size, or a smaller --total"));
    }
    let mut random = SplitMix::stream(seed, STREAM, 0);
    let drawn: Vec<f64> = (0..count as u64).map(|_| draw(law, &mut random)).collect();
    Ok(scaled(&drawn, total_bytes))
}

/// A size in units of their own: only ratios count.
fn draw(law: Sizes, random: &mut SplitMix) -> f64 {
    // Above 0, as its logarithm is wanted.
    let mut fraction = || 1.0 - random.fraction();
    match law {
        Sizes::LogNormal { sigma } => {
            // Box and Muller, 1958.
            let (radius, angle) = ((-2.0 * fraction().ln()).sqrt(), std::f64::consts::TAU * fraction());
            (sigma * radius * angle.cos()).exp()
        }
        Sizes::Uniform => fraction(),
        Sizes::Fixed => 1.0,
        Sizes::Pareto { shape } => fraction().powf(-1.0 / shape),
    }
}

/// Whole numbers in these ratios that add up to the total, none of them 0 as long as there is one for each.
fn scaled(drawn: &[f64], total: u64) -> Vec<u64> {
    let (count, sum) = (drawn.len() as u64, drawn.iter().sum::<f64>());
    let least = u64::from(total >= count);
    let rest = (total - least * count) as f64;
    // What was rounded off one is given to the next.
    let (mut reached, mut given) = (0.0, 0u64);
    let mut sizes: Vec<u64> = drawn
        .iter()
        .map(|size| {
            reached += size / sum * rest;
            let part = (reached as u64).saturating_sub(given);
            given += part;
            least + part
        })
        .collect();
    if let Some(last) = sizes.last_mut() {
        *last += total - least * count - given.min(total - least * count);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAWS: [Sizes; 4] =
        [Sizes::LogNormal { sigma: 1.318 }, Sizes::Uniform, Sizes::Fixed, Sizes::Pareto { shape: 1.2 }];

    proptest! {
        // Invariant: total to the byte, mean within 1%, no empty file, the same again by the same seed.
        #[test]
        fn total_and_mean_are_hit(law in 0usize..4, files in 100u64..3000, mean in 1u64..100_000, seed: u64) {
            let total = files * mean + mean / 3;
            let sizes = super::sizes(LAWS[law], total, mean, seed).unwrap();
            prop_assert_eq!(sizes.iter().sum::<u64>(), total);
            let got = total as f64 / sizes.len() as f64;
            prop_assert!((got / mean as f64 - 1.0).abs() < 0.01, "{got} for {mean}");
            prop_assert!(sizes.iter().all(|&size| size > 0));
            prop_assert_eq!(&super::sizes(LAWS[law], total, mean, seed).unwrap(), &sizes);
            prop_assert!(matches!(LAWS[law], Sizes::Fixed) || mean < 10
                || super::sizes(LAWS[law], total, mean, seed ^ 1).unwrap() != sizes);
        }
    }

    #[test]
    fn distributions_are_what_they_are_called() {
        let (total, mean) = (64 << 20, 6 << 10);
        let quantile = |law, share: f64| {
            let mut all = sizes(law, total, mean, 1).unwrap();
            all.sort_unstable();
            all[(all.len() as f64 * share) as usize] as f64 / mean as f64
        };
        // Median and 84th percentile (one standard deviation) of a log-normal of mean 1 are exp(-s^2/2) and exp(s -
        // s^2/2).
        for sigma in [0.5f64, 1.318] {
            let law = Sizes::LogNormal { sigma };
            let (median, above) = ((-sigma * sigma / 2.0).exp(), (sigma - sigma * sigma / 2.0).exp());
            assert!((quantile(law, 0.5) / median - 1.0).abs() < 0.08, "{}", quantile(law, 0.5));
            assert!((quantile(law, 0.8413) / above - 1.0).abs() < 0.08, "{}", quantile(law, 0.8413));
        }
        assert!((quantile(Sizes::Uniform, 0.5) - 1.0).abs() < 0.05 && quantile(Sizes::Uniform, 0.999) < 2.05);
        assert!((quantile(Sizes::Fixed, 0.0) - 1.0).abs() < 0.001 && quantile(Sizes::Fixed, 0.99) < 1.001);
        // The 99th percentile of a Pareto is 100^(1/shape) times its least.
        let pareto = Sizes::Pareto { shape: 1.5 };
        let ratio = quantile(pareto, 0.99) / quantile(pareto, 0.0);
        assert!((ratio / 100f64.powf(1.0 / 1.5) - 1.0).abs() < 0.15, "{ratio}");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let error = sizes(Sizes::Fixed, 10_000, 6000, 1).unwrap_err();
        assert_eq!(error.message, "10000 bytes are no whole number of files of 6000 bytes on average");
        assert_eq!(error.hint.as_deref(), Some("as in --total 12000"));
        assert!(sizes(Sizes::Fixed, 1 << 40, 1, 1).unwrap_err().message.contains("20000000 are the most"));
        assert_eq!(sizes(Sizes::Fixed, 6000, 6000, 1), Ok(vec![6000]));
    }
}

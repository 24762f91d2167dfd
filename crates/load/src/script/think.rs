//! Think times, drawn from their distributions.
//!
//! Exponential by inversion; log-normal through the Box-Muller transform (Box and Muller, A Note on the Generation of
//! Random Normal Deviates, 1958).

use crate::random::SplitMix;
use webdyno_model::visit::Think;

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

/// Even in (0, 1].
fn above_zero(random: &mut SplitMix) -> f64 {
    1.0 - random.fraction()
}

/// Standard normal.
fn normal(random: &mut SplitMix) -> f64 {
    let radius = (-2.0 * above_zero(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.fraction()).cos()
}

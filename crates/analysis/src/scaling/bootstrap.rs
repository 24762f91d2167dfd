//! How sure a law is: a parametric bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6). Rates are drawn
//! around the law with the spread of the residuals, and the law is fitted to each draw. With few points that spread is itself hardly
//! known: for each draw it is drawn as well, from n - 3 degrees of freedom, as Student's t has it. Intervals are percentiles of the
//! draws. The seed is fixed, so that the same points give the same interval.

use super::law::{Observed, Usl, fit};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{ChiSquared, Distribution, StandardNormal};

/// The 2.5% point of so many is good to a tenth of the interval's width.
pub(super) const RESAMPLES: usize = 500;
const SEED: u64 = 0x5eed;

/// The laws of the draws; `spread` is the standard deviation of the logarithm of a rate of weight 1, with its degrees of freedom.
pub(super) fn laws(
    law: Usl,
    points: &[Observed],
    (spread, freedom): (f64, f64),
    resamples: usize,
) -> Vec<Usl> {
    let Ok(squares) = ChiSquared::new(freedom) else { return Vec::new() };
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let draw = |_| {
        let spread = spread * (freedom / squares.sample(&mut random)).sqrt();
        let drawn = points.iter().map(|point| {
            let noise: f64 = StandardNormal.sample(&mut random);
            Observed { rate: law.rate(point.value) * (spread * noise / point.weight.sqrt()).exp(), ..*point }
        });
        fit(&drawn.collect::<Vec<_>>())
    };
    (0..resamples).filter_map(draw).collect()
}

/// The 95% interval of a figure of the laws; `None` where one end is a law that does not have it (a peak), or there are no laws.
pub(super) fn interval(laws: &[Usl], figure: impl Fn(Usl) -> Option<f64>) -> Option<[f64; 2]> {
    let mut figures: Vec<f64> = laws.iter().map(|law| figure(*law).unwrap_or(f64::INFINITY)).collect();
    figures.sort_by(f64::total_cmp);
    let at = |share: f64| figures.get((share * (figures.len() as f64 - 1.0)).round() as usize).copied();
    let ends = [at(0.025)?, at(0.975)?];
    ends[1].is_finite().then_some(ends)
}

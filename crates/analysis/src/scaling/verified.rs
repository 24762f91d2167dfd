//! The law, where the points can tell it: six or more, on both sides of a peak, near enough to the law, and a peak whose place is known
//! well enough. Otherwise the sentence that says why not, and what to measure instead.

use super::bootstrap;
use super::law::{Observed, Usl, fit};
use webdyno_model::number::human::{number, percent};

/// Three parameters, and as many points again that can contradict them.
const POINTS_MIN: usize = 6;
/// A place of the peak that is known to less than this ratio is no place.
const PEAK_RATIO_MAX: f64 = 3.0;
/// Residuals above it are no noise, whatever the intervals of the points are, and those below the other are good enough for a law.
const SPREAD_MAX: f64 = 0.15;
const SPREAD_MIN: f64 = 0.03;
/// Residuals so many times as wide as the points' own 95% intervals are no noise.
const BEYOND_NOISE: f64 = 2.0;

/// A law that the points bear out.
#[derive(Debug)]
pub(super) struct Verified {
    pub law: Usl,
    /// Those of the bootstrap.
    pub laws: Vec<Usl>,
    pub n_star: f64,
    pub n_star_ci95: [f64; 2],
}

/// The law through points in order of their values, or why there is none.
pub(super) fn verified(points: &[Observed], resamples: usize) -> Result<Verified, String> {
    let no_law = |reason: String| format!("No scaling law: {reason}.");
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(no_law("no value has a rate".into()));
    };
    too_few(points).map_or(Ok(()), |reason| Err(no_law(reason)))?;
    if first.value < 1.0 {
        return Err(no_law("it counts from 1, and there are smaller values".into()));
    }
    let law = fit(points).ok_or_else(|| no_law("the solver found none".into()))?;
    let freedom = points.len() as f64 - 3.0;
    let spread = (squares(points, &law.residuals(points)) / freedom).sqrt();
    if let Some(reason) = misfit(points, spread).or_else(|| flat(points, spread, freedom)) {
        return Err(no_law(reason));
    }
    let n_star = law.n_star().filter(|n_star| *n_star < last.value);
    let Some(n_star) = n_star else { return Err(no_law(rises(last.value))) };
    if n_star <= first.value {
        return Err(no_law(falls(first.value)));
    }
    let laws = bootstrap::laws(law, points, (spread, freedom), resamples);
    let ci95 = bootstrap::interval(&laws, Usl::n_star);
    match ci95.filter(|[low, high]| high / low <= PEAK_RATIO_MAX && *high <= 2.0 * last.value) {
        Some(n_star_ci95) => Ok(Verified { law, laws, n_star, n_star_ci95 }),
        None => Err(no_law(unsure(ci95, n_star, spread))),
    }
}

fn too_few(points: &[Observed]) -> Option<String> {
    let best =
        points.iter().enumerate().max_by(|a, b| a.1.rate.total_cmp(&b.1.rate)).map_or(0, |best| best.0);
    let (low, high) = (points[best.saturating_sub(1)].value, points[(best + 1).min(points.len() - 1)].value);
    let where_to = if low < high {
        format!("measure more between {} and {}, and beyond", number(low), number(high))
    } else {
        "measure more values".into()
    };
    (points.len() < POINTS_MIN)
        .then(|| format!("{POINTS_MIN} values are needed, there are {}; {where_to}", points.len()))
}

/// Sum of weighted squares.
fn squares(points: &[Observed], residuals: &[f64]) -> f64 {
    points.iter().zip(residuals).map(|(point, residual)| point.weight * residual.powi(2)).sum()
}

/// Whether the law says no more than a constant does: the F test of its two further parameters at 95%. With two degrees of freedom
/// above the bar the point of F is (f / 2) (0.05^(-2 / f) - 1).
fn flat(points: &[Observed], spread: f64, freedom: f64) -> Option<String> {
    let weight: f64 = points.iter().map(|point| point.weight).sum();
    let mean = points.iter().map(|point| point.weight * point.rate.ln()).sum::<f64>() / weight;
    let around: Vec<f64> = points.iter().map(|point| point.rate.ln() - mean).collect();
    let explained = squares(points, &around) - spread.powi(2) * freedom;
    let critical = freedom / 2.0 * (0.05f64.powf(-2.0 / freedom) - 1.0);
    let widest = around.iter().fold(0.0f64, |widest, one| widest.max(one.abs()));
    (widest < 0.01 || explained / 2.0 < critical * spread.powi(2)).then(|| {
        format!(
            "the rates differ by no more than their noise ({} off their mean at most); measure a wider range, or repeat the values",
            percent(widest)
        )
    })
}

/// Whether no point is proven to differ from their mean. Of a dozen points one lies outside of its 95% interval by chance, but not by
/// half as much again (Bonferroni's bound for 12 is 1.43 times as wide).
pub(super) fn is_flat(points: &[Observed]) -> bool {
    const ALL_HOLD: f64 = 1.5;
    let weight: f64 = points.iter().map(|point| point.weight).sum();
    let mean = points.iter().map(|point| point.weight * point.rate).sum::<f64>() / weight;
    let is_near = |point: &Observed| {
        point.noise.is_some_and(|noise| (point.rate - mean).abs() <= ALL_HOLD * noise * point.rate)
    };
    points.len() >= POINTS_MIN && points.iter().all(is_near)
}

/// Whether the points lie too far off the law.
fn misfit(points: &[Observed], spread: f64) -> Option<String> {
    let noises: Vec<f64> = points.iter().filter_map(|point| point.noise).collect();
    let noise = crate::measurement::statistics::median(&noises).filter(|_| 2 * noises.len() > points.len());
    let is_beyond = |noise: f64| spread > SPREAD_MIN && spread > BEYOND_NOISE * noise;
    let off = format!("the points lie {} off the best one", percent(spread));
    let cause = "something else than contention bends the curve (a limit, swapping, another load); measure more values where it bends";
    match noise {
        Some(noise) if is_beyond(noise) => Some(format!("{off}, and vary by {}: {cause}", percent(noise))),
        _ if spread > SPREAD_MAX => Some(format!("{off}: {cause}")),
        _ => None,
    }
}

fn rises(largest: f64) -> String {
    format!(
        "the rate does not fall up to {}, the largest value, so the peak is not bracketed; measure up to {}",
        number(largest),
        number(2.0 * largest)
    )
}

fn falls(smallest: f64) -> String {
    format!(
        "the rate does not rise from {}, the smallest value, so the peak is not bracketed; measure smaller ones",
        number(smallest)
    )
}

fn unsure(ci95: Option<[f64; 2]>, n_star: f64, spread: f64) -> String {
    let place = match ci95 {
        Some([low, high]) => format!("anywhere from {} to {}", number(low.round()), number(high.round())),
        None => format!("far beyond {}", number(n_star.round())),
    };
    format!(
        "with a noise of {} the peak may lie {place}; repeat the values, or measure further ones on both sides",
        percent(spread)
    )
}

//! What the points of a curve say: the scaling law behind them, the plateau around their peak, and the value to choose; or why they
//! cannot tell.

mod bootstrap;
mod law;
mod plateau;
#[cfg(test)]
mod tests;
mod usable;
mod verified;

use law::{Observed, Usl};
use plateau::SHARE;
use verified::Verified;
use webdyno_model::number::human::{number, rate};
use webdyno_model::number::significant;
use webdyno_model::sweep::{LawPoint, ScalingLaw, SweepPoint};

/// Points of the law's curve.
const CURVE_POINTS: usize = 61;

/// What a curve says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CurveAnalysis {
    /// The law; `None` where the data cannot tell.
    pub usl: Option<ScalingLaw>,
    /// Smallest and largest value whose rate is within 1% of the peak.
    pub plateau: Option<[f64; 2]>,
    /// The smallest measured value of the plateau.
    pub choice: Option<f64>,
    /// Why the choice is not sure.
    pub unsure: Option<String>,
    /// Why there is no law, no plateau, or an uncertain one; what to measure instead. Sentences.
    pub notes: Vec<String>,
}

/// Reads a curve. Points without a value or a rate, and failed ones, are left out; their order does not matter, and those of one value
/// are its repeats.
pub fn curve(points: &[SweepPoint]) -> CurveAnalysis {
    analysed(&usable::usable(points), bootstrap::RESAMPLES)
}

fn analysed(points: &[Observed], resamples: usize) -> CurveAnalysis {
    match verified::verified(points, resamples) {
        Ok(found) => by_law(points, &found),
        Err(reason) => by_points(points, reason),
    }
}

fn by_law(points: &[Observed], found: &Verified) -> CurveAnalysis {
    let usl = scaling_law(points, found);
    let within = found.law.within(SHARE).map(|[low, high]| [low.max(1.0), high.min(usl.valid_to)]);
    let measured = |[low, high]: [f64; 2]| {
        points.iter().map(|point| point.value).find(|value| (low..=high).contains(value))
    };
    let choice = within.and_then(measured);
    let mut notes = Vec::new();
    if let Some([low, _]) = within {
        let smallest = low.ceil();
        let by_law = format!("by the law {} gives {}", number(smallest), rate(found.law.rate(smallest)));
        match choice {
            None => notes.push(format!("No measured value lies in the plateau; {by_law}: measure it.")),
            Some(choice) if smallest < choice && choice - smallest > 0.05 * choice => {
                notes.push(format!("Smaller than {} may do: {by_law}; it was not measured.", number(choice)));
            }
            Some(_) => {}
        }
    }
    CurveAnalysis {
        plateau: within.map(|ends| ends.map(|end| significant(end, 6))),
        choice,
        usl: Some(usl),
        unsure: None,
        notes,
    }
}

fn scaling_law(points: &[Observed], found: &Verified) -> ScalingLaw {
    let Verified { law, laws, n_star, n_star_ci95 } = found;
    let round = |value: f64| significant(value, 6);
    let largest = points.last().map_or(1.0, |point| point.value);
    let [lambda, sigma, kappa] = law.parameters().map(round);
    let squares: f64 =
        points.iter().map(|point| point.weight * (point.rate - law.rate(point.value)).powi(2)).sum();
    ScalingLaw {
        lambda,
        sigma,
        kappa,
        n_star: Some(round(*n_star)),
        n_star_ci95: Some(n_star_ci95.map(round)),
        peak_rate: Some(round(law.rate(*n_star))),
        peak_rate_ci95: bootstrap::interval(laws, |law| law.n_star().map(|n_star| law.rate(n_star)))
            .map(|ends| ends.map(round)),
        residual_sd: significant((squares / (points.len() as f64 - 3.0)).sqrt(), 4),
        valid_to: 2.0 * largest,
        curve: curve_points(points, *law, laws),
    }
}

/// The law from the smallest to the largest value, in equal ratios.
fn curve_points(points: &[Observed], law: Usl, laws: &[Usl]) -> Vec<LawPoint> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let ratio = last.value / first.value;
    let at = |step: usize| {
        let value = first.value * ratio.powf(step as f64 / (CURVE_POINTS - 1) as f64);
        let band = bootstrap::interval(laws, |law| Some(law.rate(value)));
        LawPoint {
            value: significant(value, 6),
            rate: significant(law.rate(value), 6),
            ci95: band.map(|ends| ends.map(|end| significant(end, 6))),
        }
    };
    (0..CURVE_POINTS).map(at).collect()
}

fn by_points(points: &[Observed], reason: String) -> CurveAnalysis {
    let mut notes = vec![reason];
    let plateau = match points {
        // The best of equals is the luckiest, and no better than the smallest.
        [first, .., last] if verified::is_flat(points) => Some([first.value, last.value]),
        _ => plateau::ends(points),
    };
    let peak = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let below = |choice: f64| points.iter().rev().find(|point| point.value < choice);
    let reaches =
        |point: &&Observed| point.noise.is_some_and(|noise| point.rate * (1.0 + noise) >= SHARE * peak);
    let mut unsure = None;
    if let Some(point) = plateau.and_then(|ends| below(ends[0])).filter(reaches) {
        unsure = Some(format!("{} may do as well", number(point.value)));
        notes.push(format!(
            "{} may do as well: its interval reaches the plateau. Repeat it to be sure.",
            number(point.value)
        ));
    }
    CurveAnalysis { usl: None, plateau, choice: plateau.map(|ends| ends[0]), unsure, notes }
}

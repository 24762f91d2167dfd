//! The capacity where chance decides whether a step meets an objective: requests that come at random queue up now and then at any load,
//! and the slow ones come in bursts of which a step of seconds sees some or none. The steps that happened to meet the objectives would be
//! an answer that is too high. Therefore the share of slow requests is fitted to all steps: its odds grow as a power of the load
//! (logistic regression on the logarithm; Wetherill, Sequential estimation of points on regression functions, 1966), and the capacity is
//! where it reaches what is allowed. Each next step is offered there, which is where it tells most.
//!
//! The fit is an exact sum over a grid of capacities and powers, all equally likely before; bursts weaken what a step says
//! (quasi-likelihood; McCullagh and Nelder, Generalized Linear Models, 9).

use super::share_test::EVIDENCE_NEEDED;
use super::{RESOLUTION, ShareEvidence, StepResult};

/// Powers of the load: from a bound of five service times at a low load to a queue that is full or empty.
const POWERS: [f64; 4] = [16.0, 20.0, 25.0, 32.0];
/// The distance of two capacities on the grid, as a share.
const GRID: f64 = 0.005;
/// The capacity lies between these times the lowest and the highest load.
const BELOW: f64 = 0.5;
const ABOVE: f64 = 1.3;
/// Of steps with so many times more or less than the allowed share, seconds differ for other reasons.
const NEAR_TIMES: f64 = 8.0;

/// A capacity that was fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ChanceFit {
    /// As likely above as below.
    pub(super) rate: f64,
    pub(super) ci95: [f64; 2],
}

impl ChanceFit {
    pub(super) fn is_narrow(&self) -> bool {
        self.ci95[1] / self.ci95[0] <= 1.0 + 2.0 * RESOLUTION
    }
}

fn counted(steps: &[StepResult]) -> impl Iterator<Item = &StepResult> + Clone {
    steps.iter().filter(|one| one.generator.is_none())
}

/// Whether chance decides: a step beyond the ramp was not sure, and its requests waited for each other.
pub(super) fn decides(steps: &[StepResult]) -> bool {
    let is_unsure = |one: &StepResult| {
        let clumps = one
            .outcome
            .share
            .is_some_and(|share| share.queue > 0.0 && share.dispersion(share.deviation) > 2.0);
        one.kind != super::StepKind::Ramp && one.outcome.met.is_none() && clumps
    };
    counted(steps).any(is_unsure)
}

/// The fit to all steps; `None` where none says anything of a share.
pub(super) fn chance_fit(steps: &[StepResult]) -> Option<ChanceFit> {
    let known: Vec<Known> = counted(steps).map(Known::of).collect();
    let near = known.iter().filter_map(|one| one.share).filter(is_near);
    let pooled = near.fold((0.0, 0.0), |(a, b), share| (a + share.deviation.0, b + share.deviation.1));
    let low = known.iter().map(|one| one.offered).reduce(f64::min)? * BELOW;
    let high = known.iter().map(|one| one.offered).reduce(f64::max)? * ABOVE;
    let points = ((high / low).ln() / GRID) as usize + 1;
    let rates: Vec<f64> = (0..points).map(|n| low * (GRID * n as f64).exp()).collect();
    let likelihood =
        |rate: f64, power: f64| known.iter().map(|one| one.ln_likelihood(rate, power, pooled)).sum();
    let by_power: Vec<[f64; POWERS.len()]> =
        rates.iter().map(|rate| POWERS.map(|power| likelihood(*rate, power))).collect();
    let most = by_power.iter().flatten().copied().reduce(f64::max)?;
    let weights: Vec<f64> = by_power.iter().map(|of| of.iter().map(|one| (one - most).exp()).sum()).collect();
    let at = |part| quantile(&rates, &weights, part);
    Some(ChanceFit { rate: at(0.5)?, ci95: [at(0.025)?, at(0.975)?] })
}

/// Whether a step is near enough to the capacity to show how requests clump there.
fn is_near(share: &ShareEvidence) -> bool {
    let of = share.beyond / share.ended.max(1.0);
    of > share.allowed / NEAR_TIMES && of < share.allowed * NEAR_TIMES
}

fn quantile(rates: &[f64], weights: &[f64], part: f64) -> Option<f64> {
    let sum: f64 = weights.iter().sum();
    let mut below = 0.0;
    let (rate, before, weight) = rates.iter().zip(weights).find_map(|(rate, weight)| {
        let before = below;
        below += weight / sum;
        (below >= part).then_some((*rate, before, weight / sum))
    })?;
    Some(rate * (GRID * ((part - before) / weight - 0.5)).exp())
}

/// What a step says of the capacity.
struct Known {
    offered: f64,
    share: Option<ShareEvidence>,
    /// What is sure without a share.
    met: Option<bool>,
}

impl Known {
    fn of(step: &StepResult) -> Self {
        let share = step.outcome.share.filter(|share| share.ended > 0.0);
        // What is sure, but not by the number of slow requests: they were many at once, the queue grows, another objective is missed.
        let by_share =
            share.is_some_and(|share| is_near(&share) && share.strength().abs() >= EVIDENCE_NEEDED);
        let met = step.outcome.met.filter(|met| share.is_none() || !met && !by_share);
        let is_other = met.is_some() && share.is_some_and(|share| share.strength() < 0.0);
        Self { offered: step.step.offered, share: share.filter(|_| !is_other), met }
    }

    fn ln_likelihood(&self, rate: f64, power: f64, pooled: (f64, f64)) -> f64 {
        let against = match self.met {
            Some(true) if rate < self.offered => EVIDENCE_NEEDED,
            Some(false) if rate > self.offered => EVIDENCE_NEEDED,
            _ => 0.0,
        };
        let Some(share) = self.share else { return -against };
        let odds = share.allowed / (1.0 - share.allowed) * (self.offered / rate).powf(power);
        let odds = odds.clamp(1e-12, 1e12);
        let (slow, fast) = ((odds / (1.0 + odds)).ln(), -(1.0 + odds).ln());
        (share.beyond * slow + (share.ended - share.beyond) * fast) / share.dispersion(pooled) - against
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StepKind, StepOutcome};
    use super::*;
    use webdyno_model::capacity::CapacityStep;

    /// A step of ten seconds with this share of slow requests, of one percent that is allowed.
    fn step(offered: f64, share: f64, met: Option<bool>) -> StepResult {
        let ended = offered * 10.0;
        let evidence = ShareEvidence {
            ended,
            beyond: (ended * share).round(),
            allowed: 0.01,
            deviation: (9.0, 9.0),
            queue: 1.0,
        };
        StepResult {
            kind: StepKind::Sample,
            step: CapacityStep { load: 1, offered, met, measured_s: 10.0, ..CapacityStep::default() },
            outcome: StepOutcome { met, share: Some(evidence), ..StepOutcome::default() },
            generator: None,
        }
    }

    #[test]
    fn the_capacity_is_where_the_share_is_the_allowed_one() {
        // The share is that of a power of 20: at 1000/s one percent.
        let share = |offered: f64| 0.01 * (offered / 1000.0f64).powi(20);
        let steps: Vec<StepResult> =
            [900.0, 950.0, 1000.0, 1050.0, 1100.0].map(|load| step(load, share(load), None)).to_vec();
        assert!(decides(&steps));
        let fit = chance_fit(&steps).unwrap();
        assert!((fit.rate / 1000.0 - 1.0).abs() < 0.01, "{fit:?}");
        assert!(
            fit.ci95[0] < fit.rate && fit.rate < fit.ci95[1] && fit.ci95[1] / fit.ci95[0] < 1.1,
            "{fit:?}"
        );
    }

    #[test]
    fn a_queue_that_grows_bounds_it_whatever_the_share() {
        let behind = StepResult {
            outcome: StepOutcome { met: Some(false), share: None, ..StepOutcome::default() },
            ..step(1030.0, 0.0, Some(false))
        };
        let quick = step(1000.0, 0.002, None);
        let rate = |steps: &[StepResult]| chance_fit(steps).unwrap().rate;
        assert!(rate(&[quick.clone(), behind]) < rate(&[quick]));
        assert!(chance_fit(&[]).is_none());
        assert!(!decides(&[step(1000.0, 0.002, Some(true))]));
    }
}

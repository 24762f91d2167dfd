//! The verdict on a change: better, same, worse or inconclusive, from the interval and the noise floor.

use crate::stats::{Ratio, ratio_of_means};
use webdyno_model::tune::Verdict;

/// The smallest change that is believed to be one: runs of the same thing on a quiet machine differ by this much.
/// Six identical runs of the private Apache on the class of machine that this was built on stayed within it.
pub const NOISE_FLOOR: f64 = 0.03;

/// An interval wider than this on either side of the ratio cannot tell `same` from a change worth having.
const CONCLUSIVE_SPREAD: f64 = 0.10;

/// A comparison of two measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// `None` when there is too little to compare.
    pub ratio: Option<Ratio>,
    /// What it says.
    pub verdict: Verdict,
}

/// Compares good answers per second, second by second, before and after a change.
pub fn compare(before: &[f64], after: &[f64]) -> Comparison {
    if let Some(total_loss) = total_loss(before, after) {
        return total_loss;
    }
    let Some(ratio) = ratio_of_means(before, after) else {
        return Comparison { ratio: None, verdict: Verdict::Inconclusive };
    };
    let [low, high] = ratio.ci95;
    let verdict = if low > 1.0 + NOISE_FLOOR {
        Verdict::Better
    } else if high < 1.0 - NOISE_FLOOR {
        Verdict::Worse
    } else if low > 1.0 - CONCLUSIVE_SPREAD && high < 1.0 + CONCLUSIVE_SPREAD {
        Verdict::Same
    } else {
        Verdict::Inconclusive
    };
    Comparison { ratio: Some(ratio), verdict }
}

/// A rate of zero has no logarithm, yet says enough: nothing answered any more, or at last something does.
fn total_loss(before: &[f64], after: &[f64]) -> Option<Comparison> {
    let dead = |rates: &[f64]| rates.len() >= 2 && rates.iter().all(|rate| *rate == 0.0);
    let verdict = match (dead(before), dead(after)) {
        (false, true) if before.len() >= 2 => Verdict::Worse,
        (true, false) if after.len() >= 2 => Verdict::Better,
        (true, true) => Verdict::Same,
        _ => return None,
    };
    Some(Comparison { ratio: None, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let steady = |rate: f64| [rate, rate * 1.01, rate * 0.99, rate * 1.005, rate * 0.995, rate];
        let wild = |rate: f64| [rate, rate * 2.0, rate * 0.3, rate * 1.5, rate * 0.5, rate];
        for (before, after, verdict) in [
            (steady(100.0), steady(200.0), Verdict::Better),
            (steady(100.0), steady(101.0), Verdict::Same),
            (steady(100.0), steady(80.0), Verdict::Worse),
            (wild(100.0), wild(110.0), Verdict::Inconclusive),
            (steady(100.0), [0.0; 6], Verdict::Worse),
            ([0.0; 6], steady(100.0), Verdict::Better),
            ([0.0; 6], [0.0; 6], Verdict::Same),
        ] {
            assert_eq!(compare(&before, &after).verdict, verdict, "{before:?} {after:?}");
        }
        assert_eq!(compare(&[], &steady(1.0)).verdict, Verdict::Inconclusive);
    }
}

//! Sums of what was judged: who is taken for whom, how often confidence is right, what missing signals cost. Pure.

use super::hidden_sources::{SignalSource, hide_sources};
use super::{JudgedDiagnosis, JudgedRound};
use std::collections::BTreeMap;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_model::Result;

/// A first finding that is wrong with more than this misleads.
pub const CONFIDENCE_MISLEADS: f64 = 0.5;

/// How often the first finding of each id's recordings was which.
pub fn confusion(judged: &[JudgedDiagnosis]) -> BTreeMap<&str, BTreeMap<&str, usize>> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for one in judged {
        *counts.entry(&one.expected).or_default().entry(one.first().0).or_default() += 1;
    }
    counts
}

/// Findings stated with a confidence between two bounds, and how many of them were right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfidenceBin {
    /// Lower bound.
    pub from: f64,
    /// Upper bound.
    pub to: f64,
    /// How many.
    pub count: usize,
    /// How many of these were the answer.
    pub right: usize,
}

/// First findings by how sure they were.
pub fn calibration<'a>(judged: impl Iterator<Item = &'a JudgedDiagnosis> + Clone) -> Vec<ConfidenceBin> {
    const BOUNDS: [f64; 6] = [0.0, 0.5, 0.65, 0.75, 0.85, 1.0];
    let within = |from: f64, to: f64| {
        let all = judged.clone().filter(move |one| {
            let confidence = one.first().1;
            confidence > from && confidence <= to
        });
        let right = all.clone().filter(|one| one.is_right()).count();
        ConfidenceBin { from, to, count: all.count(), right }
    };
    BOUNDS.windows(2).map(|pair| within(pair[0], pair[1])).filter(|stated| stated.count > 0).collect()
}

/// What was found without some sources.
#[derive(Debug, Clone)]
pub struct HiddenSourceResult {
    /// What was hidden.
    pub hidden: Vec<SignalSource>,
    /// What was found then.
    pub judged: Vec<JudgedDiagnosis>,
}

impl HiddenSourceResult {
    /// Wrong first findings that are sure enough to mislead.
    pub fn misleading(&self) -> impl Iterator<Item = &JudgedDiagnosis> {
        self.judged.iter().filter(|one| !one.is_right() && one.first().1 > CONFIDENCE_MISLEADS)
    }
}

/// Diagnoses all cases with each of these sets of sources hidden.
pub fn diagnose_with_hidden_sources(
    cases: &[JudgedRound],
    sets: Vec<Vec<SignalSource>>,
) -> Result<Vec<HiddenSourceResult>> {
    let of_case = |case: &JudgedRound, hidden: &[SignalSource]| {
        let diagnosis = diagnose(&hide_sources(hidden, &case.measurement))?;
        Ok(JudgedDiagnosis::of(&case.place, &case.round, &diagnosis))
    };
    let of_set = |hidden: Vec<SignalSource>| {
        let judged = cases.iter().map(|case| of_case(case, &hidden)).collect::<Result<_>>()?;
        Ok(HiddenSourceResult { hidden, judged })
    };
    sets.into_iter().map(of_set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(expected: &str, found: &str, confidence: f64) -> JudgedDiagnosis {
        JudgedDiagnosis {
            scenario: "x".into(),
            number: 1,
            expected: expected.into(),
            beside: vec![],
            found: vec![(found.into(), confidence)],
            remedy: None,
        }
    }

    #[test]
    fn who_is_taken_for_whom_and_how_sure_it_was() {
        let all =
            [judged("a", "a", 0.9), judged("a", "b", 0.9), judged("b", "b", 0.3), judged("b", "b", 0.7)];
        let confusion = confusion(&all);
        assert_eq!((confusion["a"]["a"], confusion["a"]["b"], confusion["b"]["b"]), (1, 1, 2));
        let stated: Vec<_> =
            calibration(all.iter()).iter().map(|one| (one.to, one.count, one.right)).collect();
        assert_eq!(stated, [(0.5, 1, 1), (0.75, 1, 1), (1.0, 2, 1)]);
        let blinded =
            HiddenSourceResult { hidden: vec![], judged: vec![judged("a", "b", 0.5), judged("a", "b", 0.6)] };
        assert_eq!(blinded.misleading().count(), 1);
    }
}

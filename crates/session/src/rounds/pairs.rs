//! A change of which one look does not tell whether it helps, on a server that nobody else uses: it is switched off and on again,
//! and judged by pairs of loads without it and with it, until they tell it or enough of them were made. Where the change had several
//! looks, as the server got faster from second to second, the original has as many, and a pair in which it had fewer does not count: both
//! are as warm. A pair between whose halves the machine changed is discarded. Where only a restart makes the change the same again, it is
//! switched on by one.

use super::Tuning;
use super::verifying::{Looks, VerifiedChange};
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::tuning::drift::{drift, pair_disturbance};
use webdyno_analysis::tuning::planner::RemedyChoice;
use webdyno_analysis::tuning::verdict::{PAIRS_MAX, is_settling, judge_pairs};
use webdyno_model::Result;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::Verdict;

const IN_PAIRS: &str = "one look does not tell whether the change helps: it is switched off and on again, and judged by pairs of loads";
const FASTER_FOR_LONGER: &str =
    "with the change the server got faster for longer than its original was measured";

/// Without a change, and with it.
type Pair = (LoadMeasurement, LoadMeasurement);

impl Tuning {
    /// Switches a change off and on again until pairs of loads tell whether it helps. `looks_us`: how long all looks at it took.
    pub(super) fn verify_by_pairs(
        &mut self,
        target: &mut dyn TuningTarget,
        (choice, first): (&RemedyChoice, VerifiedChange),
        looks_us: u64,
    ) -> Result<VerifiedChange> {
        let budget_us = self.options.budget_us;
        let mut looks_count = first.looks_count;
        let look_us = looks_us / u64::from(looks_count);
        let has_time = |target: &dyn TuningTarget, looks_count: u32| {
            let pair_us = 2 * u64::from(looks_count) * look_us;
            target.elapsed_us() + pair_us <= budget_us && !target.has_live_traffic()
        };
        if !has_time(target, looks_count) {
            return Ok(first);
        }
        target.record(EventBody::Note { text: IN_PAIRS.into() })?;
        let mut verified = first;
        // One look at an original that was about to get faster is not comparable with several.
        let is_cold = looks_count > 1 && is_settling(&self.best.measurement);
        let first = (!is_cold).then(|| (self.best.clone(), verified.after.clone()));
        let mut pairs: Vec<Pair> = first.into_iter().collect();
        for _ in 1..PAIRS_MAX {
            if !has_time(target, looks_count) {
                break;
            }
            if let Some(in_force) = verified.in_force.take() {
                target.revert(in_force.mark)?;
            }
            let again = measured_again(target, looks_count)?;
            if again.measurement.harm_guard_trip.is_some() {
                break;
            }
            let has_drifted = discard_where(target, &mut pairs, |(before, _)| {
                drift(&before.measurement, &again.measurement)
            })?;
            verified.again = Some(again.clone());
            let Some(in_force) = self.put_in_force_again(target, choice)? else { break };
            verified.in_force = Some(in_force);
            let Looks { after, count, comparison } = self.verify(target, &again.measurement, true)?;
            verified.after = after.clone();
            pairs.push((again, after));
            let is_comparable = counts((looks_count, count), comparison.verdict);
            discard_where(target, &mut pairs, |(before, after)| match is_comparable {
                true => pair_disturbance(&before.measurement, &after.measurement),
                false => Ok(Some(FASTER_FOR_LONGER.into())),
            })?;
            looks_count = looks_count.max(count);
            let compared = pairs.iter().map(|(before, after)| (&before.measurement, &after.measurement));
            verified.comparison = judge_pairs(&compared.collect::<Vec<_>>())?;
            // Which of two originals that differ was disturbed is not known before it is measured once more.
            if has_drifted && verified.comparison.verdict == Verdict::Better {
                verified.comparison.verdict = Verdict::Inconclusive;
            }
            if verified.comparison.verdict != Verdict::Inconclusive {
                break;
            }
        }
        verified.pairs = Some(pairs.iter().filter_map(rates).collect());
        Ok(verified)
    }

    /// The same change once more; `None` when that failed, so that nothing of it is in force.
    fn put_in_force_again(
        &mut self,
        target: &mut dyn TuningTarget,
        choice: &RemedyChoice,
    ) -> Result<Option<AppliedChange>> {
        // What it comes to is rendered anew: files and values are those from before again.
        let Ok(steps) = self.prepare_all(target, &choice.remedy.setting_changes())? else { return Ok(None) };
        match self.apply_all(target, &steps, false) {
            Ok(in_force) => Ok(in_force),
            Err(error) => {
                self.failed = true;
                self.record_refusal(target, error)?;
                Ok(None)
            }
        }
    }
}

/// Whether a pair of so many looks counts: not where the change had more of them than its original, unless it is worse for all that. What
/// does harm is not switched on again to know it better.
fn counts((of_original, of_change): (u32, u32), verdict: Verdict) -> bool {
    of_change <= of_original || verdict == Verdict::Worse
}

/// Measures what is in force so many times, or until it does harm or others come, and gives the last one.
fn measured_again(target: &mut dyn TuningTarget, looks_count: u32) -> Result<LoadMeasurement> {
    let mut again = target.measure(Purpose::Verify)?;
    for _ in 1..looks_count {
        if again.measurement.harm_guard_trip.is_some() || target.has_live_traffic() {
            break;
        }
        again = target.measure(Purpose::Verify)?;
    }
    Ok(again)
}

fn rates((before, after): &Pair) -> Option<(f64, f64)> {
    mean(&before.measurement.measured_rates()).zip(mean(&after.measurement.measured_rates()))
}

/// Discards the last pair where its halves cannot be compared, and says why. Gives whether it did.
fn discard_where(
    target: &mut dyn TuningTarget,
    pairs: &mut Vec<Pair>,
    reason: impl Fn(&Pair) -> Result<Option<String>>,
) -> Result<bool> {
    let Some(why) = pairs.last().map(reason).transpose()?.flatten() else { return Ok(false) };
    pairs.pop();
    target.record(EventBody::Note { text: format!("a pair of loads was discarded: {why}") })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_had_more_looks_than_its_original_counts_only_against_it() {
        for (looks, verdict, expected) in [
            ((1, 1), Verdict::Better, true),
            ((3, 2), Verdict::Better, true),
            ((1, 2), Verdict::Better, false),
            ((1, 2), Verdict::Inconclusive, false),
            ((1, 2), Verdict::Worse, true),
        ] {
            assert_eq!(counts(looks, verdict), expected, "{looks:?} {verdict:?}");
        }
    }
}

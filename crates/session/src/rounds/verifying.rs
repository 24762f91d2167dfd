//! What a round does with a plan: it is put in force, measured afresh, and kept only if it is better beyond doubt.

use super::steps::goes_along_text;
use super::{NextStep, StopReason, Tuning};
use crate::live_traffic_policy;
use crate::tuning_target::{LoadMeasurement, TuningTarget};
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::tuning::planner::RemedyChoice;
use webdyno_analysis::tuning::verdict::{Comparison, is_settling, judge};
use webdyno_model::Result;
use webdyno_model::change::RenderedPlan;
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::number::significant;
use webdyno_model::tune::{Round, Verdict};

/// So often one change is looked at, while its server still gets faster: prefork takes some twenty seconds for 200 workers.
const LOOKS_MAX: u32 = 5;

impl Tuning {
    /// Applies a plan, measures afresh, and keeps the change only if it is better beyond doubt.
    pub(super) fn change_and_verify(
        &mut self,
        target: &mut dyn TuningTarget,
        choice: &RemedyChoice,
        (plan, steps): (&RenderedPlan, &[RenderedPlan]),
    ) -> Result<NextStep> {
        self.ordered = true;
        let in_force = match self.apply_all(target, steps) {
            Ok(Some(in_force)) => in_force,
            Ok(None) => return Ok(NextStep::Stop(StopReason::Declined)),
            Err(error) => {
                self.failed = true;
                let next = self.record_refusal(target, error)?;
                // It may have been in force for a moment, and was put back: the next try would be one more for others.
                return Ok(if target.has_live_traffic() {
                    NextStep::Stop(StopReason::OthersPresent)
                } else {
                    next
                });
            }
        };
        let (after, comparison) = self.verify(target)?;
        self.tried.last_mut().into_iter().for_each(|tried| tried.was_measured = true);
        let kept = comparison.verdict == Verdict::Better;
        let round = self.verify_change(self.describe(choice, plan), &after, &comparison, in_force.outage_us);
        let round = Round { kept, ..round };
        match kept {
            true => target.export(plan, &round),
            false => target.revert(in_force.mark)?,
        }
        self.record_round(target, round, Some(after.load))?;
        let is_harmed = |measured: &LoadMeasurement| measured.measurement.harm_guard_trip.is_some();
        if kept {
            self.kept = true;
        }
        // Of two loads that were stopped the later one tells more: what each worker takes with fewer of them.
        if kept || (is_harmed(&self.best) && is_harmed(&after)) {
            self.best = after;
        }
        let ends = live_traffic_policy::ends_tuning(kept, target.has_live_traffic());
        Ok(if ends { NextStep::Stop(StopReason::OthersPresent) } else { NextStep::Again })
    }

    /// Measures what is in force now against the best so far, again as long as the server gets faster from second to second, and
    /// once more with the same setting where a look is not conclusive, if there is time for it.
    fn verify(&self, target: &mut dyn TuningTarget) -> Result<(LoadMeasurement, Comparison)> {
        let look = |target: &mut dyn TuningTarget| {
            let after = target.verify(&self.best.measurement)?;
            let comparison = judge(&self.best.measurement, &after.measurement)?;
            if let Some(text) =
                live_traffic_policy::stop_loss_reason(&self.best.measurement, &after.measurement)
            {
                target.record(EventBody::Note { text })?;
            }
            Ok((after, comparison))
        };
        let mut seen = look(target)?;
        let mut is_second_chance = true;
        for _ in 1..LOOKS_MAX {
            let end = seen.0.measurement.end.as_ref().map(|end| end.reason);
            let is_over = matches!(end, Some(EndReason::StopLoss | EndReason::Braked));
            let is_settling = !is_over && is_settling(&seen.0.measurement);
            let is_open = live_traffic_policy::needs_remeasure(seen.1.verdict, target.has_live_traffic());
            let again = is_settling || (is_open && is_second_chance);
            if !again || target.elapsed_us() > self.options.budget_us {
                break;
            }
            is_second_chance = is_settling && is_second_chance;
            seen = look(target)?;
        }
        Ok(seen)
    }

    pub(super) fn describe(&self, choice: &RemedyChoice, plan: &RenderedPlan) -> Round {
        Round {
            n: self.n,
            finding: choice.finding.id.clone(),
            summary: format!("{}{}", choice.finding.summary, goes_along_text(&choice.remedy)),
            changes: plan.changes.clone(),
            risk: Some(choice.remedy.risk.clone()),
            predicted: choice.remedy.predicted.clone(),
            before: mean(&self.best.measurement.measured_rates()).map(|rate| significant(rate, 6)),
            diff: plan.diff.clone(),
            managed: plan.managed.clone(),
            ..Round::default()
        }
    }

    fn verify_change(
        &self,
        round: Round,
        after: &LoadMeasurement,
        comparison: &Comparison,
        outage_us: Option<u64>,
    ) -> Round {
        Round {
            after: mean(&after.measurement.measured_rates()).map(|rate| significant(rate, 6)),
            ratio: comparison.ratio.map(|ratio| significant(ratio.ratio, 4)),
            ci95: comparison.ratio.map(|ratio| ratio.ci95.map(|bound| significant(bound, 4))),
            verdict: Some(comparison.verdict),
            brake: after.measurement.harm_guard_trip.clone(),
            outage_us,
            ..round
        }
    }
}

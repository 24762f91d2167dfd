//! What a round does with a plan: it is put in force, measured afresh, and kept only if it is better beyond doubt.

use super::hidden::HiddenGain;
use super::steps::{export, goes_along_text};
use super::{NextStep, StopReason, Tuning};
use crate::live_traffic_policy;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits::LimitId;
use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::tuning::planner::{RemedyChoice, TriedRemedy};
use webdyno_analysis::tuning::verdict::{
    Comparison, generator_limit, is_settling, is_starting_workers, judge, stopped_for_others,
};
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, RenderedPlan, SettingChange};
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::number::significant;
use webdyno_model::tune::{Round, Verdict};

/// So often one change is looked at, while its server still gets faster: prefork takes some twenty seconds for 200 workers.
const LOOKS_MAX: u32 = 5;

impl Tuning {
    /// Applies a plan, measures afresh, and keeps the change only if it is better beyond doubt, with one that is `hidden` behind it.
    pub(super) fn change_and_verify(
        &mut self,
        target: &mut dyn TuningTarget,
        choice: RemedyChoice,
        (plan, mut steps): (&RenderedPlan, Vec<RenderedPlan>),
        hidden: &mut Option<HiddenGain>,
    ) -> Result<NextStep> {
        let mut in_force = match self.put_in_force(target, &steps)? {
            Ok(in_force) => in_force,
            Err(next) => return Ok(next),
        };
        let outage_us = in_force.outage_us;
        let choice = match hidden.take() {
            Some(hidden) => {
                in_force.mark = hidden.in_force.mark;
                steps.splice(0..0, hidden.steps.iter().cloned());
                hidden.joined(choice)
            }
            None => choice,
        };
        let can_switch = plan.class <= ApplyClass::Reload
            && !target.has_live_traffic()
            && self.can_switch_again(&choice.remedy.setting_changes());
        let began_us = target.elapsed_us();
        let looks = self.verify(target, &self.best.measurement, can_switch)?;
        let comparison = looks.comparison;
        self.tried.last_mut().into_iter().for_each(|tried| tried.was_measured = true);
        let mut verified = VerifiedChange::measured_once(looks, in_force);
        let is_whole = verified.after.measurement.harm_guard_trip.is_none();
        let is_hidden =
            comparison.verdict != Verdict::Better && self.hides_gain(target, &choice, &verified.after)?;
        if !is_hidden && can_switch && is_whole && comparison.verdict == Verdict::Inconclusive {
            let looks_us = target.elapsed_us() - began_us;
            verified = self.verify_by_pairs(target, (&choice, verified), looks_us)?;
        }
        let kept = verified.comparison.verdict == Verdict::Better && verified.in_force.is_some();
        let judged_with_next = is_hidden;
        let round =
            Round { kept, outage_us, judged_with_next, ..verified.described(self.describe(&choice, plan)) };
        match (kept, verified.in_force.take()) {
            (true, _) => export(target, &steps, &round),
            (false, Some(in_force)) if is_hidden => {
                self.hide(&choice, (&steps, in_force), verified.after.clone());
            }
            (false, Some(in_force)) => target.revert(in_force.mark)?,
            (false, None) => {}
        }
        self.record_round(target, round, Some(verified.after.load))?;
        self.take_over(kept, &choice.remedy.setting_changes(), verified);
        let ends = live_traffic_policy::ends_tuning(kept, target.has_live_traffic());
        Ok(if ends { NextStep::Stop(StopReason::OthersPresent) } else { NextStep::Again })
    }

    /// What the next round starts from, after these changes. What was hidden and is kept with them has helped, too.
    pub(super) fn take_over(&mut self, kept: bool, changes: &[SettingChange], verified: VerifiedChange) {
        let is_harmed = |measured: &LoadMeasurement| measured.measurement.harm_guard_trip.is_some();
        self.kept |= kept;
        let is_part = |tried: &&mut TriedRemedy| tried.changes.iter().all(|change| changes.contains(change));
        self.tried.iter_mut().filter(is_part).for_each(|tried| tried.was_kept |= kept);
        // Of two loads that were stopped the later one tells more: what each worker takes with fewer of them.
        if kept || (is_harmed(&self.best) && is_harmed(&verified.after)) {
            self.best = verified.after;
        } else if let Some(again) = verified.again {
            self.best = again;
        }
    }

    /// Puts a plan in force; else what comes next.
    pub(super) fn put_in_force(
        &mut self,
        target: &mut dyn TuningTarget,
        steps: &[RenderedPlan],
    ) -> Result<std::result::Result<AppliedChange, NextStep>> {
        self.ordered = true;
        match self.apply_all(target, steps, true) {
            Ok(Some(in_force)) => Ok(Ok(in_force)),
            Ok(None) => Ok(Err(NextStep::Stop(StopReason::Declined))),
            Err(error) => {
                self.failed = true;
                let next = self.record_refusal(target, error)?;
                // It may have been in force for a moment, and was put back: the next try would be one more for others.
                Ok(Err(if target.has_live_traffic() {
                    NextStep::Stop(StopReason::OthersPresent)
                } else {
                    next
                }))
            }
        }
    }

    /// Whether changes can be switched off and on again: not back to what did harm. Prefork's workers only where it may be restarted:
    /// a reload that ends workers leaves their places taken (AH00167), so that by a second one fewer of them would start.
    fn can_switch_again(&self, changes: &[SettingChange]) -> bool {
        let measured = &self.best.measurement;
        let service = measured.service.as_ref();
        let is_prefork = service.and_then(|service| service.mode.as_deref()) == Some("prefork");
        let are_workers = |change: &SettingChange| change.setting.full_name() == "apache MaxRequestWorkers";
        measured.harm_guard_trip.is_none()
            && (!is_prefork || self.options.allow_restart || !changes.iter().any(are_workers))
    }

    /// Measures what is in force now against what was there before, again as long as the server gets faster from second to second, and
    /// once more with the same setting where a look is not conclusive and it cannot be switched, or others stopped it, if there is time for it.
    pub(super) fn verify(
        &self,
        target: &mut dyn TuningTarget,
        before: &Measurement,
        can_switch: bool,
    ) -> Result<Looks> {
        let look = |target: &mut dyn TuningTarget| {
            let after = target.verify(before)?;
            let comparison = judge(before, &after.measurement)?;
            if let Some(text) = live_traffic_policy::stop_loss_reason(before, &after.measurement) {
                target.record(EventBody::Note { text })?;
            }
            if let Some(text) = stopped_for_others(&after.measurement)? {
                target.record(EventBody::Note { text })?;
            }
            let limit = generator_limit(&after.measurement)?;
            if let Some(why) = limit.filter(|_| comparison.verdict == Verdict::Inconclusive) {
                let text = format!("the load after the change does not tell what it brings: {why}");
                target.record(EventBody::Note { text })?;
            }
            Ok(Looks { after, comparison, count: 1 })
        };
        let mut seen = look(target)?;
        let mut is_second_chance = !can_switch || seen.after.measurement.harm_guard_trip.is_some();
        for _ in 1..LOOKS_MAX {
            let end = seen.after.measurement.end.as_ref().map(|end| end.reason);
            let is_over = matches!(end, Some(EndReason::StopLoss | EndReason::Braked));
            let measured = &seen.after.measurement;
            let is_settling = !is_over
                && (is_settling(measured)
                    || is_starting_workers(measured)?
                    || diagnose(measured)?.bottleneck == LimitId::ApacheSpawnLag);
            let is_open =
                live_traffic_policy::needs_remeasure(seen.comparison.verdict, target.has_live_traffic());
            let again = is_settling || (is_open && is_second_chance);
            if !again || target.elapsed_us() > self.options.budget_us {
                break;
            }
            is_second_chance = is_settling && is_second_chance;
            seen = Looks { count: seen.count + 1, ..look(target)? };
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
            to_decide: plan.to_decide.clone(),
            ..Round::default()
        }
    }
}

/// The looks at a change.
pub(super) struct Looks {
    /// The last one, and what it says.
    pub(super) after: LoadMeasurement,
    pub(super) comparison: Comparison,
    /// How many there were: several where the server got faster from second to second.
    pub(super) count: u32,
}

/// What a change came to.
pub(super) struct VerifiedChange {
    /// With it, measured last.
    pub(super) after: LoadMeasurement,
    /// Without it, measured last; `None` where that was before it only.
    pub(super) again: Option<LoadMeasurement>,
    /// What that says.
    pub(super) comparison: Comparison,
    /// How many looks the first one took.
    pub(super) looks_count: u32,
    /// The pairs that it rests on, if one look was not enough: rates without it and with it.
    pub(super) pairs: Option<Vec<(f64, f64)>>,
    /// Names what is to be reverted; `None` when nothing of it is in force any more.
    pub(super) in_force: Option<AppliedChange>,
}

impl VerifiedChange {
    /// From the looks at it after it was put in force once.
    pub(super) fn measured_once(looks: Looks, in_force: AppliedChange) -> Self {
        let Looks { after, comparison, count: looks_count } = looks;
        Self { after, again: None, comparison, looks_count, pairs: None, in_force: Some(in_force) }
    }

    /// The round that tells it.
    pub(super) fn described(&self, round: Round) -> Round {
        let rate_of = |rates: &[f64]| mean(rates).map(|rate| significant(rate, 6));
        let of_pairs = |which: fn(&(f64, f64)) -> f64| {
            let pairs = self.pairs.as_ref().filter(|pairs| !pairs.is_empty())?;
            rate_of(&pairs.iter().map(which).collect::<Vec<_>>())
        };
        let ratio = self.comparison.ratio;
        Round {
            before: of_pairs(|pair| pair.0).or(round.before),
            after: of_pairs(|pair| pair.1).or_else(|| rate_of(&self.after.measurement.measured_rates())),
            ratio: ratio.map(|ratio| significant(ratio.ratio, 4)),
            ci95: ratio.map(|ratio| ratio.ci95.map(|bound| significant(bound, 4))),
            noise_floor: ratio.map(|_| significant(self.comparison.noise_floor, 2)),
            pairs: self.pairs.as_ref().map(|pairs| pairs.len() as u32),
            verdict: Some(self.comparison.verdict),
            brake: self.after.measurement.harm_guard_trip.clone(),
            ..round
        }
    }
}

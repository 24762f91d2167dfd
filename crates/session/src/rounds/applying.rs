//! What a round orders of its target: the plans of a remedy, prepared, applied together, or left to others.

use super::manual::manual_change;
use super::steps::{export, groups};
use super::{NextStep, Tuning};
use crate::tuning_target::{AppliedChange, TuningTarget};
use webdyno_analysis::tuning::planner::RemedyChoice;
use webdyno_model::change::{ManagedFile, Preparation, RenderedPlan, SettingChange};
use webdyno_model::event::EventBody;
use webdyno_model::{ErrorKind, Result, UserError};

impl Tuning {
    /// The plans of a remedy, one for each target; else what comes next. What others would need and cannot get is told.
    pub(super) fn prepare_all(
        &mut self,
        target: &mut dyn TuningTarget,
        changes: &[SettingChange],
    ) -> Result<std::result::Result<Vec<RenderedPlan>, NextStep>> {
        let mut steps = vec![];
        for (group, is_own) in groups(changes) {
            match target.prepare(&group) {
                Ok(Preparation::Plan(plan)) => steps.push(*plan),
                Ok(Preparation::NotPreparable { why, hint }) => {
                    let text = manual_change(&group, &why, hint.as_deref());
                    target.record(EventBody::Note { text })?;
                    if is_own {
                        return Ok(Err(NextStep::Again));
                    }
                }
                Err(error) => return self.record_refusal(target, error).map(Err),
            }
        }
        Ok(Ok(steps))
    }

    /// A remedy that cannot be carried out is no end: nothing of it stayed, and another one may help. That somebody
    /// interrupted it is one, and that the agent is gone.
    pub(super) fn record_refusal(
        &mut self,
        target: &mut dyn TuningTarget,
        error: UserError,
    ) -> Result<NextStep> {
        if error.kind == ErrorKind::Interrupted || target.has_lost_agent() {
            return Err(error);
        }
        // The hint may say that something could not be put back, or was left to the operator.
        let hint =
            error.hint.as_ref().map(|hint| format!("; {}", hint.replace('\n', "; "))).unwrap_or_default();
        target.record(EventBody::Note { text: format!("not done: {}{hint}", error.message) })?;
        self.was_refused = true;
        Ok(NextStep::Again)
    }

    /// Leaves a plan to those whose files it would change, or who have to decide.
    pub(super) fn propose_change(
        &mut self,
        target: &mut dyn TuningTarget,
        choice: &RemedyChoice,
        (plan, steps): (&RenderedPlan, &[RenderedPlan]),
    ) -> Result<NextStep> {
        for ManagedFile { path, by, why } in &plan.managed {
            let text = format!("{path} is managed by {by} ({why}): the change is proposed, not written");
            target.record(EventBody::Note { text })?;
        }
        for why in &plan.to_decide {
            let text = format!("manual change: {why}: proposed, not written");
            target.record(EventBody::Note { text })?;
        }
        let proposed = self.describe(choice, plan);
        export(target, steps, &proposed);
        self.record_round(target, proposed, None)?;
        self.proposed.push(choice.finding.id.clone());
        Ok(NextStep::Again)
    }

    /// Applies the steps of a plan, each for another target; what others need comes first. When one fails or is declined, nothing of
    /// them stays.
    pub(super) fn apply_all(
        &self,
        target: &mut dyn TuningTarget,
        steps: &[RenderedPlan],
        is_first_time: bool,
    ) -> Result<Option<AppliedChange>> {
        let mut whole: Option<AppliedChange> = None;
        for step in steps {
            let allow_restart = self.options.allow_restart;
            let applied = if is_first_time {
                target.apply(step, allow_restart)
            } else {
                target.apply_again(step, allow_restart)
            };
            let applied = match applied {
                Ok(Some(applied)) => applied,
                other => {
                    // What could not be put back counts more than why.
                    whole.map_or(Ok(()), |whole| target.revert(whole.mark))?;
                    return other;
                }
            };
            let outage_us = |whole: AppliedChange| match (whole.outage_us, applied.outage_us) {
                (Some(before), Some(now)) => Some(before + now),
                (known, other) => known.or(other),
            };
            whole =
                Some(whole.map_or(applied, |whole| AppliedChange { outage_us: outage_us(whole), ..whole }));
        }
        Ok(whole)
    }
}

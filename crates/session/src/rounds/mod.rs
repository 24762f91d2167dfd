//! The rounds of tuning: measure, diagnose, choose, change, verify, keep or put back, until the goal is met or
//! nothing helps. Decides only; everything that is done goes through the [`TuningTarget`].

mod steps;

use crate::live_traffic_policy;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use steps::{export, goes_along_text, groups, merged};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::tuning::planner::{NoRemedy, RemedyChoice, TuningPolicy, choose_remedy};
use webdyno_analysis::tuning::verdict::{Comparison, is_settling, judge, stopped_for_others};
use webdyno_model::change::{ApplyClass, ManagedFile, Preparation, RenderedPlan, SettingChange};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::number::significant;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::{Goal, Round, TuneState, Verdict};
use webdyno_model::{ErrorKind, Result, UserError};

/// More rounds than any server needs: a bound on everything.
const ROUNDS_MAX: u32 = 20;

/// So often one change is looked at, while its server still gets faster: prefork takes some twenty seconds for 200 workers.
const LOOKS_MAX: u32 = 5;

/// So often the first load is made again although it did harm, with less memory to be taken each time; then it is lowered.
const HARMED_ROUNDS_MAX: u32 = 3;

/// What tuning may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneOptions {
    /// What to reach.
    pub goal: Goal,
    /// Without it, the first plan is shown and nothing is written.
    pub apply: bool,
    /// Whether a restart is acceptable.
    pub allow_restart: bool,
    /// No round begins after this time.
    pub budget_us: u64,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuneEnding {
    /// Whether the goal was met.
    pub goal_met: bool,
    /// What became of the server.
    pub state: TuneState,
    /// Whether the last measurement can be believed.
    pub valid: bool,
}

/// Tunes until the goal is met or nothing helps. On an error everything is put back before it is returned.
pub fn tune(target: &mut dyn TuningTarget, options: TuneOptions) -> Result<TuneEnding> {
    let baseline = target.measure(Purpose::Baseline)?;
    let mut session = Tuning {
        options,
        best: baseline.clone(),
        baseline,
        tried: vec![],
        n: 0,
        ordered: false,
        failed: false,
        kept: false,
        was_refused: false,
        restart_refused: false,
        is_lowered: false,
        proposed: vec![],
    };
    let why = loop {
        match session.round(target) {
            Ok(NextStep::Again) => {}
            Ok(NextStep::Stop(why)) => match session.goes_on_lower(target, why) {
                Ok(true) => {}
                Ok(false) => break why,
                Err(error) => return Err(session.revert_after_error(target, error)),
            },
            Err(error) => return Err(session.revert_after_error(target, error)),
        }
    };
    let why = match why {
        StopReason::NothingHelps if session.was_refused => StopReason::Refused,
        _ => why,
    };
    if let Err(error) = session.confirm(target, why) {
        return Err(session.revert_after_error(target, error));
    }
    if let Err(error) = session.keep_verified(target) {
        return Err(session.revert_after_error(target, error));
    }
    session.note_manual_remedies(target, why)?;
    session.end(target, why)
}

struct Tuning {
    options: TuneOptions,
    baseline: LoadMeasurement,
    /// The measurement of what is in force.
    best: LoadMeasurement,
    tried: Vec<Vec<SettingChange>>,
    n: u32,
    /// Whether a change was ever ordered: whatever became of it, something of it may be there.
    ordered: bool,
    /// Whether one failed.
    failed: bool,
    /// Whether a change is in force that was verified.
    kept: bool,
    /// Whether a remedy could not be carried out, which the log tells.
    was_refused: bool,
    /// Whether a remedy was left out because it needs a restart.
    restart_refused: bool,
    /// Whether the load was lowered, as the first one did harm.
    is_lowered: bool,
    /// Findings whose remedy others would have to carry out: the files are theirs, or the decision.
    proposed: Vec<String>,
}

enum NextStep {
    Again,
    Stop(StopReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopReason {
    GoalMet,
    NothingHelps,
    Refused,
    NeedsRestart,
    Proposed,
    Planned,
    OutOfTime,
    Invalid,
    Declined,
    Braked,
    OthersPresent,
}

impl Tuning {
    fn round(&mut self, target: &mut dyn TuningTarget) -> Result<NextStep> {
        let diagnosis = diagnose(&self.best.measurement)?;
        let is_harmed = self.best.measurement.harm_guard_trip.is_some();
        if is_harmed && self.is_harm_final(&diagnosis, target) {
            return Ok(NextStep::Stop(StopReason::Braked));
        }
        if let Some(why) = self.stop_reason(&diagnosis).filter(|_| !is_harmed) {
            return Ok(NextStep::Stop(why));
        }
        let policy = TuningPolicy { allow_restart: self.options.allow_restart || !self.options.apply };
        let choice = match choose_remedy(&diagnosis, &self.tried, policy) {
            Ok(choice) => choice,
            Err(NoRemedy::NoRemedy | NoRemedy::AllTried) if self.restart_refused => {
                return Ok(NextStep::Stop(StopReason::NeedsRestart));
            }
            Err(NoRemedy::NoRemedy | NoRemedy::AllTried) if !self.proposed.is_empty() => {
                return Ok(NextStep::Stop(StopReason::Proposed));
            }
            Err(NoRemedy::NoRemedy | NoRemedy::AllTried) => {
                return Ok(NextStep::Stop(StopReason::NothingHelps));
            }
        };
        if self.n >= ROUNDS_MAX || target.elapsed_us() > self.options.budget_us {
            return Ok(NextStep::Stop(StopReason::OutOfTime));
        }
        let changes = choice.remedy.setting_changes();
        self.tried.push(changes.clone());
        let steps = match self.prepare_all(target, &changes)? {
            Ok(steps) => steps,
            Err(next) => return Ok(next),
        };
        let plan = merged(steps.iter());
        if choice.remedy.class == ApplyClass::Restart && !policy.allow_restart {
            self.restart_refused = true;
            return Ok(NextStep::Again);
        }
        if plan.is_proposal() && self.proposed.contains(&choice.finding.id) {
            // The best remedy is proposed already; a lesser one in the same hands is no help.
            return Ok(NextStep::Again);
        }
        self.n += 1;
        let (finding, changes, diff) =
            (Box::new(choice.finding.clone()), plan.changes.clone(), plan.diff.clone());
        target.record(EventBody::Planned { n: self.n, finding, changes, diff })?;
        if !self.options.apply {
            let planned = self.describe(&choice, &plan);
            export(target, &steps, &planned);
            self.record_round(target, planned, None)?;
            return Ok(NextStep::Stop(StopReason::Planned));
        }
        if plan.is_proposal() {
            return self.propose_change(target, &choice, (&plan, &steps));
        }
        if plan.class == ApplyClass::Restart && !self.options.allow_restart {
            self.restart_refused = true;
            return Ok(NextStep::Again);
        }
        self.change_and_verify(target, &choice, (&plan, &steps))
    }

    /// Whether a load that did harm is not to be made again: nothing is known that would take the harm away, or it was tried
    /// often enough, or others would bear it.
    fn is_harm_final(&self, diagnosis: &Diagnosis, target: &dyn TuningTarget) -> bool {
        let frees_memory = limits::by_id(&diagnosis.bottleneck).is_some_and(|limit| limit.frees_memory);
        !frees_memory || self.is_lowered || self.n >= HARMED_ROUNDS_MAX || target.has_live_traffic()
    }

    /// Whether to go on at a lower load: nothing lifted the harm that the first one did.
    fn goes_on_lower(&mut self, target: &mut dyn TuningTarget, why: StopReason) -> Result<bool> {
        let is_harmed = self.best.measurement.harm_guard_trip.is_some() && !self.is_lowered;
        if !is_harmed
            || matches!(
                why,
                StopReason::Planned
                    | StopReason::Declined
                    | StopReason::OutOfTime
                    | StopReason::OthersPresent
            )
        {
            return Ok(false);
        }
        self.is_lowered = true;
        self.baseline = target.measure_lower(self.best.clone())?;
        self.best = self.baseline.clone();
        Ok(true)
    }

    /// The plans of a remedy, one for each target; else what comes next. What others would need and cannot get is told.
    fn prepare_all(
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

    fn stop_reason(&self, diagnosis: &Diagnosis) -> Option<StopReason> {
        let run = diagnosis.run.as_ref();
        let rate = run.and_then(|run| run.rate).unwrap_or(0.0);
        let objectives_met = run.is_some_and(|run| run.objectives.iter().all(|result| result.met));
        if limits::by_id(&diagnosis.bottleneck).is_some_and(|limit| limit.invalidates_run) {
            Some(StopReason::Invalid)
        } else {
            (self.options.goal.is_met_by(rate) && objectives_met).then_some(StopReason::GoalMet)
        }
    }

    /// A remedy that cannot be carried out is no end: nothing of it stayed, and another one may help. That somebody
    /// interrupted it is one.
    fn record_refusal(&mut self, target: &mut dyn TuningTarget, error: UserError) -> Result<NextStep> {
        if error.kind == ErrorKind::Interrupted {
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
    fn propose_change(
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
            let text = format!("for you to decide: {why}: the change is proposed, not written");
            target.record(EventBody::Note { text })?;
        }
        let proposed = self.describe(choice, plan);
        export(target, steps, &proposed);
        self.record_round(target, proposed, None)?;
        self.proposed.push(choice.finding.id.clone());
        Ok(NextStep::Again)
    }

    /// Applies a plan, measures afresh, and keeps the change only if it is better beyond doubt.
    fn change_and_verify(
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
        let kept = comparison.verdict == Verdict::Better;
        let round = self.verify_change(self.describe(choice, plan), &after, &comparison, in_force.outage_us);
        let round = Round { kept, ..round };
        match kept {
            true => export(target, steps, &round),
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

    /// Applies the steps of a plan, each for another target; what others need comes first. When one fails or is declined, nothing of
    /// them stays.
    fn apply_all(
        &self,
        target: &mut dyn TuningTarget,
        steps: &[RenderedPlan],
    ) -> Result<Option<AppliedChange>> {
        let mut whole: Option<AppliedChange> = None;
        for step in steps {
            let applied = match target.apply(step, self.options.allow_restart) {
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

    /// Puts everything back after an error and says in the log what became of the server. What could not be put back
    /// counts more than the error that came before.
    fn revert_after_error(&self, target: &mut dyn TuningTarget, error: UserError) -> UserError {
        let reverted = if self.ordered { target.revert(0) } else { Ok(()) };
        let state = if reverted.is_ok() { TuneState::Reverted } else { TuneState::Applied };
        // Whether this can be written counts least.
        drop(self.record_end(target, false, state));
        reverted.err().unwrap_or(error)
    }

    /// Measures what is in force now against the best so far, again as long as the server gets faster from second to second, and
    /// once more with the same setting where a look is not conclusive, or others stopped it, if there is time for it.
    fn verify(&self, target: &mut dyn TuningTarget) -> Result<(LoadMeasurement, Comparison)> {
        let look = |target: &mut dyn TuningTarget| {
            let after = target.verify(&self.best.measurement)?;
            let comparison = judge(&self.best.measurement, &after.measurement)?;
            if let Some(text) =
                live_traffic_policy::stop_loss_reason(&self.best.measurement, &after.measurement)
            {
                target.record(EventBody::Note { text })?;
            }
            if let Some(text) = stopped_for_others(&after.measurement)? {
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

    /// Measures what several rounds came to afresh: each was compared with the one before it only, and the best figure of many is
    /// flattered by chance. Where the sum is worse than the original, nothing of it stays. Not with others there, who would
    /// bear one more load.
    fn confirm(&mut self, target: &mut dyn TuningTarget, why: StopReason) -> Result<()> {
        let is_over = matches!(why, StopReason::Invalid | StopReason::Braked | StopReason::OutOfTime);
        let is_late = target.elapsed_us() > self.options.budget_us;
        if !self.kept || self.n < 2 || is_over || is_late || target.has_live_traffic() {
            return Ok(());
        }
        let after = target.measure(Purpose::Verify)?;
        let comparison = judge(&self.baseline.measurement, &after.measurement)?;
        if comparison.verdict == Verdict::Worse {
            let text =
                "all changes together, measured afresh, were worse than the original: they were reverted";
            target.record(EventBody::Note { text: text.into() })?;
            (self.kept, self.failed) = (false, true);
        } else if after.measurement.harm_guard_trip.is_none() {
            self.best = after;
        }
        Ok(())
    }

    fn describe(&self, choice: &RemedyChoice, plan: &RenderedPlan) -> Round {
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

    fn record_round(
        &self,
        target: &mut dyn TuningTarget,
        round: Round,
        load_after: Option<u32>,
    ) -> Result<()> {
        target.record(EventBody::RoundEnd { round: Box::new(round), load_before: self.best.load, load_after })
    }

    /// What was verified stays. Without that nothing does: a change that failed may have left something behind.
    fn keep_verified(&self, target: &mut dyn TuningTarget) -> Result<()> {
        match (self.kept, self.failed) {
            (true, _) => target.keep(),
            (false, true) => target.revert(0),
            (false, false) => Ok(()),
        }
    }

    /// What would help next and only a person can do, of the first finding: it is why tuning ends here.
    fn note_manual_remedies(&self, target: &mut dyn TuningTarget, why: StopReason) -> Result<()> {
        if !matches!(why, StopReason::NothingHelps | StopReason::Refused | StopReason::NeedsRestart) {
            return Ok(());
        }
        let diagnosis = diagnose(&self.best.measurement)?;
        let first = diagnosis.findings.first();
        let by_hand = first.iter().flat_map(|finding| &finding.remedies);
        for remedy in by_hand.filter(|remedy| remedy.setting_changes().is_empty()) {
            let to = remedy.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
            let text =
                format!("by hand: {}{to}: {}; risk: {}", remedy.setting.full_name(), remedy.why, remedy.risk);
            target.record(EventBody::Note { text })?;
        }
        Ok(())
    }

    fn end(self, target: &mut dyn TuningTarget, why: StopReason) -> Result<TuneEnding> {
        if let Some(text) = stop_note(why) {
            target.record(EventBody::Note { text: text.into() })?;
        }
        let state = match (self.options.apply, self.kept) {
            (false, _) => TuneState::Planned,
            (true, true) => TuneState::Applied,
            (true, false) => TuneState::Reverted,
        };
        // `max` has no figure to meet: it is done when nothing more helps.
        let goal_met = match self.options.goal {
            Goal::Max => matches!(why, StopReason::NothingHelps | StopReason::GoalMet),
            Goal::Rate(_) | Goal::Objectives => why == StopReason::GoalMet,
        };
        self.record_end(target, goal_met, state)?;
        Ok(TuneEnding { goal_met, state, valid: why != StopReason::Invalid })
    }
}

impl Tuning {
    /// What remains after an error is the baseline; else the best that was verified.
    fn record_end(&self, target: &mut dyn TuningTarget, goal_met: bool, state: TuneState) -> Result<()> {
        let best_load = if state == TuneState::Reverted { self.baseline.load } else { self.best.load };
        let baseline_load = self.baseline.load;
        target.record(EventBody::TuneEnd { baseline_load, best_load, last_load: best_load, goal_met, state })
    }
}

/// Changes that no target can make, as a person needs to know them.
fn manual_change(changes: &[SettingChange], why: &str, hint: Option<&str>) -> String {
    let changes: Vec<_> =
        changes.iter().map(|change| format!("{} {}", change.setting.full_name(), change.to)).collect();
    let hint = hint.map(|hint| format!("; {}", hint.replace('\n', "; "))).unwrap_or_default();
    format!("manual change: {}: {why}{hint}", changes.join(", "))
}

fn stop_note(why: StopReason) -> Option<&'static str> {
    match why {
        StopReason::GoalMet | StopReason::NothingHelps | StopReason::Planned => None,
        StopReason::Refused => Some("what would help next could not be carried out: see `not done`"),
        StopReason::Braked => {
            Some("every load that was tried did harm and was stopped: nothing could be measured or changed")
        }
        StopReason::Declined => Some("the change was declined; nothing of it was done"),
        StopReason::Proposed => Some(
            "what helps next is proposed, for you or in files that others manage; --export writes it as files",
        ),
        StopReason::OthersPresent => Some(live_traffic_policy::ENDED),
        StopReason::NeedsRestart => Some("the next change needs a restart: --allow-restart permits it"),
        StopReason::OutOfTime => Some("the time budget is used up: --budget gives more"),
        StopReason::Invalid => {
            Some("the load generator was the bottleneck: the figures are not the server's")
        }
    }
}

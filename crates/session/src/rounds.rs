//! The rounds of tuning: measure, diagnose, choose, change, verify, keep or put back, until the goal is met or
//! nothing helps. Decides only; everything that is done goes through the [`Stand`].

use crate::careful;
use crate::stand::{Measured, Stand};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::tuning::planner::{Choice, Policy, Stop, choose};
use webdyno_analysis::tuning::verdict::{Comparison, judge};
use webdyno_model::change::{ApplyClass, Managed, Preparation, RenderedPlan, SettingChange};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::event::EventBody;
use webdyno_model::number::significant;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::{Goal, Round, TuneState, Verdict};
use webdyno_model::{ErrorKind, Result, UserError};

/// More rounds than any server needs: a bound on everything.
const ROUNDS_MAX: u32 = 20;

/// What tuning may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
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
pub struct Ended {
    /// Whether the goal was met.
    pub goal_met: bool,
    /// What became of the server.
    pub state: TuneState,
    /// Whether the last measurement can be believed.
    pub valid: bool,
}

/// Tunes until the goal is met or nothing helps. On an error everything is put back before it is returned.
pub fn tune(stand: &mut dyn Stand, options: Options) -> Result<Ended> {
    let baseline = stand.measure(Purpose::Baseline)?;
    let mut session = Session {
        options,
        baseline_load: baseline.load,
        best: baseline,
        tried: vec![],
        n: 0,
        ordered: false,
        failed: false,
        kept: false,
        refused: None,
        restart_refused: false,
        proposed: vec![],
    };
    let why = loop {
        match session.round(stand) {
            Ok(Next::Again) => {}
            Ok(Next::Stop(why)) => break why,
            Err(error) => return Err(session.abandon(stand, error)),
        }
    };
    let ends_for_that = matches!(why, Why::NothingHelps | Why::OthersPresent);
    if let Some(refusal) = session.refused.take().filter(|_| !session.kept && ends_for_that) {
        return Err(session.abandon(stand, refusal));
    }
    if let Err(error) = session.settle(stand) {
        return Err(session.abandon(stand, error));
    }
    session.end(stand, why)
}

struct Session {
    options: Options,
    baseline_load: u32,
    /// The measurement of what is in force.
    best: Measured,
    tried: Vec<Vec<SettingChange>>,
    n: u32,
    /// Whether a change was ever ordered: whatever became of it, something of it may be there.
    ordered: bool,
    /// Whether one failed.
    failed: bool,
    /// Whether a change is in force that was verified.
    kept: bool,
    /// Why a remedy could not be carried out; another one may be.
    refused: Option<UserError>,
    /// Whether a remedy was left out because it needs a restart.
    restart_refused: bool,
    /// Findings whose remedy others would have to carry out: the files are theirs.
    proposed: Vec<String>,
}

enum Next {
    Again,
    Stop(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    GoalMet,
    NothingHelps,
    NeedsRestart,
    Proposed,
    Planned,
    OutOfTime,
    Invalid,
    Declined,
    Braked,
    OthersPresent,
}

impl Session {
    fn round(&mut self, stand: &mut dyn Stand) -> Result<Next> {
        let diagnosis = diagnose(&self.best.measurement)?;
        if let Some(why) = self.is_done(&diagnosis) {
            return Ok(Next::Stop(why));
        }
        let policy = Policy { allow_restart: self.options.allow_restart || !self.options.apply };
        let choice = match choose(&diagnosis, &self.tried, policy) {
            Ok(choice) => choice,
            Err(Stop::NoRemedy | Stop::AllTried) if self.restart_refused => {
                return Ok(Next::Stop(Why::NeedsRestart));
            }
            Err(Stop::NoRemedy | Stop::AllTried) if !self.proposed.is_empty() => {
                return Ok(Next::Stop(Why::Proposed));
            }
            Err(Stop::NoRemedy | Stop::AllTried) => return Ok(Next::Stop(Why::NothingHelps)),
        };
        if self.n >= ROUNDS_MAX || stand.elapsed_us() > self.options.budget_us {
            return Ok(Next::Stop(Why::OutOfTime));
        }
        let changes = choice.remedy.setting_changes();
        self.tried.push(changes.clone());
        let plan = match stand.prepare(&changes) {
            Ok(Preparation::Plan(plan)) => *plan,
            Ok(Preparation::NotPreparable { why, hint }) => {
                let text = manual_change(&changes, &why, hint.as_deref());
                stand.record(EventBody::Note { text })?;
                return Ok(Next::Again);
            }
            Err(error) => return self.refuse(stand, error),
        };
        if choice.remedy.class == ApplyClass::Restart && !policy.allow_restart {
            self.restart_refused = true;
            return Ok(Next::Again);
        }
        if !plan.managed.is_empty() && self.proposed.contains(&choice.finding.id) {
            // The best remedy is proposed already; a lesser one in the same hands is no help.
            return Ok(Next::Again);
        }
        self.n += 1;
        let (finding, changes, diff) =
            (Box::new(choice.finding.clone()), plan.changes.clone(), plan.diff.clone());
        stand.record(EventBody::Planned { n: self.n, finding, changes, diff })?;
        if !self.options.apply {
            let planned = self.describe(&choice, &plan);
            stand.export(&plan, &planned);
            self.record_round(stand, planned, None)?;
            return Ok(Next::Stop(Why::Planned));
        }
        if !plan.managed.is_empty() {
            return self.propose(stand, &choice, &plan);
        }
        if plan.class == ApplyClass::Restart && !self.options.allow_restart {
            self.restart_refused = true;
            return Ok(Next::Again);
        }
        self.change_and_verify(stand, &choice, &plan)
    }

    fn is_done(&self, diagnosis: &Diagnosis) -> Option<Why> {
        if self.best.measurement.brake.is_some() {
            // Even the lowest load did harm: there is nothing that a change could be compared with.
            return Some(Why::Braked);
        }
        let run = diagnosis.run.as_ref();
        let rate = run.and_then(|run| run.rate).unwrap_or(0.0);
        let objectives_met = run.is_some_and(|run| run.objectives.iter().all(|result| result.met));
        if limits::by_id(&diagnosis.bottleneck).is_some_and(|limit| limit.invalidates_run) {
            Some(Why::Invalid)
        } else {
            (self.options.goal.met_by(rate) && objectives_met).then_some(Why::GoalMet)
        }
    }

    /// A remedy that cannot be carried out is no end: nothing of it stayed, and another one may help. That somebody
    /// interrupted it is one.
    fn refuse(&mut self, stand: &mut dyn Stand, error: UserError) -> Result<Next> {
        if error.kind == ErrorKind::Interrupted {
            return Err(error);
        }
        // The hint may say that something could not be put back, or was left to the operator.
        let hint =
            error.hint.as_ref().map(|hint| format!("; {}", hint.replace('\n', "; "))).unwrap_or_default();
        stand.record(EventBody::Note { text: format!("not done: {}{hint}", error.message) })?;
        self.refused = Some(error);
        Ok(Next::Again)
    }

    /// Leaves a plan to those whose files it would change.
    fn propose(&mut self, stand: &mut dyn Stand, choice: &Choice, plan: &RenderedPlan) -> Result<Next> {
        for Managed { path, by, why } in &plan.managed {
            let text = format!("{path} is managed by {by} ({why}): the change is proposed, not written");
            stand.record(EventBody::Note { text })?;
        }
        let proposed = self.describe(choice, plan);
        stand.export(plan, &proposed);
        self.record_round(stand, proposed, None)?;
        self.proposed.push(choice.finding.id.clone());
        Ok(Next::Again)
    }

    /// Applies a plan, measures afresh, and keeps the change only if it is better beyond doubt.
    fn change_and_verify(
        &mut self,
        stand: &mut dyn Stand,
        choice: &Choice,
        plan: &RenderedPlan,
    ) -> Result<Next> {
        self.ordered = true;
        let in_force = match stand.apply(plan, self.options.allow_restart) {
            Ok(Some(in_force)) => in_force,
            Ok(None) => return Ok(Next::Stop(Why::Declined)),
            Err(error) => {
                self.failed = true;
                let next = self.refuse(stand, error)?;
                // It may have been in force for a moment, and was put back: the next try would be one more for others.
                return Ok(if stand.is_live() { Next::Stop(Why::OthersPresent) } else { next });
            }
        };
        let (after, comparison) = self.verify(stand)?;
        let kept = comparison.verdict == Verdict::Better;
        let round = self.verified(self.describe(choice, plan), &after, &comparison, in_force.outage_us);
        let round = Round { kept, ..round };
        match kept {
            true => stand.export(plan, &round),
            false => stand.revert(in_force.mark)?,
        }
        self.record_round(stand, round, Some(after.load))?;
        if kept {
            self.kept = true;
            self.best = after;
        }
        let ends = careful::ends_tuning(kept, stand.is_live());
        Ok(if ends { Next::Stop(Why::OthersPresent) } else { Next::Again })
    }

    /// Puts everything back after an error and says in the log what became of the server. What could not be put back
    /// counts more than the error that came before.
    fn abandon(&self, stand: &mut dyn Stand, error: UserError) -> UserError {
        let reverted = if self.ordered { stand.revert(0) } else { Ok(()) };
        let state = if reverted.is_ok() { TuneState::Reverted } else { TuneState::Applied };
        // Whether this can be written counts least.
        drop(self.record_end(stand, false, state));
        reverted.err().unwrap_or(error)
    }

    /// Measures what is in force now against the best so far; once more with the same setting when the first look is not
    /// conclusive (a server that had not settled, or noise) and there is time for it.
    fn verify(&self, stand: &mut dyn Stand) -> Result<(Measured, Comparison)> {
        let look = |stand: &mut dyn Stand| {
            let after = stand.verify(&self.best.measurement)?;
            let comparison = judge(&self.best.measurement, &after.measurement)?;
            if let Some(text) = careful::stopped(&self.best.measurement, &after.measurement) {
                stand.record(EventBody::Note { text })?;
            }
            Ok((after, comparison))
        };
        let first = look(stand)?;
        let again = careful::looks_again(first.1.verdict, stand.is_live());
        if again && stand.elapsed_us() <= self.options.budget_us { look(stand) } else { Ok(first) }
    }

    fn describe(&self, choice: &Choice, plan: &RenderedPlan) -> Round {
        Round {
            n: self.n,
            finding: choice.finding.id.clone(),
            summary: choice.finding.summary.clone(),
            changes: plan.changes.clone(),
            risk: Some(choice.remedy.risk.clone()),
            predicted: choice.remedy.predicted.clone(),
            before: mean(&self.best.measurement.measured_rates()).map(|rate| significant(rate, 6)),
            diff: plan.diff.clone(),
            managed: plan.managed.clone(),
            ..Round::default()
        }
    }

    fn verified(
        &self,
        round: Round,
        after: &Measured,
        comparison: &Comparison,
        outage_us: Option<u64>,
    ) -> Round {
        Round {
            after: mean(&after.measurement.measured_rates()).map(|rate| significant(rate, 6)),
            ratio: comparison.ratio.map(|ratio| significant(ratio.ratio, 4)),
            ci95: comparison.ratio.map(|ratio| ratio.ci95.map(|bound| significant(bound, 4))),
            verdict: Some(comparison.verdict),
            brake: after.measurement.brake.clone(),
            outage_us,
            ..round
        }
    }

    fn record_round(&self, stand: &mut dyn Stand, round: Round, load_after: Option<u32>) -> Result<()> {
        stand.record(EventBody::RoundEnd { round: Box::new(round), load_before: self.best.load, load_after })
    }

    /// What was verified stays. Without that nothing does: a change that failed may have left something behind.
    fn settle(&self, stand: &mut dyn Stand) -> Result<()> {
        match (self.kept, self.failed) {
            (true, _) => stand.keep(),
            (false, true) => stand.revert(0),
            (false, false) => Ok(()),
        }
    }

    fn end(self, stand: &mut dyn Stand, why: Why) -> Result<Ended> {
        if let Some(text) = note(why) {
            stand.record(EventBody::Note { text: text.into() })?;
        }
        let state = match (self.options.apply, self.kept) {
            (false, _) => TuneState::Planned,
            (true, true) => TuneState::Applied,
            (true, false) => TuneState::Reverted,
        };
        // `max` has no figure to meet: it is done when nothing more helps.
        let goal_met = match self.options.goal {
            Goal::Max => matches!(why, Why::NothingHelps | Why::GoalMet),
            Goal::Rate(_) => why == Why::GoalMet,
        };
        self.record_end(stand, goal_met, state)?;
        Ok(Ended { goal_met, state, valid: why != Why::Invalid })
    }
}

impl Session {
    /// What remains after an error is the baseline; else the best that was verified.
    fn record_end(&self, stand: &mut dyn Stand, goal_met: bool, state: TuneState) -> Result<()> {
        let best_load = if state == TuneState::Reverted { self.baseline_load } else { self.best.load };
        let baseline_load = self.baseline_load;
        stand.record(EventBody::TuneEnd { baseline_load, best_load, last_load: best_load, goal_met, state })
    }
}

/// Changes that no target can make, as a person needs to know them.
fn manual_change(changes: &[SettingChange], why: &str, hint: Option<&str>) -> String {
    let changes: Vec<_> =
        changes.iter().map(|change| format!("{} {}", change.setting.full_name(), change.to)).collect();
    let hint = hint.map(|hint| format!("; {}", hint.replace('\n', "; "))).unwrap_or_default();
    format!("manual change: {}: {why}{hint}", changes.join(", "))
}

fn note(why: Why) -> Option<&'static str> {
    match why {
        Why::GoalMet | Why::NothingHelps | Why::Planned => None,
        Why::Braked => {
            Some("every load that was tried did harm and was stopped: nothing could be measured or changed")
        }
        Why::Declined => Some("the change was declined; nothing of it was done"),
        Why::Proposed => Some(
            "what helps next is in files that others manage: take it over there; --export writes it as files",
        ),
        Why::OthersPresent => Some(careful::ENDED),
        Why::NeedsRestart => Some("the next change needs a restart: --allow-restart permits it"),
        Why::OutOfTime => Some("the time budget is used up: --budget gives more"),
        Why::Invalid => Some("the load generator was the bottleneck: the figures are not the server's"),
    }
}

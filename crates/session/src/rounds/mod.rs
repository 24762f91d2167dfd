//! The rounds of tuning: measure, diagnose, choose, change, verify, keep or put back, until the goal is met or
//! nothing helps. Decides only; everything that is done goes through the [`TuningTarget`].

mod applying;
mod hidden;
mod manual;
mod pairs;
mod search;
mod steps;
mod verifying;

use crate::live_traffic_policy;
use crate::tuning_target::{LoadMeasurement, TuningTarget};
use hidden::HiddenGain;
use steps::{export, merged};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_analysis::tuning::planner::{RemedyChoice, TriedRemedy, TuningPolicy, choose_remedy};
use webdyno_analysis::tuning::verdict::{judge, judge_pairs};
use webdyno_model::change::{ApplyClass, RenderedPlan};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::{Goal, Round, TuneState, Verdict};
use webdyno_model::{Result, UserError};

/// More rounds than any server needs: a bound on everything.
const ROUNDS_MAX: u32 = 20;

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
    let mut session = Tuning::from_baseline(options, target.measure(Purpose::Baseline)?);
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
    let why = match session.search(target, why).and_then(|()| session.confirm(target, why)) {
        Ok(why) => why,
        Err(error) => return Err(session.revert_after_error(target, error)),
    };
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
    tried: Vec<TriedRemedy>,
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
    /// A change that stays in force although it is not better, as the next limit may hide what it brings.
    hidden: Option<HiddenGain>,
    /// Findings whose remedy others would have to carry out: the files are theirs, or the decision.
    proposed: Vec<String>,
    /// Findings that a person must lift, of which it was told what to do.
    left: Vec<String>,
}

enum NextStep {
    Again,
    Stop(StopReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopReason {
    GoalMet,
    /// Once, and not when all changes together were measured afresh.
    GoalMetOnce,
    /// At a lower load than the one that it is about.
    GoalMetLower,
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
    /// A session that has measured the original, and nothing else.
    fn from_baseline(options: TuneOptions, baseline: LoadMeasurement) -> Self {
        Self {
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
            hidden: None,
            proposed: vec![],
            left: vec![],
        }
    }

    fn round(&mut self, target: &mut dyn TuningTarget) -> Result<NextStep> {
        let mut hidden = self.hidden.take();
        let next = self.round_behind(target, &mut hidden)?;
        // Nothing was lifted behind it: it does not stay for that.
        if let Some(left) = hidden {
            target.revert(left.in_force.mark)?;
        }
        Ok(next)
    }

    fn round_behind(
        &mut self,
        target: &mut dyn TuningTarget,
        hidden: &mut Option<HiddenGain>,
    ) -> Result<NextStep> {
        let choice = match hidden {
            Some(hidden) => match self.limit_behind(hidden)? {
                Some(behind) => behind,
                None => return Ok(NextStep::Again),
            },
            None => match self.choose(target)? {
                Ok(choice) => choice,
                Err(why) => return Ok(NextStep::Stop(why)),
            },
        };
        if self.n >= ROUNDS_MAX || target.elapsed_us() > self.options.budget_us {
            return Ok(NextStep::Stop(StopReason::OutOfTime));
        }
        self.note_left(target, &choice)?;
        let changes = choice.remedy.setting_changes();
        self.tried.push(TriedRemedy { changes: changes.clone(), was_measured: false, was_kept: false });
        let steps = match self.prepare_all(target, &changes)? {
            Ok(steps) => steps,
            Err(next) => return Ok(next),
        };
        self.carry_out(target, choice, steps, hidden)
    }

    /// The remedy to try next, or why there is none.
    fn choose(&self, target: &mut dyn TuningTarget) -> Result<std::result::Result<RemedyChoice, StopReason>> {
        let diagnosis = diagnose(&self.best.measurement)?;
        let is_harmed = self.best.measurement.harm_guard_trip.is_some();
        if is_harmed && self.is_harm_final(&diagnosis, target) {
            return Ok(Err(StopReason::Braked));
        }
        if let Some(why) = self.stop_reason(&diagnosis).filter(|_| !is_harmed) {
            return Ok(Err(why));
        }
        let allow_restart = self.options.allow_restart || !self.options.apply;
        let policy = TuningPolicy { allow_restart, first_only: is_harmed };
        let why_not = match self.proposed.is_empty() {
            _ if self.restart_refused => StopReason::NeedsRestart,
            true => StopReason::NothingHelps,
            false => StopReason::Proposed,
        };
        Ok(choose_remedy(&diagnosis, &self.tried, policy).ok_or(why_not))
    }

    /// Shows a plan, and makes and verifies its change, or leaves it to others.
    fn carry_out(
        &mut self,
        target: &mut dyn TuningTarget,
        choice: RemedyChoice,
        steps: Vec<RenderedPlan>,
        hidden: &mut Option<HiddenGain>,
    ) -> Result<NextStep> {
        let plan = merged(hidden.iter().flat_map(|hidden| &hidden.steps).chain(&steps));
        let needs_restart = choice.remedy.class.max(plan.class) == ApplyClass::Restart;
        if choice.remedy.class == ApplyClass::Restart && self.options.apply && !self.options.allow_restart {
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
        if needs_restart && !self.options.allow_restart {
            self.restart_refused = true;
            return Ok(NextStep::Again);
        }
        self.change_and_verify(target, choice, (&plan, steps), hidden)
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

    fn stop_reason(&self, diagnosis: &Diagnosis) -> Option<StopReason> {
        let run = diagnosis.run.as_ref();
        let rate = run.and_then(|run| run.rate).unwrap_or(0.0);
        let objectives_met = run.is_some_and(|run| run.objectives.iter().all(|result| result.met));
        if limits::by_id(&diagnosis.bottleneck).is_some_and(|limit| limit.invalidates_run) {
            Some(StopReason::Invalid)
        } else {
            // A rate is one whatever it took; objectives are about the load that was requested.
            let met = match self.is_lowered && self.options.goal == Goal::Objectives {
                true => StopReason::GoalMetLower,
                false => StopReason::GoalMet,
            };
            (self.options.goal.is_met_by(rate) && objectives_met).then_some(met)
        }
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

    /// Measures what several rounds came to afresh: each was compared with the one before it only, and the best figure of many is
    /// flattered by chance. Where the sum is worse than the original, or twice less without being clear, nothing of it stays. Not with others there, who would
    /// bear one more load. Gives why tuning ends: a goal that was met before this is met only if it is so now.
    fn confirm(&mut self, target: &mut dyn TuningTarget, why: StopReason) -> Result<StopReason> {
        let is_over = matches!(why, StopReason::Invalid | StopReason::Braked | StopReason::OutOfTime);
        let is_late = target.elapsed_us() > self.options.budget_us;
        if !self.kept || self.n < 2 || is_over || is_late || target.has_live_traffic() {
            return Ok(why);
        }
        let mut after = target.measure(Purpose::Verify)?;
        let mut comparison = judge(&self.baseline.measurement, &after.measurement)?;
        if comparison.verdict == Verdict::Inconclusive {
            let first = std::mem::replace(&mut after, target.measure(Purpose::Verify)?);
            comparison = judge(&self.baseline.measurement, &after.measurement)?;
            // What neither of them tells alone, both may.
            if comparison.verdict == Verdict::Inconclusive {
                let both = [&first, &after].map(|load| (&self.baseline.measurement, &load.measurement));
                comparison.verdict = judge_pairs(&both)?.verdict;
            }
        }
        let is_less = comparison.ratio.is_some_and(|ratio| ratio.ratio < 1.0);
        let mut met_now = None;
        if comparison.verdict == Verdict::Worse || (comparison.verdict == Verdict::Inconclusive && is_less) {
            let text =
                "all changes together, measured afresh, were worse than the original: they were reverted";
            target.record(EventBody::Note { text: text.into() })?;
            (self.kept, self.failed) = (false, true);
        } else if after.measurement.harm_guard_trip.is_none() {
            self.best = after;
            met_now = self.stop_reason(&diagnose(&self.best.measurement)?);
        }
        Ok(match why {
            StopReason::GoalMet => met_now.unwrap_or(StopReason::GoalMetOnce),
            _ => why,
        })
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

fn stop_note(why: StopReason) -> Option<&'static str> {
    match why {
        StopReason::GoalMet | StopReason::NothingHelps | StopReason::Planned => None,
        StopReason::GoalMetOnce => {
            Some("the goal was met once, and not when all changes together were measured afresh")
        }
        StopReason::GoalMetLower => Some(
            "the load that was requested did harm and was lowered: that the objectives are met at less is not the goal",
        ),
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

#[cfg(test)]
mod tests {
    use super::verifying::{Looks, VerifiedChange};
    use super::*;
    use crate::tuning_target::AppliedChange;
    use webdyno_analysis::measurement::Measurement;
    use webdyno_analysis::tuning::verdict::Comparison;
    use webdyno_model::change::SettingChange;
    use webdyno_model::run::RunReport;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    fn load(load: u32) -> LoadMeasurement {
        LoadMeasurement { load, measurement: Measurement::default() }
    }

    fn session(goal: Goal) -> Tuning {
        let options = TuneOptions { goal, apply: true, allow_restart: true, budget_us: 1 };
        Tuning::from_baseline(options, load(1))
    }

    #[test]
    fn objectives_that_are_met_at_a_lower_load_are_not_the_goal() {
        let mut diagnosis = diagnose(&Measurement::default()).unwrap();
        diagnosis.bottleneck = "healthy".into();
        diagnosis.run = Some(RunReport { rate: Some(100.0), ..RunReport::default() });
        for (goal, is_lowered, expected) in [
            (Goal::Objectives, false, Some(StopReason::GoalMet)),
            (Goal::Objectives, true, Some(StopReason::GoalMetLower)),
            (Goal::Rate(90.0), true, Some(StopReason::GoalMet)),
            (Goal::Rate(110.0), true, None),
        ] {
            let session = Tuning { is_lowered, ..session(goal) };
            assert_eq!(session.stop_reason(&diagnosis), expected, "{goal:?} {is_lowered}");
        }
    }

    #[test]
    fn what_was_kept_together_with_the_next_change_has_helped_as_well() {
        let change = |name: &str| SettingChange {
            setting: SettingId::of_service("apache", name),
            to: SettingValue::Integer(9),
        };
        let tried =
            |name: &str| TriedRemedy { changes: vec![change(name)], was_measured: true, was_kept: false };
        for kept in [true, false] {
            let mut session = session(Goal::Max);
            session.tried = vec![tried("Other"), tried("Hidden"), tried("Next")];
            let comparison = Comparison { ratio: None, verdict: Verdict::Better, noise_floor: 0.03 };
            let in_force = AppliedChange { mark: 1, outage_us: None };
            let verified =
                VerifiedChange::measured_once(Looks { after: load(2), comparison, count: 1 }, in_force);
            session.take_over(kept, &[change("Next"), change("Hidden")], verified);
            let were_kept: Vec<bool> = session.tried.iter().map(|tried| tried.was_kept).collect();
            assert_eq!(were_kept, [false, kept, kept]);
        }
    }
}

//! The rounds of tuning: measure, diagnose, choose, change, verify, keep or put back, until the goal is met or
//! nothing helps. Decides only; everything that is done goes through the [`Stand`].

use crate::stand::{Measured, Stand};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::planner::{Choice, Policy, Stop, choose};
use webdyno_analysis::rules::generator_saturated;
use webdyno_analysis::stats::mean;
use webdyno_analysis::verdict::{Comparison, compare};
use webdyno_model::Result;
use webdyno_model::change::{RenderedPlan, Wish};
use webdyno_model::event::{EventBody, Purpose};
use webdyno_model::number::significant;
use webdyno_model::tune::{Goal, Round, TuneState, Verdict};

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

/// Tunes until the goal is met or nothing helps. On an error the caller must drop the stand without keeping: then
/// everything is put back.
pub fn tune(stand: &mut dyn Stand, options: Options) -> Result<Ended> {
    let baseline = stand.measure(Purpose::Baseline)?;
    let mut session =
        Session { options, baseline_load: baseline.load, best: baseline, tried: vec![], n: 0, kept: false };
    let why = loop {
        match session.round(stand) {
            Ok(Next::Again) => {}
            Ok(Next::Stop(why)) => break why,
            Err(error) => {
                // The session's report has to say what became of the server: nothing was kept. The error counts more
                // than whether this could be written.
                drop(session.record_end(stand, false, TuneState::Reverted));
                return Err(error);
            }
        }
    };
    session.end(stand, why)
}

struct Session {
    options: Options,
    baseline_load: u32,
    /// The measurement of what is in force.
    best: Measured,
    tried: Vec<Vec<Wish>>,
    n: u32,
    kept: bool,
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
    Planned,
    OutOfTime,
    Invalid,
}

impl Session {
    fn round(&mut self, stand: &mut dyn Stand) -> Result<Next> {
        let diagnosis = diagnose(&self.best.measurement)?;
        let rate = diagnosis.run.as_ref().and_then(|run| run.rate).unwrap_or(0.0);
        let objectives_met =
            diagnosis.run.as_ref().is_some_and(|run| run.objectives.iter().all(|result| result.met));
        if diagnosis.bottleneck == generator_saturated::ID {
            return Ok(Next::Stop(Why::Invalid));
        }
        if self.options.goal.met_by(rate) && objectives_met {
            return Ok(Next::Stop(Why::GoalMet));
        }
        let policy = Policy { allow_restart: self.options.allow_restart || !self.options.apply };
        let choice = match choose(&diagnosis, &self.tried, policy) {
            Ok(choice) => choice,
            Err(Stop::NeedsRestart) => return Ok(Next::Stop(Why::NeedsRestart)),
            Err(Stop::NoRemedy | Stop::AllTried) => return Ok(Next::Stop(Why::NothingHelps)),
        };
        if self.n >= ROUNDS_MAX || stand.elapsed_us() > self.options.budget_us {
            return Ok(Next::Stop(Why::OutOfTime));
        }
        self.n += 1;
        self.tried.push(choice.remedy.wishes());
        let plan = stand.prepare(&choice.remedy.wishes())?;
        let (finding, changes, diff) =
            (Box::new(choice.finding.clone()), plan.changes.clone(), plan.diff.clone());
        stand.record(EventBody::Planned { n: self.n, finding, changes, diff })?;
        if !self.options.apply {
            let planned = self.describe(&choice, &plan);
            self.record_round(stand, planned, None)?;
            return Ok(Next::Stop(Why::Planned));
        }
        self.change_and_verify(stand, &choice, &plan)?;
        Ok(Next::Again)
    }

    /// Applies a plan, measures afresh, and keeps the change only if it is better beyond doubt.
    fn change_and_verify(
        &mut self,
        stand: &mut dyn Stand,
        choice: &Choice,
        plan: &RenderedPlan,
    ) -> Result<()> {
        let in_force = stand.apply(plan, self.options.allow_restart)?;
        let (after, comparison) = self.verify(stand)?;
        let kept = comparison.verdict == Verdict::Better;
        let round = self.verified(self.describe(choice, plan), &after, &comparison, in_force.outage_us);
        if !kept {
            stand.revert(in_force.mark)?;
        }
        self.record_round(stand, Round { kept, ..round }, Some(after.load))?;
        if kept {
            self.kept = true;
            self.best = after;
        }
        Ok(())
    }

    /// Measures what is in force now against the best so far; once more when the first look is not conclusive (a
    /// server that had not settled, or noise).
    fn verify(&self, stand: &mut dyn Stand) -> Result<(Measured, Comparison)> {
        let look = |stand: &mut dyn Stand| {
            let after = stand.measure(Purpose::Verify)?;
            let comparison =
                compare(&self.best.measurement.measured_rates(), &after.measurement.measured_rates());
            Ok((after, comparison))
        };
        let first = look(stand)?;
        let again = first.1.verdict == Verdict::Inconclusive;
        if again && stand.elapsed_us() <= self.options.budget_us { look(stand) } else { Ok(first) }
    }

    fn describe(&self, choice: &Choice, plan: &RenderedPlan) -> Round {
        Round {
            n: self.n,
            finding: choice.finding.id.clone(),
            summary: choice.finding.summary.clone(),
            changes: plan.changes.clone(),
            predicted: choice.remedy.predicted.clone(),
            before: mean(&self.best.measurement.measured_rates()).map(|rate| significant(rate, 6)),
            after: None,
            ratio: None,
            ci95: None,
            verdict: None,
            kept: false,
            outage_us: None,
            diff: plan.diff.clone(),
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
            outage_us,
            ..round
        }
    }

    fn record_round(&self, stand: &mut dyn Stand, round: Round, load_after: Option<u32>) -> Result<()> {
        stand.record(EventBody::RoundEnd { round: Box::new(round), load_before: self.best.load, load_after })
    }

    fn end(self, stand: &mut dyn Stand, why: Why) -> Result<Ended> {
        if let Some(text) = note(why) {
            stand.record(EventBody::Note { text: text.into() })?;
        }
        if self.kept {
            stand.keep()?;
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

fn note(why: Why) -> Option<&'static str> {
    match why {
        Why::GoalMet | Why::NothingHelps | Why::Planned => None,
        Why::NeedsRestart => Some("the next change needs a restart: --allow-restart permits it"),
        Why::OutOfTime => Some("the time budget is used up: --budget gives more"),
        Why::Invalid => Some("the load generator was the bottleneck: the figures are not the server's"),
    }
}

//! The search beyond faults, at the end of a session whose goal is `max`: each value is a round of its own, put in force, measured
//! and kept or put back like any other change, so that whatever ends the session leaves the original or what was verified.

use super::steps::{export, merged};
use super::verifying::VerifiedChange;
use super::{NextStep, ROUNDS_MAX, StopReason, Tuning};
use crate::tuning_target::{LoadMeasurement, TuningTarget};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits::search_range::SearchRange;
use webdyno_analysis::measurement::statistics::mean;
use webdyno_analysis::run_report::run_report;
use webdyno_analysis::tuning::planner::RemedyChoice;
use webdyno_analysis::tuning::search::{PLATEAU_FRACTION, SearchStep, next_value, range};
use webdyno_analysis::tuning::verdict::{is_as_good, noise_floor};
use webdyno_model::Result;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::event::EventBody;
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::tune::{Goal, Round, SearchPoint, Verdict};

/// No value is tried when less than this share of the budget is left: the sum is to be confirmed, too.
const BUDGET_LEFT_MIN: f64 = 0.2;

/// A search under way.
struct Search {
    range: SearchRange,
    /// The finding that it starts from.
    finding: Finding,
    steps: Vec<SearchStep>,
    /// What was measured, the value at the start first.
    points: Vec<SearchPoint>,
    in_force: i64,
    /// Rates within this share of the best are as good.
    tolerance: f64,
}

impl Tuning {
    /// Looks for a better number of requests at once, where there may be one and nobody else is there.
    pub(super) fn search(&mut self, target: &mut dyn TuningTarget, why: StopReason) -> Result<()> {
        let is_wanted =
            self.options.apply && self.options.goal == Goal::Max && why == StopReason::NothingHelps;
        if !is_wanted || !self.has_time_to_search(target) || self.best.measurement.harm_guard_trip.is_some() {
            return Ok(());
        }
        let Some(range) = range(&self.best.measurement)? else { return Ok(()) };
        let Some(finding) = diagnose(&self.best.measurement)?.findings.into_iter().next() else {
            return Ok(());
        };
        let (now, rates) = (range.now as i64, self.best.measurement.measured_rates());
        let mut search = Search {
            finding,
            steps: vec![],
            points: vec![point(now, &self.best)?],
            in_force: now,
            tolerance: noise_floor(&rates).max(PLATEAU_FRACTION),
            range,
        };
        while let Some(value) = next_value(&search.range, &search.steps) {
            if !self.has_time_to_search(target) || !self.try_value(target, &mut search, value)? {
                break;
            }
        }
        if search.steps.is_empty() {
            Ok(())
        } else {
            target.record(EventBody::Note { text: search.summary() })
        }
    }

    fn has_time_to_search(&self, target: &dyn TuningTarget) -> bool {
        let until_us = (1.0 - BUDGET_LEFT_MIN) * self.options.budget_us as f64;
        self.n < ROUNDS_MAX && (target.elapsed_us() as f64) < until_us && !target.has_live_traffic()
    }

    /// Tries a value. Whether the search can go on.
    fn try_value(&mut self, target: &mut dyn TuningTarget, search: &mut Search, value: i64) -> Result<bool> {
        let choice = search.choice(value);
        let Ok(steps) = self.prepare_all(target, &choice.remedy.setting_changes())? else { return Ok(false) };
        let plan = merged(steps.iter());
        // Nothing is stopped to try a value, and what others manage is theirs.
        if plan.class > ApplyClass::Reload {
            return Ok(false);
        }
        self.n += 1;
        let (finding, changes, diff) =
            (Box::new(choice.finding.clone()), plan.changes.clone(), plan.diff.clone());
        target.record(EventBody::Planned { n: self.n, finding, changes, diff })?;
        let in_force = match self.put_in_force(target, &steps)? {
            Ok(in_force) => in_force,
            Err(NextStep::Again | NextStep::Stop(_)) => return Ok(false),
        };
        let looks = self.verify(target, &self.best.measurement, true)?;
        let (after, comparison) = (&looks.after, looks.comparison);
        search.points.push(point(value, after)?);
        let as_good = search.has_gained()
            && value < search.in_force
            && is_as_good(
                search.rate_on_plateau(),
                (&self.best.measurement, &after.measurement),
                &comparison,
            )?;
        let kept = comparison.verdict == Verdict::Better || as_good;
        search.steps.push(SearchStep { value, verdict: comparison.verdict, is_kept: kept });
        let outage_us = in_force.outage_us;
        let (mark, verified) = (in_force.mark, VerifiedChange::measured_once(looks, in_force));
        let round = verified.described(self.describe(&choice, &plan));
        let round = Round { kept, outage_us, search: search.points.clone(), ..round };
        match kept {
            true => export(target, &steps, &round),
            false => target.revert(mark)?,
        }
        self.record_round(target, round, Some(verified.after.load))?;
        if kept {
            (self.kept, self.best, search.in_force) = (true, verified.after, value);
        }
        Ok(true)
    }
}

impl Search {
    fn choice(&self, value: i64) -> RemedyChoice {
        let name = self.range.setting.full_name();
        let summary = format!(
            "A search: {name} bounds how much is served at once, and the processors are full of the site's own work, which may be past its peak. \
             {value} is tried after {}.",
            self.points_text()
        );
        let fewer = value < self.in_force;
        let remedy = Remedy {
            setting: self.range.setting.clone(),
            from: Some(SettingValue::Integer(self.in_force)),
            to: Some(SettingValue::Integer(value)),
            class: ApplyClass::Reload,
            risk: if fewer {
                "fewer requests at once: the others wait in the queue, and so do those of slow clients".into()
            } else {
                "more memory, and more requests at once for what stands behind".into()
            },
            why: summary.clone(),
            predicted: None,
            together_with: vec![],
        };
        RemedyChoice { finding: Finding { summary, ..self.finding.clone() }, remedy, left: vec![] }
    }

    fn has_gained(&self) -> bool {
        self.steps.iter().any(|step| step.is_kept)
    }

    /// The least rate of a value that is as good as the best, and better than the one at the start beyond the noise.
    fn rate_on_plateau(&self) -> f64 {
        let best = self.points.iter().filter_map(|point| point.rate).fold(0.0, f64::max);
        let at_start = self.points.first().and_then(|point| point.rate).unwrap_or(0.0);
        (best * (1.0 - self.tolerance)).max(at_start * (1.0 + self.tolerance))
    }

    fn points_text(&self) -> String {
        let text = |point: &SearchPoint| {
            let rate =
                point.rate.map_or("an unknown rate".into(), |rate| format!("{}/s", significant(rate, 4)));
            format!("{} ({rate})", point.value)
        };
        self.points.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    /// What it came to.
    fn summary(&self) -> String {
        let (name, tried) = (self.range.setting.full_name(), self.points_text());
        if self.has_gained() {
            format!(
                "a search over {name} tried {tried}: {} stays, the smallest within {:.0}% of the best rate",
                self.in_force,
                100.0 * self.tolerance
            )
        } else {
            format!("a search over {name} tried {tried}: nothing gave more, and nothing was changed")
        }
    }
}

fn point(value: i64, of: &LoadMeasurement) -> Result<SearchPoint> {
    let rate = mean(&of.measurement.measured_rates()).map(|rate| significant(rate, 6));
    Ok(SearchPoint { value, rate, p99_us: run_report(&of.measurement)?.response_time_us.p99 })
}

//! A change that lifts its limit and brings nothing yet, as the next limit binds at once: the next one is lifted as well, and both are
//! judged together.

use super::Tuning;
use crate::tuning_target::{LoadMeasurement, TuningTarget};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits;
use webdyno_analysis::tuning::planner::{RemedyChoice, TuningPolicy, choose_remedy};
use webdyno_model::Result;
use webdyno_model::change::SettingChange;
use webdyno_model::event::EventBody;

/// A change that was reverted, and the load with it, which another limit bound.
pub(super) struct HiddenGain {
    changes: Vec<SettingChange>,
    with_change: LoadMeasurement,
}

impl Tuning {
    /// What is left of a change that did not help, where the load with it proves another limit that can be lifted: its gain may be
    /// hidden behind that.
    pub(super) fn hidden_gain(
        &self,
        target: &mut dyn TuningTarget,
        choice: &RemedyChoice,
        with_change: &LoadMeasurement,
    ) -> Result<Option<HiddenGain>> {
        let is_harmed = |load: &LoadMeasurement| load.measurement.harm_guard_trip.is_some();
        if is_harmed(with_change) || is_harmed(&self.best) || target.has_live_traffic() {
            return Ok(None);
        }
        let Some(next) = self.next_limit(with_change)? else { return Ok(None) };
        let changes = choice.remedy.setting_changes();
        let is_other = |change: &SettingChange| changes.iter().all(|own| own.setting != change.setting);
        if next.finding.id == choice.finding.id || !next.remedy.setting_changes().iter().all(is_other) {
            return Ok(None);
        }
        let text = format!(
            "with this change {} limits, which may hide what it brings: both are tried together",
            next.finding.id
        );
        target.record(EventBody::Note { text })?;
        Ok(Some(HiddenGain { changes, with_change: with_change.clone() }))
    }

    /// The limit behind a change whose gain it hides, with a remedy that lifts both; `None` where there is no such change.
    pub(super) fn lift_both(&mut self) -> Result<Option<RemedyChoice>> {
        let Some(hidden) = self.hidden.take() else { return Ok(None) };
        let mut next = self.next_limit(&hidden.with_change)?;
        if let Some(next) = &mut next {
            next.remedy.together_with.extend(hidden.changes);
        }
        Ok(next)
    }

    /// The first limit of a load, if it is a proven fault with a remedy that was not tried.
    fn next_limit(&self, load: &LoadMeasurement) -> Result<Option<RemedyChoice>> {
        let diagnosis = diagnose(&load.measurement)?;
        let policy = TuningPolicy { allow_restart: self.options.allow_restart, first_only: true };
        let is_fault = limits::by_id(&diagnosis.bottleneck).is_some_and(|limit| limit.is_fault);
        Ok(choose_remedy(&diagnosis, &self.tried, policy).ok().filter(|_| is_fault))
    }
}

//! A change that lifts its limit and brings nothing yet, as the next limit binds at once: it stays in force, the next one is lifted as
//! well, and both are judged together.

use super::Tuning;
use crate::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::diagnosis::ranking::CAUSE_CONFIDENCE_MIN;
use webdyno_analysis::limits::{self, LimitId};
use webdyno_analysis::tuning::planner::{RemedyChoice, TuningPolicy, choose_remedy};
use webdyno_model::Result;
use webdyno_model::change::{RenderedPlan, SettingChange};
use webdyno_model::event::EventBody;

/// A change that is in force although it is not better yet.
pub(super) struct HiddenGain {
    changes: Vec<SettingChange>,
    /// What was applied, for each target.
    pub(super) steps: Vec<RenderedPlan>,
    /// Names what is to be reverted with it.
    pub(super) in_force: AppliedChange,
    /// The load with it, which another limit bound.
    with_change: LoadMeasurement,
}

impl HiddenGain {
    /// The remedy that lifts the next limit, with what is in force already.
    pub(super) fn joined(&self, mut choice: RemedyChoice) -> RemedyChoice {
        choice.remedy.together_with.extend(self.changes.iter().cloned());
        choice
    }
}

impl Tuning {
    /// Whether the load with a change that is not better proves another limit that can be lifted, behind which its gain may be hidden.
    pub(super) fn hides_gain(
        &self,
        target: &mut dyn TuningTarget,
        choice: &RemedyChoice,
        with_change: &LoadMeasurement,
    ) -> Result<bool> {
        let is_harmed = |load: &LoadMeasurement| load.measurement.harm_guard_trip.is_some();
        if is_harmed(with_change) || is_harmed(&self.best) || target.has_live_traffic() {
            return Ok(false);
        }
        let Some(next) = self.next_limit(with_change)? else { return Ok(false) };
        let changes = choice.remedy.setting_changes();
        let is_other = |change: &SettingChange| changes.iter().all(|own| own.setting != change.setting);
        if next.finding.id == choice.finding.id || !next.remedy.setting_changes().iter().all(is_other) {
            return Ok(false);
        }
        let text = format!(
            "with this change {} limits, which may hide what it brings: it stays until both are judged together",
            next.finding.id
        );
        target.record(EventBody::Note { text })?;
        Ok(true)
    }

    /// Keeps a change in force until the limit behind it is lifted as well.
    pub(super) fn hide(
        &mut self,
        choice: &RemedyChoice,
        (steps, in_force): (&[RenderedPlan], AppliedChange),
        with_change: LoadMeasurement,
    ) {
        let (changes, steps) = (choice.remedy.setting_changes(), steps.to_vec());
        self.hidden = Some(HiddenGain { changes, steps, in_force, with_change });
    }

    /// The limit behind a change whose gain it hides.
    pub(super) fn limit_behind(&self, hidden: &HiddenGain) -> Result<Option<RemedyChoice>> {
        self.next_limit(&hidden.with_change)
    }

    /// The first limit of a load that is a fault and has a remedy that was not tried. That workers are still being started passes; and
    /// a load that filled a table says nothing of its rate, but that the table is full.
    fn next_limit(&self, load: &LoadMeasurement) -> Result<Option<RemedyChoice>> {
        let mut diagnosis = diagnose(&load.measurement)?;
        diagnosis.findings.retain(|finding| {
            let limit = limits::by_id(&finding.id);
            let is_fault = limit.is_some_and(|limit| limit.is_fault && !limit.invalidates_run);
            is_fault && finding.id != LimitId::ApacheSpawnLag && finding.confidence >= CAUSE_CONFIDENCE_MIN
        });
        let policy = TuningPolicy { allow_restart: self.options.allow_restart, first_only: true };
        Ok(choose_remedy(&diagnosis, &self.tried, policy))
    }
}

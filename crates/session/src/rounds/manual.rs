//! What only a person can do, in words: the settings that no target makes, and the limits that they would lift.

use super::{StopReason, Tuning};
use crate::tuning_target::TuningTarget;
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::tuning::planner::RemedyChoice;
use webdyno_model::Result;
use webdyno_model::change::SettingChange;
use webdyno_model::diagnosis::Finding;
use webdyno_model::event::EventBody;

impl Tuning {
    /// Says once of each limit that cannot be lifted from here what a person can do, on which evidence, and with what it goes on.
    pub(super) fn note_left(&mut self, target: &mut dyn TuningTarget, choice: &RemedyChoice) -> Result<()> {
        for finding in &choice.left {
            if self.left.contains(&finding.id) {
                continue;
            }
            self.left.push(finding.id.clone());
            note_by_hand(target, finding)?;
            let text = format!(
                "{} is not lifted by this session: {} It goes on with the next limit that can be lifted: {}",
                finding.id, finding.summary, choice.finding.id
            );
            target.record(EventBody::Note { text })?;
        }
        Ok(())
    }

    /// What would help next and only a person can do, of the first finding: it is why tuning ends here.
    pub(super) fn note_manual_remedies(&self, target: &mut dyn TuningTarget, why: StopReason) -> Result<()> {
        if !matches!(why, StopReason::NothingHelps | StopReason::Refused | StopReason::NeedsRestart) {
            return Ok(());
        }
        let diagnosis = diagnose(&self.best.measurement)?;
        match diagnosis.findings.first() {
            Some(first) if self.left.contains(&first.id) => {
                let text = format!("the first limit is still {}: manual change, see above", first.id);
                target.record(EventBody::Note { text })
            }
            Some(first) => note_by_hand(target, first),
            None => Ok(()),
        }
    }
}

fn note_by_hand(target: &mut dyn TuningTarget, finding: &Finding) -> Result<()> {
    for remedy in finding.remedies.iter().filter(|remedy| remedy.setting_changes().is_empty()) {
        let to = remedy.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
        let text =
            format!("by hand: {}{to}: {}; risk: {}", remedy.setting.full_name(), remedy.why, remedy.risk);
        target.record(EventBody::Note { text })?;
        target.propose(finding, remedy);
    }
    Ok(())
}

/// Changes that no target can make, as a person needs to know them.
pub(super) fn manual_change(changes: &[SettingChange], why: &str, hint: Option<&str>) -> String {
    let changes: Vec<_> =
        changes.iter().map(|change| format!("{} {}", change.setting.full_name(), change.to)).collect();
    let hint = hint.map(|hint| format!("; {}", hint.replace('\n', "; "))).unwrap_or_default();
    format!("manual change: {}: {why}{hint}", changes.join(", "))
}

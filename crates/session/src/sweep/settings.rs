//! The settings of a point: checked before anything is written, put in force, and put back.

use super::SweepKnob;
use crate::tuning_target::TuningTarget;
use webdyno_model::change::{ApplyClass, NOTHING_TO_CHANGE, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;
use webdyno_model::sweep::KnobValue;
use webdyno_model::{ErrorKind, Result, UserError};

/// A setting that is varied.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingKnob {
    /// Which one.
    pub setting: SettingId,
    /// What has to go along.
    pub companion: Option<Companion>,
}

/// Another setting that bounds the one that is varied: raised with it where it would be too small.
#[derive(Debug, Clone, PartialEq)]
pub struct Companion {
    /// Which one: ServerLimit of Apache.
    pub setting: SettingId,
    /// So many of the one that is varied fit into one of it: the threads of a process.
    pub each: f64,
    /// Its value now.
    pub now: f64,
}

impl SettingKnob {
    /// What is to be set for a value.
    pub fn changes(&self, value: &KnobValue) -> Vec<SettingChange> {
        let to = match value {
            KnobValue::Number(number) => {
                whole(*number).map_or_else(|| SettingValue::Text(number.to_string()), SettingValue::Integer)
            }
            KnobValue::Word(word) => SettingValue::parse(word),
        };
        let wanted = SettingChange { setting: self.setting.clone(), to };
        let along = self.companion.as_ref().and_then(|other| {
            let needed = (value.number()? / other.each.max(1.0)).ceil();
            let to = SettingValue::Integer(whole(needed).filter(|_| needed > other.now)?);
            Some(SettingChange { setting: other.setting.clone(), to })
        });
        std::iter::once(wanted).chain(along).collect()
    }
}

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

/// What the knobs of settings are to be set to.
pub(super) fn changes(knobs: &[SweepKnob], values: &[KnobValue]) -> Vec<SettingChange> {
    let of_knob = |(knob, value): (&SweepKnob, &KnobValue)| match knob {
        SweepKnob::Setting(setting) => setting.changes(value),
        SweepKnob::Load | SweepKnob::PageCache => vec![],
    };
    knobs.iter().zip(values).flat_map(of_knob).collect()
}

/// Sees whether each of these values can be put in force, by who prepares changes; writes nothing. Gives the value in force
/// where a plan tells it.
pub fn check_values(
    prepare: &dyn Fn(&[SettingChange]) -> Result<Preparation>,
    knob: &SettingKnob,
    values: &[KnobValue],
    allow_restart: bool,
) -> Result<Option<SettingValue>> {
    let mut last = None;
    for value in values {
        let changes = knob.changes(value);
        let Some(plan) = needed(prepare(&changes)).map_err(|error| match error.kind {
            ErrorKind::CannotRun => UserError { kind: ErrorKind::Usage, ..error },
            _ => error,
        })?
        else {
            continue;
        };
        permitted(&plan, &changes, allow_restart)?;
        last = Some(plan);
    }
    let of_knob = |plan: &RenderedPlan| {
        let change =
            plan.changes.iter().find(|change| change.setting.name.eq_ignore_ascii_case(&knob.setting.name));
        change.and_then(|change| change.from.clone())
    };
    Ok(last.as_ref().and_then(of_knob))
}

/// The plan of changes of one target; `None` where they are in force already.
fn needed(prepared: Result<Preparation>) -> Result<Option<RenderedPlan>> {
    match prepared.and_then(Preparation::into_plan) {
        Err(error) if error.message == NOTHING_TO_CHANGE => Ok(None),
        plan => plan.map(|plan| Some(plan).filter(|plan| !plan.changes.is_empty())),
    }
}

/// Whether a sweep may carry a plan out.
fn permitted(plan: &RenderedPlan, changes: &[SettingChange], allow_restart: bool) -> Result<()> {
    let named: Vec<String> =
        changes.iter().map(|one| format!("{} {}", one.setting.full_name(), one.to)).collect();
    let named = named.join(" with ");
    if let Some(file) = plan.managed.first() {
        return Err(UserError::usage(format!(
            "{named} would be written to {}, which {} manages",
            file.path, file.by
        ))
        .hint("a sweep writes nothing that others manage: `webdyno tune --export` makes a plan for them"));
    }
    if let Some(why) = plan.to_decide.first() {
        return Err(UserError::usage(format!("{named} is for a person to decide: {why}")));
    }
    match plan.class {
        ApplyClass::Manual => Err(UserError::usage(format!("{named} can only be set by hand here"))
            .hint("`webdyno run` measures each value that was set by hand, and `webdyno fit` reads them")),
        ApplyClass::Restart if !allow_restart => {
            Err(UserError::usage(format!("{named} needs a restart of the service"))
                .hint("--allow-restart permits it; each point then has a downtime"))
        }
        _ => Ok(()),
    }
}

/// What a sweep has put in force.
#[derive(Debug)]
pub(super) struct AppliedSettings {
    allow_restart: bool,
    /// The changes in force; `None` where that is not sure.
    in_force: Option<Vec<SettingChange>>,
    /// Whether anything was ever ordered.
    is_ordered: bool,
}

impl AppliedSettings {
    pub(super) fn new(allow_restart: bool) -> Self {
        Self { allow_restart, in_force: Some(vec![]), is_ordered: false }
    }

    /// Puts these settings in force. After an error something of them may be.
    pub(super) fn set(&mut self, target: &mut dyn TuningTarget, wanted: &[SettingChange]) -> Result<()> {
        if wanted.is_empty() || self.in_force.as_deref() == Some(wanted) {
            return Ok(());
        }
        if self.in_force.is_none() {
            self.restore(target)?;
        }
        self.in_force = None;
        for group in by_target(wanted) {
            let Some(plan) = needed(target.prepare(&group))? else { continue };
            permitted(&plan, &group, self.allow_restart)?;
            self.is_ordered = true;
            let applied = target.apply(&plan, self.allow_restart)?;
            applied.ok_or_else(|| UserError::cannot_run("the change was declined"))?;
        }
        self.in_force = Some(wanted.to_vec());
        Ok(())
    }

    /// Puts the original back.
    pub(super) fn restore(&mut self, target: &mut dyn TuningTarget) -> Result<()> {
        if self.is_ordered {
            target.revert(0)?;
        }
        (self.in_force, self.is_ordered) = (Some(vec![]), false);
        Ok(())
    }
}

/// The changes of each target by themselves.
fn by_target(changes: &[SettingChange]) -> Vec<Vec<SettingChange>> {
    let mut groups: Vec<Vec<SettingChange>> = vec![];
    for change in changes {
        match groups.iter_mut().find(|group| group[0].setting.target == change.setting.target) {
            Some(group) => group.push(change.clone()),
            None => groups.push(vec![change.clone()]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_a_setting_is_raised_with_it() {
        let knob = SettingKnob {
            setting: SettingId::of_service("apache", "MaxRequestWorkers"),
            companion: Some(Companion {
                setting: SettingId::of_service("apache", "ServerLimit"),
                each: 25.0,
                now: 16.0,
            }),
        };
        let shown = |value: KnobValue| -> Vec<String> {
            knob.changes(&value)
                .iter()
                .map(|change| format!("{} {}", change.setting.name, change.to))
                .collect()
        };
        assert_eq!(shown(KnobValue::Number(400.0)), ["MaxRequestWorkers 400"]);
        assert_eq!(shown(KnobValue::Number(410.0)), ["MaxRequestWorkers 410", "ServerLimit 17"]);
        assert_eq!(shown(KnobValue::Number(0.5)), ["MaxRequestWorkers 0.5"]);
        assert_eq!(shown(KnobValue::Word("on".into())), ["MaxRequestWorkers on"]);
    }
}

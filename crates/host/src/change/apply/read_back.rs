//! Whether the running program shows the values that it was given.

use crate::change::seams::processes::System;
use crate::os::cancellation::Cancellation;
use crate::services::Tunable;
use std::collections::BTreeMap;
use std::time::Duration;
use webdyno_model::change::RenderedPlan;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_model::{Result, UserError};

/// How something is waited for.
pub(super) struct WaitOptions<'a> {
    pub system: &'a dyn System,
    pub at_most: Duration,
    pub cancellation: &'a Cancellation,
}

/// Waits until the running program shows the wanted values, where it shows any.
pub(super) fn read_back(
    plan: &RenderedPlan,
    service: &dyn Tunable,
    pid: u32,
    port: u16,
    WaitOptions { system, at_most, cancellation }: WaitOptions<'_>,
) -> Result<ServiceSnapshot> {
    let mut seen: Result<(ServiceSnapshot, Option<UserError>)> =
        Err(UserError::cannot_run("the service was not read"));
    system.wait_until(at_most, &mut || {
        seen = service.snapshot(pid, port).map(|snapshot| {
            let difference = difference(plan, &service.running_values(&snapshot));
            (snapshot, difference)
        });
        cancellation.is_set() || matches!(seen, Ok((_, None)))
    });
    cancellation.check()?;
    match seen? {
        (snapshot, None) => Ok(snapshot),
        (_, Some(error)) => Err(error),
    }
}

/// The first setting of which the running program shows another value than the wanted one.
pub(super) fn difference(plan: &RenderedPlan, running: &BTreeMap<String, SettingValue>) -> Option<UserError> {
    let same = |a: &SettingValue, b: &SettingValue| a.to_string().eq_ignore_ascii_case(&b.to_string());
    plan.changes.iter().find_map(|change| {
        let shown = running.get(&change.setting.name).filter(|shown| !same(shown, &change.to))?;
        let SettingId { target, name, .. } = &change.setting;
        let message = format!("{name} is {shown} in the running {}, not {}", target.name(), change.to);
        Some(UserError::cannot_run(message).hint("another setting or file may override it"))
    })
}

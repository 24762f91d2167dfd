//! Renders setting changes to a plan: what changes, in which files, how it takes effect. Reads only.
//!
//! How a change takes effect: https://httpd.apache.org/docs/2.4/stopping.html and the `*_check_config` functions of
//! the MPMs, which keep ServerLimit and ThreadLimit of the first start through every graceful restart.

use super::config::include::real;
use super::control::Apache;
use super::edit::Edit;
use super::limits::Limits;
use super::local_files;
use super::part;
use super::place::{Place, places};
use super::proxy_pool;
use super::settings::{Mpm, SETTINGS, Setting, find};
use super::snapshot::{has_lost_places, limits, mpm, settings};
use crate::config_management::Managers;
use crate::services::apache::unprivileged::refusal;
use crate::services::common::edit;
use std::collections::BTreeMap;
use std::path::PathBuf;
use webdyno_model::change::{ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, Preparation, SettingChange};
use webdyno_model::service::{Control, ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::setting::SettingId;
use webdyno_model::{Result, UserError};

/// A setting change that was understood.
struct Wanted {
    setting: &'static Setting,
    to: SettingValue,
    from: Option<SettingValue>,
}

/// Renders setting changes for the service of a snapshot.
pub fn prepare(snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
    let control = snapshot.control.clone().ok_or_else(|| refusal(snapshot))?;
    let apache = Apache::of_control(control)?;
    if changes.iter().any(|change| change.setting.part.is_some()) {
        return part::prepare(apache, snapshot.port, changes);
    }
    if changes.iter().any(proxy_pool::is_meant) {
        return proxy_pool::prepare(apache, changes);
    }
    let mpm = mpm(&apache)?;
    let mut now = settings(&apache.evaluation, mpm, None);
    if let (Some(now), Some(seen)) =
        (now.get_mut("MaxRequestWorkers"), snapshot.settings.get("MaxRequestWorkers"))
    {
        now.running = seen.running.clone();
    }
    let mut wanted = match understood(changes, &now, mpm).and_then(|wanted| possible(&apache, wanted)) {
        Ok(wanted) => wanted,
        Err(obstacle) => return Ok(obstacle.into()),
    };
    wanted.retain(|one| !holds(one, &now, &apache, snapshot.port));
    if wanted.is_empty() {
        return Err(UserError::cannot_run(NOTHING_TO_CHANGE));
    }
    let grows = mpm == Mpm::Prefork && wanted.iter().any(|one| one.setting.name == "MaxRequestWorkers");
    let is_blocked = grows && has_lost_places(&apache, snapshot.port);
    let class = classify(&wanted, &now, mpm, &apache.control, is_blocked)?;
    let mut edits = Vec::new();
    let mut changes = Vec::new();
    for one in &wanted {
        let places = places(&apache.evaluation, &apache.main_file, one.setting, mpm, snapshot.port)?;
        let from = before(one, &apache, snapshot.port);
        changes.push(Change { from, ..one.change(places.first(), class(one.setting)) });
        let edit = |place: Place| Edit { place, setting: one.setting, to: one.to.clone(), mpm };
        edits.extend(places.into_iter().map(edit));
    }
    let edited = edit::apply(&edits, &Managers::here())?;
    proved(apache.control, &wanted, edited.overlay(), mpm)?;
    let whole = changes.iter().map(|change| change.class).max().unwrap_or(ApplyClass::Reload);
    Ok(Preparation::Plan(Box::new(edited.plan(changes, whole))))
}

impl Wanted {
    /// As plans show it; the first place stands for all.
    fn change(&self, place: Option<&Place>, class: ApplyClass) -> Change {
        let setting = SettingId::of_service(super::NAME, self.setting.name);
        let file = place.map(|place| real(place.file())).unwrap_or_default();
        SettingChange { setting, to: self.to.clone() }.planned(self.from.clone(), file, class)
    }
}

/// Checks that the modules are there which the settings need, and the files where they may be used.
fn possible(apache: &Apache, wanted: Vec<Wanted>) -> std::result::Result<Vec<Wanted>, Obstacle> {
    for one in &wanted {
        let name = one.setting.name;
        if let Some(module) = one.setting.modules.iter().find(|module| !apache.evaluation.has_module(module))
        {
            return Err((
                format!("{name} needs {module}, which is not loaded"),
                Some("load it by hand: it is a change of what Apache can do".into()),
            ));
        }
        if let Some(why) = local_files::refusal(&apache.evaluation, one.setting, &one.to) {
            return Err((format!("{name} {}: {why}", one.to), None));
        }
    }
    Ok(wanted)
}

/// Checks names and values. The last change of a setting counts.
fn understood(
    changes: &[SettingChange],
    now: &BTreeMap<String, SettingInForce>,
    mpm: Mpm,
) -> std::result::Result<Vec<Wanted>, Obstacle> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for SettingChange { setting: SettingId { name, .. }, to } in changes {
        let setting = find(name).ok_or_else(|| {
            let names: Vec<_> =
                SETTINGS.iter().map(|setting| setting.name).chain(proxy_pool::NAMES).collect();
            let why = format!("`{name}` is not a setting of Apache that webdyno changes");
            (why, Some(format!("it changes {}", names.join(", "))))
        })?;
        let in_force = now
            .get(setting.name)
            .ok_or_else(|| (format!("{} has no meaning under the {} MPM", setting.name, mpm.name()), None))?;
        setting.shape.check(setting.name, to)?;
        let from = in_force.running.clone().or(in_force.configured.clone()).or(in_force.default.clone());
        wanted.retain(|other| !std::ptr::eq(other.setting, setting));
        wanted.push(Wanted { setting, to: to.clone(), from });
    }
    Ok(wanted)
}

/// Whether a setting change is in force already: on disk, in what runs as far as that is known, and in all virtual hosts.
fn holds(one: &Wanted, now: &BTreeMap<String, SettingInForce>, apache: &Apache, port: u16) -> bool {
    let Some(in_force) = now.get(one.setting.name) else {
        return false;
    };
    let on_disk = in_force.configured.as_ref().or(in_force.default.as_ref());
    let differs = |value: &SettingValue| !same(value, &one.to);
    let mut overrides = super::place::overrides(&apache.evaluation, one.setting, port);
    !on_disk.is_none_or(differs)
        && !in_force.running.as_ref().is_some_and(differs)
        && !overrides.any(|placed| differs(&SettingValue::parse(&placed.words().join(" "))))
}

/// The value that is changed: the server's, or that of a virtual host where this one alone differs.
fn before(one: &Wanted, apache: &Apache, port: u16) -> Option<SettingValue> {
    let of_hosts = super::place::overrides(&apache.evaluation, one.setting, port)
        .map(|placed| SettingValue::parse(&placed.words().join(" ")));
    let mut all = one.from.clone().into_iter().chain(of_hosts);
    all.find(|value| !same(value, &one.to)).or_else(|| one.from.clone())
}

fn same(a: &SettingValue, b: &SettingValue) -> bool {
    a == b || a.to_string().eq_ignore_ascii_case(&b.to_string())
}

/// How each setting takes effect; `is_blocked` where only a restart makes room for more workers. An error when Apache would clip
/// a value that is wanted.
fn classify(
    wanted: &[Wanted],
    now: &BTreeMap<String, SettingInForce>,
    mpm: Mpm,
    control: &Control,
    is_blocked: bool,
) -> Result<impl Fn(&Setting) -> ApplyClass + use<>> {
    let before = limits(now, mpm);
    let mut after = now.clone();
    for one in wanted {
        after.entry(one.setting.name.to_owned()).or_default().configured = Some(one.to.clone());
    }
    if let Some(limits) = limits(&after, mpm) {
        let touches = |name: &str| wanted.iter().any(|one| one.setting.name == name);
        let bounded = ["MaxRequestWorkers", "ServerLimit", "ThreadsPerChild", "ThreadLimit"];
        if bounded.into_iter().any(touches) {
            fits(&limits)?;
        }
    }
    let running = now
        .get("MaxRequestWorkers")
        .and_then(|setting| setting.running.as_ref())
        .and_then(SettingValue::number);
    let beyond = is_blocked || needs_restart(before.as_ref(), limits(&after, mpm).as_ref(), running);
    let supervised = control.supervised;
    Ok(move |setting: &Setting| {
        let is_beyond = setting.name == "MaxRequestWorkers" && beyond;
        match if is_beyond { ApplyClass::Restart } else { setting.class } {
            ApplyClass::Restart if supervised => ApplyClass::Manual,
            class => class,
        }
    })
}

/// Refuses values that Apache would clip.
fn fits(limits: &Limits) -> Result<()> {
    let (effective, why) = limits.effective();
    if why.is_empty() {
        return Ok(());
    }
    let threads = limits.threads_per_child.max(1);
    let hint = if limits.threads_per_child > limits.thread_limit {
        format!("ask for ThreadLimit {threads} with it")
    } else if limits.workers > limits.most() {
        format!("ask for ServerLimit {} with it", (limits.workers + threads - 1) / threads)
    } else {
        format!(
            "ask for MaxRequestWorkers {effective}, or {} and the ServerLimit to match",
            (effective / threads + 1) * threads
        )
    };
    Err(UserError::cannot_run(format!("Apache would not take it: {}", why.join("; "))).hint(hint))
}

/// Whether the wanted workers are more than the running ServerLimit allows, or fewer than prefork's are: by a reload it ends the
/// others and does not free their places (AH00167), so that no undo by a reload would bring them back. That limit is not shown by
/// any status page: it is the one on disk, unless what runs proves that the disk is ahead; then only what runs is sure.
fn needs_restart(before: Option<&Limits>, after: Option<&Limits>, running: Option<f64>) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return true;
    };
    let most = before.server_limit.saturating_mul(before.thread_limit);
    let on_disk = before.effective().0 as f64;
    if before.mpm == Mpm::Prefork && (after.workers as f64) < running.unwrap_or(on_disk) {
        return true;
    }
    match running.filter(|&running| running != on_disk) {
        Some(running) => after.workers as f64 > running,
        None if before.mpm == Mpm::Prefork => after.workers > before.server_limit,
        None => after.workers / after.threads_per_child.max(1) > before.server_limit || after.workers > most,
    }
}

/// Evaluates the configuration as the plan would leave it: every change must be in force then.
fn proved(control: Control, wanted: &[Wanted], overlay: BTreeMap<PathBuf, String>, mpm: Mpm) -> Result<()> {
    let apache = Apache::with_overlay(control, overlay)?;
    let then = settings(&apache.evaluation, mpm, None);
    for one in wanted {
        let value = then.get(one.setting.name).and_then(|setting| setting.configured.clone());
        if !value.as_ref().is_some_and(|value| same(value, &one.to)) {
            let shown = value.map_or_else(|| "unset".to_owned(), |value| value.to_string());
            return Err(UserError::cannot_run(format!(
                "no place was found where {} {} would win: it would be {shown}",
                one.setting.name, one.to
            ))
            .hint("set it by hand; the configuration nests in a way that webdyno does not understand"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_cannot_do_or_undo_is_a_restart() {
        let prefork = |workers| Limits {
            mpm: Mpm::Prefork,
            workers,
            server_limit: 256,
            threads_per_child: 1,
            thread_limit: 1,
        };
        let event = |workers| Limits {
            mpm: Mpm::Event,
            workers,
            server_limit: 16,
            threads_per_child: 25,
            thread_limit: 64,
        };
        for (before, after, running, restarts) in [
            (prefork(150), prefork(200), None, false),
            (prefork(150), prefork(300), None, true),
            // Places of prefork's workers that a reload ends are not free again.
            (prefork(150), prefork(100), None, true),
            (prefork(150), prefork(100), Some(50.0), true),
            (prefork(150), prefork(50), Some(50.0), false),
            (event(150), event(400), None, false),
            (event(150), event(425), None, true),
            (event(150), event(100), None, false),
        ] {
            assert_eq!(
                needs_restart(Some(&before), Some(&after), running),
                restarts,
                "{before:?} {after:?} {running:?}"
            );
        }
        assert!(needs_restart(None, Some(&event(1)), None), "what is not known");
    }
}

//! The connections that each process of Apache may have to a backend: `max=`, a parameter within a `ProxyPass` or `BalancerMember`.
//!
//! Facts: <https://httpd.apache.org/docs/2.4/mod/mod_proxy.html#workers> and `ap_proxy_initialize_worker` in
//! modules/proxy/proxy_util.c: no more than the threads of a process, and always one under prefork; a worker that several lines name
//! has the parameters of the first. `BalancerPersist` keeps those of before over a reload. Only the value is written: all other bytes
//! of the line stay.

use super::config::syntax::parameter;
use super::config::{Document, Evaluation, Placed};
use super::control::Apache;
use super::in_force::backends::{address, url};
use super::settings::Mpm;
use super::snapshot::{mpm, on_disk, settings};
use crate::config_management::Managers;
use crate::services::common::edit;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::change::{
    ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::SettingValue;
use webdyno_model::{Result, UserError};

const PARAMETER: &str = "max";

/// The settings, each with its directive before the parameter.
pub const NAMES: [&str; 3] = ["ProxyPass max", "ProxyPassMatch max", "BalancerMember max"];

/// What gives a worker its parameters.
const DIRECTIVES: [&str; 4] = ["ProxyPass", "ProxyPassMatch", "BalancerMember", "ProxySet"];

/// A new value of the parameter of one line.
#[derive(Debug)]
struct ParameterEdit {
    file: PathBuf,
    line: u32,
    from: String,
    to: String,
}

impl edit::Edit for ParameterEdit {
    type Document = Document;

    fn file(&self) -> &Path {
        &self.file
    }

    fn is_drop_in(&self) -> bool {
        false
    }

    fn change(&self, document: &mut Document, path: &Path) -> Result<()> {
        if document.set_parameter(self.line, PARAMETER, (&self.from, &self.to)) {
            return Ok(());
        }
        let place = format!("{}:{}", path.display(), self.line);
        let why = format!(
            "{place} does not say {PARAMETER}={} in one piece: a variable, or another value",
            self.from
        );
        Err(UserError::cannot_run(why).hint(manual_edit(&self.to, &place)))
    }
}

fn manual_edit(to: &str, place: &str) -> String {
    format!("write {PARAMETER}={to} there by hand: {place}")
}

/// Whether a change is of one of these settings.
pub fn is_meant(change: &SettingChange) -> bool {
    NAMES.contains(&change.setting.name.as_str())
}

/// Renders the changes. Writes nothing.
pub fn prepare(apache: Apache, changes: &[SettingChange]) -> Result<Preparation> {
    let mpm = mpm(&apache)?;
    let threads = on_disk(&settings(&apache.evaluation, mpm, None), "ThreadsPerChild");
    let process = Process { mpm, threads: threads.unwrap_or(1) };
    let with = |overlay| Ok(Apache::with_overlay(apache.control.clone(), overlay)?.evaluation);
    Ok(plan(&apache.evaluation, process, with, changes).into())
}

/// A process that requests are served by.
#[derive(Debug, Clone, Copy)]
struct Process {
    mpm: Mpm,
    threads: i64,
}

fn obstacle(error: UserError) -> Obstacle {
    (error.message, error.hint)
}

/// The plan, proved with the configuration as it is read with changed files.
fn plan(
    evaluation: &Evaluation,
    process: Process,
    with: impl Fn(BTreeMap<PathBuf, String>) -> Result<Evaluation>,
    changes: &[SettingChange],
) -> std::result::Result<RenderedPlan, Obstacle> {
    let mut planned: Vec<(Change, ParameterEdit)> = vec![];
    for change in changes {
        planned.extend(edited(evaluation, process, change)?);
    }
    if planned.is_empty() {
        return Err((NOTHING_TO_CHANGE.into(), None));
    }
    let (changes, edits): (Vec<Change>, Vec<ParameterEdit>) = planned.into_iter().unzip();
    let edited = edit::apply(&edits, &Managers::here()).map_err(obstacle)?;
    prove(&evaluation.directives, &with(edited.overlay()).map_err(obstacle)?.directives, &edits)?;
    Ok(edited.plan(changes, ApplyClass::Reload))
}

/// The line of one change and what it gets; `None` where it says so already.
fn edited(
    evaluation: &Evaluation,
    process: Process,
    change: &SettingChange,
) -> std::result::Result<Option<(Change, ParameterEdit)>, Obstacle> {
    if !is_meant(change) {
        return Err((format!("{} is changed for itself", change.setting.name), None));
    }
    let to = allowed(process, change)?;
    let placed = the_line(evaluation, change)?;
    let from = value(placed).unwrap_or_default();
    let Some(file) = placed.file.as_ref().filter(|_| placed.via.is_none()) else {
        let why = format!("{} {PARAMETER}={from} stands in a macro or on the command line", placed.name);
        return Err((why, Some(manual_edit(&to, &placed.place()))));
    };
    let persists = |placed: &&Placed| placed.arguments.eq_ignore_ascii_case("on");
    if placed.name.eq_ignore_ascii_case("BalancerMember")
        && let Some(keeps) = evaluation.all(&["BalancerPersist"]).find(persists)
    {
        let why = format!("{} keeps the parameters of members over a reload", keeps.place());
        return Err((why, Some(manual_edit(&to, &placed.place()) + ", and start Apache anew")));
    }
    if from == to {
        return Ok(None);
    }
    let edit = ParameterEdit { file: file.to_path_buf(), line: placed.line, from: from.clone(), to };
    let (from, file) = (Some(SettingValue::parse(&from)), super::config::include::real(file));
    Ok(Some((change.planned(from, file, ApplyClass::Reload), edit)))
}

/// The value as it is written, where Apache would take it as it is.
fn allowed(process: Process, change: &SettingChange) -> std::result::Result<String, Obstacle> {
    if process.mpm == Mpm::Prefork {
        let why = "under prefork each process has one connection to a backend, whatever max= says";
        return Err((why.into(), Some("more processes are more connections: MaxRequestWorkers".into())));
    }
    let threads = process.threads;
    match change.to {
        SettingValue::Integer(to) if (1..=threads).contains(&to) => Ok(to.to_string()),
        _ => {
            let to = change.to.to_string().replace(['\r', '\n'], " ");
            let why = format!("a process of {threads} threads takes no {PARAMETER}={to}");
            Err((why, Some(format!("it takes a whole number from 1 to {threads} (ThreadsPerChild)"))))
        }
    }
}

/// The one line that is meant: of this backend, and the only one that gives it the parameter.
fn the_line<'a>(
    evaluation: &'a Evaluation,
    change: &SettingChange,
) -> std::result::Result<&'a Placed, Obstacle> {
    let backend = change.setting.pool.as_deref();
    let with = evaluation.all(&DIRECTIVES).filter(|placed| value(placed).is_some());
    let is_of = |placed: &&Placed| backend.is_none_or(|backend| names(placed, backend));
    let found: Vec<&Placed> = with.filter(is_of).collect();
    let to = backend.unwrap_or("a backend");
    let own = change.setting.name.strip_suffix(PARAMETER).map_or("", str::trim_end);
    match &found[..] {
        [one] if !one.name.eq_ignore_ascii_case(own) => {
            let why = format!("{PARAMETER} for {to} is a parameter of {}, and not of {own}", one.name);
            Err((why, Some(manual_edit(&change.to.to_string(), &one.place()))))
        }
        // A file that is included twice has its lines twice.
        [one]
            if evaluation.all(&DIRECTIVES).filter(|other| placed_at(one) == placed_at(other)).count()
                == 1 =>
        {
            Ok(one)
        }
        [] => Err((format!("no {own} of Apache has a {PARAMETER}= for {to}"), None)),
        several => {
            let places: Vec<String> = several.iter().take(4).map(|placed| placed.place()).collect();
            let places = places.join(", ");
            let why = format!(
                "{PARAMETER} for {to} stands in several places, or in a file for several parts: {places}"
            );
            Err((why, Some(manual_edit(&change.to.to_string(), &places))))
        }
    }
}

fn placed_at(placed: &Placed) -> (Option<&Path>, u32) {
    (placed.file.as_deref(), placed.line)
}

/// The parameter of a directive; the last one counts.
fn value(placed: &Placed) -> Option<String> {
    placed.words().iter().rev().find_map(|word| parameter(word, PARAMETER).map(str::to_owned))
}

/// Whether a directive, or the section around it, names a backend: with its port, or without one as it may be written.
fn names(placed: &Placed, backend: &str) -> bool {
    let around = placed.scope.iter().flat_map(|section| section.words.clone());
    let mut urls = placed.words().into_iter().chain(around).filter_map(|word| url(&word));
    let without_path = |url: &str| url.split("://").nth(1)?.split('/').next().map(str::to_owned);
    urls.any(|url| {
        address(&url).as_deref() == Some(backend) || without_path(&url).as_deref() == Some(backend)
    })
}

/// Of the configuration as the plan would leave it: these lines have the new values, and nothing else has changed.
fn prove(before: &[Placed], after: &[Placed], edits: &[ParameterEdit]) -> std::result::Result<(), Obstacle> {
    let is_right = |(old, new): (&Placed, &Placed)| {
        let is_its = |edit: &&ParameterEdit| {
            placed_at(old) == (Some(&*edit.file), edit.line) && value(old).as_ref() == Some(&edit.from)
        };
        match edits.iter().find(is_its) {
            Some(edit) => old.name == new.name && value(new).as_ref() == Some(&edit.to),
            None => (&old.name, &old.arguments, &old.scope) == (&new.name, &new.arguments, &new.scope),
        }
    };
    if before.len() == after.len() && before.iter().zip(after).all(is_right) {
        return Ok(());
    }
    let places: Vec<String> =
        edits.iter().map(|edit| format!("{}:{}", edit.file.display(), edit.line)).collect();
    let why = format!("a changed {PARAMETER} would change more than itself: {}", places.join(", "));
    Err((why, Some("change it by hand".into())))
}

#[cfg(test)]
mod tests;

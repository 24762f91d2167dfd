//! Reads a running Apache into a [`ServiceSnapshot`]: settings with where they come from, and what is odd.

use super::config::{Evaluation, Placed};
use super::control::Apache;
use super::embedded;
use super::in_force::Site;
use super::in_force::scoped::{Scoped, scoped};
use super::limits::Limits;
use super::php_ini;
use super::place::overrides;
use super::program::Compiled;
use super::settings::{Mpm, SETTINGS};
use super::status::{self, Found};
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::probes::apache_status::Scoreboard;
use crate::services::apache::logs::{Logs, logs};
use crate::services::common::pending::{self, Sources};
use crate::visibility::mount_namespace;
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::{Result, UserError};

/// How many pending changes are told.
const PENDING_MAX: usize = 20;

/// Most addresses that are told.
const LISTENS_MAX: usize = 32;

/// Most warnings of a snapshot.
const WARNINGS_MAX: usize = 40;

/// What files, status page and processes tell.
#[derive(Debug, Default)]
pub struct Reading {
    /// Settings by name.
    pub settings: BTreeMap<String, SettingInForce>,
    /// The status page, when there is one.
    pub page: Option<Found>,
    /// Why there is none.
    pub missing: Vec<MissingSignal>,
    /// What is odd, in words.
    pub warnings: Vec<String>,
    /// What a reload would put in force although it is not ours, in words.
    pub pending: Vec<String>,
}

/// Reads the Apache whose main process is `pid`, as it serves `port`.
pub fn snapshot(pid: u32, port: u16) -> Result<ServiceSnapshot> {
    let apache = Apache::of_process(pid)?;
    let mpm = mpm(&apache)?;
    let pid_file = apache.control.pid_file.as_ref().map(Path::new);
    let started = (ProcessName::from(&apache.control), pid_file);
    let mut reading = read(&apache.evaluation, mpm, started, port, || php_ini::sources(&apache));
    let parts = Parts::of(&apache.evaluation, &apache.compiled, port);
    let mut warnings = apache.evaluation.warnings;
    warnings.append(&mut reading.warnings);
    let mut snapshot = ServiceSnapshot {
        service: super::NAME.into(),
        pid: apache.control.pid,
        executable: Some(apache.control.executable.clone()),
        version: apache.compiled.version,
        port,
        mode: Some(mpm.name().into()),
        config_file: Some(apache.main_file.to_string_lossy().into_owned()),
        status_url: reading.page.map(|page| page.url),
        settings: reading.settings,
        missing: reading.missing,
        warnings,
        pending: reading.pending,
        control: Some(apache.control),
        ..ServiceSnapshot::default()
    };
    parts.put_into(&mut snapshot);
    embedded::add(&mut snapshot);
    snapshot.warnings.truncate(WARNINGS_MAX);
    Ok(snapshot)
}

/// What the files say of the parts of the site.
#[derive(Debug)]
pub struct Parts {
    scoped: Scoped,
    logs: Logs,
    modules: Vec<String>,
    listens: Vec<String>,
}

impl Parts {
    /// Reads them out of a configuration.
    pub fn of(evaluation: &Evaluation, compiled: &Compiled, port: u16) -> Self {
        let site = Site::of(evaluation);
        Self {
            scoped: scoped(&site, port),
            logs: logs(&site, port, compiled.error_log.as_deref()),
            modules: evaluation.modules.iter().map(|module| module.symbol.clone()).collect(),
            listens: listens(evaluation),
        }
    }

    /// Puts them into a snapshot.
    pub fn put_into(self, snapshot: &mut ServiceSnapshot) {
        snapshot.role = Some("web".into());
        snapshot.modules = self.modules;
        snapshot.listens = self.listens;
        snapshot.scoped = self.scoped.settings;
        snapshot.logs = self.logs.files;
        snapshot.missing.extend(self.logs.missing);
        let mut notes = self.scoped.notes;
        notes.sort();
        notes.dedup();
        let left_out = self.logs.left_out_count;
        if left_out > 0 {
            notes.push(format!("{left_out} more logs are left out"));
        }
        snapshot.warnings.extend(notes);
    }
}

/// Where it is to listen, as `Listen` says; `*:80` for a port on all addresses.
fn listens(evaluation: &Evaluation) -> Vec<String> {
    let address = |placed: &Placed| {
        let word = placed.words().into_iter().next()?;
        Some(if word.parse::<u16>().is_ok() { format!("*:{word}") } else { word })
    };
    evaluation.all(&["Listen"]).filter_map(address).take(LISTENS_MAX).collect()
}

/// Reads what the files give and what runs; `sources` are what a reload reads.
pub fn read(
    evaluation: &Evaluation,
    mpm: Mpm,
    (main, pid_file): (ProcessName, Option<&Path>),
    port: u16,
    sources: impl FnOnce() -> Sources,
) -> Reading {
    let children_before = procfs::children_of(main.pid).len();
    let (page, missing) = match status::find(evaluation, port) {
        Ok(page) => (Some(page), Vec::new()),
        Err(missing) => (None, vec![*missing]),
    };
    let settings = settings(evaluation, mpm, page.as_ref());
    let mut warnings = Vec::new();
    let effective = limits(&settings, mpm).map(|limits| {
        let (effective, why) = limits.effective();
        warnings.extend(why);
        effective
    });
    warnings.extend(differs(effective, page.as_ref()));
    let children = children_before.max(procfs::children_of(main.pid).len());
    let board = page.as_ref().and_then(|page| page.board).filter(|_| mpm == Mpm::Prefork);
    warnings.extend(board.and_then(|board| ghosts(board, effective?, children as u64)));
    warnings.extend(overridden(evaluation, port));
    // Files of a container are not looked at by paths of ours.
    let is_here = !mount_namespace::has_other_root(main.pid);
    let read_at = || (main, pending::read_at(main, pid_file));
    let waiting = is_here.then(|| pending::pending("Apache", &sources(), read_at(), &[]));
    let pending: Vec<_> = waiting.iter().flatten().take(PENDING_MAX).map(ToString::to_string).collect();
    let waits = |message: &String| format!("{message}: a reload puts that in force, too");
    warnings.extend(pending.iter().map(waits));
    Reading { settings, page, missing, warnings, pending }
}

/// The MPM: the module that is loaded, or the one that is compiled in; `None` when neither is told.
pub fn mpm_of(evaluation: &Evaluation, compiled: &Compiled) -> Option<Mpm> {
    let all = [Mpm::Prefork, Mpm::Worker, Mpm::Event];
    let loaded = all.into_iter().find(|mpm| evaluation.has_module(mpm.module()));
    loaded.or_else(|| compiled.mpm.as_deref().and_then(Mpm::parse))
}

/// The MPM; an error when it is not told.
pub fn mpm(apache: &Apache) -> Result<Mpm> {
    mpm_of(&apache.evaluation, &apache.compiled).ok_or_else(|| {
        UserError::cannot_run(format!(
            "cannot tell which MPM {} uses: neither its configuration nor -V names one",
            apache.control.executable
        ))
        .hint(format!("look at the output of: {} -V", apache.control.executable))
    })
}

/// All settings that this MPM knows.
pub fn settings(evaluation: &Evaluation, mpm: Mpm, page: Option<&Found>) -> BTreeMap<String, SettingInForce> {
    let mut settings = BTreeMap::new();
    for setting in SETTINGS {
        let Some(mut default) = setting.default(mpm) else {
            continue;
        };
        if setting.name == "ExtendedStatus" && evaluation.has_module("status_module") {
            // mod_status switches it on when it is loaded.
            default = SettingValue::Text("On".into());
        }
        let placed = evaluation.global(setting.names);
        settings.insert(
            setting.name.to_owned(),
            SettingInForce {
                configured: placed.map(|placed| SettingValue::parse(&placed.words().join(" "))),
                default: Some(default),
                running: None,
                file: placed.and_then(|placed| Some(placed.file.as_ref()?.to_string_lossy().into_owned())),
                line: placed.filter(|placed| placed.file.is_some()).map(|placed| placed.line),
            },
        );
    }
    let running = page.and_then(|page| page.workers(effective_workers(&settings, mpm)));
    if let Some(workers) = settings.get_mut("MaxRequestWorkers") {
        workers.running = running.map(SettingValue::Integer);
    }
    settings
}

/// The value that the files give: configured, else the default. What runs may differ.
pub fn on_disk(settings: &BTreeMap<String, SettingInForce>, name: &str) -> Option<i64> {
    let setting = settings.get(name)?;
    match setting.configured.as_ref().or(setting.default.as_ref())? {
        SettingValue::Integer(value) => Some(*value),
        SettingValue::Text(_) => None,
    }
}

/// The settings that bound each other, as the files give them.
pub fn limits(settings: &BTreeMap<String, SettingInForce>, mpm: Mpm) -> Option<Limits> {
    let threads = |name: &str| {
        if mpm == Mpm::Prefork { Some(1) } else { on_disk(settings, name) }
    };
    Some(Limits {
        mpm,
        workers: on_disk(settings, "MaxRequestWorkers")?,
        server_limit: on_disk(settings, "ServerLimit")?,
        threads_per_child: threads("ThreadsPerChild")?,
        thread_limit: threads("ThreadLimit")?,
    })
}

/// The workers that the files give: MaxRequestWorkers within the limits beside it.
pub fn effective_workers(settings: &BTreeMap<String, SettingInForce>, mpm: Mpm) -> Option<i64> {
    limits(settings, mpm).map(|limits| limits.effective().0)
}

/// The same of a configuration.
pub fn workers_on_disk(evaluation: &Evaluation, compiled: &Compiled) -> Option<i64> {
    let mpm = mpm_of(evaluation, compiled)?;
    effective_workers(&settings(evaluation, mpm, None), mpm)
}

/// Says when another number of workers runs than the files would give.
fn differs(effective: Option<i64>, page: Option<&Found>) -> Option<String> {
    let running = page?.workers(effective)?;
    let effective = effective.filter(|effective| *effective != running)?;
    Some(format!(
        "Apache runs with {running} workers and its configuration would give {effective}: it was changed after \
         the last reload, or ServerLimit was raised without a restart"
    ))
}

/// Whether places of the scoreboard are lost to workers that have ended, within the limit or behind it, where they are in the way
/// of more workers than now.
pub fn has_lost_places(apache: &Apache, port: u16) -> bool {
    let children_count = || procfs::children_of(apache.control.pid).len() as u64;
    let before_count = children_count();
    let board = status::find(&apache.evaluation, port).ok().and_then(|page| page.board);
    board.is_some_and(|board| board.slots_count - board.open_count > before_count.max(children_count()))
}

/// Says how many places within the limit are lost to workers that have ended. Prefork does not clean up behind a limit
/// that a reload has lowered (AH00167), and takes what stands there for workers when the limit rises again.
fn ghosts(board: Scoreboard, effective: i64, children_count: u64) -> Option<String> {
    let used_count = board.slots_count.saturating_sub(board.open_count);
    // As few as it can be: those behind the limit do no harm.
    let behind_count = board.slots_count.saturating_sub(u64::try_from(effective).ok()?);
    let lost_count = used_count.saturating_sub(children_count).saturating_sub(behind_count);
    (lost_count > 0).then(|| {
        format!(
            "{lost_count} of {effective} workers cannot start: their places in the scoreboard are left over from workers \
             that ended after a reload had lowered MaxRequestWorkers, and only a restart frees them"
        )
    })
}

/// Says which settings of the server do not hold in virtual hosts of the port.
fn overridden(evaluation: &Evaluation, port: u16) -> Vec<String> {
    let message = SETTINGS.iter().filter(|setting| !setting.of_mpm);
    let places = message.flat_map(|setting| overrides(evaluation, setting, port));
    places
        .map(|placed| {
            format!("{} is set to {} for a virtual host at {}", placed.name, placed.arguments, placed.place())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::config::{Input, evaluate};
    use super::*;

    fn page(slots: &str) -> Found {
        Found { url: String::new(), board: Some(Scoreboard::parse(slots)), generation: None }
    }

    fn read(text: &str, mpm: Mpm, slots: &str) -> BTreeMap<String, SettingInForce> {
        let root = tempfile::tempdir().unwrap();
        let main_file = root.path().join("httpd.conf");
        std::fs::write(&main_file, text).unwrap();
        let evaluation = evaluate(Input { main_file, server_root: root.path().into(), ..Input::default() });
        settings(&evaluation, mpm, Some(&page(slots)))
    }

    #[test]
    fn the_last_value_at_server_scope_is_configured() {
        let text = "MaxClients 5\nKeepAlive Off\n<IfModule core.c>\nTimeout 1\n</IfModule>\nMaxRequestWorkers 7\n\
                    <VirtualHost *:80>\nKeepAlive On\n</VirtualHost>\nLogLevel warn ssl:info\n";
        let settings = read(text, Mpm::Prefork, "_W....");
        let workers = &settings["MaxRequestWorkers"];
        assert_eq!(workers.configured, Some(SettingValue::Integer(7)));
        assert_eq!(workers.running, Some(SettingValue::Integer(6)));
        assert_eq!(workers.line, Some(6));
        assert_eq!(settings["KeepAlive"].configured, Some(SettingValue::Text("Off".into())));
        assert_eq!(settings["LogLevel"].configured, Some(SettingValue::Text("warn ssl:info".into())));
        let timeout = &settings["Timeout"];
        assert_eq!(
            (&timeout.configured, &timeout.default, timeout.line),
            (&None, &Some(SettingValue::Integer(60)), None)
        );
        assert!(!settings.contains_key("ThreadsPerChild"));
    }

    #[test]
    fn places_of_workers_that_ended_are_told() {
        for (slots, effective, children_count, expected) in [
            ("_____RRWLLLL", 12, 8, Some("4 of 12 workers cannot start")),
            ("......W_CGGC", 8, 2, None),
            ("....WW_L", 8, 4, None),
            // A program beside the workers, such as that of piped logs, hides one.
            ("_____RRWLLLL", 12, 9, Some("3 of 12 workers cannot start")),
        ] {
            let message = ghosts(Scoreboard::parse(slots), effective, children_count);
            assert_eq!(message.as_ref().and_then(|message| message.split(':').next()), expected, "{slots}");
        }
    }

    #[test]
    fn limits_come_from_files_and_defaults() {
        let limits = |text: &str, mpm| limits(&read(text, mpm, ""), mpm).unwrap();
        assert_eq!(limits("MaxRequestWorkers 500", Mpm::Prefork).effective().0, 256);
        assert_eq!(limits("MaxRequestWorkers 500\nThreadsPerChild 50", Mpm::Event).effective().0, 500);
        assert_eq!(limits("", Mpm::Event).effective().0, 400);
        assert!(differs(Some(8), Some(&page("_W..."))).unwrap().contains("runs with 5 workers"));
        assert_eq!(differs(Some(5), Some(&page("_W..."))), None);
        assert_eq!(differs(Some(5), Some(&Found { board: None, ..page("") })), None);
    }
}

//! Reads a running Apache into a [`ServiceSnapshot`]: settings with where they come from, and what is odd.

use super::config::Evaluation;
use super::control::Apache;
use super::limits::Limits;
use super::place::overrides;
use super::process;
use super::settings::{Mpm, SETTINGS};
use super::status::{self, Found};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};
use webdyno_model::{Result, UserError};

/// How many files a warning names.
const NAMES_MAX: usize = 5;

/// Start times of processes are known to a second or so.
const CLOCK_SLACK: Duration = Duration::from_secs(2);

/// Most warnings of a snapshot.
const WARNINGS_MAX: usize = 40;

/// Reads the Apache whose main process is `pid`, as it serves `port`.
pub fn snapshot(pid: u32, port: u16) -> Result<ServiceSnapshot> {
    let apache = Apache::of_process(pid)?;
    let mpm = mpm(&apache)?;
    let mut warnings = apache.warnings.clone();
    warnings.extend(apache.evaluation.warnings.iter().cloned());
    let (page, missing) = match status::find(&apache.evaluation, port) {
        Ok(page) => (Some(page), Vec::new()),
        Err(missing) => (None, vec![*missing]),
    };
    let settings = settings(&apache.evaluation, mpm, page.as_ref());
    let effective = match limits(&settings, mpm) {
        Some(limits) => {
            let (effective, why) = limits.effective();
            warnings.extend(why);
            Some(effective)
        }
        None => None,
    };
    warnings.extend(differs(effective, page.as_ref()));
    warnings.extend(overridden(&apache.evaluation, port));
    warnings.extend(changed_since(&apache));
    warnings.truncate(WARNINGS_MAX);
    Ok(ServiceSnapshot {
        service: super::NAME.into(),
        pid: apache.control.pid,
        executable: Some(apache.control.executable.clone()),
        version: apache.compiled.version.clone(),
        port,
        mode: Some(mpm.name().into()),
        config_file: Some(apache.main_file.to_string_lossy().into_owned()),
        status_url: page.map(|page| page.url),
        settings,
        missing,
        warnings,
        control: Some(apache.control),
    })
}

/// The MPM: the module that is loaded, or the one that is compiled in.
pub fn mpm(apache: &Apache) -> Result<Mpm> {
    let loaded = [Mpm::Prefork, Mpm::Worker, Mpm::Event]
        .into_iter()
        .find(|mpm| apache.evaluation.has_module(mpm.module()));
    loaded.or_else(|| apache.compiled.mpm.as_deref().and_then(Mpm::parse)).ok_or_else(|| {
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
    if let Some(workers) = settings.get_mut("MaxRequestWorkers") {
        workers.running = page.and_then(|page| page.workers).map(SettingValue::Integer);
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

/// Says when another number of workers runs than the files would give.
fn differs(effective: Option<i64>, page: Option<&Found>) -> Option<String> {
    let (effective, running) = (effective?, page?.workers?);
    (effective != running).then(|| {
        format!(
            "Apache runs with {running} workers and its configuration would give {effective}: it was changed after \
             the last reload, or ServerLimit was raised without a restart"
        )
    })
}

/// Says which files were changed after Apache last read them: a reload puts these changes in force, too.
///
/// When that was is not shown anywhere. A reload replaces all children in time, so it was no later than the start of
/// the oldest one; while an old generation finishes, this may warn of a change that is in force already.
fn changed_since(apache: &Apache) -> Option<String> {
    let oldest = process::children(apache.control.pid).into_iter().map(|(_, start_ticks)| start_ticks).min();
    let read_at = process::started_at(oldest.unwrap_or(apache.control.start_ticks))? + CLOCK_SLACK;
    let is_newer = |path: &&PathBuf| {
        let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| changed > read_at)
    };
    let modules = apache.evaluation.modules.iter().filter_map(|module| module.file.as_ref());
    let newer: Vec<_> =
        apache.evaluation.files.iter().chain(modules).filter(is_newer).take(NAMES_MAX).collect();
    let names: Vec<_> = newer.iter().map(|path| path.to_string_lossy()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "changed after Apache last read its configuration, and a reload puts it in force: {}",
            names.join(", ")
        )
    })
}

/// Says which settings of the server do not hold in virtual hosts of the port.
fn overridden(evaluation: &Evaluation, port: u16) -> Vec<String> {
    let told = SETTINGS.iter().filter(|setting| !setting.of_mpm);
    let places = told.flat_map(|setting| overrides(evaluation, setting, port));
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

    fn read(text: &str, mpm: Mpm, workers: Option<i64>) -> BTreeMap<String, SettingInForce> {
        let root = tempfile::tempdir().unwrap();
        let main_file = root.path().join("httpd.conf");
        std::fs::write(&main_file, text).unwrap();
        let evaluation = evaluate(Input { main_file, server_root: root.path().into(), ..Input::default() });
        let page = Found { url: String::new(), workers, generation: None };
        settings(&evaluation, mpm, Some(&page))
    }

    #[test]
    fn the_last_value_at_server_scope_is_configured() {
        let text = "MaxClients 5\nKeepAlive Off\n<IfModule core.c>\nTimeout 1\n</IfModule>\nMaxRequestWorkers 7\n\
                    <VirtualHost *:80>\nKeepAlive On\n</VirtualHost>\nLogLevel warn ssl:info\n";
        let settings = read(text, Mpm::Prefork, Some(6));
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
    fn limits_come_from_files_and_defaults() {
        let limits = |text: &str, mpm| limits(&read(text, mpm, None), mpm).unwrap();
        assert_eq!(limits("MaxRequestWorkers 500", Mpm::Prefork).effective().0, 256);
        assert_eq!(limits("MaxRequestWorkers 500\nThreadsPerChild 50", Mpm::Event).effective().0, 500);
        assert_eq!(limits("", Mpm::Event).effective().0, 400);
        let found = |workers| Found { url: String::new(), workers, generation: None };
        assert!(differs(Some(400), Some(&found(Some(150)))).unwrap().contains("runs with 150 workers"));
        assert_eq!(differs(Some(400), Some(&found(Some(400)))), None);
        assert_eq!(differs(Some(400), Some(&found(None))), None);
    }
}

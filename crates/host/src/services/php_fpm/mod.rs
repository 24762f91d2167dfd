//! PHP-FPM: how it is recognised, read and changed.
//!
//! Facts: the manual's chapter on FPM (<https://www.php.net/manual/en/install.fpm.php>), and sapi/fpm/fpm/fpm_env.c of PHP
//! 8.2: on Linux the main process calls itself `php-fpm: master process (FILE)` and a child `php-fpm: pool NAME`. That
//! title stands where its arguments and environment were: what `-c`, `-d` and `-p` said is lost.

mod config;
mod control;
mod edit;
pub mod ini;
pub mod php;
pub mod pools;
mod prepare;
mod settings;

use super::common::pending;
use super::{Activation, Observe, PendingChange, Quiet, Tunable};
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use crate::visibility::program_query::installed;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use webdyno_model::change::{ApplyClass, Preparation, SettingChange};
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{Control, ServiceSnapshot};
use webdyno_model::{Result, UserError};

/// The name in snapshots.
pub const NAME: &str = "php_fpm";

/// The service.
#[derive(Debug)]
pub struct PhpFpm;

impl Observe for PhpFpm {
    fn name(&self) -> &'static str {
        NAME
    }

    /// `php-fpm`, `php-fpm8.2`, `php-fpm82`, `php8.2-fpm`, `php82-php-fpm`.
    fn recognises(&self, executable: &str, arguments: &[String]) -> bool {
        let path = executable.trim_end_matches(" (deleted)");
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
        let by_name = name.strip_prefix("php").is_some_and(|rest| {
            let parts: Vec<&str> = rest.split("fpm").collect();
            matches!(parts.as_slice(), [before, after] if before.ends_with('-')
                && is_number(&before.replace("-php", "")) && is_number(after))
        });
        by_name || (path.is_empty() && arguments.first().is_some_and(|title| title.starts_with(MASTER)))
    }

    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot> {
        Ok(ServiceSnapshot { port, ..snapshot(pid)? })
    }

    fn backend(&self, pid: u32) -> Option<Result<ServiceSnapshot>> {
        Some(snapshot(pid))
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for PhpFpm {
    fn prepare(&self, snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
        prepare::prepare(snapshot, changes)
    }

    fn validate(&self, control: &Control) -> Result<()> {
        control::validate(control)
    }

    fn quiesce(&self, control: &Control) -> Result<Option<Box<dyn Quiet>>> {
        Ok(Some(Box::new(control::drain(control)?)))
    }

    fn resume(&self, control: &Control) {
        control::resume(control);
    }

    fn activate(&self, control: &Control, class: ApplyClass, _port: u16) -> Result<Activation> {
        match class {
            ApplyClass::Live => Ok(Activation { control: control.clone(), outage_us: None, unsettled: None }),
            // None of its settings that are changed needs more than a reload, which executes it anew.
            ApplyClass::Reload | ApplyClass::Restart => control::reload(control),
            ApplyClass::Manual => Err(UserError::cannot_run("php-fpm can only be changed by hand here")
                .hint("see the plan for how")),
        }
    }

    fn activate_at_once(&self, control: &Control, _port: u16) -> Option<Result<Activation>> {
        Some(control::reload_at_once(control))
    }

    fn start(&self, control: &Control, _port: u16) -> Result<Activation> {
        control::start(control)
    }

    fn pending_changes(&self, control: &Control, _port: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        let pid_file = control.pid_file.as_ref().map(Path::new);
        let sources = control::sources(control);
        let main = ProcessName::from(control);
        // Its children come and go without reading anything anew.
        let read_at = pending::read_at_start(main, pid_file);
        Ok(pending::pending("PHP-FPM", &sources, (main, read_at), own))
    }

    fn read_since(&self, control: &Control, time: SystemTime) -> Option<bool> {
        let pid_file = control.pid_file.as_ref().map(Path::new);
        let main = ProcessName::from(control);
        pending::read_since(main, pid_file, time).or_else(|| control::is_older(main, time).then_some(false))
    }

    fn locate(&self, control: &Control) -> Option<Control> {
        Path::new(&control.executable).exists().then(|| control.clone())
    }

    fn init_names(&self) -> &'static [&'static str] {
        &[
            "php-fpm",
            "php7.4-fpm",
            "php8.0-fpm",
            "php8.1-fpm",
            "php8.2-fpm",
            "php8.3-fpm",
            "php8.4-fpm",
            "php8.5-fpm",
        ]
    }

    fn find_again(&self, before: &Control, _port: u16) -> Option<Control> {
        control::find_again(before)
    }

    fn keeps_until_restart(&self, _setting: &str) -> bool {
        false
    }
}

impl Quiet for control::Drained {}

/// A snapshot with what it takes to change it.
pub fn controllable(snapshot: &ServiceSnapshot) -> Result<ServiceSnapshot> {
    Ok(ServiceSnapshot { control: Some(control::control(snapshot.pid)?), ..snapshot.clone() })
}

/// How the main process calls itself.
const MASTER: &str = "php-fpm: master process (";

/// How a child calls itself, before the name of its pool.
const CHILD: &str = "php-fpm: pool ";

/// The pool that a process belongs to; `None` when it is no child of FPM.
pub fn pool_of(pid: u32) -> Option<String> {
    let arguments = procfs::arguments(pid).ok()?;
    Some(arguments.first()?.strip_prefix(CHILD)?.trim_end().to_owned())
}

/// The main configuration file in the title of the main process.
fn main_file(title: &str) -> Option<&str> {
    title.strip_prefix(MASTER)?.trim_end().strip_suffix(')')
}

/// Where we may not see which program a process runs: the installed one of its name.
fn installed_program(pid: u32) -> Option<(String, bool)> {
    let name = procfs::stat(pid).ok()?.name;
    let is_fpm = |path: &Path| PhpFpm.recognises(&path.to_string_lossy(), &[]);
    installed(&name, is_fpm).map(|path| (path.to_string_lossy().into_owned(), false))
}

/// Reads the FPM whose main process is `pid`.
fn snapshot(pid: u32) -> Result<ServiceSnapshot> {
    let title = procfs::arguments(pid)?.into_iter().next().unwrap_or_default();
    let Some(main_file) = main_file(&title) else {
        return Err(UserError::cannot_run(format!(
            "process {pid} does not say which configuration it read: its title is `{}`",
            title.chars().take(80).collect::<String>()
        ))
        .hint("the main process of php-fpm calls itself `php-fpm: master process (FILE)`"));
    };
    let root = Root::of(pid);
    let executable = procfs::executable(pid).ok().or_else(|| installed_program(pid));
    let prefix = php::prefix(executable.as_ref().map(|(path, _)| path.as_str()));
    let config = config::read(&root, main_file, &prefix);
    let php = php::query_version(pid, executable.as_ref());
    let endpoints = pools::endpoints(&config, &prefix);
    let listens: Vec<String> = endpoints.iter().map(|endpoint| endpoint.address.clone()).collect();
    let mut settings = pools::global(&config);
    settings.extend(php.settings);
    let mut missing = php.missing;
    missing.extend(without_status(&config));
    Ok(ServiceSnapshot {
        service: NAME.into(),
        pid,
        executable: executable.map(|(path, _)| path),
        version: php.version,
        port: listens.iter().find_map(|address| port_of(address)).unwrap_or(0),
        config_file: Some(main_file.to_owned()),
        settings,
        scoped: pools::scoped(&config),
        logs: pools::logs(&config, &prefix),
        missing,
        warnings: config.problems,
        role: Some("php".into()),
        listens,
        modules: php.modules,
        endpoints,
        ..ServiceSnapshot::default()
    })
}

fn port_of(address: &str) -> Option<u16> {
    if address.starts_with("unix:") { None } else { address.rsplit_once(':')?.1.parse().ok() }
}

/// The pools that do not tell about themselves.
fn without_status(config: &config::Config) -> Option<MissingSignal> {
    let silent = config.pools.iter().filter(|pool| pool.value("pm.status_path").is_none());
    let names: Vec<_> = silent.map(|pool| pool.name.as_str()).take(POOLS_REPORTED_MAX).collect();
    let why = || format!("pm.status_path is not set for the pool {}", names.join(", "));
    (!names.is_empty()).then(|| MissingSignal::new("php_fpm", why(), HOW_TO_ENABLE))
}

/// So many pools are named.
const POOLS_REPORTED_MAX: usize = 8;

/// How a pool is made to tell about itself.
pub const HOW_TO_ENABLE: &str = "set `pm.status_path = /fpm-status` in the pool and reload php-fpm; with \
    `pm.status_listen = 127.0.0.1:9001` it answers also when all children are busy (PHP 8.0)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_recognised_under_the_names_of_distributions() {
        for (executable, expected) in [
            ("/usr/sbin/php-fpm", true),
            ("/usr/sbin/php-fpm8.2", true),
            ("/usr/sbin/php-fpm8.2 (deleted)", true),
            ("/usr/sbin/php-fpm82", true),
            ("/usr/sbin/php8.2-fpm", true),
            ("/opt/remi/php82/root/usr/sbin/php-fpm", true),
            ("/usr/bin/php82-php-fpm", true),
            ("/usr/bin/php8.2", false),
            ("/usr/bin/php-fpm-exporter", false),
            ("/usr/bin/phpfpm", false),
            ("", false),
        ] {
            assert_eq!(PhpFpm.recognises(executable, &[]), expected, "{executable}");
        }
        let title = vec!["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)".to_owned()];
        assert!(PhpFpm.recognises("", &title));
        assert_eq!(main_file(&title[0]), Some("/etc/php/8.2/fpm/php-fpm.conf"));
    }
}

//! Apache httpd 2.4: how it is recognised, read, changed and reloaded.
//!
//! The parts: `config` reads files as Apache does, `control` knows how the process was started, `snapshot` tells the
//! settings in force, `prepare` turns setting changes into file contents, `shadow` renders a second instance that proves them,
//! `activate` makes them take effect.

pub mod config;
pub mod in_force;
pub mod logs;
mod unprivileged;

pub(crate) mod access_log;
mod activate;
mod control;
mod edit;
mod embedded;
mod environment;
mod imprint;
mod limits;
mod local_files;
mod locate;
mod part;
mod pending;
mod php_ini;
mod place;
mod prepare;
pub(crate) mod program;
mod proxy_pool;
mod redact;
mod settings;
mod shadow;
mod snapshot;
mod start;
mod status;

use super::php_fpm::ini;
use super::{Activation, Observe, PendingChange, Shadow, Tunable};
use crate::logs::AccessLogs;
use crate::os::process::ProcessName;
use crate::services::common::pending as waiting;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use webdyno_model::change::{ApplyClass, FileEdit, Preparation, SettingChange};
use webdyno_model::service::{Control, ServiceSnapshot, SettingValue};
use webdyno_model::{Result, UserError};

/// The name in snapshots and changes.
pub const NAME: &str = "apache";

/// The names under which distributions install it.
const EXECUTABLES: [&str; 7] =
    ["apache2", "httpd", "httpd2", "httpd.worker", "httpd.event", "httpd-prefork", "apache2-prefork"];

/// The service.
#[derive(Debug)]
pub struct Apache;

impl Observe for Apache {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, executable: &str, _arguments: &[String]) -> bool {
        let path = executable.trim_end_matches(" (deleted)");
        path.rsplit('/').next().is_some_and(|name| EXECUTABLES.contains(&name))
    }

    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot> {
        match crate::os::procfs::may_inspect(pid) {
            true => snapshot::snapshot(pid, port),
            false => unprivileged::snapshot(pid, port),
        }
    }

    fn listens_on(&self, pid: u32, port: u16) -> Option<bool> {
        unprivileged::listens_on(pid, port)
    }

    fn configured_backends(&self, snapshot: &ServiceSnapshot) -> Vec<String> {
        in_force::scoped::configured_backends(snapshot)
    }

    fn access_logs(&self, control: &Control, port: u16) -> Result<AccessLogs> {
        let apache = control::Apache::of_control(control.clone())?;
        Ok(access_log::access_logs(&apache.evaluation, port))
    }

    fn addresses(&self, control: &Control, port: u16) -> Vec<SocketAddr> {
        control::Apache::of_control(control.clone())
            .map(|apache| status::near(&apache.evaluation, port))
            .unwrap_or_default()
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        Some(self)
    }
}

impl Tunable for Apache {
    fn prepare(&self, snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
        let is_php = |change: &&SettingChange| ini::is_value(&change.setting.name);
        match changes.iter().filter(is_php).count() {
            0 => prepare::prepare(snapshot, changes),
            count if count == changes.len() => {
                let control = snapshot.control.clone().ok_or_else(|| unprivileged::refusal(snapshot))?;
                php_ini::prepare(control, changes)
            }
            _ => Ok(Preparation::not_preparable(
                "settings of Apache and of php.ini cannot be changed in one step",
            )),
        }
    }

    fn validate(&self, control: &Control) -> Result<()> {
        control::validate(control)
    }

    fn activate(&self, control: &Control, class: ApplyClass, port: u16) -> Result<Activation> {
        activate::activate(control, class, port)
    }

    fn start(&self, control: &Control, port: u16) -> Result<Activation> {
        start::start(control, port)
    }

    fn pending_changes(&self, control: &Control, _port: u16, own: &[PathBuf]) -> Result<Vec<PendingChange>> {
        let main = ProcessName::from(control);
        if !main.is_alive() {
            return Err(UserError::cannot_run(format!(
                "apache (process {}) does not run any more",
                main.pid
            )));
        }
        let apache = control::Apache::of_control(control.clone())?;
        let pid_file = control.pid_file.as_ref().map(Path::new);
        let read_at = waiting::read_at(main, pid_file);
        Ok(waiting::pending("Apache", &php_ini::sources(&apache), (main, read_at), own))
    }

    fn read_since(&self, control: &Control, time: SystemTime) -> Option<bool> {
        let pid_file = control.pid_file.as_ref().map(Path::new);
        waiting::read_since(ProcessName::from(control), pid_file, time)
    }

    fn locate(&self, control: &Control) -> Option<Control> {
        locate::locate(control)
    }

    fn init_names(&self) -> &'static [&'static str] {
        // Debian and SUSE, Red Hat and Arch, and those that have both.
        &["apache2", "httpd"]
    }

    fn shadow(
        &self,
        control: &Control,
        edits: &[FileEdit],
        port: u16,
        folder: &Path,
    ) -> Result<Option<Shadow>> {
        shadow::shadow(control, edits, port, folder).map(Some)
    }

    fn start_failure(&self, stderr: &str, log: &str) -> String {
        control::start_failure(stderr, log)
    }

    /// MaxRequestWorkers needs a restart only to grow beyond ServerLimit, not to shrink again.
    fn keeps_until_restart(&self, setting: &str) -> bool {
        !ini::is_value(setting)
            && !part::NAMES.contains(&setting)
            && settings::find(setting).is_none_or(|setting| setting.class == ApplyClass::Restart)
    }

    fn running_values(&self, snapshot: &ServiceSnapshot) -> BTreeMap<String, SettingValue> {
        let page = snapshot.status_url.as_deref().and_then(|url| status::read(url).ok());
        let mpm = snapshot.mode.as_deref().and_then(settings::Mpm::parse);
        let configured = mpm.and_then(|mpm| snapshot::effective_workers(&snapshot.settings, mpm));
        let workers = page.and_then(|page| page.workers(configured)).map(SettingValue::Integer);
        let workers = workers.map(|workers| ("MaxRequestWorkers".to_owned(), workers));
        // What workers have mapped tells it of the PHP inside of them.
        let php = snapshot.settings.iter().filter(|(name, _)| ini::is_value(name));
        let php = php.filter_map(|(name, value)| Some((name.clone(), value.running.clone()?)));
        workers.into_iter().chain(php).collect()
    }
}

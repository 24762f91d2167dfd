//! Setting the kernel's settings: journal, write, read back; and keeping them in a file that is read at boot.
//!
//! While a change is not kept it is nowhere but in the running kernel: a boot undoes it. The files are written when it is
//! kept, through the journal like all others.

use super::{Applied, Changer};
use crate::change::action::{Action, Served, WriteSysctl};
use crate::change::journal::history::{Entry, Record};
use crate::change::seams::disk::sha256_hex;
use crate::change::seams::processes::site_client;
use crate::probes::site::{self, Site};
use crate::services::sysctl::{NAME, files, space};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use webdyno_model::change::{ApplyClass, ApplyOptions, Change, FileEdit, RenderedPlan};
use webdyno_model::error::io_error;
use webdyno_model::service::{Control, ServiceSnapshot};
use webdyno_model::setting::Target;
use webdyno_model::{Result, UserError};

/// Whether a plan sets settings of the kernel.
pub(super) fn is_of_kernel(plan: &RenderedPlan) -> bool {
    !plan.changes.is_empty() && plan.changes.iter().all(|change| change.setting.target == Target::Sysctl)
}

/// The kernel, as the service of a snapshot runs on it. How that was started plays no part.
fn served_by_kernel(front: &ServiceSnapshot) -> Served {
    let control = front.control.clone().unwrap_or_else(|| Control {
        pid: front.pid,
        start_ticks: 0,
        executable: front.executable.clone().unwrap_or_default(),
        arguments: vec![],
        environment: BTreeMap::new(),
        directory: "/".into(),
        pid_file: None,
        unit: None,
        supervised: false,
        inherited: None,
    });
    Served { service: NAME.into(), port: front.port, control }
}

impl Changer {
    /// Whether this session started the server on a port: what belongs to the machine is not changed for that.
    pub fn has_launched(&self, port: u16) -> bool {
        self.session.as_ref().is_some_and(|session| session.journal.history().is_launched_here(port))
    }

    /// [`Changer::apply`] of settings of the kernel.
    pub(super) fn apply_sysctls(
        &mut self,
        plan: &RenderedPlan,
        front: &ServiceSnapshot,
        options: &ApplyOptions,
    ) -> Result<Applied> {
        if self.has_launched(front.port) {
            return Err(UserError::cannot_run(
                "the kernel's settings are not changed for a server of our own",
            ));
        }
        let served = served_by_kernel(front);
        self.begin(Some(&served))?;
        let mark = self.next_n();
        let mut site = None;
        // As with files: nothing of a change that failed may stay.
        let performed = catch_unwind(AssertUnwindSafe(|| {
            site = self.learn_site(front, options)?;
            for change in &plan.changes {
                self.write_sysctl(change, &served)?;
            }
            self.compare(site.as_ref())?;
            Ok(Applied { mark, outage_us: None, snapshot: front.clone(), others: vec![] })
        }));
        performed
            .unwrap_or_else(|_| Err(UserError::cannot_run("applying failed within webdyno itself")))
            .map_err(|error| self.undo_failed(mark, error, site.as_ref()))
    }

    fn learn_site(&mut self, front: &ServiceSnapshot, options: &ApplyOptions) -> Result<Option<Site>> {
        let (system, programs) = (Arc::clone(&self.tools.system), Arc::clone(&self.tools.programs));
        let service = programs.tunable(&front.service).zip(front.control.as_ref());
        let loopback = || {
            let hosts = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            hosts.map(|host| SocketAddr::new(host, front.port)).to_vec()
        };
        let addresses =
            service.map_or_else(loopback, |(service, control)| service.addresses(control, front.port));
        let learnt =
            site::learn(&site_client(system.as_ref()).until(&self.cancellation), &addresses, &options.probes);
        self.cancellation.check()?;
        self.notes.extend(learnt.warnings);
        Ok(learnt.site)
    }

    fn write_sysctl(&mut self, change: &Change, served: &Served) -> Result<()> {
        self.cancellation.check()?;
        let (system, name, after) =
            (Arc::clone(&self.tools.system), &change.setting.name, change.to.to_string());
        let space = system.sysctl_space(name);
        let now = || {
            let now =
                system.read_sysctl(name, space.as_ref()).map_err(|error| io_error("read", name, &error))?;
            now.ok_or_else(|| UserError::cannot_run(format!("{name} is gone with its network namespace")))
        };
        let before = now()?;
        if change.from.as_ref().is_some_and(|from| from.to_string() != before) {
            let why = format!("{name} changed since the plan was made: it is {before}");
            return Err(UserError::cannot_run(why).hint("make the plan again"));
        }
        let keep_in = (Path::new(&change.file) != space::path(name)).then(|| change.file.clone());
        let (name, served) = (name.clone(), served.clone());
        let write = WriteSysctl { name, before, after: after.clone(), space: space.clone(), keep_in, served };
        let n = self.intend(Action::WriteSysctl(write))?;
        let name = &change.setting.name;
        system.write_sysctl(name, space.as_ref(), &after).map_err(|error| io_error("write", name, &error))?;
        let shown = now()?;
        if shown != after {
            return Err(UserError::cannot_run(format!("{name} is {shown} after {after} was written to it"))
                .hint("the kernel took another value: ask for that one, or set it by hand"));
        }
        self.journal()?.append(Record::Completed { n, control: None })
    }

    /// Writes what is in force and not kept yet to the files that are read at boot.
    pub(super) fn write_kept_sysctls(&mut self) -> Result<()> {
        let mut files: BTreeMap<String, (BTreeMap<String, String>, Served)> = BTreeMap::new();
        let Some(session) = &self.session else { return Ok(()) };
        let history = session.journal.history();
        for Entry { action, .. } in history.outstanding(history.kept_through + 1) {
            let Action::WriteSysctl(WriteSysctl { name, after, keep_in: Some(file), served, .. }) = action
            else {
                continue;
            };
            let (values, _) = files.entry(file.clone()).or_insert_with(|| (BTreeMap::new(), served.clone()));
            values.insert(name.clone(), after.clone());
        }
        for (file, (values, served)) in files {
            let edit = self.kept_file(Path::new(&file), &values)?;
            self.write(&edit, &served, ApplyClass::Live)?;
        }
        Ok(())
    }

    /// A file with these values, as it is now.
    fn kept_file(&self, file: &Path, values: &BTreeMap<String, String>) -> Result<FileEdit> {
        let disk = self.tools.disk.as_ref();
        let message = |error| io_error("read", file.display(), &error);
        let path: PathBuf = disk.resolve(file).map_err(message)?.unwrap_or_else(|| file.to_owned());
        let old = disk.read(&path).map_err(message)?;
        let text = match &old {
            Some(old) => std::str::from_utf8(&old.content).map_err(|_| {
                UserError::cannot_run(format!("{} is not UTF-8, so it is not edited", path.display()))
            })?,
            None => "",
        };
        let values = values.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let after = files::with_values(&path, text, values);
        let before_sha256 = old.as_ref().map(|old| sha256_hex(&old.content));
        Ok(FileEdit { path: path.to_string_lossy().into_owned(), before_sha256, before: None, after })
    }
}

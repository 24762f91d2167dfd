//! Replacing values that the kernel or a running server holds: journal, write, read back; and keeping them in a file that is
//! read at the next start.
//!
//! While a change is not kept it is nowhere but in its holder: its next start undoes it. The files are written when it is
//! kept, through the journal like all others.

use super::{Applied, Changer};
use crate::change::action::{Action, Served, WriteValue};
use crate::change::journal::history::{Entry, Record};
use crate::change::seams::disk::sha256_hex;
use crate::change::seams::processes::site_client;
use crate::probes::site::{self, Site};
use crate::services::listen_backlog;
use crate::services::process_limit::{self, task_group};
use crate::services::resource_control::{memory, processors};
use crate::services::value_holder::ValueHolder;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use webdyno_model::change::{ApplyClass, ApplyOptions, Change, FileEdit, RenderedPlan};
use webdyno_model::error::io_error;
use webdyno_model::service::{Control, ServiceSnapshot};
use webdyno_model::setting::Target;
use webdyno_model::{Result, UserError};

/// How long a server may take to show a value that it was given.
const SHOWN_MAX: Duration = Duration::from_secs(5);

/// The holder of a value, on behalf of the service under load. How that was started plays no part.
fn served_by(holder: &ValueHolder, front: &ServiceSnapshot) -> Served {
    let control = front.control.clone().unwrap_or_else(|| Control {
        pid: front.pid,
        executable: front.executable.clone().unwrap_or_default(),
        directory: "/".into(),
        ..Control::default()
    });
    Served { service: holder.name().into(), port: front.port, control }
}

/// What a file is to keep.
struct Kept {
    values: BTreeMap<String, String>,
    holder: ValueHolder,
    served: Served,
}

impl Changer {
    /// Whether this session started the server on a port: what belongs to the machine is not changed for that.
    pub fn has_launched(&self, port: u16) -> bool {
        self.session.as_ref().is_some_and(|session| session.journal.history().is_launched_here(port))
    }

    /// The holders of all values that a plan replaces, in its order; `None` when it changes something else.
    pub(super) fn holders(&self, plan: &RenderedPlan) -> Option<Vec<ValueHolder>> {
        let holder = |change: &Change| match &change.setting.target {
            Target::Sysctl => Some(ValueHolder::Kernel(self.tools.system.sysctl_space(&change.setting.name))),
            Target::Service(name) => self.holders.get(name).cloned(),
            Target::ProcessLimit(_) => {
                let name = match change.setting.name.as_str() {
                    listen_backlog::SETTING => listen_backlog::NAME,
                    task_group::SETTING => task_group::NAME,
                    processors::SETTING => processors::NAME,
                    memory::SETTING => memory::NAME,
                    _ => process_limit::NAME,
                };
                self.holders.get(name).cloned()
            }
            _ => None,
        };
        let holders = plan.changes.iter().map(holder).collect::<Option<Vec<_>>>();
        holders.filter(|holders| !holders.is_empty())
    }

    /// [`Changer::apply`] of values that the kernel or a running server holds.
    pub(super) fn apply_values(
        &mut self,
        plan: &RenderedPlan,
        holders: &[ValueHolder],
        front: &ServiceSnapshot,
        options: &ApplyOptions,
    ) -> Result<Applied> {
        if self.has_launched(front.port) && !holders.iter().all(ValueHolder::is_of_service_only) {
            return Err(UserError::cannot_run(super::OF_OTHERS));
        }
        for holder in holders {
            self.begin(Some(&served_by(holder, front)))?;
        }
        let mark = self.next_n();
        let mut site = None;
        // As with files: nothing of a change that failed may stay.
        let performed = catch_unwind(AssertUnwindSafe(|| {
            site = self.learn_site(front, options)?;
            for (change, holder) in plan.changes.iter().zip(holders) {
                self.write_value(change, holder, &served_by(holder, front))?;
            }
            self.compare(site.as_ref())?;
            Ok(Applied { mark, outage_us: None, snapshot: front.clone(), others: vec![] })
        }));
        performed
            .unwrap_or_else(|_| Err(UserError::cannot_run("applying failed within webdyno itself")))
            .map_err(|error| self.undo_failed(mark, error, site.as_ref()))
    }

    pub(super) fn learn_site(
        &mut self,
        front: &ServiceSnapshot,
        options: &ApplyOptions,
    ) -> Result<Option<Site>> {
        if front.port == 0 {
            // The site is served by another host, and the session loads it anew after each change.
            return Ok(None);
        }
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

    fn write_value(&mut self, change: &Change, holder: &ValueHolder, served: &Served) -> Result<()> {
        self.cancellation.check()?;
        let (system, name, after) =
            (Arc::clone(&self.tools.system), &change.setting.name, change.to.to_string());
        let now = || {
            let now = system.read_value(name, holder).map_err(|error| io_error("read", name, &error))?;
            now.ok_or_else(|| UserError::cannot_run(format!("{name} is gone with {}", holder.place())))
        };
        let before = now()?;
        if change.from.as_ref().is_some_and(|from| from.to_string() != before) {
            let why = format!("{name} changed since the plan was made: it is {before}");
            return Err(UserError::cannot_run(why).hint("make the plan again"));
        }
        let is_shown_only = holder.shown_in(name).is_some_and(|shown| shown == Path::new(&change.file));
        let keep_in = (!is_shown_only).then(|| change.file.clone());
        let (name, served) = (name.clone(), served.clone());
        let write =
            WriteValue { name, before, after: after.clone(), holder: holder.clone(), keep_in, served };
        let n = self.intend(Action::WriteValue(write))?;
        let name = &change.setting.name;
        system.write_value(name, holder, &after).map_err(|error| io_error("write", name, &error))?;
        let mut shown = now()?;
        let is_shown = &mut || {
            shown = now().unwrap_or_default();
            shown == after
        };
        if !system.wait_until(SHOWN_MAX, is_shown) {
            return Err(UserError::cannot_run(format!("{name} is {shown} after {after} was written to it"))
                .hint("another value was taken: ask for that one, or set it by hand"));
        }
        self.journal()?.append(Record::Completed { n, control: None })
    }

    /// Writes what is in force and not kept yet to the files that are read at boot.
    pub(super) fn write_kept_values(&mut self) -> Result<()> {
        let mut files: BTreeMap<String, Kept> = BTreeMap::new();
        let Some(session) = &self.session else { return Ok(()) };
        let history = session.journal.history();
        for Entry { action, .. } in history.outstanding(history.kept_through + 1) {
            if let Action::WriteValue(write) = action
                && let Some(to_keep) = write.holder.to_keep()
            {
                let now = self.tools.system.read_value(&write.name, &write.holder).ok().flatten();
                self.notes.push(match now {
                    Some(now) if now == write.after => to_keep.to_owned(),
                    _ => format!("it was started anew since, without its {}: {to_keep}", write.name),
                });
            }
            let Action::WriteValue(WriteValue { name, after, keep_in: Some(file), served, holder, .. }) =
                action
            else {
                continue;
            };
            let kept = files.entry(file.clone()).or_insert_with(|| Kept {
                values: BTreeMap::new(),
                holder: holder.clone(),
                served: served.clone(),
            });
            kept.values.insert(name.clone(), after.clone());
        }
        for (file, kept) in files {
            let edit = self.kept_file(Path::new(&file), &kept)?;
            self.write(&edit, &kept.served, ApplyClass::Live)?;
        }
        Ok(())
    }

    /// A file with these values, as it is now.
    fn kept_file(&self, file: &Path, kept: &Kept) -> Result<FileEdit> {
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
        let values = kept.values.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let after = kept.holder.with_values(&path, text, values);
        let before_sha256 = old.as_ref().map(|old| sha256_hex(&old.content));
        Ok(FileEdit { path: path.to_string_lossy().into_owned(), before_sha256, before: None, after })
    }
}

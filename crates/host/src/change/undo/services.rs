//! Letting each service take over the files that were reverted, once.
//!
//! A service need not have been told of our files to have them in force: somebody else may have reloaded it, or started
//! it, while they were there. So whenever one is reverted the service takes that over, and the journal says so before;
//! only what it surely never read is reverted without.

use crate::change::action::{Action, Activate, Served, WriteFile, is_read_at_boot_only};
use crate::change::journal::history::{Entry, Record, served};
use crate::change::live_traffic_policy;
use crate::change::undo::{Chain, Undo};
use crate::os::process::ProcessName;
use crate::services::{Activation, Tunable};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use webdyno_model::change::ApplyClass;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// A service whose files were reverted.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// The most disruptive way in which our change took effect, or is to be taken back; `None` when nothing of it was ever
    /// in place.
    pub(super) class: Option<ApplyClass>,
    /// The activations that are outstanding.
    pub(super) activations: Vec<(u64, Activate)>,
    /// Files that are as they were before.
    pub(super) restored_count: usize,
    /// Files that are not, and will not be.
    pub(super) conflicts_count: usize,
    /// Files that could not be reverted.
    pub(super) failed_count: usize,
}

impl Undo<'_> {
    /// The outstanding activations of each service.
    fn activations(&self) -> BTreeMap<(String, u16), Vec<(u64, Activate)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in self.outstanding() {
            let Action::Activate(activate) = entry.action else { continue };
            let key = (activate.served.service.clone(), activate.served.port);
            all.entry(key).or_default().push((entry.n, activate));
        }
        all
    }

    /// Asks each service whether it can be put back without harm to those who use it; else it is left as it is, and stays
    /// to be undone.
    pub(super) fn refuse_harmful(&mut self) {
        if !self.scope.services {
            return;
        }
        for ((name, port), activations) in self.activations() {
            let is_live = self.scope.live_traffic || live_traffic_policy::is_live(&activations);
            let Some(service) = self.tools.programs.tunable(&name).filter(|_| is_live) else { continue };
            let key = (name, port);
            let Some(known) = self.journal.history().controls.get(&key).cloned() else { continue };
            let programs = &self.tools.programs;
            // Somebody else may have started it anew; nobody is connected to what does not run.
            let now =
                if programs.is_alive(&known) { Some(known) } else { programs.on_port(&key.0, port, &known) };
            let Some(control) = now else { continue };
            if let Some(error) = live_traffic_policy::refusal(service, &control, port, &activations) {
                self.report.failures.push(error);
                self.left_alone.insert(key);
            }
        }
    }

    /// Whether the service may have taken over what a write put there, by when it read its files; `None` when that is not
    /// known. What it surely never took is put back without a reload, which would put in force what others left waiting.
    pub(super) fn was_taken(&self, write: &WriteFile) -> Option<bool> {
        let at_us = u64::try_from(write.at_us?).ok()?;
        let written_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(at_us))?;
        let Served { service, port, control } = &write.served;
        let known = self.tools.programs.tunable(service).filter(|_| self.is_same_boot())?;
        let control = self.journal.history().controls.get(&(service.clone(), *port)).unwrap_or(control);
        known.read_since(control, written_at)
    }

    /// Notes that the service must take over what is reverted, if that is not in the journal yet: after a kill between
    /// file and service nobody would know. What we wrote may be in force even if we never told the service: somebody
    /// else may have reloaded or started it meanwhile.
    pub(super) fn intend_activation(&mut self, chain: &Chain) {
        // What is only read at boot is nobody's to take over.
        let read_by_service = |(_, first): &&(u64, WriteFile)| !is_read_at_boot_only(first);
        let Some((_, first)) = chain.last().filter(read_by_service) else { return };
        let history = self.journal.history();
        let key = (first.served.service.clone(), first.served.port);
        let is_its = |entry: &Entry| match &entry.action {
            Action::Activate(known) => (&known.served.service, known.served.port) == (&key.0, key.1),
            _ => false,
        };
        let stops = self.scope.launched && history.is_launched_here(key.1);
        if stops || history.outstanding(self.scope.from_n).any(is_its) {
            return;
        }
        let control = history.controls.get(&key).cloned().unwrap_or_else(|| first.served.control.clone());
        let class = ApplyClass::Reload;
        let n = self.journal.history().last_n() + 1;
        let served = Served { control, ..first.served.clone() };
        let live_traffic = self.scope.live_traffic;
        let activate = Activate { served, class, running: BTreeMap::new(), changes: vec![], live_traffic };
        let intent = Record::Intent { n, action: Action::Activate(activate) };
        if let Err(error) = self.journal.append_in_room(intent) {
            // An intent that is not on disk would make a gap in the journal; the service takes it over all the same.
            self.report.failures.push(error);
            let touched = self.touched(first);
            touched.class = touched.class.max(Some(class));
        }
    }

    /// Notes that a service that is known to have taken our change well is told to take it back: should it end of that,
    /// and we with it, the next attempt knows that nobody else stopped it.
    fn intend_again(&mut self, service: &str, port: u16, touched: &mut Touched) {
        let Some((_, known)) = touched.activations.last() else { return };
        let control = self.journal.history().controls.get(&(service.to_owned(), port)).cloned();
        let served = Served {
            control: control.unwrap_or_else(|| known.served.control.clone()),
            ..known.served.clone()
        };
        let activate = Activate { served, changes: vec![], running: BTreeMap::new(), ..known.clone() };
        let n = self.journal.history().last_n() + 1;
        let intent = Record::Intent { n, action: Action::Activate(activate.clone()) };
        // What cannot be written now makes no gap: the undo goes on without it.
        match self.journal.append_in_room(intent) {
            Ok(()) => touched.activations.push((n, activate)),
            Err(error) => self.report.failures.push(error),
        }
    }

    pub(super) fn services(&mut self) {
        for (key, activations) in self.activations() {
            if self.left_alone.contains(&key) {
                continue;
            }
            let touched = self.touched.entry(key).or_default();
            touched.class = touched.class.max(activations.iter().map(|(_, activate)| activate.class).max());
            touched.activations = activations;
        }
        for ((service, port), mut touched) in std::mem::take(&mut self.touched) {
            self.resume(&service, port);
            if let Err(error) = self.service(&service, port, &mut touched) {
                self.report.failures.push(error);
            }
        }
    }

    /// Lets a service go on that a killed session left waiting.
    fn resume(&self, service: &str, port: u16) {
        let key = (service.to_owned(), port);
        let known =
            self.tools.programs.tunable(service).filter(|_| self.is_same_boot() && self.scope.services);
        if let Some((known, control)) = known.zip(self.journal.history().controls.get(&key)) {
            known.resume(control);
        }
    }

    /// Lets one service take over the files that were reverted.
    fn service(&mut self, service: &str, port: u16, touched: &mut Touched) -> Result<()> {
        let launched_here = self.journal.history().is_launched_here(port);
        if launched_here && self.scope.launched {
            return Ok(());
        }
        if touched.failed_count > 0 {
            // The next attempt puts the rest back first.
            return Ok(());
        }
        let Some(class) = touched.class else { return Ok(()) };
        let is_restored = touched.restored_count > 0 || self.was_restored(service, port);
        let activation = if !self.scope.services {
            self.report.lines.push(format!(
                "{service} on port {port} was not started: the network namespace that it ran in is gone; start it where it belongs"
            ));
            None
        } else if touched.conflicts_count > 0 && !is_restored {
            self.report
                .lines
                .push(format!("{service} was not reloaded: none of its files could be restored"));
            None
        } else {
            let is_live = self.scope.live_traffic || live_traffic_policy::is_live(&touched.activations);
            self.activate(service, port, (class, is_live), touched)?
        };
        let control = activation.map(|activation| {
            self.report.outage_us = self.report.outage_us.max(activation.outage_us);
            activation.control
        });
        for (n, _) in &touched.activations {
            self.note(Record::Undone { n: *n, control: control.clone() });
        }
        Ok(())
    }

    /// Validates and activates what is on disk now, starting the service again if it died of our change.
    /// `Ok(None)` when there is nothing to activate any more.
    fn activate(
        &mut self,
        service: &str,
        port: u16,
        (class, is_live): (ApplyClass, bool),
        touched: &mut Touched,
    ) -> Result<Option<Activation>> {
        let programs = Arc::clone(&self.tools.programs);
        let Some(known) = programs.tunable(service) else {
            return Err(UserError::cannot_run(format!("this webdyno does not know the service `{service}`"))
                .hint("use the webdyno that made the change"));
        };
        let Some(control) = self.journal.history().controls.get(&(service.to_owned(), port)).cloned() else {
            return Ok(None);
        };
        let same_boot = self.is_same_boot();
        let running = match programs.is_alive(&control) && same_boot {
            true => Some(control.clone()),
            false => programs.on_port(service, port, &control),
        };
        let history = self.journal.history();
        let is_ended_by_us =
            same_boot && touched.activations.iter().any(|(n, _)| history.may_have_ended_its_service(*n));
        if running.is_none() && self.stays_stopped(service, port, is_ended_by_us) {
            return Ok(None);
        }
        let Some(present) = known.locate(running.as_ref().unwrap_or(&control)) else {
            let gone = &control.executable;
            self.report.lines.push(format!("{service} was left as it is: its program {gone} is gone"));
            return Ok(None);
        };
        if running.is_none() {
            known.validate(&present)?;
            let started = known.start(&present, port)?;
            self.report.lines.push(format!("started {service} again (pid {})", started.control.pid));
            return Ok(Some(started));
        }
        let running = present;
        // What started since with our files may have taken over what a reload does not change.
        let is_same = same_boot && ProcessName::from(&running) == ProcessName::from(&control);
        let as_planned = if is_same { class } else { class.max(self.written_class(service, port)) };
        let class = if is_live { live_traffic_policy::class(as_planned) } else { as_planned };
        known.validate(&running)?;
        if !is_ended_by_us {
            self.intend_again(service, port, touched);
        }
        let activated = match known.activate(&running, class, port) {
            Err(_) if !programs.is_alive(&running) && programs.on_port(service, port, &running).is_none() => {
                let started = known.start(&running, port)?;
                self.report.lines.push(format!("started {service} again (pid {})", started.control.pid));
                return Ok(Some(started));
            }
            other => other.or_else(|error| self.activate_at_once(known, (&running, port), error))?,
        };
        let how = match class {
            ApplyClass::Restart => "restarted",
            _ => "reloaded",
        };
        self.report.lines.push(format!("{how} {service} {}", activation_text(&activated)));
        if class != as_planned {
            let left = live_traffic_policy::left(known, &running, &touched.activations);
            self.report.lines.extend(left.iter().cloned());
            self.report.left.extend(left);
        }
        Ok(Some(activated))
    }

    /// What is undone may be why requests take so long: waiting for them would keep it in force.
    fn activate_at_once(
        &mut self,
        known: &dyn Tunable,
        (running, port): (&Control, u16),
        error: UserError,
    ) -> Result<Activation> {
        let Some(activated) = known.activate_at_once(running, port) else { return Err(error) };
        self.report.lines.push(format!("ended the requests of {}: {}", known.name(), error.message));
        activated
    }

    /// Whether a service that does not run is left so: an operator stopped it, or another program has its place, and that
    /// is his to change.
    fn stays_stopped(&mut self, service: &str, port: u16, is_ended_by_us: bool) -> bool {
        let other = self.tools.programs.other_on_port(service, port);
        let stays = !is_ended_by_us || other.is_some();
        let by = other.map(|other| format!(": {other} answers on port {port}")).unwrap_or_default();
        self.report.lines.extend(stays.then(|| format!("{service} does not run, and was left so{by}")));
        stays
    }

    /// Whether an attempt before this one put a file back that the service has not taken over since.
    fn was_restored(&self, service: &str, port: u16) -> bool {
        let history = self.journal.history();
        let is_its = |entry: &&Entry| {
            served(&entry.action).is_some_and(|to| to.service == service && to.port == port) && entry.undone
        };
        let is_activation = |entry: &Entry| matches!(entry.action, Action::Activate(_));
        let is_conflict = |entry: &Entry| history.conflicts.iter().any(|conflict| conflict.n == entry.n);
        let since = history.entries.iter().rev().filter(is_its).take_while(|entry| !is_activation(entry));
        since.into_iter().any(|entry| !is_conflict(entry))
    }

    /// The most disruptive class of all that was written for a service.
    fn written_class(&self, service: &str, port: u16) -> ApplyClass {
        let from_n = self.scope.from_n;
        let entries = self.journal.history().entries.iter().filter(|entry| entry.n >= from_n);
        let class = |entry: &Entry| match &entry.action {
            Action::WriteFile(write) if write.served.service == service && write.served.port == port => {
                write.class
            }
            _ => None,
        };
        entries.filter_map(class).max().unwrap_or(ApplyClass::Reload)
    }
}

/// The outage that an activation was seen to have, as the end of its line.
fn missed(outage_us: Option<u64>) -> String {
    match outage_us {
        None | Some(0) => String::new(),
        Some(us) => format!("; downtime {}.{} ms", us / 1000, us / 100 % 10),
    }
}

/// What runs now, and what came of it, as the end of a line.
fn activation_text(activated: &Activation) -> String {
    let unsettled = activated.unsettled.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!("(pid {}){}{unsettled}", activated.control.pid, missed(activated.outage_us))
}

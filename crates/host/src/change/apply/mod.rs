//! Changing a server within a session: apply, revert, keep, launch, end.
//!
//! The order of one apply: check all files, and that nothing of others waits for a reload; let the program test what is
//! there already; learn how the site answers, and prove the new configuration on a shadow instance; then for each file
//! journal, temporary file, rename; let the program test the new files; look once more whether something waits; journal,
//! activate; read the running values back; look whether the site answers as before. When any step fails, everything of
//! this apply is undone before the error is told. It fails as well when the tool is gone ([`Cancellation`]), which is looked at
//! before each step and within its waits.

mod back;
mod files;
mod keep;
pub mod pending_reload;
mod prove;
mod read_back;
mod refusals;
mod values;

use crate::change::action::{Action, Activate, Launch, Served};
use crate::change::boot;
use crate::change::journal::claim::Claims;
use crate::change::journal::history::{Record, served as journal_served};
use crate::change::journal::lock::Lock;
use crate::change::journal::{Journal, Owner};
use crate::change::seams::Tools;
use crate::change::seams::helper::{Helper, RollbackOutcome};
use crate::change::seams::processes::site_client;
use crate::change::seams::services::Programs;
use crate::change::seams::state_dir::StateDir;
use crate::change::tuned_machine::TunedMachine;
use crate::change::undo::{Report, RunningPrograms, rollback, stop_launched, stop_some};
use crate::os::cancellation::Cancellation;
use crate::os::timeouts;
use crate::probes::site::Site;
use crate::services::Tunable;
use crate::services::value_holder::ValueHolder;
use prove::Subject;
use read_back::{WaitOptions, read_back};
use refusals::{OF_OTHERS, check_class, served_by};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use webdyno_model::change::{ApplyClass, ApplyOptions, JournalPlace, RenderedPlan};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// The most texts that are remembered to show what changed since.
const REMEMBERED_COUNT_MAX: usize = 100;

/// A change that is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Names the state before it, for [`Changer::revert`].
    pub mark: u64,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
    /// The service as it is now.
    pub snapshot: ServiceSnapshot,
    /// Changes of others that were put in force with it, in words.
    pub others: Vec<String>,
}

/// What was undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reverted {
    /// One line each, in the order in which it was done.
    pub lines: Vec<String>,
    /// What is not as before until the next restart, one line each; in `lines`, too.
    pub left: Vec<String>,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

/// Changes one server. Takes the lock and begins a journal with the first change, and not before.
pub struct Changer {
    tools: Tools,
    owner: Owner,
    session: Option<Session>,
    /// Whether others use the service; once they do, that holds to the end.
    live_traffic: bool,
    /// The texts that plans were made from, by path.
    planned: BTreeMap<String, String>,
    /// The running servers that hold values of their own, by their names in settings.
    holders: BTreeMap<String, ValueHolder>,
    /// The services behind the one under load whose files are changed, by their names in settings.
    backends: BTreeMap<String, ServiceSnapshot>,
    /// What it is changed for.
    made_for: Option<TunedMachine>,
    /// Whether the lock is shared with other agents of the tool, which has said itself who it is.
    shares_lock: bool,
    read_back_max: Duration,
    cancellation: Cancellation,
    notes: Vec<String>,
}

struct Session {
    journal: Journal,
    running: RunningPrograms,
    /// Not all could be undone from here on.
    half_undone_from: Option<u64>,
    /// The hook at boot could not be installed: the next write would meet the same obstacle.
    is_unhookable: bool,
    /// A change was undone of which the tool, which is gone, did not hear.
    has_undone_unheard: bool,
    claims: Claims,
    _lock: Lock,
}

impl Changer {
    /// For this machine.
    pub fn new(state: StateDir, programs: Arc<dyn Programs>, owner: Owner) -> Self {
        Self::with(Tools::with_programs(state, programs), owner)
    }

    /// With given seams.
    pub fn with(tools: Tools, owner: Owner) -> Self {
        Self {
            tools,
            owner,
            session: None,
            live_traffic: false,
            planned: BTreeMap::new(),
            holders: BTreeMap::new(),
            backends: BTreeMap::new(),
            made_for: None,
            shares_lock: false,
            read_back_max: timeouts::READ_BACK,
            cancellation: Cancellation::default(),
            notes: vec![],
        }
    }

    /// Undoes what was never kept of earlier sessions whose guardian is gone.
    pub fn undo_interrupted(&self) -> Result<RollbackOutcome> {
        rollback::undo_interrupted_with(&self.tools)
    }

    /// Says whose session it is; before the first change.
    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Lets the other agents of the tool change something at the same time; before the first change.
    pub fn share_lock(&mut self) {
        self.shares_lock = true;
    }

    /// Says with which words of `--server` the agent was reached; before the first change.
    pub fn set_server(&mut self, server: Option<String>) {
        self.tools.server = server;
    }

    /// Who undoes what sessions left that were at work in other namespaces.
    pub fn set_helper(&mut self, helper: Arc<dyn Helper>) {
        self.tools.helper = Some(helper);
    }

    /// Rolls sessions back that were not this one: all, or one journal, or what was never kept.
    pub fn roll_back(&self, journal: Option<&str>, only_unkept: bool) -> Result<RollbackOutcome> {
        if self.session.is_some() {
            return Err(UserError::cannot_run("this session changed something itself: it must end first"));
        }
        match journal {
            Some(id) => rollback::one_here(&self.tools, id, only_unkept),
            None if only_unkept => rollback::undo_interrupted_with(&self.tools),
            None => rollback::rollback_with(&self.tools)
                .map(|lines| RollbackOutcome { lines, ..RollbackOutcome::default() }),
        }
    }

    /// From when this is set, a change that is under way is given up, and none begins.
    pub fn set_cancellation(&mut self, cancellation: Cancellation) {
        self.cancellation = cancellation;
    }

    /// How long a program may take to show its new values.
    pub fn set_read_back_time(&mut self, at_most: Duration) {
        self.read_back_max = at_most;
    }

    /// Remembers the texts that a plan was made from, so that a later difference can be shown.
    pub fn remember(&mut self, plan: &RenderedPlan) {
        for edit in &plan.files {
            let Ok(Some(found)) = self.tools.disk.read(Path::new(&edit.path)) else { continue };
            let is_planned = Some(&found.sha256) == edit.before_sha256.as_ref();
            if let Ok(text) = String::from_utf8(found.content)
                && is_planned
                && self.planned.len() < REMEMBERED_COUNT_MAX
            {
                self.planned.insert(edit.path.clone(), text);
            }
        }
    }

    /// Remembers the running server that changes of its name are for.
    pub fn remember_holder(&mut self, holder: ValueHolder) {
        self.holders.insert(holder.name().to_owned(), holder);
    }

    /// Remembers the service behind the one under load that changes of its name are for.
    pub fn remember_backend(&mut self, snapshot: ServiceSnapshot) {
        self.backends.insert(snapshot.service.clone(), snapshot);
    }

    /// The service that a plan is for: the one under load, or a remembered one behind it.
    fn subject(&self, plan: &RenderedPlan, front: &ServiceSnapshot) -> ServiceSnapshot {
        let name = plan.changes.first().map(|change| change.setting.target.name());
        let behind = name.filter(|name| *name != front.service).and_then(|name| self.backends.get(name));
        behind.unwrap_or(front).clone()
    }

    /// Applies a plan for the service of `front`, or one behind it. On an error everything of it is undone, unless the hint says
    /// otherwise.
    pub fn apply(
        &mut self,
        plan: &RenderedPlan,
        front: &ServiceSnapshot,
        options: &ApplyOptions,
    ) -> Result<Applied> {
        self.live_traffic |= options.live_traffic;
        self.cancellation.check()?;
        check_class(plan, options.allow_restart)?;
        self.finish_undoing()?;
        if let Some(holders) = self.holders(plan) {
            return self.apply_values(plan, &holders, front, options);
        }
        let subject = self.subject(plan, front);
        let is_behind = subject.service != front.service;
        if is_behind && self.has_launched(front.port) {
            return Err(UserError::cannot_run(OF_OTHERS));
        }
        let served = served_by(plan, &subject)?;
        let programs = Arc::clone(&self.tools.programs);
        let service = programs.tunable(&served.service).ok_or_else(|| {
            UserError::cannot_run(format!("this webdyno cannot change the service `{}`", served.service))
        })?;
        self.refuse_second(&served)?;
        for edit in &plan.files {
            self.check_file(edit)?;
        }
        if plan.files.is_empty() {
            let mark = self.next_n();
            return Ok(Applied { mark, outage_us: None, snapshot: front.clone(), others: vec![] });
        }
        self.check_pending_reload(service, &served, plan.class, options)?;
        service.validate(&served.control).map_err(|error| {
            let text =
                format!("the configuration was not valid before the change already: {}", error.message);
            UserError { message: text, ..error }
        })?;
        self.cancellation.check()?;
        if let Some(control) = front.control.clone().filter(|_| is_behind) {
            self.begin(Some(&Served { service: front.service.clone(), port: front.port, control }))?;
        }
        self.begin(Some(&served))?;
        let mark = self.next_n();
        let mut site = None;
        // A panic of a service must not leave its half-done change in force until the session ends.
        let performed = catch_unwind(AssertUnwindSafe(|| {
            self.prepared(plan, service, &served, (front, options), &mut site)?;
            let applied = self.perform(plan, &subject, service, &served, options)?;
            self.compare(site.as_ref())?;
            let snapshot = if is_behind { front.clone() } else { applied.snapshot };
            Ok(Applied { mark, snapshot, ..applied })
        }));
        performed
            .unwrap_or_else(|_| Err(UserError::cannot_run("applying failed within webdyno itself")))
            .map_err(|error| self.undo_failed(mark, error, site.as_ref()))
    }

    /// The journal knows a service by its name and port: a second one of the same, as two PHP-FPM that have sockets instead of
    /// ports, would be taken for the first.
    fn refuse_second(&self, served: &Served) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let is_other = |known: &Served| {
            (&known.service, known.port) == (&served.service, served.port)
                && (&known.control.executable, &known.control.arguments)
                    != (&served.control.executable, &served.control.arguments)
        };
        let mut known =
            session.journal.history().outstanding(1).filter_map(|entry| journal_served(&entry.action));
        if !known.any(is_other) {
            return Ok(());
        }
        let why = format!("another {} is changed by this session already", served.service);
        Err(UserError::cannot_run(why).hint("end the session, then tune once more"))
    }

    /// What comes before anything is written: learning how the site answers, and the proof.
    fn prepared(
        &mut self,
        plan: &RenderedPlan,
        service: &dyn Tunable,
        served: &Served,
        (front, options): (&ServiceSnapshot, &ApplyOptions),
        site: &mut Option<Site>,
    ) -> Result<()> {
        *site = self.learn_site(front, options)?;
        if plan.class != ApplyClass::Live {
            let subject = Subject { service, served, probes: &options.probes };
            let unproved = self.prove(&plan.files, &subject, site.as_ref())?;
            self.notes.extend(unproved);
        }
        Ok(())
    }

    fn perform(
        &mut self,
        plan: &RenderedPlan,
        snapshot: &ServiceSnapshot,
        service: &dyn Tunable,
        served: &Served,
        options: &ApplyOptions,
    ) -> Result<Applied> {
        for edit in &plan.files {
            self.write(edit, served, plan.class)?;
        }
        service.validate(&served.control)?;
        let others = self.check_pending_reload(service, served, plan.class, options)?;
        let running = service.running_values(snapshot);
        let (changes, live_traffic) = (plan.changes.clone(), self.live_traffic);
        self.cancellation.check()?;
        // What cannot be done without harm is given up before the service hears of it: then its undo need not tell it either.
        let system = Arc::clone(&self.tools.system);
        let begun = system.monotonic();
        let quiet = service.quiesce(&served.control);
        let waited = system.monotonic().saturating_sub(begun);
        if quiet.is_err() {
            let name = service.name();
            self.notes.push(format!("{name} did not respond for {} ms", waited.as_millis()));
        }
        let quiet = quiet?;
        let quiet_us = quiet.as_ref().map(|_| waited.as_micros());
        // From the next line on the undo has to activate, too.
        let activate = Activate { served: served.clone(), class: plan.class, running, changes, live_traffic };
        let n = self.intend(Action::Activate(activate))?;
        let activation = service.activate(&served.control, plan.class, served.port);
        drop(quiet);
        let activation = activation?;
        let waited_us = quiet_us.map_or(0, |us| u64::try_from(us).unwrap_or(u64::MAX));
        let outage_us = activation.outage_us.map(|us| us.saturating_add(waited_us));
        let control = Some(activation.control.clone());
        self.journal()?.append(Record::Completed { n, control })?;
        let waiting = WaitOptions {
            system: system.as_ref(),
            at_most: self.read_back_max,
            cancellation: &self.cancellation,
        };
        let snapshot = read_back(plan, service, activation.control.pid, served.port, waiting);
        let snapshot = snapshot.map_err(|error| match activation.unsettled {
            Some(why) => error.hint(why),
            None => error,
        })?;
        Ok(Applied { mark: 0, outage_us, snapshot, others })
    }

    /// What of others would take effect with a change of ours; an error when the operator has not accepted that.
    fn check_pending_reload(
        &self,
        service: &dyn Tunable,
        served: &Served,
        class: ApplyClass,
        options: &ApplyOptions,
    ) -> Result<Vec<String>> {
        let entries = self.session.as_ref().map_or(&[][..], |session| &session.journal.history().entries);
        let own = [pending_reload::own(entries), pending_reload::left(&self.tools)?].concat();
        pending_reload::check(service, served, class, &own, options)
    }

    /// Looks whether the site answers as before, as far as that is known.
    fn compare(&self, site: Option<&Site>) -> Result<()> {
        let client = site_client(self.tools.system.as_ref()).until(&self.cancellation);
        let difference = site.and_then(|site| site.answers_as_before(&client).err());
        self.cancellation.check()?;
        match difference.map(|difference| difference.message) {
            None => Ok(()),
            Some(difference) => {
                Err(UserError::cannot_run(format!("the change made the site answer otherwise: {difference}"))
                    .hint("the error log of the service may say why"))
            }
        }
    }

    /// What the site answers otherwise than before.
    fn difference(&self, site: &Site) -> Option<String> {
        let compared = site.answers_as_before(&site_client(self.tools.system.as_ref()));
        compared.err().map(|difference| difference.message)
    }

    /// Starts a program that must not outlive the session, and waits until it answers on its port.
    pub fn launch(&mut self, command: &[String], pid_file: &str, port: u16) -> Result<()> {
        let launch = Launch::new(command.to_vec(), pid_file.to_owned(), port);
        self.cancellation.check()?;
        self.tools.system.check_launch(&launch)?;
        self.begin(None)?;
        let n = self.intend(Action::Launch(launch.clone()))?;
        let started = self.start(n, &launch);
        started.map_err(|error| {
            let report = self.undo(n, true);
            match report.error() {
                None => error,
                Some(undoing) => error.hint(format!("stopping it failed too: {}", undoing.message)),
            }
        })
    }

    fn start(&mut self, n: u64, launch: &Launch) -> Result<()> {
        let running = self.tools.system.launch(launch)?;
        let Some(session) = &mut self.session else { return Ok(()) };
        let running = session.running.entry(n).or_insert(running);
        let journal = &mut session.journal;
        running.cancel_with(&self.cancellation);
        running.wait_until_ready(launch, &mut |launched| journal.append(Record::Launched { n, launched }))?;
        journal.append(Record::Completed { n, control: None })
    }

    /// Stops what was launched. Its files need no undo, as nobody uses them any more.
    pub fn dispose(&mut self) -> Result<Reverted> {
        let Some(session) = &self.session else { return Ok(Reverted::default()) };
        let history = session.journal.history();
        let launches = history.outstanding(1).filter_map(|entry| match &entry.action {
            Action::Launch(launch) => Some(launch.port),
            _ => None,
        });
        let ports: Vec<u16> = launches.collect();
        let is_its_own =
            |action: &Action| journal_served(action).is_some_and(|served| ports.contains(&served.port));
        let others = history
            .outstanding(1)
            .any(|entry| journal_served(&entry.action).is_some() && !is_its_own(&entry.action));
        if others {
            // Never by accident: stopping must not take back or forget changes of a service that goes on.
            return Err(UserError::cannot_run(
                "a service that was not started for this session is changed, too",
            )
            .hint("keep or revert these changes first"));
        }
        reverted(self.stop_launched())
    }

    /// Stops shadow instances, and removes their files.
    fn stop_shadows(&mut self) -> Report {
        let Some(session) = &mut self.session else { return Report::default() };
        let is_shadow = |launch: &Launch| launch.folder.is_some();
        stop_some(&mut session.journal, &self.tools, &mut session.running, is_shadow)
    }

    /// Stops launched programs without a look at their files.
    fn stop_launched(&mut self) -> Report {
        let Some(session) = &mut self.session else { return Report::default() };
        stop_launched(&mut session.journal, &self.tools, &mut session.running)
    }

    /// Takes out of a snapshot what waits for a reload only by an earlier session of ours, which reverted it.
    pub fn forget_ours(&self, snapshot: &mut ServiceSnapshot) {
        pending_reload::forget_ours(&self.tools, snapshot);
    }

    /// Where the undo of this session is; `None` before its first change.
    pub fn journal_place(&self) -> Option<JournalPlace> {
        let session = self.session.as_ref()?;
        let state = &self.tools.state;
        Some(JournalPlace {
            id: session.journal.id(),
            state_directory: state.root().display().to_string(),
            is_default: state.is_default(),
        })
    }

    /// Whether a journal is open.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether something would be undone at the end.
    pub fn has_unkept(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.journal.history().has_unkept())
    }

    /// Takes the lock and begins the journal. Refused while an earlier session waits for its rollback: its changes
    /// would be taken for the original.
    fn begin(&mut self, served: Option<&Served>) -> Result<()> {
        if let Some(session) = &mut self.session {
            // A restart may have given the service another port.
            return served.map_or(Ok(()), |served| session.claims.take(&self.tools, served));
        }
        self.tools.state.create(self.tools.disk.as_ref())?;
        let tool = self.owner.tool.filter(|_| self.shares_lock);
        let lock = Lock::take_for(&self.tools, &Owner { tool, ..self.owner.clone() })?;
        rollback::refuse_when_pending(&self.tools, tool)?;
        let mut claims = Claims::default();
        served.map_or(Ok(()), |served| claims.take(&self.tools, served))?;
        let journal = Journal::create(&self.tools, &self.owner)?;
        let running = BTreeMap::new();
        let (half_undone_from, is_unhookable, has_undone_unheard) = (None, false, false);
        self.session = Some(Session {
            journal,
            running,
            half_undone_from,
            is_unhookable,
            has_undone_unheard,
            claims,
            _lock: lock,
        });
        Ok(())
    }

    /// From the first write on, a boot reverts everything.
    fn hook_boot(&mut self, served: &Served) -> Result<()> {
        let Some(session) = self.session.as_mut().filter(|session| !session.is_unhookable) else {
            return Ok(());
        };
        let note = boot::ensure(&mut session.journal, &self.tools, served)?;
        session.is_unhookable = note.is_some();
        self.notes.extend(note);
        Ok(())
    }

    /// What the operator should know since this was asked last.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn next_n(&self) -> u64 {
        self.session.as_ref().map_or(1, |session| session.journal.history().last_n() + 1)
    }

    fn intend(&mut self, action: Action) -> Result<u64> {
        let n = self.next_n();
        self.journal()?.append(Record::Intent { n, action })?;
        Ok(n)
    }

    fn journal(&mut self) -> Result<&mut Journal> {
        let session = self.session.as_mut().ok_or_else(|| UserError::cannot_run("no journal was begun"))?;
        Ok(&mut session.journal)
    }
}

fn reverted(report: Report) -> Result<Reverted> {
    match report.error() {
        None => Ok(Reverted { lines: report.lines, left: report.left, outage_us: report.outage_us }),
        Some(error) => Err(error),
    }
}

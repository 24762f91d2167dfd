//! The agent's work, one question at a time, on a thread of its own: a long apply delays no heartbeat.

use crate::agent::entering::Entering;
use crate::agent::following::{Following, target};
use crate::agent::host::{HarmGuard, Host};
use crate::agent::outbox::Outbox;
use crate::agent::protocol::{FromAgent, PROTOCOL, ToAgent, Tool};
use crate::agent::{targets, this_build, tuned_before};
use crate::change::StateDir;
use crate::change::apply::{Changer, Reverted};
use crate::change::journal::Owner;
use crate::change::journal::history::ClosedBy;
use crate::change::seams::Tools;
use crate::change::seams::helper::RollbackOutcome;
use crate::change::seams::services::Programs;
use crate::change::seams::this_machine::ThisMachine;
use crate::collectors::Target;
use crate::discovery::survey::SurveyBudget;
use crate::os::cancellation::Cancellation;
use crate::os::clock::clock_us;
use crate::os::process::{self, ProcessName};
use crate::os::{machine, page_cache, timeouts};
use crate::services::UNKNOWN;
use crate::visibility::listeners::NO_PID;
use crate::visibility::mount_namespace::within;
use std::collections::VecDeque;
use std::io::Write;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::harm_guard::SiteUnderLoad;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};
use webdyno_model::{Result, UserError};

/// For so long a topology that was asked for is taken for what is observed.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// What the worker gets to do.
#[derive(Debug)]
pub enum Job {
    /// Answer a question.
    Ask(u64, ToAgent),
    /// The tool is gone, for this reason: revert everything.
    End(String),
}

/// So many plans of its own an agent knows again.
const PREPARED_COUNT_MAX: usize = 64;

/// What an agent works with.
pub struct Options {
    /// Where journals are.
    pub state: StateDir,
    /// The machine.
    pub host: Arc<dyn Host>,
    /// Without a message for this long the tool counts as gone.
    pub silence_max: Duration,
    /// Which build this is; the tool's must be the same.
    pub build: String,
    /// Whether it leaves the session of its parent and makes itself hard to end: not in tests, whose process is not its
    /// own.
    pub detach: bool,
    /// Whether it changes settings and does nothing else as its user: it starts no program that the tool names, and
    /// writes no plan that it has not rendered itself.
    pub settings_only: bool,
}

impl Options {
    /// For `webdyno agent` on this machine.
    pub fn for_this_machine(settings_only: bool) -> Result<Self> {
        Ok(Self {
            state: StateDir::of_environment()?,
            host: Arc::new(ThisMachine),
            silence_max: timeouts::SILENCE,
            build: this_build().to_owned(),
            detach: true,
            settings_only,
        })
    }
}

/// The state of one session.
pub struct Worker {
    host: Arc<dyn Host>,
    build: String,
    outbox: Outbox,
    changer: Changer,
    /// Where journals of earlier sessions are.
    state: StateDir,
    has_reported_machine: bool,
    /// What waits is not to be done any more.
    cancellation: Cancellation,
    greeted: bool,
    /// Whether nothing is to be written.
    reads_only: bool,
    /// Whether it is bound to settings, and by which plans of its own.
    settings_only: bool,
    prepared: VecDeque<RenderedPlan>,
    has_put_back: bool,
    snapshot: Option<ServiceSnapshot>,
    /// Whether another host serves the site.
    is_behind: bool,
    watch: Option<Following>,
    /// The topology that was asked for last, with its port and when.
    topology: Option<(Option<u16>, Instant, Topology)>,
    /// What the operator gave to get into the services behind.
    access: Access,
}

impl Worker {
    /// At the start of a session. `abandoned` is set when the tool is gone.
    pub fn new(options: &Options, outbox: Outbox, cancellation: Cancellation) -> Self {
        let programs: Arc<dyn Programs> = Arc::clone(&options.host) as Arc<dyn Programs>;
        let owner = Owner { tool: ProcessName::parent(), what: "webdyno".into() };
        let mut changer = Changer::new(options.state.clone(), programs, owner);
        changer.set_cancellation(cancellation.clone());
        changer.set_helper(Arc::new(Entering));
        Self {
            host: Arc::clone(&options.host),
            build: options.build.clone(),
            outbox,
            changer,
            state: options.state.clone(),
            has_reported_machine: false,
            cancellation,
            greeted: false,
            reads_only: false,
            settings_only: options.settings_only,
            prepared: VecDeque::new(),
            has_put_back: false,
            snapshot: None,
            is_behind: false,
            watch: None,
            topology: None,
            access: Access::default(),
        }
    }

    /// Works until the end of the session.
    pub fn run(mut self, jobs: &Receiver<Job>) -> Result<()> {
        for job in jobs {
            match job {
                Job::End(why) => {
                    if self.changer.has_unkept() {
                        // Nobody may be there to read it.
                        let _ = writeln!(std::io::stderr(), "webdyno agent: {why}; reverting all changes");
                    }
                    break;
                }
                Job::Ask(..) if self.cancellation.is_set() => {}
                Job::Ask(id, ToAgent::Bye) => return self.close_session(id),
                Job::Ask(id, question) => {
                    let fatal = matches!(question, ToAgent::Hello { .. }) && !self.greeted;
                    let answer = guarded(|| self.answer(question));
                    let failed = answer.as_ref().err().cloned();
                    self.outbox.answer(id, answer.unwrap_or_else(|error| FromAgent::Failed { error }));
                    if let Some(error) = failed.filter(|_| fatal) {
                        return Err(error);
                    }
                }
            }
        }
        // Only then the watch: nothing that it waits for may delay this.
        let ended = self.revert_all(ClosedBy::Guardian).map(|_| ());
        self.watch = None;
        ended
    }

    fn close_session(&mut self, id: u64) -> Result<()> {
        let ended = self.revert_all(ClosedBy::Tool);
        let answer = match &ended {
            Ok(answer) => answer.clone(),
            Err(error) => FromAgent::Failed { error: error.clone() },
        };
        self.outbox.answer(id, answer);
        self.watch = None;
        ended.map(|_| ())
    }

    /// Ends the session's changes.
    fn revert_all(&mut self, by: ClosedBy) -> Result<FromAgent> {
        let reverted = self.changer.revert_all(by)?;
        Ok(match reverted.lines.is_empty() {
            true => FromAgent::Done,
            false => reverted_message(reverted),
        })
    }

    fn answer(&mut self, question: ToAgent) -> Result<FromAgent> {
        if let ToAgent::Hello { protocol, build, tool, reads_only } = question {
            self.reads_only = reads_only;
            return self.hello(protocol, &build, tool);
        }
        if !self.greeted {
            return Err(UserError::cannot_run("the agent got a request before hello"));
        }
        if self.reads_only && writes(&question) {
            return Err(UserError::cannot_run(
                "this session only observes: it changes nothing on the server",
            ));
        }
        self.check_permission(&question)?;
        match question {
            ToAgent::Discover { port } => self.discover(port),
            ToAgent::Topology { port, access } => {
                Ok(FromAgent::Topology { topology: Box::new(self.topology(port, &access)?) })
            }
            ToAgent::Observe { port, client_pid, access, in_full } => {
                self.observe(port, Target { client_pid, access, in_full, ..Target::default() })
            }
            ToAgent::Owns { addresses, net_space } => Ok(self.owns(addresses, net_space)),
            ToAgent::LoadBegins { site } => {
                Ok(FromAgent::Watched { missing: self.watching()?.watched().begin_load(&site) })
            }
            ToAgent::LoadEnds => {
                self.watching()?.watched().harm_guard.end();
                Ok(FromAgent::Done)
            }
            ToAgent::Unrest => {
                Ok(FromAgent::Unrest { why: self.watching()?.watched().harm_guard.disturbance() })
            }
            ToAgent::DropPages { paths, only_look } => self.drop_pages(&paths, only_look),
            ToAgent::Prepare { changes, behind } => self.prepare(&changes, behind),
            ToAgent::Apply { plan, options } => self.apply(&plan, &options),
            ToAgent::Revert { mark, live_traffic } => {
                let reverted = self.changer.revert(mark, live_traffic);
                self.refresh_topology();
                reverted.map(reverted_message)
            }
            ToAgent::Keep => {
                let machine = tuned_before::machine(&self.host.environment(), self.services());
                self.changer.set_machine(machine);
                let kept = self.changer.keep();
                self.send_notes();
                kept.map(|()| FromAgent::Done)
            }
            ToAgent::Launch { command, pid_file, port } => {
                self.changer.launch(&command, &pid_file, port).map(|()| FromAgent::Done)
            }
            ToAgent::Dispose => {
                let stopped = self.changer.dispose()?;
                Ok(reverted_message(stopped))
            }
            ToAgent::RollBack { journal, only_unkept } => self.roll_back(journal.as_deref(), only_unkept),
            ToAgent::Hello { .. } | ToAgent::Heartbeat | ToAgent::Bye => Ok(FromAgent::Done),
        }
    }

    /// Drops what the page cache holds of files, where the service sees them.
    fn drop_pages(&self, paths: &[std::path::PathBuf], only_look: bool) -> Result<FromAgent> {
        let pid = self.snapshot.as_ref().map_or(NO_PID, |service| service.pid);
        let dropped = match pid {
            NO_PID => Ok(page_cache::drop_pages(paths, only_look)),
            pid => within(pid, || page_cache::drop_pages(paths, only_look)),
        };
        let unseen =
            |error| UserError::cannot_run(format!("the files of the service cannot be reached: {error}"));
        Ok(FromAgent::DroppedPages { pages: dropped.map_err(unseen)?? })
    }

    /// Who may run this agent by sudo, and nothing else, must not become root by it.
    fn check_permission(&self, question: &ToAgent) -> Result<()> {
        let why = match question {
            _ if !self.settings_only => return Ok(()),
            ToAgent::Launch { .. } => "it starts no program",
            ToAgent::DropPages { .. } => "it opens no files that it is told",
            ToAgent::Apply { plan, .. } if !self.prepared.contains(plan) => {
                "it writes only what it has prepared itself"
            }
            _ => return Ok(()),
        };
        Err(UserError::cannot_run(format!("the agent was started for settings only: {why}"))
            .hint("log in as root, or permit `sh` in sudoers"))
    }

    fn roll_back(&self, journal: Option<&str>, only_unkept: bool) -> Result<FromAgent> {
        let RollbackOutcome { lines, problem, unfinished } = self.changer.roll_back(journal, only_unkept)?;
        Ok(FromAgent::RolledBack { lines, problem, unfinished })
    }

    /// Which addresses are this machine's. A loopback address means another one in another network.
    fn owns(&self, addresses: Vec<IpAddr>, net_space: Option<String>) -> FromAgent {
        let same_network = machine::net_space().is_some_and(|ours| net_space == Some(ours));
        let ours = |address: &IpAddr| {
            let is_here = same_network || !(address.is_loopback() || address.is_unspecified());
            is_here && self.host.owns(*address)
        };
        FromAgent::Owned { addresses: addresses.into_iter().filter(ours).collect(), same_network }
    }

    /// What the operator should know of a change, beside its answer.
    fn send_notes(&mut self) {
        let notes = self.changer.take_notes();
        notes.into_iter().for_each(|text| self.outbox.send(FromAgent::Warning { text }));
    }

    fn hello(&mut self, protocol: u32, build: &str, tool: Option<Tool>) -> Result<FromAgent> {
        if protocol != PROTOCOL || build != self.build {
            return Err(UserError::cannot_run(format!(
                "the tool is webdyno {build} with protocol {protocol}, and the agent is {} with protocol {PROTOCOL}",
                self.build
            ))
            .hint("install the same build on both machines, or let it be copied: `--server ssh://HOST`, or a command that ends in `webdyno agent`"));
        }
        if let Some(tool) = tool {
            // A pid of another machine or container says nothing here: then what carries the connection stands for it.
            let same = process::pid_space().as_ref() == Some(&tool.pid_space);
            let process = if same { Some(tool.process) } else { ProcessName::parent() };
            self.changer.set_owner(Owner { tool: process, what: tool.what });
            self.changer.set_server(tool.server);
            if same {
                self.changer.share_lock();
            }
        }
        self.greeted = true;
        let (environment, collectors) = (self.host.environment(), self.host.collectors());
        let build = self.build.clone();
        Ok(FromAgent::Hello {
            protocol: PROTOCOL,
            build,
            environment,
            collectors,
            clock_us: clock_us(),
            clock_space: machine::clock_space(),
        })
    }

    /// Before a server is looked at for the first time: what an earlier session left of itself would be taken for the
    /// original. A tool on this machine has done that already.
    fn revert_earlier(&mut self) {
        if self.reads_only || std::mem::replace(&mut self.has_put_back, true) {
            return;
        }
        let done = guarded(|| self.changer.undo_interrupted());
        let (lines, problem) =
            done.map_or_else(|error| (vec![], Some(error)), |done| (done.lines, done.problem));
        let shown =
            lines.into_iter().map(|line| format!("reverted changes of an interrupted session: {line}"));
        for text in shown.chain(problem.map(|problem| problem.message)) {
            self.outbox.send(FromAgent::Warning { text });
        }
    }

    fn discover(&mut self, port: u16) -> Result<FromAgent> {
        self.revert_earlier();
        let mut snapshot = self.host.discover(port)?;
        self.changer.forget_ours(&mut snapshot);
        self.report_machine_change(std::iter::once(&snapshot));
        self.set_service(snapshot.clone());
        Ok(FromAgent::Discovered { snapshot: Box::new(snapshot) })
    }

    /// Says once what an earlier session kept for a machine that is not this one any more.
    fn report_machine_change<'a>(&mut self, services: impl Iterator<Item = &'a ServiceSnapshot>) {
        if std::mem::replace(&mut self.has_reported_machine, true) {
            return;
        }
        let machine = tuned_before::machine(&self.host.environment(), services);
        let tools = Tools::with_programs(self.state.clone(), Arc::clone(&self.host) as Arc<dyn Programs>);
        let text = guarded(|| Ok(tuned_before::misfit(&tools, &machine))).ok().flatten();
        text.into_iter().for_each(|text| self.outbox.send(FromAgent::Warning { text }));
    }

    /// The service under load and those behind it, as they were read last.
    fn services(&self) -> impl Iterator<Item = &ServiceSnapshot> {
        let behind = self.topology.iter().flat_map(|(_, _, topology)| &topology.backends);
        self.snapshot.iter().chain(behind)
    }

    /// The service under load. On a host behind the one that serves the site nobody has its port, and we stand for it.
    fn front(&self) -> Result<ServiceSnapshot> {
        if self.is_behind {
            return Ok(ServiceSnapshot {
                service: UNKNOWN.into(),
                pid: std::process::id(),
                ..Default::default()
            });
        }
        self.snapshot.clone().ok_or_else(|| UserError::cannot_run("no service was discovered yet"))
    }

    fn apply(&mut self, plan: &RenderedPlan, options: &ApplyOptions) -> Result<FromAgent> {
        let snapshot = self.front()?;
        let applied = self.changer.apply(plan, &snapshot, options);
        let notes = self.changer.take_notes();
        notes.into_iter().for_each(|text| self.outbox.send(FromAgent::Warning { text }));
        if applied.is_err() {
            self.refresh_topology();
        }
        let applied = applied?;
        for change in &applied.others {
            let text = format!("with the change, one of others took effect: {change}");
            self.outbox.send(FromAgent::Warning { text });
        }
        if !self.is_behind {
            self.set_service(applied.snapshot.clone());
        }
        let (mark, outage_us) = (applied.mark, applied.outage_us);
        let (snapshot, journal) = (Box::new(applied.snapshot), self.changer.journal_place());
        Ok(FromAgent::Applied { mark, outage_us, snapshot, journal })
    }

    /// Lets the target of these changes render them.
    fn prepare(&mut self, changes: &[SettingChange], behind: bool) -> Result<FromAgent> {
        self.is_behind |= behind;
        let front = self.front()?;
        self.revert_earlier();
        let port = (!self.is_behind).then_some(front.port);
        let is_private = self.changer.has_launched(front.port);
        // Behind another host all services are backends, whichever of them this one takes for its front.
        let all = |topology: &Topology| match port {
            Some(_) => topology.backends.clone(),
            None => topology.services().cloned().collect::<Vec<_>>(),
        };
        // What was seen while it was observed: a site without load may not be connected to its backends.
        let seen = self.watch.as_ref().map_or(vec![], |watch| all(watch.watched().topology()));
        let is_running = |pid| ProcessName::of(pid).is_some_and(ProcessName::is_alive);
        let mut backends = || {
            let find = || Ok(all(&self.host.topology(port, &self.access)?));
            Ok((targets::still_there(seen.clone(), is_running, find)?, self.access.clone()))
        };
        let prepared = targets::prepare(self.host.as_ref(), (&front, is_private), changes, &mut backends)?;
        if let Preparation::Plan(plan) = &prepared.preparation {
            self.changer.remember(plan);
            if self.prepared.len() >= PREPARED_COUNT_MAX {
                self.prepared.pop_front();
            }
            self.prepared.push_back(RenderedPlan::clone(plan));
        }
        prepared.holders.into_iter().for_each(|holder| self.changer.remember_holder(holder));
        if let Some(backend) = prepared.backend {
            self.changer.remember_backend(backend);
        }
        Ok(FromAgent::Prepared { preparation: prepared.preparation })
    }

    fn topology(&mut self, port: Option<u16>, access: &Access) -> Result<Topology> {
        self.access = access.clone();
        let mut topology = self.host.topology(port, access)?;
        if let Some(front) = &mut topology.front {
            self.changer.forget_ours(front);
        }
        self.report_machine_change(topology.services());
        self.topology = Some((port, Instant::now(), topology.clone()));
        Ok(topology)
    }

    fn observe(&mut self, port: Option<u16>, asked: Target) -> Result<FromAgent> {
        self.watch = None;
        self.access = asked.access.clone();
        let known = self.snapshot.as_ref().filter(|snapshot| Some(snapshot.port) == port).cloned();
        let looked =
            self.topology.as_ref().filter(|(of, when, _)| *of == port && when.elapsed() < STALE_AFTER);
        let looked = looked.map(|(_, _, topology)| topology.clone());
        let looked_well = looked.is_some();
        // The machine can be read without a known service. What takes longer is looked for while it is read already.
        let mut seen = looked.unwrap_or_else(|| {
            let before = Topology { front: known.clone(), ..Topology::default() };
            self.host.refresh_topology(port, &asked.access, &before, SurveyBudget::ONCE).unwrap_or_default()
        });
        let snapshot = known.or(seen.front);
        seen.front = snapshot.clone();
        let (sink, samples) = channel();
        let backends = seen.backends.clone().into();
        let what = target(snapshot.as_ref(), Target { port, backends, ..asked });
        let outbox = self.outbox.clone();
        let pull = Box::new(move |brake| outbox.send(FromAgent::Brake { brake }));
        let brake: Box<dyn HarmGuard> = if self.reads_only {
            Box::new(NoLoads)
        } else {
            self.host.watch_loads(&what, snapshot.as_ref(), pull)?
        };
        let watch = self.host.observe(what.clone(), sink)?;
        let outbox = self.outbox.clone();
        // Ends with the observer, which holds the other end.
        std::thread::spawn(move || {
            for (clock_us, sample) in samples {
                outbox.send(FromAgent::Sample { clock_us, sample });
            }
        });
        let (host, outbox) = (Arc::clone(&self.host), self.outbox.clone());
        self.watch = Some(Following::start(host, outbox, (watch, brake), (what, seen), (port, looked_well)));
        Ok(FromAgent::Done)
    }

    fn watching(&self) -> Result<&Following> {
        self.watch.as_ref().ok_or_else(|| UserError::cannot_run("nothing is observed yet"))
    }

    /// The service may have another main process now.
    fn set_service(&mut self, snapshot: ServiceSnapshot) {
        if let Some(watch) = &self.watch {
            watch.watched().set_service(&snapshot);
        }
        self.snapshot = Some(snapshot);
    }

    /// After something was undone: what was read before does not hold any more.
    fn refresh_topology(&mut self) {
        let port = self.snapshot.as_ref().map(|snapshot| snapshot.port);
        // Nobody asks any more, and what is not undone yet must not wait for this.
        let Some(port) = port.filter(|_| !self.cancellation.is_set()) else { return };
        match self.host.discover(port) {
            Ok(snapshot) => self.set_service(snapshot),
            Err(error) => self.outbox.send(FromAgent::Warning { text: error.message }),
        }
    }
}

/// Whether a question would have something written.
fn writes(question: &ToAgent) -> bool {
    matches!(
        question,
        ToAgent::LoadBegins { .. }
            | ToAgent::Apply { .. }
            | ToAgent::DropPages { .. }
            | ToAgent::Launch { .. }
            | ToAgent::Keep
            | ToAgent::RollBack { .. }
    )
}

/// The harm guard of a session that makes no loads: nothing has to be watched for it.
struct NoLoads;

impl HarmGuard for NoLoads {
    fn set_target(&self, _: &Target) {}

    fn begin(&self, _: &SiteUnderLoad) -> Vec<MissingSignal> {
        vec![]
    }

    fn end(&self) {}

    fn disturbance(&self) -> Option<String> {
        None
    }
}

fn reverted_message(done: Reverted) -> FromAgent {
    FromAgent::Reverted { actions: done.lines, left: done.left, outage_us: done.outage_us }
}

/// A panic of what is called ends one answer, not the guardian.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(UserError::cannot_run("the agent failed at this").hint("its stderr says where; please report it"))
    })
}

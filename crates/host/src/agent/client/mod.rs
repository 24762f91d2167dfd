//! The tool's end: starts an agent, asks it things, hears its samples, and keeps it from reverting while the tool lives.
//!
//! Every question has a time limit. When the agent is gone, every question says so at once.

mod exchange;
mod topology_events;

use crate::agent::address::ServerAddress;
use crate::agent::clock::{ClockOffset, ClockReading};
use crate::agent::connect::{Connection, connect};
use crate::agent::protocol::{FromAgent, PROTOCOL, ToAgent, Tool};
pub use crate::agent::responses::{AppliedChange, HelloInfo, Owned, RevertedChange};
use crate::agent::stderr_capture::{StderrCapture, explain};
use crate::agent::{Start, this_build};
use crate::change::seams::helper::RollbackOutcome;
use crate::os::clock::clock_us;
use crate::os::page_cache::DroppedPages;
use crate::os::process::{self, ProcessName, wait_until};
use crate::os::{machine, timeouts};
use exchange::Shared;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::environment::Environment;
use webdyno_model::harm_guard::{HarmGuardTrip, SiteUnderLoad};
use webdyno_model::sample::{MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};
use webdyno_model::{Result, UserError};

/// How long the agent's process may take to end after goodbye.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// How often the clocks are compared.
const CLOCK_READINGS_COUNT: u32 = 4;

/// An agent that is at work for us. Can be asked from several threads; dropping it says goodbye.
pub struct AgentClient {
    shared: Arc<Shared>,
    child: Mutex<Child>,
    address: ServerAddress,
    hello: HelloInfo,
    bye_sent: Mutex<bool>,
    /// Dropping it ends the heartbeat.
    _heartbeat: Sender<()>,
}

impl AgentClient {
    /// Starts the agent of a server: for a local one `own_executable agent`. Errors: it cannot be started, does not
    /// answer, or is another version.
    pub fn spawn(server: &ServerAddress, own_executable: &Path) -> Result<Self> {
        Self::start(&Start::at(server.clone(), own_executable))
    }

    /// Starts an agent.
    pub fn start(start: &Start) -> Result<Self> {
        let Connection { child, stdin, stdout, stderr: stderr_capture } = connect(start)?;
        let shared = Arc::new(Shared::new(stdin));
        let ears = Arc::clone(&shared);
        std::thread::spawn(move || ears.listen(stdout));
        let (heartbeat, stop) = channel();
        let mut client = Self {
            shared,
            child: Mutex::new(child),
            address: start.address.clone(),
            hello: HelloInfo {
                environment: Environment::default(),
                collectors: vec![],
                clock: ClockOffset { offset_us: 0, error_us: u64::MAX },
            },
            bye_sent: Mutex::new(false),
            _heartbeat: heartbeat,
        };
        client.greet(start, stderr_capture.as_ref())?;
        stderr_capture.iter().for_each(StderrCapture::connected);
        client.shared.received().last = Some(Instant::now());
        let heart = Arc::clone(&client.shared);
        std::thread::spawn(move || heart.beat(&stop));
        Ok(client)
    }

    fn greet(&mut self, start: &Start, stderr_capture: Option<&StderrCapture>) -> Result<()> {
        for _ in 0..CLOCK_READINGS_COUNT {
            let question = ToAgent::Hello {
                protocol: PROTOCOL,
                build: this_build().to_owned(),
                tool: this_tool(&start.address),
                reads_only: start.reads_only,
            };
            let asked_us = clock_us();
            let answer = self.request(question, timeouts::HELLO_ANSWER);
            let answer = answer.map_err(|error| self.why_no_agent(error, start, stderr_capture))?;
            let FromAgent::Hello { environment, collectors, clock_us: theirs_us, clock_space, .. } = answer
            else {
                return Err(unexpected(&answer));
            };
            let heard_us = clock_us();
            let mut heard = self.shared.received();
            heard.clocks.add(ClockReading { asked_us, theirs_us, heard_us });
            let clock = heard.clocks.offset(heard_us).unwrap_or(self.hello.clock);
            // A kernel's identity can be copied, as by a snapshot of a machine: then the readings contradict it.
            let fits = clock.offset_us.unsigned_abs() <= clock.error_us;
            if clock_space.is_some() && clock_space == machine::clock_space() && fits {
                heard.clocks.is_ours();
            }
            let clock = heard.clocks.offset(heard_us).unwrap_or(clock);
            drop(heard);
            self.hello = HelloInfo { environment, collectors, clock };
        }
        Ok(())
    }

    /// Why it did not even say hello.
    fn why_no_agent(
        &self,
        error: UserError,
        start: &Start,
        stderr_capture: Option<&StderrCapture>,
    ) -> UserError {
        if !error.message.contains("unexpectedly") || !self.has_ended() {
            return error;
        }
        if let Some(stderr_capture) = stderr_capture {
            wait_until(Duration::from_millis(500), || stderr_capture.has_ended());
        }
        let lines = stderr_capture.map(StderrCapture::lines).unwrap_or_default();
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().ok().flatten();
        match &start.address {
            ServerAddress::Local if lines.is_empty() => error,
            address => explain(address, &lines, status.map(|status| status.to_string()), ""),
        }
    }

    /// What the agent said of itself.
    pub fn hello(&self) -> &HelloInfo {
        &self.hello
    }

    /// The agent's clock, as it is known now.
    pub fn clock(&self) -> ClockOffset {
        self.shared.received().clocks.offset(clock_us()).unwrap_or(self.hello.clock)
    }

    /// Which service listens on a port?
    pub fn discover(&self, port: u16) -> Result<ServiceSnapshot> {
        match self.request(ToAgent::Discover { port }, timeouts::DISCOVER_ANSWER)? {
            FromAgent::Discovered { snapshot } => Ok(*snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// The service that listens on a port with its backends, or all known services of the machine.
    pub fn topology(&self, port: Option<u16>, access: &Access) -> Result<Topology> {
        match self.request(ToAgent::Topology { port, access: access.clone() }, timeouts::DISCOVER_ANSWER)? {
            FromAgent::Topology { topology } => Ok(*topology),
            other => Err(unexpected(&other)),
        }
    }

    /// Samples from now on, with the time of their reading on our CLOCK_MONOTONIC in microseconds.
    pub fn observe(
        &self,
        port: Option<u16>,
        client_pid: Option<u32>,
        access: Access,
    ) -> Result<Receiver<(u64, Sample)>> {
        self.samples(ToAgent::Observe { port, client_pid, access, in_full: false })
    }

    /// The same for one look that lasts a few seconds: everything is read each second, however expensive.
    pub fn sample_once(&self, port: Option<u16>, access: Access) -> Result<Receiver<(u64, Sample)>> {
        self.samples(ToAgent::Observe { port, client_pid: None, access, in_full: true })
    }

    fn samples(&self, question: ToAgent) -> Result<Receiver<(u64, Sample)>> {
        let (sender, samples) = channel();
        self.shared.received().samples = Some(sender);
        let done = self.done(question, timeouts::READ_ANSWER);
        if done.is_err() {
            self.shared.received().samples = None;
        }
        done.map(|()| samples)
    }

    /// Which of these addresses belong to the agent's machine?
    pub fn owns(&self, addresses: &[IpAddr]) -> Result<Owned> {
        let question = ToAgent::Owns { addresses: addresses.to_vec(), net_space: machine::net_space() };
        match self.request(question, timeouts::READ_ANSWER)? {
            FromAgent::Owned { addresses, same_network } => Ok(Owned { addresses, same_network }),
            other => Err(unexpected(&other)),
        }
    }

    /// Has a load watched that is about to begin: harm is told by [`AgentClient::harm`]. Gives what cannot be watched.
    pub fn load_begins(&self, site: &SiteUnderLoad) -> Result<Vec<MissingSignal>> {
        match self.request(ToAgent::LoadBegins { site: site.clone() }, timeouts::READ_ANSWER)? {
            FromAgent::Watched { missing } => Ok(missing),
            other => Err(unexpected(&other)),
        }
    }

    /// The load has ended. What [`AgentClient::harm`] gives after this is of that load, and there is no more to come.
    pub fn load_ends(&self) -> Result<()> {
        self.done(ToAgent::LoadEnds, timeouts::READ_ANSWER)
    }

    /// Why the server is not quiet yet after a brake; `None` when it is.
    pub fn disturbance(&self) -> Result<Option<String>> {
        match self.request(ToAgent::Unrest, timeouts::READ_ANSWER)? {
            FromAgent::Unrest { why } => Ok(why),
            other => Err(unexpected(&other)),
        }
    }

    /// Drops what the page cache holds of these files, and of all below these directories; `only_look`: sees whether that can be done.
    pub fn drop_pages(&self, paths: &[PathBuf], only_look: bool) -> Result<DroppedPages> {
        match self
            .request(ToAgent::DropPages { paths: paths.to_vec(), only_look }, timeouts::DROP_PAGES_ANSWER)?
        {
            FromAgent::DroppedPages { pages } => Ok(pages),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets the target of these changes render them: the service that was discovered last, or the kernel it runs on.
    /// Writes nothing.
    pub fn prepare(&self, changes: &[SettingChange]) -> Result<Preparation> {
        self.prepare_with(changes, false)
    }

    /// The same on a host behind the one that serves the site: of a service that it runs, or of its kernel.
    pub fn prepare_behind(&self, changes: &[SettingChange]) -> Result<Preparation> {
        self.prepare_with(changes, true)
    }

    fn prepare_with(&self, changes: &[SettingChange], behind: bool) -> Result<Preparation> {
        let question = ToAgent::Prepare { changes: changes.to_vec(), behind };
        match self.request(question, timeouts::READ_ANSWER)? {
            FromAgent::Prepared { preparation } => Ok(preparation),
            other => Err(unexpected(&other)),
        }
    }

    /// Applies a plan. On an error nothing of it stays.
    pub fn apply(&self, plan: &RenderedPlan, options: &ApplyOptions) -> Result<AppliedChange> {
        let question = ToAgent::Apply { plan: plan.clone(), options: options.clone() };
        match self.request(question, timeouts::APPLY_ANSWER)? {
            FromAgent::Applied { mark, outage_us, snapshot, journal } => {
                Ok(AppliedChange { mark, outage_us, snapshot: *snapshot, journal })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Undoes applied plans from the last back to a mark (0: all). With live traffic nothing is restarted for it.
    pub fn revert(&self, mark: u64, live_traffic: bool) -> Result<RevertedChange> {
        reverted(self.request(ToAgent::Revert { mark, live_traffic }, timeouts::REVERT_ANSWER)?)
    }

    /// What is applied stays when the agent ends.
    pub fn keep(&self) -> Result<()> {
        self.done(ToAgent::Keep, timeouts::READ_ANSWER)
    }

    /// Starts a program that does not outlive the session, and waits until it answers on its port.
    pub fn launch(&self, command: &[String], pid_file: &Path, port: u16) -> Result<()> {
        let pid_file = pid_file.to_str().ok_or_else(|| {
            UserError::cannot_run(format!(
                "{} is not UTF-8: it cannot be told to the agent",
                pid_file.display()
            ))
        })?;
        let question = ToAgent::Launch { command: command.to_vec(), pid_file: pid_file.to_owned(), port };
        self.done(question, timeouts::LAUNCH_ANSWER)
    }

    /// Stops what was launched.
    pub fn dispose(&self) -> Result<RevertedChange> {
        reverted(self.request(ToAgent::Dispose, timeouts::DISPOSE_ANSWER)?)
    }

    /// Rolls back what other sessions did there: all, or one journal, or only what was never kept.
    pub fn roll_back(&self, journal: Option<&str>, only_unkept: bool) -> Result<RollbackOutcome> {
        let question = ToAgent::RollBack { journal: journal.map(str::to_owned), only_unkept };
        match self.request(question, timeouts::ROLL_BACK_ANSWER)? {
            FromAgent::RolledBack { lines, problem, unfinished } => {
                Ok(RollbackOutcome { lines, problem, unfinished })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Why the load must end at once, if the agent said so since this was asked last.
    pub fn harm(&self) -> Option<HarmGuardTrip> {
        self.shared.received().harm.take()
    }

    /// For how long nothing was heard of it, not even answers to heartbeats, though its stream has not ended; `None` as
    /// long as that may be chance.
    pub fn silent_for(&self) -> Option<Duration> {
        let last = self.shared.received().last;
        last.map(|last| last.elapsed()).filter(|silence| *silence > timeouts::AGENT_SILENCE)
    }

    /// What the agent wanted to be known since this was asked last.
    pub fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.received().warnings)
    }

    /// Ends the session: what was not kept is undone, and the answer says what that was. The second time it does
    /// nothing.
    pub fn close(&self) -> Result<RevertedChange> {
        let mut said = self.bye_sent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *said, true) {
            return Ok(RevertedChange::default());
        }
        drop(said);
        let answer = self.request(ToAgent::Bye, timeouts::BYE_ANSWER);
        // Also when it did not answer: the closed stream is what the guardian acts on.
        self.shared.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
        wait_until(END_TIME_MAX, || self.has_ended());
        reverted(answer?)
    }

    fn done(&self, question: ToAgent, at_most: Duration) -> Result<()> {
        match self.request(question, at_most)? {
            FromAgent::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn request(&self, question: ToAgent, at_most: Duration) -> Result<FromAgent> {
        let id = self.shared.next_id();
        let asked_at = Instant::now();
        let (sender, answer) = sync_channel(1);
        {
            let mut heard = self.shared.received();
            if heard.ended {
                return Err(self.disconnected_error());
            }
            heard.waiting.insert(id, sender);
        }
        let asked = self.shared.send(id, question);
        let answer = asked
            .map_err(|_| RecvTimeoutError::Disconnected)
            .and_then(|()| self.shared.wait_for(&answer, at_most));
        self.shared.received().waiting.remove(&id);
        match answer {
            Ok(FromAgent::Failed { error }) => Err(error),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.disconnected_error()),
            Err(RecvTimeoutError::Timeout) => {
                let waited_s = asked_at.elapsed().as_secs();
                Err(UserError::cannot_run(format!("the agent did not answer within {waited_s} s"))
                    .hint(self.rollback()))
            }
        }
    }

    /// That the agent is gone, how it ended, and what restores what it had changed.
    pub fn disconnected_error(&self) -> UserError {
        wait_until(Duration::from_millis(500), || self.has_ended());
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().ok().flatten();
        let how = status.map(|status| format!(" ({status}{})", killed_words(status))).unwrap_or_default();
        UserError::cannot_run(format!("the agent ended unexpectedly{how}"))
            .hint(format!("{}: it restores what is still changed", self.rollback()))
    }

    /// How everything is reverted, whatever became of the agent.
    fn rollback(&self) -> String {
        match &self.address {
            ServerAddress::Ssh(host) => format!("run `webdyno rollback --server ssh://{host}`"),
            ServerAddress::Exec(_) => "run `webdyno rollback` with the same --server".into(),
            ServerAddress::Local => "run `webdyno rollback`".into(),
        }
    }

    /// Whether it is gone: its stream has ended, whatever it was at.
    pub fn is_gone(&self) -> bool {
        let is_gone = self.shared.received().ended;
        if is_gone {
            // A child that ended counts as alive until somebody takes note of it.
            self.has_ended();
        }
        is_gone
    }

    fn has_ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }
}

/// Of a program that was killed, itself or below a shell, ssh or nsenter (128 and the signal): why that happens.
fn killed_words(status: ExitStatus) -> &'static str {
    let is_killed = status.signal() == Some(9) || status.code() == Some(128 + 9);
    if is_killed { ": killed, as the kernel does when memory runs out" } else { "" }
}

impl Drop for AgentClient {
    /// Says goodbye if nobody did, and waits a bounded time. An agent that is still at work then is left to it: it is
    /// the guardian.
    fn drop(&mut self) {
        let ended = self.shared.received().ended;
        if !ended {
            // There is nobody left to tell; what failed stays pending and the next command says so.
            let _ = self.close();
        }
        self.shared.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
        wait_until(END_TIME_MAX, || self.has_ended());
    }
}

fn reverted(answer: FromAgent) -> Result<RevertedChange> {
    match answer {
        FromAgent::Reverted { actions, left, outage_us } => Ok(RevertedChange { actions, left, outage_us }),
        FromAgent::Done => Ok(RevertedChange::default()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &FromAgent) -> UserError {
    let kind = match answer {
        FromAgent::Hello { .. } => "hello",
        FromAgent::Done => "done",
        FromAgent::Discovered { .. } => "discovered",
        FromAgent::Topology { .. } => "topology",
        FromAgent::Owned { .. } => "owned",
        FromAgent::Watched { .. } => "watched",
        FromAgent::Unrest { .. } => "unrest",
        FromAgent::DroppedPages { .. } => "dropped pages",
        FromAgent::Prepared { .. } => "prepared",
        FromAgent::Applied { .. } => "applied",
        FromAgent::Reverted { .. } => "reverted",
        FromAgent::RolledBack { .. } => "rolled back",
        FromAgent::Sample { .. }
        | FromAgent::Beat { .. }
        | FromAgent::Warning { .. }
        | FromAgent::Brake { .. }
        | FromAgent::Failed { .. } => "something unasked",
    };
    UserError::cannot_run(format!("the agent answered `{kind}` to another question"))
}

/// Who we are, for the journal: the command without its arguments, which may hold secrets.
fn this_tool(address: &ServerAddress) -> Option<Tool> {
    let command =
        std::env::args().nth(1).filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
    let what = command.map_or_else(|| "webdyno".to_owned(), |command| format!("webdyno {command}"));
    let server = Some(address.to_string());
    Some(Tool { process: ProcessName::this().ok()?, pid_space: process::pid_space()?, what, server })
}

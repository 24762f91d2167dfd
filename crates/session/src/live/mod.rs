//! The live parts of a session: the clock, the log, real loads, and the target made of engine and agent.

mod capacity;
mod changing;
mod ended;
mod generator;
mod killed;
mod loading;
mod lower_load;
mod measured_part;
mod observing;
mod resuming;
mod server;
mod servers;
mod sweep;
mod tables;
mod target;

pub use capacity::LiveCapacity;
pub use changing::HostAnswer;
pub use ended::EndedSession;
pub use generator::{Generator, GeneratorEvent, LoadTask};
pub use measured_part::LoadLength;
pub use observing::{ObserveUntil, ObservedHosts};
pub use resuming::UnfinishedLoad;
pub use server::Server;
pub use servers::Servers;
pub use sweep::{LiveSide, LiveSweep, UnobservedTarget};
pub use target::{ConfirmPlan, LiveTarget};
pub use webdyno_host::os::clock::clock_us as monotonic_us;

use crate::log::writer::{EventLog, EventObserver};
use crate::recording::Recording;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use webdyno_analysis::capacity::StepTest;
use webdyno_analysis::tuning::stop_loss::StopLoss;
use webdyno_host::agent::RevertedChange;
use webdyno_model::environment::Environment;
use webdyno_model::event::{Event, EventBody, VERSION};
use webdyno_model::objective::Objective;
use webdyno_model::tune::Goal;
use webdyno_model::{Result, UserError};

/// What a session is about: the content of its first event.
#[derive(Debug, Clone, Default)]
pub struct SessionInfo {
    /// `run`, `diagnose`, `tune`, `quickstart`.
    pub command: String,
    /// The machine of the generator.
    pub client: Environment,
    /// What tuning shall reach.
    pub goal: Option<Goal>,
    /// What runs must meet.
    pub objectives: Vec<Objective>,
    /// Who gave the command.
    pub operator: Option<String>,
}

/// A running session: everything that happens goes through [`LiveSession::append`] into the log, and from there to the
/// watchers and to the recording that the analysis reads.
pub struct LiveSession {
    log: EventLog,
    recording: Recording,
    /// Whether samples are kept in the log alone.
    forgets_samples: bool,
    /// The length of the ring that the log is, if it is one.
    ring_us: Option<u64>,
    began_us: u64,
    seq: u64,
    loads: u32,
    /// What loads are held against, second by second.
    stop_loss: Option<StopLoss>,
    /// What ends a step of a search for the capacity.
    step_test: Option<StepTest>,
    /// Whether a run ends when an objective is lost.
    gives_up: bool,
    /// Whether loads go on also when they do harm.
    unbraked: bool,
    /// Whether the memory of the service is what is varied: that it waits for memory ends no load then.
    varies_memory: bool,
    interrupted: Arc<AtomicBool>,
    /// What makes the loads; `None` for the engine of this machine.
    generator: Option<Arc<dyn Generator>>,
}

impl LiveSession {
    /// Creates the run directory and writes the first event. `interrupted` is set by the signal handler.
    pub fn begin(
        directory: &Path,
        about: SessionInfo,
        interrupted: Arc<AtomicBool>,
        watcher: EventObserver,
    ) -> Result<Self> {
        Self::with_log(EventLog::create(directory)?, about, interrupted, watcher)
    }

    /// Begins a session that only observes. Its samples are in the log alone, as it may last for days; with a length, the
    /// log is a ring that keeps so many microseconds of them.
    pub fn observe(
        directory: &Path,
        about: SessionInfo,
        interrupted: Arc<AtomicBool>,
        watcher: EventObserver,
        ring_us: Option<u64>,
    ) -> Result<Self> {
        let log = ring_us.map_or_else(|| EventLog::create(directory), |us| EventLog::ring(directory, us))?;
        let session = Self::with_log(log, about, interrupted, watcher)?;
        Ok(Self { forgets_samples: true, ring_us, ..session })
    }

    fn with_log(
        log: EventLog,
        about: SessionInfo,
        interrupted: Arc<AtomicBool>,
        watcher: EventObserver,
    ) -> Result<Self> {
        let directory = log.directory().to_owned();
        let mut session = Self::on(log, interrupted, watcher);
        session.append(EventBody::SessionStart {
            command: about.command,
            started_at: jiff::Timestamp::now().to_string(),
            client: about.client,
            goal: about.goal,
            objectives: about.objectives,
            operator: about.operator,
            directory: std::path::absolute(&directory).ok().map(|path| path.display().to_string()),
        })?;
        Ok(session)
    }

    fn on(mut log: EventLog, interrupted: Arc<AtomicBool>, watcher: EventObserver) -> Self {
        log.set_observer(watcher);
        Self {
            log,
            recording: Recording::default(),
            forgets_samples: false,
            ring_us: None,
            began_us: monotonic_us(),
            seq: 0,
            loads: 0,
            stop_loss: None,
            step_test: None,
            gives_up: false,
            unbraked: false,
            varies_memory: false,
            interrupted,
            generator: None,
        }
    }

    /// The run directory.
    pub fn directory(&self) -> &Path {
        self.log.directory()
    }

    /// From now on loads are made by this, not by the engine of this machine.
    pub fn generate_with(&mut self, generator: Arc<dyn Generator>) {
        self.generator = Some(generator);
    }

    /// From now on a run ends as soon as an objective cannot be met any more.
    pub fn enable_slo_abort(&mut self) {
        self.gives_up = true;
    }

    /// From now on loads go on whatever harm they do to the server, and nobody watches for it: for servers of the lab,
    /// whose faults are to be seen.
    pub fn disable_harm_guard(&mut self) {
        self.unbraked = true;
    }

    /// From now on no load ends as the service waits for memory within its own limit: that is what is varied.
    pub fn set_varies_memory(&mut self) {
        self.varies_memory = true;
    }

    /// Microseconds since the session began.
    pub fn elapsed_us(&self) -> u64 {
        monotonic_us().saturating_sub(self.began_us)
    }

    /// Whether the user interrupted it.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Writes an event that happens now.
    pub fn append(&mut self, body: EventBody) -> Result<()> {
        self.append_at(self.elapsed_us(), body)
    }

    /// Writes an event that happened at `t_us` of the session.
    pub fn append_at(&mut self, t_us: u64, body: EventBody) -> Result<()> {
        if !(self.forgets_samples && matches!(body, EventBody::Sample { .. })) {
            self.recording.add(Event { v: VERSION, seq: self.seq, t_us, body: body.clone() });
        }
        if self.forgets_samples {
            self.recording.keep_latest_topologies();
        }
        self.seq += 1;
        self.log.append(t_us, body)
    }

    /// Writes that changes were put back, and what of them was not.
    pub fn reverted(&mut self, mark: u64, done: RevertedChange) -> Result<()> {
        let RevertedChange { actions, left, outage_us } = done;
        self.append(EventBody::Reverted { mark, actions, outage_us })?;
        left.into_iter().try_for_each(|text| self.append(EventBody::Note { text }))
    }

    /// What was recorded so far.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What was recorded so far as the log has it: also the readings of which the session itself remembers none.
    pub fn read_back(&mut self) -> Result<Recording> {
        self.log.flush()?;
        Recording::read(self.log.directory())
    }

    /// Writes the last event and gives what was recorded.
    pub fn end(mut self, exit_code: u8, error: Option<&UserError>) -> Result<EndedSession> {
        let (ended_us, error) = (self.elapsed_us(), error.map(ToString::to_string));
        self.append_at(ended_us, EventBody::SessionEnd { exit_code, error: error.clone() })?;
        self.log.flush()?;
        self.log.remove_observers();
        Ok(EndedSession { recording: self.recording, log: self.log, ended_us, error })
    }
}

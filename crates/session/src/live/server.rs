//! The server's end of a session: the agent, the service it found, and the samples it sends.

use super::servers::LostConnection;
use crate::tuning_target::AppliedChange;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use webdyno_host::agent::{AgentClient, RevertedChange, ServerAddress, Start};
use webdyno_host::os::machine::sender_to;
use webdyno_load::{Prepared, USER_AGENT};
use webdyno_model::change::{ApplyOptions, JournalPlace, RenderedPlan};
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::harm_guard::{HarmGuardTrip, SiteUnderLoad};
use webdyno_model::sample::{MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};
use webdyno_model::workload::{RequestSpec, Workload};
use webdyno_model::{Result, UserError};

/// Samples and load are to lie together within this time, in microseconds.
const CLOCK_ERROR_US_MAX: u64 = 5000;

/// An agent at work. Dropping it without [`AgentClient::keep`] reverts every change.
pub struct Server {
    /// Its role among several hosts; `None` for the one under load.
    role: Option<String>,
    /// How it was started, to start it again.
    pub(super) start: Start,
    pub(super) agent: AgentClient,
    pub(super) snapshot: Option<ServiceSnapshot>,
    pub(super) samples: Option<Receiver<(u64, Sample)>>,
    /// What is observed: the port, and what the operator gave.
    pub(super) observed: Option<(Option<u16>, Access)>,
    pub(super) client_pid: Option<u32>,
    /// Whether the load comes from the server's own machine; unknown until its addresses were looked at.
    same_network: bool,
    /// Set while the connection is lost and tried again.
    pub(super) lost: Option<LostConnection>,
    /// How far off its clock may be was told when it was so much, in microseconds.
    reported_clock_error_us: Cell<u64>,
}

impl Server {
    /// Starts the agent. `own_executable` is this program.
    pub fn connect(address: &ServerAddress, own_executable: &Path) -> Result<Self> {
        Self::start(Start::at(address.clone(), own_executable), None)
    }

    /// Starts the agent of a host with this role; `None` for the one under load.
    pub fn start(start: Start, role: Option<String>) -> Result<Self> {
        let agent = AgentClient::start(&start)?;
        // Elsewhere the generator's process id names somebody else.
        let client_pid = (start.address == ServerAddress::Local).then(std::process::id);
        Ok(Self {
            role,
            start,
            agent,
            snapshot: None,
            samples: None,
            observed: None,
            client_pid,
            same_network: false,
            lost: None,
            reported_clock_error_us: Cell::new(CLOCK_ERROR_US_MAX),
        })
    }

    /// Its role among several hosts; `None` for the one under load.
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// Where it is.
    pub fn address(&self) -> &ServerAddress {
        &self.start.address
    }

    /// The agent.
    pub fn agent(&self) -> &AgentClient {
        &self.agent
    }

    /// Finds the service behind the port.
    pub fn discover(&mut self, port: u16) -> Result<&ServiceSnapshot> {
        Ok(self.snapshot.insert(self.agent.discover(port)?))
    }

    /// Begins to observe the discovered service.
    pub fn observe(&mut self, port: u16) -> Result<()> {
        self.observe_with(Some(port), Access::default())
    }

    /// Begins to observe the service of a port, or without one the machine and all known services.
    pub fn observe_with(&mut self, port: Option<u16>, access: Access) -> Result<()> {
        self.samples = Some(self.agent.observe(port, self.client_pid, access.clone())?);
        self.observed = Some((port, access));
        Ok(())
    }

    /// Makes sure that what is to be loaded is this server: only what it listens on may be loaded by a session that
    /// observes or changes it. A usage error when an address belongs to another machine.
    pub fn require_served_here(&mut self, prepared: &Prepared, name: &str) -> Result<()> {
        let addresses: Vec<IpAddr> = prepared.addresses().iter().map(SocketAddr::ip).collect();
        let owned = self.agent.owns(&addresses)?;
        self.same_network = owned.same_network;
        let Some(strange) = addresses.into_iter().find(|address| !owned.addresses.contains(address)) else {
            return Ok(());
        };
        let why = if strange.is_loopback() && !owned.same_network {
            "means another machine there than here"
        } else {
            "is no address of that machine"
        };
        Err(UserError::usage(format!("{strange} {why}, and --server is `{name}`")).hint(
            "`webdyno run` loads any server; to observe or change one, name the URL by an address of its own",
        ))
    }

    /// Has a load watched that is about to begin. Gives what cannot be seen of the harm that it may do.
    /// `varies_memory`: the limit of the service's memory is what is varied.
    pub fn start_harm_guard(
        &self,
        prepared: &Prepared,
        workload: &Workload,
        varies_memory: bool,
    ) -> Result<Vec<MissingSignal>> {
        let site = site(prepared, workload, self.same_network);
        self.agent.load_begins(&SiteUnderLoad { varies_memory, ..site })
    }

    /// The load has ended. Gives the harm that was told and not asked for yet.
    pub fn stop_harm_guard(&self) -> Result<Option<HarmGuardTrip>> {
        self.agent.load_ends()?;
        Ok(self.agent.harm())
    }

    /// The service as it was last read, if it was discovered.
    pub fn snapshot(&self) -> Option<&ServiceSnapshot> {
        self.snapshot.as_ref()
    }

    /// What the log says of this server first: machine, catalogue, service.
    pub fn introduction(&self) -> Vec<EventBody> {
        let hello = self.agent.hello();
        let clock_error_us = Some(self.agent.clock().error_us);
        let (host, environment) =
            (self.role.clone(), Environment { clock_error_us, ..hello.environment.clone() });
        let first = EventBody::Server { host, environment, collectors: hello.collectors.clone() };
        std::iter::once(first).chain(self.service()).chain(self.notes()).collect()
    }

    /// The service under load as the log tells it. Services of other hosts stand in their topologies.
    pub(super) fn service(&self) -> Option<EventBody> {
        let snapshot = self.snapshot.as_ref().filter(|_| self.role.is_none())?;
        Some(EventBody::Service { snapshot: Box::new(snapshot.for_log()) })
    }

    /// Who serves on this host, as the log tells it.
    pub(super) fn topology(&self, observation: &Topology) -> EventBody {
        EventBody::Topology { host: self.role.clone(), topology: Box::new(observation.for_log()) }
    }

    /// Who serves on this host, if the agent saw it for the first time or to be something else since this was asked last. Of
    /// a service that was discovered the session tells itself how it is: between two readings of it may lie a change.
    pub(super) fn service_change(&self) -> Option<EventBody> {
        let observation = self.agent.topology_news()?;
        let front = observation.front.clone().filter(|_| self.snapshot.is_none());
        Some(self.topology(&Topology { front, ..observation }))
    }

    /// What the agent wanted to be known since this was asked last.
    pub fn notes(&self) -> impl Iterator<Item = EventBody> {
        let clock = self.clock_error_note();
        self.agent.warnings().into_iter().chain(clock).map(|text| EventBody::Note { text })
    }

    /// That samples and load may lie further apart than they should, told again when it doubles.
    fn clock_error_note(&self) -> Option<String> {
        let error_us = self.agent.clock().error_us;
        if error_us <= self.reported_clock_error_us.get() {
            return None;
        }
        self.reported_clock_error_us.set(error_us.saturating_mul(2));
        let error_ms = error_us.div_ceil(1000);
        Some(format!(
            "the times of samples of {} may be off by up to {error_ms} ms: the way there and back is long",
            self.address().plainly()
        ))
    }

    /// Samples that came in since the last call, with CLOCK_MONOTONIC of this machine in microseconds. An error when
    /// the agent is gone: a server that nobody watches any more must not be called healthy.
    pub fn new_samples(&self) -> Result<Vec<(u64, Sample)>> {
        let Some(samples) = &self.samples else { return Ok(vec![]) };
        let mut new = vec![];
        loop {
            match samples.try_recv() {
                Ok(sample) => new.push(sample),
                Err(TryRecvError::Empty) => return Ok(new),
                Err(TryRecvError::Disconnected) => return Err(self.agent.disconnected_error()),
            }
        }
    }

    /// Makes a plan take effect and remembers the service as it is then. Says where the undo is, too.
    pub fn apply(
        &mut self,
        plan: &RenderedPlan,
        options: &ApplyOptions,
    ) -> Result<(AppliedChange, Option<JournalPlace>)> {
        let applied = self.agent.apply(plan, options)?;
        if self.role.is_none() {
            self.snapshot = Some(applied.snapshot);
        }
        Ok((AppliedChange { mark: applied.mark, outage_us: applied.outage_us }, applied.journal))
    }

    /// Puts back what was applied since the mark, and reads the service again.
    pub fn revert(&mut self, mark: u64, live_traffic: bool) -> Result<RevertedChange> {
        let reverted = self.agent.revert(mark, live_traffic)?;
        if let Some(port) = self.snapshot.as_ref().map(|snapshot| snapshot.port) {
            self.discover(port)?;
        }
        Ok(reverted)
    }
}

/// What a load is, to whoever watches the server. From another machine our address may be rewritten on the way.
fn site(prepared: &Prepared, workload: &Workload, same_network: bool) -> SiteUnderLoad {
    let addresses = prepared.addresses();
    let mut user_agents: Vec<String> = workload.requests.iter().map(user_agent).collect();
    user_agents.sort_unstable();
    user_agents.dedup();
    let ours: Vec<IpAddr> = match prepared.sources() {
        [] => addresses.iter().filter_map(|address| sender_to(address.ip())).collect(),
        sources => sources.to_vec(),
    };
    SiteUnderLoad {
        host: addresses.first().map_or_else(String::new, ToString::to_string),
        user_agents,
        generators: if same_network { ours } else { vec![] },
        timeout_us: workload.timeout_us,
        varies_memory: false,
        addresses,
    }
}

/// How a request calls its sender.
fn user_agent(request: &RequestSpec) -> String {
    let given = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    given.map_or_else(|| USER_AGENT.to_owned(), |(_, value)| value.trim().to_owned())
}

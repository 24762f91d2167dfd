//! The server's end of a session: the agent, the service it found, and the samples it sends.

use crate::stand::InForce;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use webdyno_host::agent::{AgentClient, RevertedChange, ServerAddress};
use webdyno_model::change::{ApplyOptions, JournalPlace, RenderedPlan};
use webdyno_model::event::EventBody;
use webdyno_model::sample::Sample;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// An agent at work. Dropping it without [`AgentClient::keep`] reverts every change.
pub struct Server {
    agent: AgentClient,
    snapshot: Option<ServiceSnapshot>,
    samples: Option<Receiver<(u64, Sample)>>,
    client_pid: Option<u32>,
}

impl Server {
    /// Starts the agent. `own_executable` is this program.
    pub fn connect(address: &ServerAddress, own_executable: &Path) -> Result<Self> {
        let agent = AgentClient::spawn(address, own_executable)?;
        // Elsewhere the generator's process id names somebody else.
        let client_pid = (*address == ServerAddress::Local).then(std::process::id);
        Ok(Self { agent, snapshot: None, samples: None, client_pid })
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
        self.samples = Some(self.agent.observe(port, self.client_pid)?);
        Ok(())
    }

    /// The service as it was last read, if it was discovered.
    pub fn snapshot(&self) -> Option<&ServiceSnapshot> {
        self.snapshot.as_ref()
    }

    /// What the log says of this server first: machine, catalogue, service.
    pub fn introduction(&self) -> Vec<EventBody> {
        let hello = self.agent.hello();
        let environment = hello.environment.clone();
        let first = EventBody::Server { environment, collectors: hello.collectors.clone() };
        let service =
            self.snapshot.as_ref().map(|snapshot| EventBody::Service { snapshot: snapshot.for_log() });
        std::iter::once(first).chain(service).chain(self.notes()).collect()
    }

    /// What the agent wanted to be known since this was asked last.
    pub fn notes(&self) -> impl Iterator<Item = EventBody> {
        self.agent.warnings().into_iter().map(|text| EventBody::Note { text })
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
                Err(TryRecvError::Disconnected) => {
                    return Err(UserError::cannot_run("the agent at the server ended unexpectedly")
                        .hint("`webdyno rollback` on the server restores what may be changed"));
                }
            }
        }
    }

    /// Makes a plan take effect and remembers the service as it is then. Says where the undo is, too.
    pub fn apply(
        &mut self,
        plan: &RenderedPlan,
        options: &ApplyOptions,
    ) -> Result<(InForce, Option<JournalPlace>)> {
        let applied = self.agent.apply(plan, options)?;
        self.snapshot = Some(applied.snapshot);
        Ok((InForce { mark: applied.mark, outage_us: applied.outage_us }, applied.journal))
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

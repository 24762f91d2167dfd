//! The hosts of a session: the one in front, which is loaded, and those behind it by their roles; `changing` changes them. What is
//! heard of them becomes events.
//!
//! In a session that only reads, a connection that was lost is made again, beside everything else: nothing waits for it. In one
//! that changes something the session waits, as all that the agent had changed is put back by the next one first.

use super::{Server, monotonic_us};
use crate::several_hosts::HostMarks;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use webdyno_host::agent::{AgentClient, Role, ServerList, Start};
use webdyno_model::event::EventBody;
use webdyno_model::sample::Sample;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Access, Topology};
use webdyno_model::{Result, UserError};

/// The pauses before each try to connect again: a server that boots is back by then.
const PAUSES_S: [u64; 10] = [1, 2, 4, 8, 15, 30, 30, 30, 30, 30];

/// So many of them where the session waits for it.
const TRIES_WAITED_FOR: usize = 7;

/// The agents of a session.
pub struct Servers {
    pub(super) front: Server,
    pub(super) others: Vec<Server>,
    /// What was changed on which of them.
    pub(super) marks: HostMarks,
}

impl Servers {
    /// One host.
    pub fn of(front: Server) -> Self {
        Self { front, others: vec![], marks: HostMarks::default() }
    }

    /// Starts the agents of all hosts, the one in front first: the web server, or without one the first that is given.
    /// `how` says everything but where. A machine that only can be changed is left out.
    pub fn connect(list: &ServerList, how: &Start) -> Result<Self> {
        let observed = list.iter().filter(|(role, _)| *role != Role::Host);
        let mut started = observed.enumerate().map(|(n, (role, address))| {
            let start = Start { address: address.clone(), ..how.clone() };
            let role = (n > 0).then(|| Role::name(role).to_owned());
            Server::start(start, role)
        });
        let front = started.next().ok_or_else(|| UserError::usage("no server was given"))??;
        Ok(Self { others: started.collect::<Result<_>>()?, ..Self::of(front) })
    }

    /// The host that is loaded, or observed first of all.
    pub fn front(&self) -> &Server {
        &self.front
    }

    /// The same, to do something with it.
    pub fn front_mut(&mut self) -> &mut Server {
        &mut self.front
    }

    /// All hosts, the one in front first.
    pub fn all(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.front).chain(&self.others)
    }

    /// Whether an agent is gone that was to be heard.
    pub(super) fn has_lost_agent(&self) -> bool {
        self.all().any(|server| server.agent.is_gone())
    }

    /// Begins to observe the hosts behind the one in front: their machines and all known services.
    pub fn observe_others(&mut self, access: &Access) -> Result<()> {
        self.others.iter_mut().try_for_each(|server| server.observe_with(None, access.clone()))
    }

    /// What the log says of all hosts first.
    pub fn introduction(&self) -> Vec<EventBody> {
        self.all().flat_map(Server::introduction).collect()
    }

    /// Samples that came in since the last call, with CLOCK_MONOTONIC of this machine in microseconds, and services that
    /// were seen to be others. An error when an agent is gone: a server that nobody watches any more must not be called healthy.
    pub fn new_samples(&self) -> Result<Vec<(u64, EventBody)>> {
        let mut received = vec![];
        for server in self.all() {
            received.extend(events(server, server.new_samples()?));
            received.extend(server.service_change().map(event_now));
        }
        Ok(received)
    }

    /// The same, with what the agents wanted to be known. Where the session only reads, a lost connection is made again
    /// meanwhile; an error when that was tried in vain.
    pub fn receive_events(&mut self) -> Result<Vec<(u64, EventBody)>> {
        let mut received = vec![];
        for (host, server) in std::iter::once(&mut self.front).chain(&mut self.others).enumerate() {
            let was_lost = server.lost.is_some();
            received.extend(server.receive_events(self.marks.can_lose(host))?);
            if was_lost && server.lost.is_none() && !server.start.reads_only {
                self.marks.lose(host);
            }
        }
        Ok(received)
    }

    /// Whether a session that changes something has to wait for an agent.
    pub(super) fn is_reconnecting(&self) -> bool {
        self.all().any(|server| server.lost.is_some() && !server.start.reads_only)
    }
}

fn events(server: &Server, samples: Vec<(u64, Sample)>) -> impl Iterator<Item = (u64, EventBody)> {
    let host = server.role().map(str::to_owned);
    samples
        .into_iter()
        .map(move |(clock_us, sample)| (clock_us, EventBody::Sample { host: host.clone(), sample }))
}

/// A connection that is lost.
pub(super) struct LostConnection {
    since: Instant,
    reason: UserError,
    tries: usize,
    next_try: Instant,
    trying: Option<Receiver<Result<Reconnection>>>,
}

/// A connection that was made again.
struct Reconnection {
    agent: AgentClient,
    snapshot: Option<ServiceSnapshot>,
    /// Who serves there now, where nobody discovered a service: else the agent tells it when it has looked.
    topology: Option<Topology>,
    samples: Receiver<(u64, Sample)>,
    /// What of the lost agent was put back, one line each.
    reverted: Vec<String>,
}

impl Server {
    /// Samples, notes, and the way back to a lost agent. `can_lose`: what it may have changed can be put back without it.
    fn receive_events(&mut self, can_lose: bool) -> Result<Vec<(u64, EventBody)>> {
        if self.lost.is_some() {
            return Ok(self.continue_reconnect()?.into_iter().map(event_now).collect());
        }
        // Who is only silent may still be at work on a change.
        let goes_on =
            self.observed.is_some() && (self.start.reads_only || (can_lose && self.agent.is_gone()));
        match (self.new_samples(), self.agent.silent_for()) {
            // Its end of the connection may be open still, with nobody at work there.
            (Ok(_), Some(silence)) if goes_on => {
                let why = format!("nothing was heard of the agent of {} any more", self.address().plainly());
                Ok(self.begin_reconnect(UserError::cannot_run(why), silence))
            }
            (Ok(samples), _) => {
                let notes =
                    self.service_change().into_iter().chain(self.notes()).map(event_now).collect::<Vec<_>>();
                Ok(events(self, samples).chain(notes).collect())
            }
            (Err(error), _) if goes_on => Ok(self.begin_reconnect(error, Duration::ZERO)),
            (Err(error), _) => Err(error),
        }
    }

    /// Begins to connect again to one that was heard last so long ago.
    fn begin_reconnect(&mut self, why: UserError, silence: Duration) -> Vec<(u64, EventBody)> {
        let text = format!("the connection to {} was lost; it is tried again", self.address().plainly());
        let next_try = Instant::now() + Duration::from_secs(PAUSES_S[0]);
        let since = Instant::now().checked_sub(silence).unwrap_or_else(Instant::now);
        self.lost = Some(LostConnection { since, reason: why, tries: 0, next_try, trying: None });
        vec![event_now(EventBody::Note { text })]
    }

    /// Takes the next step back to a lost agent.
    fn continue_reconnect(&mut self) -> Result<Vec<EventBody>> {
        let trying = match &self.lost {
            None => return Ok(vec![]),
            Some(LostConnection { trying: Some(trying), .. }) => trying.try_recv(),
            Some(LostConnection { next_try, .. }) if Instant::now() < *next_try => return Ok(vec![]),
            Some(_) => {
                let trying = Some(self.connect_in_background());
                self.lost = self.lost.take().map(|lost| LostConnection { trying, ..lost });
                return Ok(vec![]);
            }
        };
        match trying {
            Err(TryRecvError::Empty) => Ok(vec![]),
            Ok(Ok(again)) => Ok(self.reconnected(again)),
            Ok(Err(error)) => self.failed(error).map(|()| vec![]),
            Err(TryRecvError::Disconnected) => {
                self.failed(UserError::cannot_run("the thread that connects ended")).map(|()| vec![])
            }
        }
    }

    fn failed(&mut self, error: UserError) -> Result<()> {
        let Some(lost) = &mut self.lost else { return Ok(()) };
        (lost.trying, lost.reason) = (None, error);
        lost.tries += 1;
        let tries_max = if self.start.reads_only { PAUSES_S.len() } else { TRIES_WAITED_FOR };
        match PAUSES_S.get(lost.tries).filter(|_| lost.tries < tries_max) {
            Some(pause_s) => {
                lost.next_try = Instant::now() + Duration::from_secs(*pause_s);
                Ok(())
            }
            None => {
                let mut why = lost.reason.clone();
                why.message = format!(
                    "the connection to {} was lost and could not be made again in {} tries: {}",
                    self.start.address.plainly(),
                    lost.tries,
                    why.message.replace(&self.start.address.to_string(), &self.start.address.plainly())
                );
                Err(why)
            }
        }
    }

    fn reconnected(&mut self, again: Reconnection) -> Vec<EventBody> {
        let gap_s = self.lost.take().map_or(0.0, |lost| lost.since.elapsed().as_secs_f64());
        let former = std::mem::replace(&mut self.agent, again.agent);
        // Taking leave of one that does not answer takes a while, and nobody is to wait for that.
        std::thread::spawn(move || drop(former));
        self.samples = Some(again.samples);
        let text = format!(
            "connected to {} again: there are no samples of the {gap_s:.0} s before",
            self.address().plainly()
        );
        let changed = again.snapshot.is_some() && again.snapshot != self.snapshot;
        self.snapshot = again.snapshot.or(self.snapshot.take());
        let service = self.service().filter(|_| changed);
        let observation = again.topology.map(|observation| self.topology(&observation));
        let reverted =
            again.reverted.into_iter().map(|line| format!("put back after the agent was killed: {line}"));
        let notes = std::iter::once(text).chain(reverted).map(|text| EventBody::Note { text });
        notes.chain(service).chain(observation).collect()
    }

    /// Connects on a thread of its own.
    fn connect_in_background(&self) -> Receiver<Result<Reconnection>> {
        let (sender, receiver) = channel();
        let (start, client_pid) = (self.start.clone(), self.client_pid);
        let (observed, discovered) =
            (self.observed.clone(), self.snapshot.as_ref().map(|observation| observation.port));
        std::thread::spawn(move || {
            let connect = || {
                let agent = AgentClient::start(&start)?;
                let reverted = if start.reads_only { vec![] } else { revert_lost(&agent)? };
                let snapshot = discovered.map(|port| agent.discover(port)).transpose()?;
                let (port, access) = observed.unwrap_or_default();
                let looks = discovered.is_none();
                let topology = looks.then(|| agent.topology(port, &access)).transpose()?;
                let samples = agent.observe(port, client_pid, access)?;
                Ok(Reconnection { agent, snapshot, topology, samples, reverted })
            };
            // Who asked may have ended meanwhile.
            let _ = sender.send(connect());
        });
        receiver
    }
}

/// Puts back what an agent had changed that is gone. Nothing goes on where that is not certain.
fn revert_lost(agent: &AgentClient) -> Result<Vec<String>> {
    let done = agent.roll_back(None, true)?;
    match done.problem {
        Some(problem) => Err(problem),
        None if done.unfinished => {
            Err(UserError::cannot_run("what the agent had changed is still to be put back")
                .hint("run `webdyno rollback` on the server"))
        }
        None => Ok(done.lines),
    }
}

fn event_now(body: EventBody) -> (u64, EventBody) {
    (monotonic_us(), body)
}

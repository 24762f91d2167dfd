//! Observing without load: samples into the log, incidents told and frozen, until the time is over or the user ends it.
//!
//! Nothing is asked of an agent while this goes on: whoever waits for the answer of one host hears neither the others nor
//! the user. Agents follow their services themselves, and say it when these are not as they were.

use super::{LiveSession, Server, Servers, monotonic_us};
use crate::log::{FROZEN_AFTER_US, FrozenIncident, INCIDENTS, freeze};
use crate::recording::Recording;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use webdyno_analysis::diagnosis::incidents::Detector;
use webdyno_model::event::EventBody;
use webdyno_model::topology::{Access, Topology};
use webdyno_model::{Result, UserError};

/// How often samples and interrupts are looked at.
const POLL: Duration = Duration::from_millis(50);
/// How often the wall clock is compared with the time that has passed, and from which difference on somebody has set it.
const CLOCK_EVERY_US: u64 = 1_000_000;
const CLOCK_SET_US: i64 = 1_000_000;
/// One look: the readings of each collector, and how long they are waited for.
const SNAPSHOT_READINGS: usize = 2;
const SNAPSHOT_US_MAX: u64 = 4_800_000;

/// What is observed on the hosts.
#[derive(Debug, Clone, Default)]
pub struct ObservedHosts {
    /// The port of the service in front; the host and all known services without it.
    pub port: Option<u16>,
    /// What the operator gave.
    pub access: Access,
}

/// How long it is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserveUntil {
    /// So many microseconds.
    Elapsed(u64),
    /// Until the user ends it.
    Interrupted,
    /// Until each collector was heard twice: one look.
    TwoReadings,
}

/// What the loop remembers.
struct ObserveState {
    detectors: BTreeMap<Option<String>, Detector>,
    /// An incident whose time after it is not over yet.
    pending: Option<FrozenIncident>,
    /// How many readings of each collector came.
    readings_received: BTreeMap<(Option<String>, String), usize>,
    /// The wall clock minus ours, as the log has it.
    clock_us: i64,
    clock_due_us: u64,
}

impl LiveSession {
    /// Says who is observed, as they were found, and begins to observe them.
    pub fn begin_observing(
        &mut self,
        servers: &mut Servers,
        (watched, found): (&ObservedHosts, Vec<EventBody>),
        until: ObserveUntil,
    ) -> Result<()> {
        for event in servers.introduction().into_iter().chain(found) {
            self.append(event)?;
        }
        servers.start_collectors(watched, until == ObserveUntil::TwoReadings)
    }

    /// Observes. Incidents go into the log, and of a ring they are frozen as recordings of their own: `frozen` is told of
    /// each. An error when interrupted: what was recorded is kept.
    pub fn observe_until(
        &mut self,
        servers: &mut Servers,
        until: ObserveUntil,
        frozen: &mut dyn FnMut(Result<FrozenIncident>),
    ) -> Result<()> {
        let began_us = self.elapsed_us();
        let mut state = ObserveState {
            detectors: BTreeMap::new(),
            pending: None,
            readings_received: BTreeMap::new(),
            clock_us: wall_clock_offset_us(),
            clock_due_us: began_us + CLOCK_EVERY_US,
        };
        let result = loop {
            if self.is_interrupted() {
                break Err(UserError::interrupted());
            }
            if self.is_over(until, began_us, &state) {
                break Ok(());
            }
            thread::sleep(POLL);
            if let Err(error) = self.observe_once(servers, &mut state) {
                break Err(error);
            }
            let due = state
                .pending
                .as_ref()
                .is_some_and(|reported| self.elapsed_us() >= reported.t_us + FROZEN_AFTER_US);
            if let Some(incident) = state.pending.take_if(|_| due) {
                frozen(self.freeze(&incident));
            }
        };
        // What was seen a moment ago is kept as far as it goes.
        if let Some(incident) = state.pending.take() {
            frozen(self.freeze(&incident));
        }
        result
    }

    fn is_over(&self, until: ObserveUntil, began_us: u64, state: &ObserveState) -> bool {
        let lasted_us = self.elapsed_us() - began_us;
        match until {
            ObserveUntil::Elapsed(length_us) => lasted_us >= length_us,
            ObserveUntil::Interrupted => false,
            ObserveUntil::TwoReadings => {
                let servers = self.recording().collectors.iter().map(|info| (None, &info.name));
                let hosts = self.recording().hosts.iter();
                let others = hosts.flat_map(|(role, host)| {
                    host.collectors.iter().map(|info| (Some(role.clone()), &info.name))
                });
                let enough = |(role, name): (Option<String>, &String)| {
                    state
                        .readings_received
                        .get(&(role, name.clone()))
                        .is_some_and(|count| *count >= SNAPSHOT_READINGS)
                };
                servers.chain(others).all(enough) || lasted_us >= SNAPSHOT_US_MAX
            }
        }
    }

    /// One turn of the loop.
    fn observe_once(&mut self, servers: &mut Servers, state: &mut ObserveState) -> Result<()> {
        let began_us = self.began_us;
        for (clock_us, body) in servers.receive_events()? {
            let t_us = clock_us.saturating_sub(began_us);
            let found = state.detect_incidents(self.recording(), t_us, &body);
            self.append_at(t_us, body)?;
            for incident in found {
                let (host, metric, what) = incident;
                state.pending.get_or_insert_with(|| FrozenIncident {
                    directory: PathBuf::new(),
                    t_us,
                    metric: metric.clone(),
                    what: what.clone(),
                });
                self.append_at(t_us, EventBody::Incident { host, metric, what })?;
            }
        }
        if self.elapsed_us() >= state.clock_due_us {
            state.clock_due_us = self.elapsed_us() + CLOCK_EVERY_US;
            self.record_clock_change(state)?;
        }
        Ok(())
    }

    /// Somebody may have set the wall clock, or the machine slept.
    fn record_clock_change(&mut self, state: &mut ObserveState) -> Result<()> {
        let now_us = wall_clock_offset_us();
        if (now_us - state.clock_us).abs() < CLOCK_SET_US {
            return Ok(());
        }
        state.clock_us = now_us;
        self.append(EventBody::Clock { wall: Timestamp::now().to_string() })
    }

    /// Freezes an incident, if this log is a ring that would forget it.
    fn freeze(&mut self, incident: &FrozenIncident) -> Result<FrozenIncident> {
        let Some(ring_us) = self.ring_us else {
            return Ok(FrozenIncident { directory: self.directory().to_owned(), ..incident.clone() });
        };
        self.log.flush()?;
        let wall = self.recording().wall(incident.t_us).map_or_else(String::new, |wall| wall.to_string());
        std::fs::create_dir_all(self.directory().join(INCIDENTS)).map_err(|error| {
            webdyno_model::error::io_error("create", self.directory().join(INCIDENTS).display(), &error)
        })?;
        freeze(self.directory(), ring_us, &wall, incident)
    }
}

impl ObserveState {
    /// Looks at what was heard. Gives the incidents that it shows: host, metric, what.
    fn detect_incidents(
        &mut self,
        recording: &Recording,
        t_us: u64,
        body: &EventBody,
    ) -> Vec<(Option<String>, String, String)> {
        let EventBody::Sample { host, sample } = body else { return vec![] };
        *self.readings_received.entry((host.clone(), sample.source.clone())).or_default() += 1;
        let known = || Detector::of(recording.collectors_of(host.as_deref()));
        let detector = self.detectors.entry(host.clone()).or_insert_with(known);
        let found = detector.new_incidents(t_us as f64 / 1e6, sample).into_iter();
        found.map(|incident| (host.clone(), incident.metric, incident.what)).collect()
    }
}

impl Servers {
    /// Who serves on each host, as events. An error when nothing listens on the port.
    pub fn topologies(&self, watched: &ObservedHosts) -> Result<Vec<EventBody>> {
        let of = |server: &Server| -> Result<EventBody> {
            let port = watched.port.filter(|_| server.role().is_none());
            Ok(server.topology(&server.agent().topology(port, &watched.access)?))
        };
        self.all().map(of).collect()
    }

    /// Who serves on the web server's host, as it is: with what is not to be written down, as the text of formats of logs.
    pub fn front_topology(&self, watched: &ObservedHosts) -> Result<Topology> {
        self.front.agent().topology(watched.port, &watched.access)
    }

    /// Begins to observe all hosts; `in_full` for one look.
    fn start_collectors(&mut self, watched: &ObservedHosts, in_full: bool) -> Result<()> {
        for server in std::iter::once(&mut self.front).chain(&mut self.others) {
            let port = watched.port.filter(|_| server.role().is_none());
            let access = watched.access.clone();
            match in_full {
                true => server.samples = Some(server.agent.sample_once(port, access)?),
                false => server.observe_with(port, access)?,
            }
        }
        Ok(())
    }
}

/// The wall clock minus ours, in microseconds.
fn wall_clock_offset_us() -> i64 {
    Timestamp::now().as_microsecond() - i64::try_from(monotonic_us()).unwrap_or(i64::MAX)
}

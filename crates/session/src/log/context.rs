//! What a part of a log must begin with, so that it explains itself.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::sample::MissingSignal;

/// What explains later samples, as it was said last.
#[derive(Debug, Default)]
pub(crate) struct LogContext {
    start: Option<EventBody>,
    servers: BTreeMap<Option<String>, EventBody>,
    service: Option<EventBody>,
    topologies: BTreeMap<Option<String>, EventBody>,
    clock: Option<(u64, Timestamp)>,
    missing: BTreeMap<(Option<String>, String), Vec<MissingSignal>>,
    /// Collectors whose first sample since then is still to come: it says again what they lack.
    silent: Vec<(Option<String>, String)>,
}

impl LogContext {
    /// Remembers what explains later samples. The first sample of a collector behind [`LogContext::events`] is
    /// made to say what it lacks.
    pub(crate) fn update(&mut self, event: &mut Event) {
        match &mut event.body {
            start @ EventBody::SessionStart { .. } => self.start = Some(start.clone()),
            EventBody::Server { host, .. } => drop(self.servers.insert(host.clone(), event.body.clone())),
            service @ EventBody::Service { .. } => self.service = Some(service.clone()),
            EventBody::Topology { host, .. } => {
                drop(self.topologies.insert(host.clone(), event.body.clone()))
            }
            EventBody::Clock { wall } => {
                self.clock = wall.parse().ok().map(|wall| (event.t_us, wall)).or(self.clock);
            }
            EventBody::Sample { host, sample } => {
                let whose = (host.clone(), sample.source.clone());
                let is_first = self.silent.iter().position(|silent| *silent == whose);
                is_first.map(|at| self.silent.swap_remove(at));
                match &sample.missing {
                    Some(missing) => drop(self.missing.insert(whose, missing.clone())),
                    None if is_first.is_some() => sample.missing = self.missing.get(&whose).cloned(),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// The first events of a part that begins at `t_us`.
    pub(crate) fn events(&mut self, t_us: u64) -> Vec<EventBody> {
        self.silent = self.missing.keys().cloned().collect();
        let wall = self.clock.and_then(|(at_us, wall)| {
            let since = SignedDuration::from_micros(i64::try_from(t_us.saturating_sub(at_us)).ok()?);
            wall.checked_add(since).ok()
        });
        let clock = wall.map(|wall| EventBody::Clock { wall: wall.to_string() });
        let first = self.start.iter().chain(&clock);
        let servers = self.servers.values().chain(&self.service).chain(self.topologies.values());
        first.chain(servers).cloned().collect()
    }
}

//! What a recording says of the hosts: each host apart, what the wall clock showed, and windows of time in which nothing
//! of ours was sent.

use super::Recording;
use crate::log::{INCIDENT_AFTER_US, INCIDENT_BEFORE_US};
use jiff::Timestamp;
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::sample::{CollectorInfo, MissingSignal, Sample};
use webdyno_model::topology::Topology;

/// What was recorded of a host that is not the one under load.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostRecord {
    /// The machine.
    pub environment: Environment,
    /// What its samples mean.
    pub collectors: Vec<CollectorInfo>,
    /// Its services, as they were looked at last.
    pub topology: Option<Topology>,
    /// Every sample, with the time of its reading.
    pub samples: Vec<(u64, Sample)>,
}

/// That something went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentRecord {
    /// When it was seen, microseconds since the session began.
    pub t_us: u64,
    /// The role of the host; `None` for the one under load.
    pub host: Option<String>,
    /// The metric that showed it.
    pub metric: String,
    /// What went wrong, in words.
    pub what: String,
}

impl Recording {
    /// Adds what is said of a host; other events are none of its business.
    pub(super) fn add_host_event(&mut self, t_us: u64, body: EventBody) {
        match body {
            EventBody::Server { host: None, environment, collectors } => {
                (self.server, self.collectors) = (Some(environment), collectors);
            }
            EventBody::Server { host: Some(role), environment, collectors } => {
                let host = self.host(role);
                (host.environment, host.collectors) = (environment, collectors);
            }
            EventBody::Sample { host: None, sample } => insert_sample(&mut self.samples, t_us, sample),
            EventBody::Sample { host: Some(role), sample } => {
                insert_sample(&mut self.host(role).samples, t_us, sample);
            }
            EventBody::Topology { host, topology } => self.add_topology(t_us, host, *topology),
            EventBody::Clock { wall } => self.clocks.push((t_us, wall)),
            EventBody::Incident { host, metric, what } => {
                self.incidents.push(IncidentRecord { t_us, host, metric, what });
            }
            _ => {}
        }
    }

    /// What the samples of a host mean, by its role; `None` for the one under load.
    pub fn collectors_of(&self, role: Option<&str>) -> &[CollectorInfo] {
        match role {
            None => &self.collectors,
            Some(role) => self.hosts.get(role).map_or(&[], |host| &host.collectors),
        }
    }

    /// Keeps of what was looked at again and again only what was seen last: a session may last for months.
    pub(crate) fn keep_latest_topologies(&mut self) {
        self.services.drain(..self.services.len().saturating_sub(1));
        self.topologies.drain(..self.topologies.len().saturating_sub(1));
    }

    /// The record of another host.
    fn host(&mut self, role: String) -> &mut HostRecord {
        self.hosts.entry(role).or_default()
    }

    /// Another look at what stands behind the port.
    fn add_topology(&mut self, t_us: u64, host: Option<String>, topology: Topology) {
        let Some(role) = host else {
            let front = topology.front.clone();
            self.services.extend(front.map(|front| (t_us, front)));
            self.topologies.push((t_us, topology));
            return;
        };
        self.host(role).topology = Some(topology);
    }

    /// What the wall clock showed at a time of the session; `None` when the recording does not say when it began.
    pub fn wall(&self, t_us: u64) -> Option<Timestamp> {
        let began = self.started_at.parse::<Timestamp>().ok().map(|began| (0, began));
        let set = self.clocks.iter().rev().find(|(at_us, _)| *at_us <= t_us);
        let set = set.and_then(|(at_us, wall)| Some((*at_us, wall.parse().ok()?)));
        let (from_us, wall) = set.or(began)?;
        let since_us = i64::try_from(t_us - from_us).ok()?;
        Timestamp::from_microsecond(wall.as_microsecond().checked_add(since_us)?).ok()
    }

    /// First and last time at which something was read.
    pub fn extent_us(&self) -> Option<(u64, u64)> {
        let first = self.samples.iter().map(|(t_us, _)| *t_us).min()?;
        let last = self.samples.iter().map(|(t_us, _)| *t_us).max()?;
        Some((first, last))
    }

    /// What of the session lies between two times of the wall clock. Where the clock was set back, the later of the times
    /// that it showed twice.
    pub fn window_between(&self, from: Timestamp, to: Timestamp) -> Option<(u64, u64)> {
        let within = |t_us: &u64| self.wall(*t_us).is_some_and(|wall| from <= wall && wall < to);
        let last = self.samples.iter().map(|(t_us, _)| *t_us).filter(within).max()?;
        let length_us = u64::try_from(to.as_microsecond() - from.as_microsecond()).ok()?;
        let first = self.samples.iter().map(|(t_us, _)| *t_us).filter(within);
        let first = first.filter(|t_us| last - t_us <= length_us).min()?;
        Some((first, last))
    }

    /// The window that an observation is diagnosed by: around its last incident, else all of it.
    pub(super) fn observed_window(&self) -> Option<(u64, u64)> {
        let (first, last) = self.extent_us()?;
        let around = |incident: &IncidentRecord| {
            let from = incident.t_us.saturating_sub(INCIDENT_BEFORE_US).max(first);
            (from, (incident.t_us + INCIDENT_AFTER_US).min(last).max(from))
        };
        Some(self.incidents.last().map_or((first, last), around))
    }

    /// What the collectors of the host under load lacked at a time, as they said it last.
    pub(super) fn missing_signals(&self, until_us: u64) -> Vec<MissingSignal> {
        missing_signals(self.samples.iter().filter(|(t_us, _)| *t_us <= until_us).map(|(_, sample)| sample))
    }
}

/// Keeps samples in the order in which they were read: those that took long come late. A session that goes on has them as
/// whoever reads its log.
fn insert_sample(samples: &mut Vec<(u64, Sample)>, t_us: u64, sample: Sample) {
    let place = samples.partition_point(|(other_us, _)| *other_us <= t_us);
    samples.insert(place, (t_us, sample));
}

/// What the collectors of these samples lacked as they said it last, in the order in which they were read.
pub fn missing_signals<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<MissingSignal> {
    let mut output: Vec<(&str, &[MissingSignal])> = vec![];
    for sample in samples {
        let Some(missing) = &sample.missing else { continue };
        match output.iter_mut().find(|(source, _)| *source == sample.source) {
            Some(known) => known.1 = missing,
            None => output.push((&sample.source, missing)),
        }
    }
    output.into_iter().flat_map(|(_, missing)| missing.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::event::Event;
    use webdyno_model::service::ServiceSnapshot;

    const BEGAN: &str = "2026-11-21T03:00:00Z";

    fn sample(t_us: u64, source: &str, missing: Option<&[&str]>) -> Event {
        let lack = |signal: &&str| MissingSignal::new(*signal, "why", "how");
        let missing = missing.map(|signals| signals.iter().map(lack).collect());
        let sample = Sample { source: source.into(), missing, ..Sample::default() };
        Event { v: 1, seq: 0, t_us, body: EventBody::Sample { host: None, sample } }
    }

    fn clock(t_us: u64, wall: &str) -> Event {
        Event { v: 1, seq: 0, t_us, body: EventBody::Clock { wall: wall.into() } }
    }

    fn recording(events: Vec<Event>) -> Recording {
        Recording { started_at: BEGAN.into(), ..Recording::of(events) }
    }

    #[test]
    fn a_time_of_the_clock_is_found_also_when_somebody_set_it() {
        let seconds = |count: u64| (0..count).map(|second| sample(second * 1_000_000, "cpu", None));
        let whole = recording(seconds(600).collect());
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let window = whole.window_between(at("2026-11-21T03:05:00Z"), at("2026-11-21T03:06:00Z"));
        assert_eq!(window, Some((300_000_000, 359_000_000)));
        assert_eq!(whole.window_between(at("2026-11-21T04:05:00Z"), at("2026-11-21T04:06:00Z")), None);
        // After 100 s somebody sets the clock back by 50 s: what it shows twice means the later time.
        let set = recording(seconds(600).chain([clock(100_000_000, "2026-11-21T03:00:50Z")]).collect());
        let window = set.window_between(at("2026-11-21T03:00:50Z"), at("2026-11-21T03:01:10Z"));
        assert_eq!(window, Some((100_000_000, 119_000_000)));
        assert_eq!(set.wall(40_000_000).unwrap(), at("2026-11-21T03:00:40Z"));
        // One that has no beginning is no reason to fail.
        assert_eq!(Recording::default().wall(1), None);
    }

    // A session that discovered its service tells it apart from what stands behind it, and the diagnosis needs both.
    #[test]
    fn a_service_and_what_stands_behind_it_are_told_apart() {
        let service =
            |service: &str| ServiceSnapshot { service: service.into(), ..ServiceSnapshot::default() };
        let at = |t_us, body| Event { v: 1, seq: 0, t_us, body };
        let of = |topology| EventBody::Topology { host: None, topology: Box::new(topology) };
        let behind = Topology { backends: vec![service("php_fpm")], ..Topology::default() };
        let events = vec![
            at(0, EventBody::Service { snapshot: Box::new(service("apache")) }),
            at(1, of(behind)),
            sample(2, "cpu", None),
            at(9_000_000, EventBody::Watch { length_us: 8_000_000 }),
        ];
        let measurement = recording(events).last_measurement().unwrap();
        assert_eq!(measurement.service.unwrap().service, "apache");
        let observed = measurement.topology.unwrap();
        let names: Vec<&str> = observed.services().map(|service| service.service.as_str()).collect();
        assert_eq!(names, ["apache", "php_fpm"]);
    }

    // The session itself adds what comes in; a reading that took long comes after a later one.
    #[test]
    fn samples_are_in_the_order_in_which_they_were_read() {
        let mut received = Recording::default();
        for (t_us, source) in [(5, "late"), (3, "b"), (3, "c"), (1, "a")] {
            received.add(sample(t_us, source, None));
        }
        let order: Vec<&str> = received.samples.iter().map(|(_, sample)| sample.source.as_str()).collect();
        assert_eq!(order, ["a", "b", "c", "late"]);
    }

    #[test]
    fn what_is_lacking_is_what_was_said_last() {
        let events = vec![
            sample(0, "a", Some(&["x", "y"])),
            sample(1, "b", Some(&["z"])),
            sample(2, "a", None),
            sample(3, "a", Some(&["y"])),
            sample(9, "b", Some(&[])),
        ];
        let signals = |until_us| -> Vec<String> {
            let missing = recording(events.clone()).missing_signals(until_us);
            missing.into_iter().map(|missing| missing.signal).collect()
        };
        assert_eq!(
            (signals(2), signals(5), signals(9)),
            (vec!["x".into(), "y".into(), "z".into()], vec!["y".into(), "z".into()], vec!["y".into()],)
        );
    }
}

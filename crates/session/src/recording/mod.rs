//! A recording: the events of one session, put in order so that each load can be analysed with the samples around it.

mod observed;

use crate::log::reader;
pub use observed::{HostRecord, IncidentRecord, missing_signals};
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_analysis::diagnosis::diagnose_with;
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_analysis::resources::live_traffic;
use webdyno_model::Result;
use webdyno_model::capacity::CapacityReport;
use webdyno_model::change::{Change, ChangedHost, JournalPlace};
use webdyno_model::client::ClientTables;
use webdyno_model::diagnosis::{Diagnosis, Finding};
use webdyno_model::environment::Environment;
use webdyno_model::event::{Event, EventBody};
use webdyno_model::interval::{Interval, LoadEnd};
use webdyno_model::live_traffic::LiveTraffic;
use webdyno_model::objective::Objective;
use webdyno_model::purpose::Purpose;
use webdyno_model::repeated_answer::RepeatedAnswer;
use webdyno_model::sample::{CollectorInfo, FORWARD_FILL_READINGS_MAX, MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::sweep::{SweepPlan, SweepPoint, SweepReport};
use webdyno_model::topology::Topology;
use webdyno_model::tune::{Goal, Round, TuneState};
use webdyno_model::worker::{WorkerPart, WorkersStart};
use webdyno_model::workload::Workload;

/// Samples this long before a load are kept with it, so that counters have a reading before the window.
const BEFORE_S: f64 = 3.0;
/// Samples so long after a load are kept with it, and after one that was stopped: then they tell what it left.
const AFTER_S: f64 = 0.5;
const AFTER_STOPPED_S: f64 = 2.5;
/// Of the time before the first load, as much as this tells what other clients send.
const QUIET_S_MAX: f64 = 10.0;
/// The longest that a reading takes.
const READING_US_MAX: u64 = 2_000_000;

/// The events of one session, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    /// `run`, `diagnose`, `tune`, `quickstart`, `observe`.
    pub command: String,
    /// Wall clock, RFC 3339.
    pub started_at: String,
    /// The machine of the generator.
    pub client: Environment,
    /// What tuning shall reach.
    pub goal: Option<Goal>,
    /// What runs must meet.
    pub objectives: Vec<Objective>,
    /// Who gave the command.
    pub operator: Option<String>,
    /// The run directory in which it was recorded.
    pub directory: Option<String>,
    /// The machine of the server.
    pub server: Option<Environment>,
    /// What the samples mean.
    pub collectors: Vec<CollectorInfo>,
    /// The service, each time it was read, with the time.
    pub services: Vec<(u64, ServiceSnapshot)>,
    /// What requests showed that were sent twice before the loads.
    pub repeated_answers: Vec<RepeatedAnswer>,
    /// Every load.
    pub loads: Vec<LoadRecord>,
    /// Every window of watching without load: start and end.
    pub watches: Vec<(u64, u64)>,
    /// Every sample, with the time of its reading.
    pub samples: Vec<(u64, Sample)>,
    /// What stands behind the service, each time it was looked at, with the time.
    pub topologies: Vec<(u64, Topology)>,
    /// The other hosts by their roles: kept apart, as rules are about the one under load.
    pub hosts: BTreeMap<String, HostRecord>,
    /// What went wrong while hosts were watched.
    pub incidents: Vec<IncidentRecord>,
    /// What the wall clock showed, where it was written down, with the time.
    pub clocks: Vec<(u64, String)>,
    /// Every plan, also of rounds that did not come to their end.
    pub attempts: Vec<PlanAttempt>,
    /// Every round that came to its end.
    pub rounds: Vec<RoundRecord>,
    /// Where the undo of the changes is.
    pub journal: Option<JournalPlace>,
    /// Other hosts that were changed, and where the undo of that is.
    pub other_journals: BTreeMap<ChangedHost, Option<JournalPlace>>,
    /// How tuning ended.
    pub tune_end: Option<TuneEnd>,
    /// When something was changed first.
    pub first_change_us: Option<u64>,
    /// What a sweep is about.
    pub sweep_plan: Option<SweepPlan>,
    /// What each of its loads came to, in order of time; first those of the session that it goes on with.
    pub sweep_loads: Vec<SweepPoint>,
    /// What a sweep came to.
    pub sweep: Option<SweepReport>,
    /// What a search for the capacity came to.
    pub capacity: Option<CapacityReport>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Exit code and error, when the session ended in order.
    pub end: Option<(u8, Option<String>)>,
}

/// One load of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadRecord {
    /// From 1.
    pub load: u32,
    /// Why it was made.
    pub purpose: Purpose,
    /// When it began.
    pub begins_us: u64,
    /// What was sent.
    pub workload: Workload,
    /// How long the slowest of a few requests took that were sent alone before.
    pub alone_us: Option<u64>,
    /// Second by second.
    pub intervals: Vec<Interval>,
    /// How it ended, and where its measured part begins; `None` when it was cut off.
    pub end: Option<(LoadEnd, f64)>,
    /// Why so much was cut as warm-up.
    pub warmup_reason: Option<String>,
    /// Where its measured part ends, when a ramp-down follows.
    pub measured_to_s: Option<f64>,
    /// Which machines made which part of it; none when this one made all of it.
    pub workers: Vec<WorkerPart>,
    /// Who was to make it, when this machine was not.
    pub workers_start: Option<WorkersStart>,
    /// The tables of the generator's machine.
    pub tables: Option<ClientTables>,
    /// Why it was stopped before it did harm.
    pub harm_guard_trip: Option<webdyno_model::harm_guard::HarmGuardTrip>,
    /// What could not be watched of the harm that it may do.
    pub unwatched: Vec<MissingSignal>,
}

/// A plan, and what became of it on the server.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanAttempt {
    /// The round, from 1.
    pub n: u32,
    /// What led to it.
    pub finding: Finding,
    /// What was to change.
    pub changes: Vec<Change>,
    /// The diff that was shown.
    pub diff: String,
    /// That it took effect.
    pub applied: Option<AppliedPlan>,
    /// That it was put back.
    pub put_back: Option<Reverted>,
}

/// That a plan took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedPlan {
    /// Names the state before it.
    pub mark: u64,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

/// That a change was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reverted {
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

/// One round of tuning.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundRecord {
    /// The round.
    pub round: Round,
    /// The load that verified it.
    pub load_after: Option<u32>,
}

/// How tuning ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuneEnd {
    /// The first measurement.
    pub baseline_load: u32,
    /// The best that stands.
    pub best_load: u32,
    /// The one that shows what limits now.
    pub last_load: u32,
    /// Whether the goal was met.
    pub goal_met: bool,
    /// What became of the server.
    pub state: TuneState,
}

impl LoadRecord {
    fn ended(&mut self, end: Option<(LoadEnd, f64)>, warmup_why: Option<String>, measured_to_s: Option<f64>) {
        (self.end, self.warmup_reason, self.measured_to_s) = (end, warmup_why, measured_to_s);
    }

    /// One of which nothing but its begin is known yet.
    fn started(
        (load, purpose): (u32, Purpose),
        begins_us: u64,
        workload: Workload,
        alone_us: Option<u64>,
    ) -> Self {
        Self {
            load,
            purpose,
            begins_us,
            workload,
            alone_us,
            intervals: vec![],
            end: None,
            warmup_reason: None,
            measured_to_s: None,
            workers: vec![],
            workers_start: None,
            tables: None,
            harm_guard_trip: None,
            unwatched: vec![],
        }
    }
}

impl Recording {
    /// Reads the log of a run directory.
    pub fn read(directory: &Path) -> Result<Self> {
        Ok(Self::of(reader::read(directory)?))
    }

    /// Puts events in order.
    pub fn of(events: Vec<Event>) -> Self {
        let mut recording = Self::default();
        for event in events {
            recording.add(event);
        }
        recording
    }

    /// Adds one event to what was recorded so far.
    pub fn add(&mut self, event: Event) {
        let t_us = event.t_us;
        match event.body {
            EventBody::SessionStart {
                command,
                started_at,
                client,
                goal,
                objectives,
                operator,
                directory,
            } => {
                (self.command, self.started_at) = (command, started_at);
                (self.client, self.goal, self.objectives) = (client, goal, objectives);
                (self.operator, self.directory) = (operator, directory);
            }
            EventBody::Service { snapshot } => self.services.push((t_us, *snapshot)),
            EventBody::RepeatedAnswers { answers } => self.repeated_answers = answers,
            EventBody::LoadStart { load, purpose, workload, alone_us } => {
                self.loads.push(LoadRecord::started((load, purpose), t_us, *workload, alone_us));
            }
            EventBody::Interval { load, interval } => {
                self.update_load(load, |record| record.intervals.push(*interval));
            }
            EventBody::LoadEnd { load, end, measured_from_s, warmup_why, measured_to_s } => {
                let end = Some((end, measured_from_s));
                self.update_load(load, |record| record.ended(end, warmup_why, measured_to_s));
            }
            EventBody::WorkersStart { load, start } => {
                self.update_load(load, |record| record.workers_start = Some(start));
            }
            EventBody::Workers { load, parts } => {
                self.update_load(load, |record| record.workers = parts);
            }
            EventBody::ClientTables { load, tables } => {
                self.update_load(load, |record| record.tables = Some(tables));
            }
            EventBody::Watch { length_us } => self.watches.push((t_us.saturating_sub(length_us), t_us)),
            body @ (EventBody::Server { .. }
            | EventBody::Sample { .. }
            | EventBody::Topology { .. }
            | EventBody::Clock { .. }
            | EventBody::Incident { .. }) => self.add_host_event(t_us, body),
            EventBody::Brake { load, brake: trip } => {
                self.update_load(load, |record| record.harm_guard_trip = Some(trip))
            }
            EventBody::Unwatched { load, missing } => {
                self.update_load(load, |record| record.unwatched = missing)
            }
            EventBody::Note { text } => self.notes.push(text),
            EventBody::SessionEnd { exit_code, error } => self.end = Some((exit_code, error)),
            body => self.add_result(t_us, body),
        }
    }

    /// Adds what a tuning, a sweep or a capacity run has done or found.
    fn add_result(&mut self, t_us: u64, body: EventBody) {
        match body {
            EventBody::Planned { n, finding, changes, diff } => {
                let finding = *finding;
                self.attempts.push(PlanAttempt { n, finding, changes, diff, applied: None, put_back: None });
            }
            EventBody::Applied { mark, outage_us, journal, host } => {
                self.first_change_us.get_or_insert(t_us);
                self.applied(AppliedPlan { mark, outage_us }, journal, host);
            }
            EventBody::Reverted { mark, outage_us, .. } => self.reverted(mark, outage_us),
            EventBody::RoundEnd { round, load_after, .. } => {
                self.rounds.push(RoundRecord { round: *round, load_after });
            }
            EventBody::TuneEnd { baseline_load, best_load, last_load, goal_met, state } => {
                self.tune_end = Some(TuneEnd { baseline_load, best_load, last_load, goal_met, state });
            }
            EventBody::SweepStart { plan } => self.sweep_plan = Some(*plan),
            EventBody::SweepPointEnd { point } => self.sweep_loads.push(*point),
            EventBody::SweepEnd { report } => self.sweep = Some(*report),
            EventBody::CapacityEnd { report } => self.capacity = Some(*report),
            _ => {}
        }
    }

    fn applied(&mut self, plan: AppliedPlan, journal: Option<JournalPlace>, host: Option<ChangedHost>) {
        if let Some(attempt) = self.attempts.last_mut() {
            // One that is switched off and on again is in force again.
            (attempt.applied, attempt.put_back) = (Some(plan), None);
        }
        match host {
            None => self.journal = journal.or(self.journal.take()),
            Some(host) => drop(self.other_journals.insert(host, journal)),
        }
    }

    /// One revert may put several changes back at once.
    fn reverted(&mut self, mark: u64, outage_us: Option<u64>) {
        let in_force = |attempt: &&mut PlanAttempt| {
            attempt.put_back.is_none() && attempt.applied.is_some_and(|applied| applied.mark >= mark)
        };
        for attempt in self.attempts.iter_mut().filter(in_force) {
            attempt.put_back = Some(Reverted { outage_us });
        }
    }

    /// Adds to what is known of a load.
    fn update_load(&mut self, load: u32, add: impl FnOnce(&mut LoadRecord)) {
        if let Some(record) = self.loads.iter_mut().find(|record| record.load == load) {
            add(record);
        }
    }

    /// The load of this number.
    pub fn load(&self, load: u32) -> Option<&LoadRecord> {
        self.loads.iter().find(|record| record.load == load)
    }

    /// One load with the samples around it, on its own time axis.
    pub fn measurement(&self, record: &LoadRecord) -> Measurement {
        let lasted_s = record.intervals.last().map_or(0.0, |last| last.t_s + last.length_us as f64 / 1e6);
        let (end, measured_from_s) = record.end.clone().map_or((None, 0.0), |(end, from)| (Some(end), from));
        // Nothing of ours but readings comes before the first load, unless something was changed before it, or a sweep that varies
        // the load requested its content alone.
        let varies_load = self.sweep_plan.as_ref().is_some_and(|plan| plan.original.contains(&None));
        let is_first = !varies_load
            && self.loads.first().is_some_and(|first| first.load == record.load)
            && self.first_change_us.is_none_or(|us| us > record.begins_us);
        let quiet_us = self.samples.first().map(|(t_us, _)| *t_us).filter(|_| is_first);
        let quiet_from_s =
            quiet_us.map(|t_us| seconds_since(record.begins_us, t_us)).filter(|t_s| *t_s < 0.0);
        let after_s = if record.harm_guard_trip.is_some() { AFTER_STOPPED_S } else { AFTER_S };
        Measurement {
            workload: Some(record.workload.clone()),
            intervals: record.intervals.clone(),
            end,
            warmup_reason: record.warmup_reason.clone(),
            measured_to_s: record.measured_to_s.unwrap_or(lasted_s),
            ramp_down_from_s: record.measured_to_s,
            tables: record.tables,
            harm_guard_trip: record.harm_guard_trip.clone(),
            workers: record.workers.clone(),
            unwatched: record.unwatched.clone(),
            quiet_from_s,
            left_behind_count: self.left_behind_count(record),
            alone_us: record.alone_us,
            repeated_answers: self.repeated_answers.clone(),
            ..self.window((record.begins_us, quiet_from_s), measured_from_s, (lasted_s, after_s))
        }
    }

    /// Requests in flight when the load before this one ended.
    fn left_behind_count(&self, record: &LoadRecord) -> u64 {
        let before = self.loads.iter().take_while(|other| other.load != record.load).last();
        let end = before.and_then(|before| before.end.as_ref());
        end.map_or(0, |(end, _)| end.in_flight_at_end)
    }

    /// A window of watching without load of our own.
    pub fn passive_measurement(&self, window: (u64, u64)) -> Measurement {
        self.window((window.0, None), 0.0, (window.1.saturating_sub(window.0) as f64 / 1e6, AFTER_S))
    }

    /// What other clients sent so far; `None` when that is not known.
    pub fn live_traffic(&self) -> Option<LiveTraffic> {
        let loads = self.loads.iter().map(|record| self.measurement(record));
        // The last reading ends a moment after it began.
        let ends = self.samples.first().zip(self.samples.last());
        let ends = ends.map(|(first, last)| (first.0, last.0 + READING_US_MAX));
        let watched = self.watches.last().copied().or(ends).filter(|_| self.loads.is_empty());
        let watched = watched.map(|window| self.passive_measurement(window));
        live_traffic::merged(
            loads.chain(watched).filter_map(|measurement| live_traffic::live_traffic(&measurement)),
        )
    }

    /// The last load that has results; those with one thing changed are there to be compared with.
    pub fn last_load(&self) -> Option<&LoadRecord> {
        let with_results = |record: &&LoadRecord| !is_experiment(record) && !record.intervals.is_empty();
        self.loads.iter().rev().find(with_results)
    }

    /// The loads with one thing changed that followed the last load and came to their end.
    pub fn experiments(&self) -> Vec<(Purpose, Measurement)> {
        let Some(last) = self.last_load() else { return vec![] };
        let after = self.loads.iter().filter(|record| record.load > last.load && is_experiment(record));
        let whole = after.filter(|record| record.end.is_some() && !record.intervals.is_empty());
        whole.map(|record| (record.purpose, self.measurement(record))).collect()
    }

    /// The diagnosis of this session: of its last load and what was tried after it, or of its last window of watching.
    /// `None` without either; an error when a histogram is damaged.
    pub fn diagnosis(&self) -> Result<Option<Diagnosis>> {
        let measurement = self.last_measurement();
        measurement.map(|measurement| diagnose_with(&measurement, &self.experiments())).transpose()
    }

    /// What a diagnosis of this session is made from: the last load, or the last window of watching.
    pub fn last_measurement(&self) -> Option<Measurement> {
        self.last_load()
            .map(|record| self.measurement(record))
            .or_else(|| self.watches.last().map(|window| self.passive_measurement(*window)))
            .or_else(|| {
                let window =
                    self.observed_window().filter(|_| matches!(self.command.as_str(), "observe" | "check"));
                window.map(|window| self.passive_measurement(window))
            })
    }

    /// The readings before a window that may have what those in it left out as unchanged: the last of each collector.
    fn earlier_samples(&self, begins_us: u64, before_s: f64) -> impl Iterator<Item = (f64, &Sample)> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let before = self.samples.iter().map(|(t_us, sample)| (seconds_since(begins_us, *t_us), sample));
        let before = before.rev().filter(|(t_s, _)| *t_s < -before_s);
        let mut last: Vec<_> = before
            .filter(|(_, sample)| {
                let count = counts.entry(&sample.source).or_default();
                *count += 1;
                *count < FORWARD_FILL_READINGS_MAX
            })
            .collect();
        last.reverse();
        last.into_iter()
    }

    fn window(
        &self,
        (begins_us, quiet_from_s): (u64, Option<f64>),
        from_s: f64,
        (to_s, after_s): (f64, f64),
    ) -> Measurement {
        let before_s = BEFORE_S.max(quiet_from_s.map_or(0.0, |t_s| -t_s)).min(QUIET_S_MAX);
        let around = self.samples.iter().map(|(t_us, sample)| (seconds_since(begins_us, *t_us), sample));
        let around = around.filter(|(t_s, _)| (-before_s..=to_s + after_s).contains(t_s));
        let timed = |(t_s, sample): (f64, &Sample)| TimedSample { t_s, sample: sample.clone() };
        let ends_us = begins_us + (to_s * 1e6) as u64;
        let service = self.services.iter().rev().find(|(t_us, _)| *t_us <= ends_us).or(self.services.first());
        let observation = self.topologies.iter().rev().find(|(t_us, _)| *t_us <= ends_us);
        let topology = observation.or(self.topologies.first()).map(|(_, topology)| topology);
        let service = service.map(|(_, snapshot)| snapshot);
        Measurement {
            measured_from_s: from_s,
            measured_to_s: to_s,
            samples: around.map(timed).collect(),
            earlier_samples: self.earlier_samples(begins_us, before_s).map(timed).collect(),
            lacking: self.missing_signals(ends_us),
            collectors: self.collectors.clone(),
            topology: topology.map(|topology| with_front(topology, service)),
            service: service.cloned(),
            server: self.server.clone(),
            client: self.client.clone(),
            objectives: self.objectives.clone(),
            goal: self.goal,
            ..Measurement::default()
        }
    }
}

/// A session that discovered its service tells it apart from what stands behind it.
pub(crate) fn with_front(topology: &Topology, service: Option<&ServiceSnapshot>) -> Topology {
    let mut whole = topology.clone();
    if whole.front.is_none() {
        whole.front = service.cloned();
    }
    whole
}

fn is_experiment(record: &LoadRecord) -> bool {
    Purpose::EXPERIMENTS.contains(&record.purpose)
}

/// Seconds from one time of the session to another; negative before it.
fn seconds_since(begins_us: u64, t_us: u64) -> f64 {
    (t_us as f64 - begins_us as f64) / 1e6
}

//! The live target of a search for the capacity: each step is a load of its own, which begins when requests sent alone take about as
//! long as they did before the first one.

use super::{LiveSession, LoadLength, Servers, lower_load};
use crate::capacity::CapacityTarget;
use webdyno_analysis::capacity::{StepKind, StepOutcome, StepResult, StepSpec, StepTest};
use webdyno_analysis::diagnosis::diagnose;
use webdyno_analysis::limits::LimitId;
use webdyno_analysis::run_report::run_report;
use webdyno_load::Prepared;
use webdyno_model::capacity::{CapacityStep, LoadUnit};
use webdyno_model::diagnosis::Diagnosis;
use webdyno_model::environment::Environment;
use webdyno_model::event::EventBody;
use webdyno_model::interval::EndReason;
use webdyno_model::objective::Objective;
use webdyno_model::purpose::Purpose;
use webdyno_model::run::RunReport;
use webdyno_model::workload::{Arrival, Workload};
use webdyno_model::{Result, UserError};

/// Requests sent alone take as long as before, when they take at most so many times as long, and so much longer.
const QUIET_TIMES: u64 = 2;
const QUIET_US: u64 = 2_000;
/// So long a queue may take to drain, and so often it is looked at.
pub(super) const DRAIN_US_MAX: u64 = 15_000_000;
const DRAIN_CHECK_S: f64 = 0.3;
/// Seconds of the load at which the limit is looked for: warm-up and all.
const LIMIT_S: (u32, u32) = (2, 9);
/// Service times that have not grown by more than this are those of a server with room.
const UNHURRIED_TIMES: u64 = 2;

/// What makes a load of so much: requests or pages per second, or users; it ends after so many microseconds.
pub type WorkloadOf<'a> = &'a dyn Fn(f64, u64) -> Result<Workload>;

/// A real server whose capacity is looked for.
pub struct LiveCapacity<'a> {
    /// Log and clock.
    pub session: &'a mut LiveSession,
    /// The agents, where the server is observed.
    pub servers: Option<&'a mut Servers>,
    /// The load of a step.
    pub workload_of: WorkloadOf<'a>,
    /// What it is counted in.
    pub unit: LoadUnit,
    /// What a load has to meet.
    pub objectives: &'a [Objective],
    /// How long a request took that was sent alone before the first load.
    pub alone_us: Option<u64>,
    /// The shortest median of the server's own times, so far.
    pub quickest_us: Option<u64>,
    /// The shortest mean response time of a step, so far.
    pub lone_mean_us: Option<f64>,
}

impl LiveCapacity<'_> {
    /// The load, when the server has nothing left of the one before.
    fn drained(&mut self, workload: &Workload) -> Result<Prepared> {
        let last = self.session.recording().loads.last();
        if last.is_some_and(|last| last.harm_guard_trip.is_some())
            && let Some(servers) = self.servers.as_deref_mut()
            && let Some(why) = lower_load::wait_until_recovered(self.session, servers)?
        {
            return Err(lower_load::not_recovered_error(&why));
        }
        let mut prepared = webdyno_load::prepare(workload)?;
        webdyno_load::probe(&mut prepared)?;
        let quiet_us = quiet_us(self.alone_us);
        let until_us = self.session.elapsed_us() + DRAIN_US_MAX;
        loop {
            webdyno_load::measure_alone(&mut prepared);
            if is_quiet(&prepared, quiet_us) {
                return Ok(prepared);
            }
            if self.session.elapsed_us() >= until_us {
                let text = "a step began although lone requests still took longer than before the first one";
                self.session.append(EventBody::Note { text: text.into() })?;
                return Ok(prepared);
            }
            self.pause(DRAIN_CHECK_S)?;
        }
    }

    /// Waits; samples go into the log meanwhile.
    fn pause(&mut self, seconds: f64) -> Result<()> {
        match self.servers.as_deref_mut() {
            Some(servers) => self.session.observe_for(seconds, servers),
            None if self.session.is_interrupted() => Err(UserError::interrupted()),
            None => {
                std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
                Ok(())
            }
        }
    }

    /// Makes a load of so many seconds, or until the test is sure.
    fn load(
        &mut self,
        offered: f64,
        (warmup_s, seconds): (u32, u32),
        test: Option<StepLengths>,
    ) -> Result<StepLoad> {
        let workload = (self.workload_of)(offered, u64::from(seconds) * 1_000_000)?;
        let prepared = self.drained(&workload)?;
        self.session.step_test = test.map(|lengths| {
            StepTest::new(self.objectives, &workload, warmup_s, lengths).with_lone_mean(self.lone_mean_us)
        });
        let length = LoadLength::Fixed { warmup_s: Some(f64::from(warmup_s)) };
        let loaded =
            self.session.load(&prepared, &workload, Purpose::Capacity, length, self.servers.as_deref());
        let outcome = self.session.step_test.take().map(|test| test.outcome()).unwrap_or_default();
        Ok(StepLoad { load: loaded?, workload, outcome })
    }
}

/// What lone requests take at most on a server that has nothing left of the load before, by what they took at first.
pub(super) fn quiet_us(alone_us: Option<u64>) -> Option<u64> {
    alone_us.map(|us| (us * QUIET_TIMES).max(us + QUIET_US))
}

/// Whether they do; where that is not known it has to do.
pub(super) fn is_quiet(prepared: &Prepared, quiet_us: Option<u64>) -> bool {
    prepared.alone_us().zip(quiet_us).is_none_or(|(us, quiet_us)| us <= quiet_us)
}

/// The least and the most seconds that a step measures.
type StepLengths = (u32, u32);

/// A load that was made.
struct StepLoad {
    load: u32,
    workload: Workload,
    outcome: StepOutcome,
}

impl CapacityTarget for LiveCapacity<'_> {
    fn offer(&mut self, step: StepSpec) -> Result<StepResult> {
        let (warmup_s, lengths) = (self.warmup_s(step.kind)?, step.kind.measured_s());
        let made = self.load(step.offered, (warmup_s, warmup_s + lengths.1), Some(lengths))?;
        let StepLoad { load, workload, mut outcome } = made;
        self.lone_mean_us = self.lone_mean_us.into_iter().chain(outcome.mean_us).reduce(f64::min);
        let recording = self.session.recording();
        let record =
            recording.load(load).ok_or_else(|| UserError::cannot_run("the step was not recorded"))?;
        if record.end.as_ref().is_some_and(|(end, _)| end.reason == EndReason::Hopeless) {
            return Err(UserError::cannot_run("no connection came about any more")
                .hint("is the server still there? `webdyno check` shows what listens"));
        }
        if let Some(trip) = &record.harm_guard_trip {
            let missed = Some(format!("no harm to the server ({}: {})", trip.cause.name(), trip.text));
            outcome = StepOutcome { met: Some(false), seems_met: false, missed, ..outcome };
        }
        let run = run_report(&recording.measurement(record))?;
        let generator = self.generator_limit(&run, &workload, &outcome);
        self.quickest_us = self.quickest_us.into_iter().chain(run.service_time_us.p50).min();
        let step_report = self.step_report(load, step.offered, &run, (&outcome, generator.as_ref()));
        Ok(StepResult { kind: step.kind, step: step_report, outcome, generator })
    }

    fn limit_at(&mut self, offered: f64) -> Result<Option<Diagnosis>> {
        if self.servers.is_none() {
            return Ok(None);
        }
        let made = self.load(offered, LIMIT_S, None)?;
        let recording = self.session.recording();
        let of = |load: u32| {
            recording.load(load).map(|record| diagnose(&recording.measurement(record))).transpose()
        };
        let at_limit = of(made.load)?;
        if at_limit.as_ref().is_some_and(|found| found.bottleneck != LimitId::Healthy) {
            return Ok(at_limit);
        }
        // Just beyond the limit little may show that shows well beyond it: the highest load that was offered.
        let highest = recording.loads.iter().max_by(|a, b| level(&a.workload).total_cmp(&level(&b.workload)));
        let beyond = highest.map(|record| of(record.load)).transpose()?.flatten();
        Ok(beyond.filter(|found| found.bottleneck != LimitId::Healthy).or(at_limit))
    }

    fn environment(&self) -> Option<Environment> {
        self.servers.as_ref().and(self.session.recording().server.clone())
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.session.append(body)
    }

    fn elapsed_us(&self) -> u64 {
        self.session.elapsed_us()
    }
}

impl LiveCapacity<'_> {
    /// Users begin one after the other, and think: all of them are there only after a while.
    fn warmup_s(&self, kind: StepKind) -> Result<u32> {
        let workload = (self.workload_of)(1.0, 1_000_000)?;
        let think_s = workload.visits.as_ref().map_or(0.0, |visits| visits.think.mean_us() / 1e6);
        let is_users = self.unit == LoadUnit::Users;
        Ok(kind.warmup_s() + if is_users { think_s.ceil().min(30.0) as u32 } else { 0 })
    }

    fn step_report(
        &self,
        load: u32,
        offered: f64,
        run: &RunReport,
        (outcome, generator): (&StepOutcome, Option<&String>),
    ) -> CapacityStep {
        let pages = run.pages.as_ref().filter(|_| self.unit == LoadUnit::PagesPerSecond);
        let times = pages.map_or(&run.response_time_us, |pages| &pages.time_us);
        CapacityStep {
            load,
            offered,
            rate: pages.map_or(run.rate, |pages| pages.rate),
            p50_us: times.p50,
            p99_us: times.p99,
            errors: Some(pages.map_or(run.requests.failed, |pages| pages.failed)),
            met: outcome.met.filter(|_| generator.is_none()),
            missed: outcome.missed.clone().filter(|_| generator.is_none()),
            measured_s: f64::from(outcome.measured_s),
            discarded: generator.map(|why| format!("the load generator was the limit: {why}")),
        }
    }

    /// Why what was seen is the generator's doing, if it is. That a delay of the generator is in the times is no objection to an objective
    /// that is met in spite of it.
    fn generator_limit(&self, run: &RunReport, workload: &Workload, outcome: &StepOutcome) -> Option<String> {
        let client = &run.client;
        let is_spoilt = client.saturated || client.kernel_limit_total.is_some();
        if is_spoilt
            || (!outcome.seems_met && run.requests.completed > 0 && client.valid && !client.valid_for.latency)
        {
            return client.why.clone().or_else(|| Some("it was late".into()));
        }
        let is_full =
            workload.arrival != Arrival::Closed && run.connections.peak >= u64::from(workload.connections);
        let own_us = run.service_time_us.p50.zip(self.quickest_us);
        let is_unhurried = own_us.is_some_and(|(us, quickest_us)| {
            us <= (quickest_us * UNHURRIED_TIMES).max(quickest_us + QUIET_US)
        });
        (!outcome.seems_met && run.requests.failed == 0 && is_full && is_unhurried).then(|| {
            format!(
                "all {} connections were in use, and the server's own times did not rise; -c gives more",
                workload.connections
            )
        })
    }
}

/// How much a load offers.
fn level(workload: &Workload) -> f64 {
    match (workload.arrival, &workload.visits) {
        (Arrival::Open { rate_per_s, .. }, _) => rate_per_s,
        (Arrival::Closed, Some(visits)) => f64::from(visits.users),
        (Arrival::Closed, None) => f64::from(workload.connections),
    }
}

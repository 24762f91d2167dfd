//! Facts: what a measurement says, as numbers with unit, window and source. Rules see nothing else.
//!
//! The table of facts is the one place where metric names of collectors and fact names of rules meet.

use crate::measurement::Measurement;
use crate::measurement::series::SeriesSet;
use crate::settings::effective::RequestTarget;
use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::client::KernelLimitTotal;
use webdyno_model::fact::Fact;
use webdyno_model::harm_guard::HarmGuardTrip;
use webdyno_model::processor_time::ProcessorTime;
use webdyno_model::run::RunReport;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;
use webdyno_model::tune::Goal;

#[macro_use]
mod id;

mod apache;
mod backend_concurrency;
mod blocking;
mod builder;
mod client;
mod connections;
mod database;
mod first_responses;
mod limits;
mod logs;
mod machine;
mod memory;
mod metric_command;
pub(crate) mod network;
mod passive;
mod php;
pub mod processor_time;
pub mod repro_command;
mod requests;
mod resource_usage;
mod scoreboard;
mod serialized;
mod slow_responses;
mod slow_seconds;
mod sockets;
#[cfg(test)]
pub(crate) mod testing;

mod workers;

pub use id::FactId;
pub(crate) use id::fact_ids;

use builder::FactBuilder;
use id::{Derivation, FactRow};

fact_table! {
    // Of the metric that stopped the load: with its unit.
    "": brake_reading, brake_limit;
}

/// All that rules may look at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    facts: BTreeMap<FactId, Fact>,
    /// Of facts that there are several of, those of each thing, by its name: `["fpm_queue_mean"]["www"]`.
    each: BTreeMap<FactId, BTreeMap<String, Fact>>,
    /// The service behind the port, as it was read.
    pub service: Option<ServiceSnapshot>,
    /// What stands behind it; `None` when nobody looked.
    pub topology: Option<Topology>,
    /// What a call into the kernel that asks for a file took on the server's machine, and each further part of its path;
    /// `None` where nobody measured it.
    pub file_call_us: Option<f64>,
    /// See there.
    pub path_part_us: Option<f64>,
    /// What tuning shall reach.
    pub goal: Option<Goal>,
    /// Why the generator's figures cannot be believed; `None` when they can or when there was no load of our own.
    pub generator_fault: Option<String>,
    /// Whether all that is wrong with it is that it was late.
    pub generator_is_late: bool,
    /// The table that the run measured instead of the server.
    pub kernel_limit_total: Option<KernelLimitTotal>,
    /// Whether hardly a connection could be opened at its end, or the generator's machine had no more of something.
    pub opening_stopped: bool,
    /// Whether there was load of our own.
    pub loaded: bool,
    /// Why that load was stopped before its end.
    pub harm_guard_trip: Option<HarmGuardTrip>,
    /// Whether all collectors fell silent well before the end: what the server did last was not seen.
    pub readings_stopped: bool,
    /// What the load asks for; empty without load of our own.
    pub request_targets: Vec<RequestTarget>,
    /// Whether its clients keep connections; `None` without load of our own.
    pub wants_keepalive: Option<bool>,
    /// Where the processors' time goes; `None` where nobody looked.
    pub processor_time: Option<ProcessorTime>,
}

/// What happens more rarely than once in ten seconds does not limit anything all the time.
const OFTEN_PER_S: f64 = 0.1;

impl Facts {
    /// The value of a fact; `None` when it is not known.
    pub fn value(&self, name: FactId) -> Option<f64> {
        self.facts.get(&name).map(|fact| fact.value)
    }

    /// The facts of these names that are known, in this order: for a finding to cite.
    pub fn cite(&self, names: &[FactId]) -> Vec<Fact> {
        names.iter().filter_map(|name| self.facts.get(name)).cloned().collect()
    }

    /// The values of a fact that there are several of, by what they are of; empty when there are none.
    pub fn each(&self, name: FactId) -> impl Iterator<Item = (&str, f64)> {
        let found = self.each.get(&name).into_iter().flatten();
        found.map(|(instance, fact)| (instance.as_str(), fact.value))
    }

    /// The value of such a fact of one of them.
    pub fn value_of(&self, name: FactId, instance: &str) -> Option<f64> {
        self.each.get(&name)?.get(instance).map(|fact| fact.value)
    }

    /// [`Facts::cite`] of one of several things.
    pub fn cite_of(&self, names: &[FactId], instance: &str) -> Vec<Fact> {
        names.iter().filter_map(|name| self.each.get(name)?.get(instance)).cloned().collect()
    }

    /// The services behind the front that are this program, with those of their settings that are known.
    pub fn backends(&self, program: &str) -> impl Iterator<Item = &ServiceSnapshot> {
        let all = self.topology.iter().flat_map(|topology| &topology.backends);
        all.filter(move |service| service.service == program)
    }

    /// Whether the service is this program.
    pub fn is_service(&self, name: &str) -> bool {
        self.service.as_ref().is_some_and(|service| service.service == name)
    }

    /// A setting's number in force.
    pub fn setting(&self, name: &str) -> Option<f64> {
        self.service.as_ref()?.number(name)
    }

    /// A setting's value in force as text.
    pub fn text(&self, name: &str) -> Option<String> {
        let found = self.service.as_ref()?.settings.get(name)?;
        let value = found.running.as_ref().or(found.configured.as_ref()).or(found.default.as_ref())?;
        Some(value.to_string())
    }

    /// Workers per process of the service: threads under worker and event, one under prefork.
    pub fn threads_per_process(&self) -> f64 {
        threads_per_process(self.service.as_ref())
    }

    /// Workers that its files allow.
    pub(crate) fn workers_configured(&self) -> Option<f64> {
        let most = self.service.as_ref()?.configured_number("MaxRequestWorkers")?;
        Some(workers_of_processes(most, self.threads_per_process()))
    }

    /// Requests that ended per second, good or not: every one of them cost the server and stood in its queues, so
    /// this divides whatever is told per request. The good ones where nothing else is known.
    pub fn ended_per_s(&self) -> Option<f64> {
        self.value(FactId::ended_per_s).or(self.value(FactId::rate)).filter(|rate| *rate > 0.0)
    }

    /// Length in seconds of the window of a fact.
    pub fn window_s(&self, name: FactId) -> Option<f64> {
        self.facts.get(&name).map(|fact| fact.to_s - fact.from_s)
    }

    /// How often something was counted that may be what limits: at least once, and once in ten seconds of a long measurement.
    pub(crate) fn counted_often(&self, name: FactId) -> Option<f64> {
        let is_often =
            |count: &f64| self.window_s(name).is_none_or(|window_s| *count >= OFTEN_PER_S * window_s);
        self.value(name).filter(|count| *count >= 1.0).filter(is_often)
    }

    /// Adds or replaces a fact of one of several things; the fact itself becomes that of the largest value.
    pub fn insert_of(&mut self, instance: &str, name: FactId, fact: Fact) {
        if self.value(name).is_none_or(|value| fact.value > value) {
            self.insert(name, fact.clone());
        }
        self.each.entry(name).or_default().insert(instance.to_owned(), fact);
    }

    /// The same for a service behind the one under load: without what is known of the processes of that.
    pub fn of_another(&self, service: &ServiceSnapshot) -> Self {
        let of_front = |name: &FactId| {
            let name = name.as_str();
            ["worker", "service_", "scoreboard_", "processes_", "status_", "accept_queue"]
                .iter()
                .any(|begin| name.starts_with(begin))
        };
        let mut other = Self { service: Some(service.clone()), ..self.clone() };
        other.facts.retain(|name, _| !of_front(name));
        other
    }

    /// Takes a value for granted that nobody read, to reckon with: it is in no finding.
    pub fn assume(&mut self, name: FactId, value: f64) {
        let (unit, source, reproduce) = (String::new(), "assumed".to_owned(), String::new());
        let fact =
            Fact { name: name.as_str().into(), value, unit, from_s: 0.0, to_s: 0.0, source, reproduce };
        self.facts.insert(name, fact);
    }

    /// Adds or replaces a fact: for tests and for facts from elsewhere.
    pub fn insert(&mut self, name: FactId, fact: Fact) {
        self.facts.insert(name, fact);
    }
}

/// What follows from one metric each: a family is a file.
const FAMILIES: &[&[FactRow]] = &[
    machine::ROWS,
    memory::ROWS,
    limits::ROWS,
    sockets::ROWS,
    network::ROWS,
    apache::ROWS,
    php::ROWS,
    database::ROWS,
    logs::ROWS,
    resource_usage::ROWS,
    blocking::ROWS,
];

/// The facts that follow from one metric each, with its name; with a star for several things.
pub fn with_metrics() -> impl Iterator<Item = (FactId, &'static str)> {
    FAMILIES.iter().copied().flatten().map(|(fact, metric, _)| (*fact, *metric))
}

/// Everything that the measurement says.
pub fn facts(measurement: &Measurement, run: Option<&RunReport>) -> Result<Facts> {
    let series = SeriesSet::of(measurement);
    let (service, topology) = (measurement.service.as_ref(), measurement.topology.as_ref());
    let mut builder =
        FactBuilder { series, service, topology, facts: BTreeMap::new(), each: BTreeMap::new() };
    builder.server_facts();
    match run {
        Some(run) => {
            builder.client(measurement, run)?;
            builder.first_responses(measurement)?;
            builder.serialized_worker_time(measurement)?;
            builder.slow_responses(measurement)?;
            builder.kept_connections(measurement, run);
            builder.requests(measurement, run);
        }
        None => builder.passive(),
    }
    builder.worker_holders(run.is_some());
    builder.log_disk();
    builder.work_per_request();
    builder.backend_concurrency();
    let processor_time = builder.processor_time();
    let trip = measurement.harm_guard_trip.clone();
    trip.iter().for_each(|trip| builder.harm_guard(trip));
    let loaded = run.is_some();
    // Of a load that was stopped the generator's figures say least: what stopped it is what counts.
    // Where nothing ended within its time, nothing says that this was the generator.
    let ended = |run: &&RunReport| run.requests.completed + run.requests.failed > 0;
    let fault = run.filter(|run| !run.client.valid_for.latency && trip.is_none()).filter(ended);
    let kernel_limit_total = fault.and_then(|run| run.client.kernel_limit_total.clone());
    let spoiled = fault.filter(|_| kernel_limit_total.is_none());
    // What is late without a cost has no part in what limits; that its times are wrong is told with them.
    let late = spoiled
        .map(|run| crate::run_report::generator::late_generator(measurement, run))
        .transpose()?
        .flatten();
    let without_cost = late.is_some_and(|late| late.is_without_cost) && builder.has_no_generator_queue();
    let generator_fault = spoiled.filter(|_| !without_cost).and_then(|run| run.client.why.clone());
    let readings_stopped = crate::measurement::silent_collectors::all_stopped(measurement);
    let machine = measurement.server.as_ref();
    Ok(Facts {
        facts: builder.facts,
        each: builder.each,
        service: measurement.service.clone(),
        topology: measurement.topology.clone(),
        file_call_us: machine.and_then(|machine| machine.file_call_us),
        path_part_us: machine.and_then(|machine| machine.path_part_us),
        goal: measurement.goal,
        generator_fault,
        generator_is_late: late.is_some(),
        kernel_limit_total,
        opening_stopped: loaded && crate::run_report::generator::opening_stopped(measurement),
        loaded,
        harm_guard_trip: trip,
        readings_stopped,
        request_targets: requests::request_targets(measurement),
        wants_keepalive: measurement.workload.as_ref().map(|workload| workload.keepalive),
        processor_time,
    })
}

/// Workers per process: `ThreadsPerChild` of the threaded MPMs, one under prefork and where it is not known.
fn threads_per_process(service: Option<&ServiceSnapshot>) -> f64 {
    let threaded = service.filter(|service| service.mode.as_deref() != Some("prefork"));
    let threads = threaded.and_then(|service| service.number("ThreadsPerChild"));
    threads.filter(|threads| *threads >= 1.0).unwrap_or(1.0)
}

/// Workers of a value of `MaxRequestWorkers`: Apache lowers it to whole processes, and raises what is less than one
/// (server/mpm/worker/worker.c, `worker_check_config`).
fn workers_of_processes(most: f64, threads_per_process: f64) -> f64 {
    (most / threads_per_process).floor().max(1.0) * threads_per_process
}

#[cfg(test)]
mod tests {
    use super::testing::{apache, of, sample, with_harm_guard_trip};
    use super::*;
    use webdyno_model::sample::{CollectorInfo, Metric, MetricKind};

    #[test]
    fn cpu_shares_come_from_differences() {
        let reading = |t_s, user: f64, idle: f64| {
            let kinds =
                ["nice", "system", "irq", "softirq", "steal", "iowait"].map(|kind| format!("cpu.{kind}_s"));
            let mut values: Vec<(&str, f64)> = kinds.iter().map(|kind| (kind.as_str(), 5.0)).collect();
            values.extend([("cpu.user_s", user), ("cpu.idle_s", idle)]);
            sample(t_s, "cpu", &values)
        };
        let facts = of(vec![reading(0.0, 100.0, 200.0), reading(10.0, 115.0, 205.0)], None);
        assert_eq!(facts.value(FactId::cpu_busy_fraction), Some(0.75));
        assert_eq!(facts.value(FactId::cpu_steal_fraction), Some(0.0));
    }

    #[test]
    fn facts_name_the_time_of_the_readings_they_rest_on() {
        let readings = [(-1.0, 5.0), (0.5, 10.0), (8.0, 90.0)];
        let readings = readings.map(|(t_s, value)| {
            sample(t_s, "x", &[("cpu.forks_count", value), ("sockets.accept_queue_count", value)])
        });
        let facts = of(readings.into(), None);
        let window = |name: FactId| facts.cite(&[name]).first().map(|fact| (fact.from_s, fact.to_s));
        assert_eq!(window(FactId::forks_per_s), Some((-1.0, 8.0)));
        assert_eq!(window(FactId::accept_queue_mean), Some((0.5, 8.0)));
    }

    #[test]
    fn what_stopped_a_load_is_a_fact_with_its_limit_and_command() {
        let metric = Metric {
            name: "memory.group_oom_kills_count".into(),
            unit: "count".into(),
            kind: MetricKind::Counter,
            source: "the group".into(),
            reproduce: "cat /proc/PID/cgroup".into(),
            on_change: false,
        };
        let measurement = Measurement {
            harm_guard_trip: Some(with_harm_guard_trip(&metric.name)),
            collectors: vec![CollectorInfo { name: "memory".into(), metrics: vec![metric] }],
            service: Some(apache(&[])),
            measured_to_s: 3.0,
            ..Measurement::default()
        };
        let facts = facts(&measurement, None).unwrap();
        assert_eq!(
            (facts.value(FactId::brake_reading), facts.value(FactId::brake_limit)),
            (Some(2.0), Some(1.0))
        );
        let reading = &facts.cite(&[FactId::brake_reading])[0];
        assert_eq!((reading.reproduce.as_str(), reading.to_s), ("cat /proc/1/cgroup", 3.0));
        assert_eq!(reading.source, "memory.group_oom_kills_count of the group");
    }

    #[test]
    fn what_was_not_read_is_unknown() {
        let facts = of(vec![], None);
        assert!(facts.facts.is_empty());
        assert_eq!(facts.value(FactId::cpu_busy_fraction), None);
    }
}

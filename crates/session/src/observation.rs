//! What a recording of an observation amounts to: each metric of the catalogue with its value and the command that shows
//! it by hand, or with the reason why there is none. A pure function of the recording.

use crate::recording::{Recording, missing_signals, with_front};
use std::collections::BTreeSet;
use webdyno_analysis::diagnosis::missing;
use webdyno_analysis::facts::repro_command;
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_analysis::measurement::statistics;
use webdyno_analysis::measurement::{Measurement, TimedSample};
use webdyno_analysis::run_report::host_levels::MAIN;
use webdyno_model::environment::Environment;
use webdyno_model::number::{Number, significant};
use webdyno_model::observation::{
    CollectorState, Observation, ObservedFact, ObservedHost, ObservedIncident, SCHEMA,
};
use webdyno_model::sample::{CollectorInfo, Metric, MetricKind, MissingSignal, Sample};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;

/// A reading over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What it belongs to and what it is, behind the host's role where there are several: `CPU: busy`, `db: CPU: busy`.
    pub name: String,
    /// `workers`, `connections`, `fraction`.
    pub unit: String,
    /// `(seconds since the session began, value)`, rising in time; of an observation since its first reading.
    pub points: Vec<(f64, f64)>,
}

/// The observation that a recording is of; `None` when nothing was read.
pub fn observation(recording: &Recording) -> Option<Observation> {
    let (first_us, last_us) = recording.extent_us()?;
    let all = (first_us, last_us);
    let seen = recording.topologies.last().map(|(_, topology)| topology);
    // One that went while it was observed is gone; a session that discovered one tells it apart.
    let front = recording.services.last().map(|(_, snapshot)| snapshot);
    let front = front.filter(|_| seen.is_none() || recording.command != "observe");
    let observed = HostObservation {
        role: None,
        environment: recording.server.clone().unwrap_or_default(),
        collectors: &recording.collectors,
        topology: with_front(seen.unwrap_or(&Topology::default()), front),
        samples: &recording.samples,
    };
    let others = recording.hosts.iter().map(|(role, host)| HostObservation {
        role: Some(role.clone()),
        environment: host.environment.clone(),
        collectors: &host.collectors,
        topology: host.topology.clone().unwrap_or_default(),
        samples: &host.samples,
    });
    let wall = |t_us: u64| recording.wall(t_us).map_or_else(String::new, |wall| wall.to_string());
    let incidents = recording.incidents.iter().map(|incident| ObservedIncident {
        at: wall(incident.t_us),
        t_s: incident.t_us / 1_000_000,
        role: incident.host.clone(),
        metric: incident.metric.clone(),
        what: incident.what.clone(),
    });
    Some(Observation {
        schema: SCHEMA.into(),
        taken_at: wall(last_us),
        window_s: significant((last_us - first_us) as f64 / 1e6, 6),
        observed: observed.into_report(all),
        others: others.map(|other| other.into_report(all)).collect(),
        incidents: incidents.collect(),
    })
}

/// The main levels of all hosts since a moment of the session, as far as they were read.
pub fn levels(recording: &Recording, first_us: u64) -> Vec<Series> {
    let others = recording.hosts.iter().map(|(role, host)| (Some(role), &host.collectors, &host.samples));
    let all = std::iter::once((None, &recording.collectors, &recording.samples)).chain(others);
    all.flat_map(|(role, collectors, samples)| levels_of(role, first_us, (collectors, samples))).collect()
}

fn levels_of(
    role: Option<&String>,
    first_us: u64,
    (collectors, samples): (&[CollectorInfo], &[(u64, Sample)]),
) -> Vec<Series> {
    let measurement = Measurement {
        samples: samples.iter().map(|read| timed_sample(first_us, read)).collect(),
        collectors: collectors.to_vec(),
        ..Measurement::default()
    };
    let set = SeriesSet::of(&measurement);
    let series = MAIN.iter().map(|level| Series {
        name: match role {
            Some(role) => format!("{role}: {}: {}", level.group, level.name),
            None => format!("{}: {}", level.group, level.name),
        },
        unit: level.unit.into(),
        points: level.points(&set),
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

fn timed_sample(first_us: u64, (t_us, sample): &(u64, Sample)) -> TimedSample {
    TimedSample { t_s: (*t_us as f64 - first_us as f64) / 1e6, sample: sample.clone() }
}

/// What is known of one host.
struct HostObservation<'a> {
    role: Option<String>,
    environment: Environment,
    collectors: &'a [CollectorInfo],
    topology: Topology,
    samples: &'a [(u64, Sample)],
}

impl HostObservation<'_> {
    fn into_report(self, (first_us, last_us): (u64, u64)) -> ObservedHost {
        let measurement = Measurement {
            samples: self.samples.iter().map(|read| timed_sample(first_us, read)).collect(),
            collectors: self.collectors.to_vec(),
            service: self.topology.front.clone(),
            topology: Some(self.topology.clone()),
            lacking: missing_signals(self.samples.iter().map(|(_, sample)| sample)),
            measured_to_s: (last_us - first_us) as f64 / 1e6,
            ..Measurement::default()
        };
        let missing = explain_missing(missing::missing(&measurement), self.collectors, &self.topology);
        let states: Vec<CollectorState> =
            self.collectors.iter().map(|info| state(info, self.samples)).collect();
        let series = SeriesSet::of(&measurement);
        let teller = FactSource { series: &series, missing: &missing, topology: &self.topology };
        let facts = self.collectors.iter().zip(&states).flat_map(|(info, state)| teller.facts(info, state));
        ObservedHost {
            role: self.role,
            host: self.environment,
            facts: facts.collect(),
            collectors: states,
            missing,
            services: self.topology.for_log(),
        }
    }
}

/// How the readings of one collector went.
fn state(info: &CollectorInfo, samples: &[(u64, Sample)]) -> CollectorState {
    let own: Vec<&Sample> =
        samples.iter().map(|(_, sample)| sample).filter(|sample| sample.source == info.name).collect();
    let last = own.last();
    CollectorState {
        name: info.name.clone(),
        duration_us: last.map(|sample| sample.duration_us),
        duration_us_max: own.iter().map(|sample| sample.duration_us).max(),
        late_us: last.and_then(|sample| sample.late_us),
        late_us_max: own.iter().filter_map(|sample| sample.late_us).max(),
        readings: own.len() as u64,
        failed: own.iter().filter(|sample| sample.error.is_some()).count() as u64,
        success: last.is_some_and(|sample| sample.error.is_none()),
        error: match last {
            None => Some("no reading of it came".into()),
            Some(_) => own.iter().rev().find_map(|sample| sample.error.clone()),
        },
    }
}

/// Things of a kind that have facts of their own; of more, the largest: of places in programs there are hundreds.
const INSTANCES_MAX: usize = 64;

/// What facts are told from.
struct FactSource<'a> {
    series: &'a SeriesSet<'a>,
    missing: &'a [MissingSignal],
    topology: &'a Topology,
}

impl FactSource<'_> {
    /// Every metric of a collector: of several things of a kind one for each; a metric that nothing was read of stands for
    /// itself.
    fn facts(&self, info: &CollectorInfo, state: &CollectorState) -> Vec<ObservedFact> {
        let mut taken = BTreeSet::new();
        let mut facts = vec![];
        for metric in &info.metrics {
            let instances: Vec<(Option<&str>, &str)> = match metric.name.contains('*') {
                false => vec![(None, metric.name.as_str())],
                true => self.series.instances(metric).map(|(name, value)| (Some(name), value)).collect(),
            };
            // `a.*.x_count` and `a.*.b.x_count` may both fit: the catalogue's order decides.
            let mut own: Vec<_> =
                instances.into_iter().filter(|(_, name)| taken.insert((*name).to_owned())).collect();
            if own.len() > INSTANCES_MAX {
                let sum = |name: &str| self.series.all(name).iter().map(|(_, value)| *value).sum::<f64>();
                own.sort_by(|a, b| sum(b.1).total_cmp(&sum(a.1)));
                own.truncate(INSTANCES_MAX);
            }
            if own.is_empty() {
                facts.push(self.observed_fact(info, metric, (None, &metric.name), state));
            }
            facts.extend(own.into_iter().map(|found| self.observed_fact(info, metric, found, state)));
        }
        facts
    }

    fn observed_fact(
        &self,
        info: &CollectorInfo,
        metric: &Metric,
        (instance, name): (Option<&str>, &str),
        state: &CollectorState,
    ) -> ObservedFact {
        let levels = || self.series.all(name).iter().map(|(_, value)| *value);
        let value = levels().next_back();
        let gauge = metric.kind == MetricKind::Gauge;
        let level = |value: Option<f64>| value.filter(|_| gauge).map(|value| Number(significant(value, 6)));
        let rate = self.series.rate(name).filter(|_| !gauge);
        let lack = value.is_none().then(|| self.reason(info, metric, state));
        ObservedFact {
            name: name.to_owned(),
            value: value.map(Number),
            unit: metric.unit.clone(),
            kind: metric.kind,
            rate_per_s: rate.map(|rate| Number(significant(rate, 6))),
            mean: level(statistics::mean(&levels().collect::<Vec<_>>())),
            min: level(levels().reduce(f64::min)),
            max: level(levels().reduce(f64::max)),
            source: metric.source.clone(),
            reproduce: self.repro_command(info, metric, instance),
            why: lack.as_ref().map(|lack| lack.why.clone()),
            how_to_enable: lack.map(|lack| lack.how_to_enable),
        }
    }

    /// The command that shows the same figure, run where the figure is read.
    fn repro_command(&self, info: &CollectorInfo, metric: &Metric, instance: Option<&str>) -> String {
        let service = self.service(info, instance);
        let command = repro_command::with_service_values(&metric.reproduce, service, instance);
        let enters = metric.reproduce.starts_with("nsenter ");
        let elsewhere = service.filter(|service| service.pid != 0 && self.is_in_foreign_namespace());
        match elsewhere.filter(|_| !enters && IN_ITS_NETWORK.contains(&info.name.as_str())) {
            Some(service) => repro_command::in_network_of(service.pid, &command),
            None => command,
        }
    }

    /// Whether the service in front has a network of its own: then there are readings of both.
    fn is_in_foreign_namespace(&self) -> bool {
        self.series.has("nic.service.")
    }

    /// The service that a collector's commands are about: the program that it reads, else the one in front.
    fn service(&self, info: &CollectorInfo, instance: Option<&str>) -> Option<&ServiceSnapshot> {
        let Some(program) = program_of(&info.name) else { return self.topology.front.as_ref() };
        let own = || self.topology.services().filter(|service| service.service == program);
        let has_it = |service: &&ServiceSnapshot| {
            service.endpoints.iter().any(|endpoint| Some(endpoint.name.as_str()) == instance)
        };
        own().find(has_it).or_else(|| own().next())
    }

    /// Why a metric has no value, and what helps.
    fn reason(&self, info: &CollectorInfo, metric: &Metric, state: &CollectorState) -> MissingSignal {
        if let Some(lack) = missing::missing_reason(self.missing, &info.name, &metric.name) {
            return lack.clone();
        }
        let lack = |why: String, how: &str| MissingSignal::new(&metric.name, why, how);
        if let Some(absent) = absent_program(&info.name, self.topology) {
            return lack(absent, WHEN_THERE);
        }
        if self.topology.front.is_none() && needs_a_service(metric) && program_of(&info.name).is_none() {
            return lack(NO_PORT.into(), NAME_ONE);
        }
        if metric.reproduce.contains("CLIENT") {
            return lack(NO_LOAD.into(), "nothing: webdyno diagnose has it, which loads the server");
        }
        if metric.name.contains(".service.") && !self.is_in_foreign_namespace() {
            let (collector, _) = metric.name.split_once('.').unwrap_or_default();
            let how = format!("nothing: {collector}.* without `service` is the same");
            return lack(SAME_NETWORK.into(), &how);
        }
        match &state.error {
            Some(error) => lack(error.clone(), "see the message; some signals need root"),
            None if metric.name.contains('*') => lack("there is none of it on this host".into(), WHEN_THERE),
            None => lack(
                format!("{} does not tell it on this host", metric.source),
                "its command by hand shows what this host tells instead",
            ),
        }
    }
}

const NO_PORT: &str = "it is of the service on a port, and none was named";
const NO_LOAD: &str = "it is of the load generator, and observing has none";
const SAME_NETWORK: &str = "the service is in the same network namespace as the agent";
const NAME_ONE: &str = "observe with --port N or --url URL";
const WHEN_THERE: &str = "nothing: it is read as soon as there is one";

/// The program that a collector reads, wherever it is found; `None` for what is read of the host or the service in front.
fn program_of(collector: &str) -> Option<&'static str> {
    let is_of = |program: &str| {
        collector.strip_prefix(program).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    PROGRAMS.iter().find(|(of, _)| is_of(of)).map(|(_, program)| *program)
}

/// What is said of a collector that reads a program which is not there.
fn absent_program(collector: &str, topology: &Topology) -> Option<String> {
    let program = program_of(collector)?;
    let is_there = topology.services().any(|service| service.service == program);
    (!is_there).then(|| format!("no {program} was found"))
}

/// Collectors that read the network that the service is in, wherever the agent is.
const IN_ITS_NETWORK: [&str; 11] = [
    "sockets",
    "tcp",
    "ports",
    "syns",
    "clients",
    "apache_status",
    "php_fpm",
    "opcache",
    "mariadb",
    "nginx",
    "lighttpd",
];

/// Collectors that read a program, by the first word of their name, and the service that it is.
const PROGRAMS: [(&str, &str); 6] = [
    ("apache", "apache"),
    ("php_fpm", "php_fpm"),
    ("opcache", "php_fpm"),
    ("mariadb", "mariadb"),
    ("nginx", "nginx"),
    ("lighttpd", "lighttpd"),
];

/// Signals that are missing because nobody named a port, or as there is no such program, are told as that.
fn explain_missing(
    missing: Vec<MissingSignal>,
    collectors: &[CollectorInfo],
    topology: &Topology,
) -> Vec<MissingSignal> {
    let explain = |lack: MissingSignal| {
        let Some(info) = collectors.iter().find(|info| info.name == lack.signal) else { return lack };
        if let Some(why) = absent_program(&info.name, topology) {
            return MissingSignal { why, how_to_enable: WHEN_THERE.into(), ..lack };
        }
        let of_the_front = program_of(&info.name).is_none() && info.metrics.iter().any(needs_a_service);
        match topology.front.is_none() && of_the_front {
            true => MissingSignal { why: NO_PORT.into(), how_to_enable: NAME_ONE.into(), ..lack },
            false => lack,
        }
    };
    missing.into_iter().map(explain).collect()
}

/// Whether the command by hand asks for a process, port or page.
fn needs_a_service(metric: &Metric) -> bool {
    let words = metric.reproduce.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.into_iter().any(|word| matches!(word, "PID" | "PORT" | "URL" | "CLIENT"))
}

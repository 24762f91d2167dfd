//! Facts: what a measurement says, as numbers with unit, window and source. Rules see nothing else.
//!
//! The table of facts is the one place where metric names of collectors and fact names of rules meet.

use crate::measurement::Measurement;
use crate::series::SeriesSet;
use std::collections::BTreeMap;
use webdyno_model::Result;
use webdyno_model::diagnosis::Fact;
use webdyno_model::number::significant;
use webdyno_model::run::RunReport;
use webdyno_model::sample::Sample;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::tune::Goal;

/// All that rules may look at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    facts: BTreeMap<String, Fact>,
    /// The service behind the port, as it was read.
    pub service: Option<ServiceSnapshot>,
    /// What tuning shall reach.
    pub goal: Option<Goal>,
    /// Why the generator's figures cannot be believed; `None` when they can or when there was no load of our own.
    pub generator_fault: Option<String>,
    /// Whether there was load of our own.
    pub loaded: bool,
}

impl Facts {
    /// The value of a fact; `None` when it is not known.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.facts.get(name).map(|fact| fact.value)
    }

    /// The facts of these names that are known, in this order: for a finding to cite.
    pub fn cite(&self, names: &[&str]) -> Vec<Fact> {
        names.iter().filter_map(|name| self.facts.get(*name)).cloned().collect()
    }

    /// Whether the service is this program.
    pub fn is_service(&self, name: &str) -> bool {
        self.service.as_ref().is_some_and(|service| service.service == name)
    }

    /// A setting's number in force.
    pub fn setting(&self, name: &str) -> Option<f64> {
        self.service.as_ref()?.number(name)
    }

    /// All facts, by name.
    pub fn all(&self) -> impl Iterator<Item = &Fact> {
        self.facts.values()
    }

    /// Adds or replaces a fact: for tests and for facts from elsewhere.
    pub fn insert(&mut self, fact: Fact) {
        self.facts.insert(fact.name.clone(), fact);
    }
}

/// How a fact follows from the readings of one metric.
#[derive(Clone, Copy)]
enum From {
    /// Mean of the levels in the window.
    Mean,
    /// Largest level in the window.
    Max,
    /// Smallest level in the window.
    Min,
    /// Last level read, for what is read rarely.
    Latest,
    /// By how much the counter rose in the window.
    Rise,
    /// The counter's rise per second, times a factor (1e-6 makes a share of time from microseconds).
    Rate(f64),
}

/// `(fact, unit, metric, how)`.
#[rustfmt::skip] // a table, one row a line
const FROM_METRICS: &[(&str, &str, &str, From)] = &[
    ("cores", "cores", "cpu.cores_count", From::Latest),
    ("run_queue_mean", "processes", "cpu.run_queue_count", From::Mean),
    ("load_average_max", "processes", "cpu.load1_count", From::Max),
    ("forks_per_s", "processes/s", "cpu.forks_count", From::Rate(1.0)),
    ("service_cpu_cores", "cores", "process.cpu_s", From::Rate(1.0)),
    ("client_cpu_cores", "cores", "process.client_cpu_s", From::Rate(1.0)),
    ("foreign_cpu_cores", "cores", "process.foreign_cpu_s", From::Rate(1.0)),
    ("service_processes_mean", "processes", "process.count", From::Mean),
    ("service_processes_max", "processes", "process.count", From::Max),
    ("service_processes_min", "processes", "process.count", From::Min),
    ("memory_available_min_bytes", "bytes", "memory.available_bytes", From::Min),
    ("memory_limit_bytes", "bytes", "memory.limit_bytes", From::Latest),
    ("memory_total_bytes", "bytes", "memory.total_bytes", From::Latest),
    ("memory_used_in_limit_max_bytes", "bytes", "memory.used_in_limit_bytes", From::Max),
    ("swapped_in_pages_per_s", "pages/s", "memory.swapped_in_pages", From::Rate(1.0)),
    ("swapped_out_pages_per_s", "pages/s", "memory.swapped_out_pages", From::Rate(1.0)),
    ("refaults_per_s", "pages/s", "memory.refaults_count", From::Rate(1.0)),
    ("major_faults_per_s", "faults/s", "memory.major_faults_count", From::Rate(1.0)),
    ("oom_kills", "processes", "memory.oom_kills_count", From::Rise),
    ("pressure_cpu_some_fraction", "fraction", "pressure.cpu_some_us", From::Rate(1e-6)),
    ("pressure_memory_some_fraction", "fraction", "pressure.memory_some_us", From::Rate(1e-6)),
    ("pressure_memory_full_fraction", "fraction", "pressure.memory_full_us", From::Rate(1e-6)),
    ("pressure_group_memory_full_fraction", "fraction", "pressure.group_memory_full_us", From::Rate(1e-6)),
    ("pressure_io_full_fraction", "fraction", "pressure.io_full_us", From::Rate(1e-6)),
    ("accept_queue_mean", "connections", "sockets.accept_queue_count", From::Mean),
    ("accept_queue_max", "connections", "sockets.accept_queue_count", From::Max),
    ("accept_queue_limit", "connections", "sockets.accept_queue_max_count", From::Latest),
    ("listen_overflows", "connections", "sockets.listen_overflows_count", From::Rise),
    ("listen_overflows_per_s", "connections/s", "sockets.listen_overflows_count", From::Rate(1.0)),
    ("listen_drops", "connections", "sockets.listen_drops_count", From::Rise),
    ("syn_queue_drops", "connections", "sockets.syn_queue_drops_count", From::Rise),
    ("new_connections_per_s", "connections/s", "sockets.passive_opens_count", From::Rate(1.0)),
    ("retransmits_per_s", "segments/s", "sockets.retransmits_count", From::Rate(1.0)),
    ("time_wait_mean", "sockets", "sockets.time_wait_count", From::Mean),
    ("worker_memory_sum_bytes", "bytes", "worker_memory.pss_sum_bytes", From::Latest),
    ("worker_swap_sum_bytes", "bytes", "worker_memory.swap_pss_sum_bytes", From::Latest),
    ("worker_memory_mean_bytes", "bytes", "worker_memory.pss_mean_bytes", From::Latest),
    ("worker_private_mean_bytes", "bytes", "worker_memory.private_mean_bytes", From::Latest),
    ("workers_limit", "workers", "apache.slots_count", From::Latest),
    ("workers_busy_mean", "workers", "apache.workers_busy_count", From::Mean),
    ("workers_busy_max", "workers", "apache.workers_busy_count", From::Max),
    ("workers_idle_mean", "workers", "apache.workers_idle_count", From::Mean),
    ("workers_startable_mean", "workers", "apache.slots_open_count", From::Mean),
    ("workers_writing_mean", "workers", "apache.workers_writing_count", From::Mean),
    ("workers_keepalive_mean", "workers", "apache.workers_keepalive_count", From::Mean),
    ("server_requests_per_s", "requests/s", "apache.accesses_count", From::Rate(1.0)),
    ("status_wait_mean_us", "us", "apache.status_wait_us", From::Mean),
    ("config_generation", "reloads", "apache.config_generation_count", From::Latest),
];

/// Everything that the measurement says.
pub fn facts(measurement: &Measurement, run: Option<&RunReport>) -> Result<Facts> {
    let series = SeriesSet::of(measurement);
    let mut builder = Builder { series, service: measurement.service.as_ref(), facts: BTreeMap::new() };
    for (fact, unit, metric, how) in FROM_METRICS {
        builder.derive(fact, unit, metric, *how);
    }
    builder.cpu();
    builder.scoreboard();
    builder.worker_time();
    if let Some(run) = run {
        builder.client(measurement, run)?;
    }
    let loaded = run.is_some();
    let generator_fault = run.filter(|run| !run.client.valid).and_then(|run| run.client.why.clone());
    let service = measurement.service.clone();
    Ok(Facts { facts: builder.facts, service, goal: measurement.goal, generator_fault, loaded })
}

struct Builder<'a> {
    series: SeriesSet<'a>,
    service: Option<&'a ServiceSnapshot>,
    facts: BTreeMap<String, Fact>,
}

impl Builder<'_> {
    fn add(&mut self, name: &str, unit: &str, value: Option<f64>, source: &str, reproduce: &str) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return;
        };
        let (from_s, to_s) = self.series.window();
        let fact = Fact {
            name: name.into(),
            value: significant(value, 6),
            unit: unit.into(),
            from_s: significant(from_s, 6),
            to_s: significant(to_s, 6),
            source: source.into(),
            reproduce: reproduce.into(),
        };
        self.facts.insert(name.into(), fact);
    }

    fn derive(&mut self, name: &str, unit: &str, metric: &str, how: From) {
        let value = match how {
            From::Mean => self.series.mean(metric),
            From::Max => self.series.max(metric),
            From::Min => self.series.min(metric),
            From::Latest => self.series.latest(metric),
            From::Rise => self.series.rise(metric).map(|(rise, _)| rise),
            From::Rate(factor) => self.series.rate(metric).map(|rate| rate * factor),
        };
        self.add_from(name, unit, value, metric);
    }

    /// A fact that follows from a metric: source and command are the metric's.
    fn add_from(&mut self, name: &str, unit: &str, value: Option<f64>, metric: &str) {
        let (source, reproduce) = self
            .series
            .metric(metric)
            .map_or(("", ""), |metric| (metric.source.as_str(), metric.reproduce.as_str()));
        let (source, reproduce) = (source.to_owned(), filled_in(reproduce, self.service));
        self.add(name, unit, value, &source, &reproduce);
    }

    /// Shares of the machine's CPU time by kind.
    fn cpu(&mut self) {
        const BUSY: [&str; 6] = ["user", "nice", "system", "irq", "softirq", "steal"];
        let rate = |kind: &str| self.series.rate(&format!("cpu.{kind}_s"));
        let busy: Option<f64> = BUSY.iter().map(|kind| rate(kind)).sum();
        let (idle, iowait) = (rate("idle"), rate("iowait").unwrap_or(0.0));
        let total = busy.zip(idle).map(|(busy, idle)| busy + idle + iowait).filter(|total| *total > 0.0);
        let share = |part: Option<f64>| part.zip(total).map(|(part, total)| part / total);
        let shares = [
            ("cpu_busy_fraction", share(busy)),
            ("cpu_softirq_fraction", share(rate("softirq"))),
            ("cpu_steal_fraction", share(rate("steal"))),
            ("cpu_iowait_fraction", share(Some(iowait))),
        ];
        for (name, value) in shares {
            self.add_from(name, "fraction", value, "cpu.idle_s");
        }
    }

    /// In which share of its readings the scoreboard had neither an idle worker nor leave to start one more, how many
    /// workers there were then, and in which share of the attempts the status page did not answer at all.
    ///
    /// An open slot (`.`) is no leave: under worker and event the slots of a process that has ended stay open below
    /// those of a later one, while as many processes run as the limit allows.
    fn scoreboard(&mut self) {
        let readings: Vec<_> = self.series.samples_of("apache_status").map(|timed| &timed.sample).collect();
        let configured = self.service.and_then(|service| service.configured_number("MaxRequestWorkers"));
        let looks: Vec<Look> = readings.iter().filter_map(|sample| Look::of(sample, configured)).collect();
        let full: Vec<f64> = looks.iter().map(|look| f64::from(u8::from(look.full))).collect();
        // One reading is no share: a single look may be a coincidence.
        let full_fraction = (full.len() >= 2).then(|| crate::stats::mean(&full)).flatten();
        let live: Vec<f64> = looks.iter().filter(|look| look.full).map(|look| look.live).collect();
        let unanswered =
            readings.iter().filter(|sample| sample.error.is_some() && sample.values.is_empty()).count();
        let has_page = self.service.is_some_and(|service| service.status_url.is_some());
        let unanswered =
            (has_page && !readings.is_empty()).then(|| unanswered as f64 / readings.len() as f64);
        self.add_from("scoreboard_full_fraction", "fraction", full_fraction, "apache.workers_idle_count");
        self.add_from("workers_when_full", "workers", crate::stats::mean(&live), "apache.slots_count");
        self.add_from("status_unanswered_fraction", "fraction", unanswered, "apache.status_wait_us");
    }

    /// Mean time that a request holds a worker, by Little's law: writing workers / requests per second. The request
    /// for the status page itself is always one of them, and not one of those that are asked about.
    ///
    /// `Total Duration / Total Accesses` would say the same under the event MPM, but under prefork and worker Apache
    /// adds each request's time twice (its request loop stops the clock, and stops it again after flushing).
    fn worker_time(&mut self) {
        let writing =
            self.series.mean("apache.workers_writing_count").map(|writing| (writing - 1.0).max(0.0));
        let rate = self.series.rate("apache.accesses_count").filter(|rate| *rate >= 1.0);
        let time_us = writing.zip(rate).map(|(writing, rate)| writing / rate * 1e6);
        self.add_from("worker_time_mean_us", "us", time_us, "apache.workers_writing_count");
    }

    fn client(&mut self, measurement: &Measurement, run: &RunReport) -> Result<()> {
        let command = by_hand(measurement);
        let (length_us, in_flight_us) =
            measurement.measured().fold((0u64, 0u64), |(length, in_flight), interval| {
                (length + interval.length_us, in_flight + interval.in_flight_us)
            });
        let in_flight = (length_us > 0).then(|| in_flight_us as f64 / length_us as f64);
        let ended = (run.requests.completed + run.requests.failed) as f64;
        let seconds = run.elapsed_s;
        let per_s = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
        let facts = [
            ("rate", "requests/s", run.rate),
            ("in_flight_mean", "requests", in_flight),
            ("failed_fraction", "fraction", (ended > 0.0).then(|| run.requests.failed as f64 / ended)),
            ("response_time_mean_us", "us", run.response_time_us.mean),
            ("response_time_p99_us", "us", run.response_time_us.p99.map(|us| us as f64)),
            ("service_time_mean_us", "us", run.service_time_us.mean),
            ("connect_time_mean_us", "us", run.connect_time_us.mean),
            ("connect_time_max_us", "us", run.connect_time_us.max.map(|us| us as f64)),
            ("client_delay_mean_us", "us", run.client_delay_us.mean),
            ("connections_opened_per_s", "connections/s", per_s(run.connections.opened)),
            ("client_cpu_fraction_max_thread", "fraction", run.client.cpu_fraction_max_thread),
            ("connect_timeouts", "requests", Some(run.errors.connect_timeout as f64)),
        ];
        for (name, unit, value) in facts {
            self.add(name, unit, value, "load engine", &command);
        }
        let inflation = inflation(measurement)?;
        self.add("response_time_inflation", "ratio", inflation, "load engine", &command);
        Ok(())
    }
}

/// One look at the scoreboard.
struct Look {
    /// Workers that exist, busy or not.
    live: f64,
    /// None is idle, and no more may be started.
    full: bool,
}

impl Look {
    fn of(sample: &Sample, configured: Option<f64>) -> Option<Self> {
        let level = |name: &str| sample.values.get(name).map(|value| value.0);
        let (slots, open) = (level("apache.slots_count")?, level("apache.slots_open_count")?);
        let live = slots - open;
        let may_start = open > 0.0 && configured.is_none_or(|limit| live < limit);
        Some(Self { live, full: level("apache.workers_idle_count")? == 0.0 && !may_start })
    }
}

/// A command of the catalogue with the service's own values in the places of PID, PORT and URL.
fn filled_in(command: &str, service: Option<&ServiceSnapshot>) -> String {
    let Some(service) = service else {
        return command.to_owned();
    };
    let status_url = service.status_url.as_deref().unwrap_or("URL");
    command
        .replace("PID", &service.pid.to_string())
        .replace("PORT", &service.port.to_string())
        .replace("URL", status_url)
}

/// The mean response time as a multiple of the fast tenth of each request's own answers: about one to two where
/// nothing queues, more where requests wait for something. Requests are told apart by name, so that a mix of quick
/// and slow pages is not taken for queueing.
fn inflation(measurement: &Measurement) -> Result<Option<f64>> {
    let named = crate::summary::named_times(measurement)?;
    let mut groups: Vec<_> = named.into_values().map(|(_, _, times)| times).collect();
    if groups.is_empty() {
        groups.push(crate::summary::response_times(measurement)?);
    }
    let mut sums = (0.0, 0.0);
    for times in &groups {
        if let (Some(mean), Some(quick)) = (times.mean_us(), times.quantile_us(0.1)) {
            sums.0 += mean * times.count() as f64;
            sums.1 += quick as f64 * times.count() as f64;
        }
    }
    Ok((sums.1 > 0.0).then(|| sums.0 / sums.1))
}

/// The command that repeats the load.
fn by_hand(measurement: &Measurement) -> String {
    let Some(workload) = &measurement.workload else {
        return String::new();
    };
    let mut command = String::from("webdyno run");
    let urls: std::collections::BTreeSet<&str> =
        workload.requests.iter().map(|request| request.url.as_str()).collect();
    for url in urls.iter().take(3) {
        command.push_str(&format!(" '{url}'"));
    }
    command.push_str(&format!(" -c {}", workload.connections));
    if let webdyno_model::workload::Arrival::Open { rate_per_s, .. } = workload.arrival {
        command.push_str(&format!(" -r {rate_per_s}"));
    }
    if !workload.keepalive {
        command.push_str(" --no-keepalive");
    }
    command
}

/// Facts by hand, for the tests of rules.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use webdyno_model::service::{SettingInForce, SettingValue};

    /// Facts with these values; the service is Apache prefork with these settings.
    pub fn facts(values: &[(&str, f64)], settings: &[(&str, i64)]) -> Facts {
        let mut facts = Facts { loaded: true, service: Some(apache(settings)), ..Facts::default() };
        for (name, value) in values {
            facts.insert(Fact {
                name: (*name).into(),
                value: *value,
                unit: "x".into(),
                from_s: 0.0,
                to_s: 10.0,
                source: "test".into(),
                reproduce: "true".into(),
            });
        }
        facts
    }

    fn apache(settings: &[(&str, i64)]) -> ServiceSnapshot {
        let setting = |(name, value): &(&str, i64)| {
            let configured = Some(SettingValue::Integer(*value));
            ((*name).to_owned(), SettingInForce { configured, ..SettingInForce::default() })
        };
        ServiceSnapshot {
            service: "apache".into(),
            pid: 1,
            executable: None,
            version: None,
            port: 80,
            mode: Some("prefork".into()),
            config_file: None,
            status_url: None,
            settings: settings.iter().map(setting).collect(),
            missing: vec![],
            warnings: vec![],
            control: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::TimedSample;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;

    fn sample(t_s: f64, source: &str, values: &[(&str, f64)]) -> TimedSample {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), Number(*value))).collect();
        TimedSample { t_s, sample: Sample { source: source.into(), duration_us: 1, values, error: None } }
    }

    fn of(samples: Vec<TimedSample>) -> Facts {
        let measurement = Measurement { samples, measured_to_s: 10.0, ..Measurement::default() };
        facts(&measurement, None).unwrap()
    }

    #[test]
    fn cpu_shares_come_from_differences() {
        let reading = |t_s, user: f64, idle: f64| {
            let kinds =
                ["nice", "system", "irq", "softirq", "steal", "iowait"].map(|kind| format!("cpu.{kind}_s"));
            let mut values: Vec<(&str, f64)> = kinds.iter().map(|kind| (kind.as_str(), 5.0)).collect();
            values.extend([("cpu.user_s", user), ("cpu.idle_s", idle)]);
            sample(t_s, "cpu", &values)
        };
        let facts = of(vec![reading(0.0, 100.0, 200.0), reading(10.0, 115.0, 205.0)]);
        assert_eq!(facts.value("cpu_busy_fraction"), Some(0.75));
        assert_eq!(facts.value("cpu_steal_fraction"), Some(0.0));
    }

    #[test]
    fn what_was_not_read_is_unknown() {
        let facts = of(vec![]);
        assert_eq!(facts.all().count(), 0);
        assert_eq!(facts.value("cpu_busy_fraction"), None);
    }

    #[test]
    fn a_full_scoreboard_is_told_apart_from_a_filling_one() {
        let reading = |t_s, idle, open| {
            let slots = ("apache.slots_count", 150.0);
            sample(
                t_s,
                "apache_status",
                &[slots, ("apache.workers_idle_count", idle), ("apache.slots_open_count", open)],
            )
        };
        let facts = of(vec![
            reading(1.0, 0.0, 100.0),
            reading(2.0, 0.0, 0.0),
            reading(3.0, 0.0, 0.0),
            reading(4.0, 0.0, 0.0),
        ]);
        assert_eq!(facts.value("scoreboard_full_fraction"), Some(0.75));
    }

    #[test]
    fn open_slots_of_ended_processes_are_no_leave_to_start_more() {
        // As the event MPM shows it: two processes of ten threads are allowed, and they hold slots 0 and 2.
        let values = [
            ("apache.slots_count", Number(30.0)),
            ("apache.slots_open_count", Number(10.0)),
            ("apache.workers_idle_count", Number(0.0)),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value));
        let sample =
            Sample { source: "apache_status".into(), duration_us: 1, values: values.into(), error: None };
        assert!(Look::of(&sample, Some(20.0)).unwrap().full);
        assert!(!Look::of(&sample, Some(30.0)).unwrap().full);
        assert_eq!(Look::of(&sample, None).unwrap().live, 20.0);
    }

    #[test]
    fn worker_time_is_writing_workers_over_rate() {
        let reading = |t_s, writing, accesses| {
            sample(
                t_s,
                "apache_status",
                &[("apache.workers_writing_count", writing), ("apache.accesses_count", accesses)],
            )
        };
        let facts =
            of(vec![reading(0.0, 21.0, 0.0), reading(5.0, 21.0, 500.0), reading(10.0, 21.0, 1_000.0)]);
        assert_eq!(facts.value("worker_time_mean_us"), Some(200_000.0));
    }
}

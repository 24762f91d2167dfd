//! Collectors: one file per source. Each reads and parses apart, and describes its metrics.
//!
//! A collector that cannot read a value leaves it out and says why; it never reports zero for unknown.
pub mod kernel;
mod monotonic_counter;
pub mod network;
pub mod observer;
mod on_change;
pub mod processes;
mod secrets;
pub mod services;

use std::sync::Arc;
use webdyno_model::sample::{CollectorInfo, Metric, MetricKind, MissingSignal};
use webdyno_model::service::{ServiceSnapshot, numbered};
use webdyno_model::topology::Access;

/// Backends that get values of their own.
pub(crate) const BACKENDS_MAX: usize = 8;

/// What collectors may look at: the port under load and the processes behind it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// The port under load.
    pub port: Option<u16>,
    /// The main process of the service.
    pub service_pid: Option<u32>,
    /// The status page, without query, with the loopback address and port to connect to.
    pub status_url: Option<String>,
    /// The load generator, when it runs on this machine.
    pub client_pid: Option<u32>,
    /// The service as it was read when observing began or it was changed; `None` when it is not known.
    pub service: Option<Arc<ServiceSnapshot>>,
    /// The services behind it, each with its processes, endpoints and logs.
    pub backends: Arc<[ServiceSnapshot]>,
    /// What the operator gave.
    pub access: Access,
    /// Whether everything is read each second, however dear, and nothing in turn: for one look that lasts a few seconds.
    pub in_full: bool,
}

impl Target {
    /// The service and its backends that are this program.
    pub fn services<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ServiceSnapshot> {
        let all = self.service.as_deref().into_iter().chain(self.backends.iter());
        all.filter(move |snapshot| snapshot.service == name)
    }

    /// The backends that have values of their own, each with the name of these.
    pub(crate) fn named_backends(&self) -> impl Iterator<Item = (String, &ServiceSnapshot)> {
        numbered(&self.backends).take(BACKENDS_MAX)
    }

    /// Why nothing can be read of a service, and what helps: not a failure, as nothing was tried.
    fn no_service(&self) -> (&'static str, &'static str) {
        match self.port {
            None => {
                ("it is of the service on a port, and none was named", "observe with --port N or --url URL")
            }
            Some(_) => ("the process that serves the port is not known", "run as root; `ss -ltnp` shows it"),
        }
    }
}

/// What a collector gives back: values by metric name, and what went wrong with the others.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Reading {
    /// `(metric name, value)`.
    pub values: Vec<(String, f64)>,
    /// Why there are no values, or why some are missing.
    pub error: Option<String>,
    /// Signals that cannot be had now, each with why and what helps. The observer tells only what changed.
    pub missing: Vec<MissingSignal>,
}

impl Reading {
    /// A reading without values, and why.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::default() }
    }

    /// Adds a value.
    pub fn push(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value));
    }

    /// Adds a value if it is known.
    pub fn push_some(&mut self, name: impl Into<String>, value: Option<f64>) {
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    /// Adds a signal that cannot be had.
    pub fn lacks(&mut self, signal: impl Into<String>, why: impl Into<String>, how: impl Into<String>) {
        self.missing.push(MissingSignal::new(signal, why, how));
    }

    /// A reading of nothing, as there is no service to read it of.
    fn without_service(signal: &str, target: &Target) -> Self {
        let mut reading = Self::default();
        reading.lacks_service(signal, target);
        reading
    }

    /// Adds a signal that there is no service to read it of.
    fn lacks_service(&mut self, signal: &str, target: &Target) {
        let (why, how) = target.no_service();
        self.lacks(signal, why, how);
    }

    /// Adds a reason why values are missing to those that are there.
    pub fn problem(&mut self, why: impl AsRef<str>) {
        self.error = Some(match self.error.take() {
            Some(former) => format!("{former}; {}", why.as_ref()),
            None => why.as_ref().to_owned(),
        });
    }

    /// The value of a metric.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// Reads a file and lets `parse` take values from it; notes the problem when it cannot be read.
    fn take(&mut self, path: &str, parse: impl FnOnce(&str, &mut Self)) {
        match crate::os::procfs::read_text(path) {
            Ok(text) => parse(&text, self),
            Err(error) => self.problem(io_error_text("read", path, &error)),
        }
    }
}

/// One source of samples.
pub trait Collector: Send {
    /// Its name: the prefix of its metrics, and the name of its file.
    fn name(&self) -> &'static str;
    /// What it reads.
    fn metrics(&self) -> Vec<Metric>;
    /// Seconds between readings: one, or more where reading is expensive.
    fn every_s(&self) -> u32 {
        1
    }
    /// Reads once. May block up to two seconds: each collector runs on a thread of its own.
    fn read(&mut self, target: &Target) -> Reading;
    /// The last reading was not told to anybody: what leaves out values that do not change has to tell all again.
    fn mark_undelivered(&mut self) {}
}

/// All collectors, fresh, in the order in which they read: first what the others' work would disturb (the run queue,
/// the accept queue), last the request for the status page, which makes the service work.
pub fn all() -> Vec<Box<dyn Collector>> {
    let network = network::Shared::default();
    vec![
        Box::new(crate::collectors::kernel::cpu::Cpu::default()),
        Box::new(crate::collectors::network::sockets::Sockets::sharing(network.clone())),
        Box::new(crate::collectors::processes::process::Process::default()),
        Box::new(crate::collectors::processes::threads::Threads::default()),
        Box::new(crate::collectors::processes::profile::Profile::default()),
        Box::new(crate::collectors::processes::php_functions::PhpFunctions::default()),
        Box::new(crate::collectors::processes::locks::Locks::default()),
        Box::new(crate::collectors::network::upstreams::Upstreams::default()),
        Box::new(crate::collectors::kernel::pressure::Pressure::default()),
        Box::new(crate::collectors::kernel::cgroup::Cgroup::default()),
        Box::new(crate::collectors::kernel::disk::Disks::default()),
        Box::new(crate::collectors::kernel::files::Files),
        Box::new(crate::collectors::kernel::memory::Memory::default()),
        Box::new(crate::collectors::network::tcp::Tcp::sharing(network.clone())),
        Box::new(crate::collectors::kernel::softnet::Softnet::default()),
        Box::new(crate::collectors::network::nic::Nic::default()),
        Box::new(crate::collectors::network::qdisc::Qdisc::default()),
        Box::new(crate::collectors::network::conntrack::Conntrack::default()),
        Box::new(crate::collectors::network::ports::Ports::sharing(network)),
        Box::new(crate::collectors::network::syns::Syns::default()),
        Box::new(crate::collectors::kernel::kernel_log::KernelMessages::default()),
        Box::new(crate::collectors::processes::other_processes::OtherProcesses::default()),
        Box::new(crate::collectors::processes::workers::Workers::default()),
        Box::new(crate::collectors::processes::worker_memory::WorkerMemory::default()),
        Box::new(crate::collectors::network::clients::Clients::default()),
        Box::new(crate::collectors::services::mariadb::Mariadb::default()),
        Box::new(crate::collectors::services::access_log::AccessLog::default()),
        Box::new(crate::collectors::services::apache_log::ApacheLog::default()),
        Box::new(crate::collectors::services::apache_status::ApacheStatus::default()),
        Box::new(crate::collectors::services::apache_writers::ApacheWriters),
        Box::new(crate::collectors::services::nginx::Nginx),
        Box::new(crate::collectors::services::nginx_log::NginxLog::default()),
        Box::new(crate::collectors::services::nginx_workers::NginxWorkers),
        Box::new(crate::collectors::services::lighttpd::Lighttpd),
        Box::new(crate::collectors::services::php_fpm::PhpFpm::default()),
        Box::new(crate::collectors::services::opcache::Opcache::default()),
        Box::new(crate::collectors::services::opcache_in_apache::OpcacheInApache::default()),
    ]
}

/// What all collectors read, for the event log.
pub fn catalogue() -> Vec<CollectorInfo> {
    let info = |collector: Box<dyn Collector>| CollectorInfo {
        name: collector.name().to_owned(),
        metrics: collector.metrics(),
    };
    all().into_iter().map(info).collect()
}

/// Units of more than one word.
const UNITS_OF_WORDS: [&str; 1] = ["bits_per_s"];

/// A level. Its unit is the last word of its name.
fn gauge(name: impl Into<String>, source: &str, reproduce: impl Into<String>) -> Metric {
    metric(name.into(), MetricKind::Gauge, source, reproduce.into())
}

/// A total that rises. Its unit is the last word of its name.
fn counter(name: impl Into<String>, source: &str, reproduce: impl Into<String>) -> Metric {
    metric(name.into(), MetricKind::Counter, source, reproduce.into())
}

fn metric(name: String, kind: MetricKind, source: &str, reproduce: String) -> Metric {
    let last = name.rsplit(['_', '.']).next().unwrap_or_default();
    let unit = UNITS_OF_WORDS.into_iter().find(|unit| name.ends_with(unit)).unwrap_or(last).to_owned();
    Metric { name, unit, kind, source: source.to_owned(), reproduce, on_change: false }
}

/// An I/O error as the text of a reading.
fn io_error_text(action: &str, object: &str, error: &std::io::Error) -> String {
    webdyno_model::error::io_error(action, object, error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::TcpListener;
    use webdyno_model::sample::MetricKind;

    /// Files that are no collectors but serve several of them.
    const HELPERS: [&str; 10] = [
        "mod",
        "scripts",
        "control_group",
        "counters",
        "ethtool",
        "netlink",
        "route",
        "shaping",
        "sock_diag",
        "socket_table",
    ];

    #[test]
    fn every_file_is_in_the_list() {
        let mut files = BTreeSet::new();
        for room in ["kernel", "network", "processes", "services"] {
            let folder = format!("{}/src/collectors/{room}", env!("CARGO_MANIFEST_DIR"));
            let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            files.extend(paths.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()));
        }
        files.retain(|name| !HELPERS.contains(&name.as_str()));
        // Recordings know it by its first name.
        let file_of = |name: &str| if name == "foreign" { "other_processes" } else { name }.to_owned();
        let listed: BTreeSet<String> = all().iter().map(|collector| file_of(collector.name())).collect();
        assert_eq!(listed, files);
    }

    // What is recorded can be looked up: each value of a real reading is in the catalogue.
    #[test]
    fn every_value_is_described() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let target = Target {
            port: Some(listener.local_addr().unwrap().port()),
            service_pid: Some(std::process::id()),
            client_pid: Some(std::process::id()),
            ..Target::default()
        };
        for mut collector in all() {
            let described = collector.metrics();
            let reading = collector.read(&target);
            for (name, value) in &reading.values {
                let metric = described.iter().find(|metric| metric.describes(name));
                assert!(metric.is_some(), "{name} is not in the metrics of {}", collector.name());
                assert!(value.is_finite() && *value >= 0.0, "{name} is {value}");
            }
            let names: BTreeSet<_> = reading.values.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), reading.values.len(), "{} gives a metric twice", collector.name());
            // They are not there.
            let of_program = [
                "access_log",
                "apache_log",
                "apache_status",
                "apache_writers",
                "mariadb",
                "php_fpm",
                "opcache",
                "opcache_in_apache",
                "nginx",
                "nginx_log",
                "nginx_workers",
                "lighttpd",
                // Without root no packets are seen.
                "syns",
                // The first reading has no time before it.
                "threads",
                "profile",
                "php_functions",
            ];
            let without_service = of_program.contains(&collector.name());
            assert!(without_service || !names.is_empty(), "{} reads nothing: {reading:?}", collector.name());
        }
    }

    /// Where no service was named there is nothing that could fail: it is told once as missing.
    #[test]
    fn what_takes_a_service_lacks_one_and_does_not_fail() {
        let lacks = ["workers", "worker_memory", "cgroup", "clients", "process", "sockets", "apache_status"];
        for mut collector in all().into_iter().filter(|collector| lacks.contains(&collector.name())) {
            let reading = collector.read(&Target::default());
            let name = collector.name();
            assert!(reading.error.is_none(), "{name}: {reading:?}");
            assert!(reading.missing.iter().any(|missing| missing.signal.starts_with(name)), "{reading:?}");
        }
    }

    #[test]
    fn descriptions_are_complete_and_named_after_their_unit() {
        let mut seen = BTreeSet::new();
        for metric in catalogue().into_iter().flat_map(|info| info.metrics) {
            let units =
                ["s", "us", "ms", "bytes", "count", "pages", "bits_per_s", "fraction", "bool", "mode"];
            assert!(units.contains(&metric.unit.as_str()), "{metric:?}");
            assert!(metric.name.ends_with(&metric.unit), "{metric:?}");
            assert!(!metric.source.is_empty() && !metric.reproduce.is_empty(), "{metric:?}");
            assert!(!metric.reproduce.contains('\n'), "{metric:?}");
            let time = matches!(metric.unit.as_str(), "s" | "us" | "ms");
            let is_age = metric.name.ends_with("_age_s");
            let level = is_age
                || [
                    "apache.uptime_s",
                    "conntrack.closed_life_s",
                    "conntrack.service.closed_life_s",
                    "apache.status_wait_us",
                    "mariadb.uptime_s",
                    "mariadb.slow_query_limit_s",
                    "php_fpm.*.status_wait_us",
                    "upstreams.*.waited_us",
                    "clients.round_trip_us",
                    "clients.round_trip_min_us",
                ]
                .contains(&metric.name.as_str());
            assert!(!time || level || metric.kind == MetricKind::Counter, "{metric:?}");
            assert!(seen.insert(metric.name.clone()), "{} is described twice", metric.name);
        }
    }

    // The commands in the catalogue run: those that need no service are tried as they are.
    #[test]
    fn commands_show_a_number() {
        let needs_a_service =
            |command: &str| ["PID", "PORT", "URL", "CLIENT", "_LOGS"].iter().any(|w| command.contains(w));
        for metric in catalogue().into_iter().flat_map(|info| info.metrics) {
            let optional = metric.reproduce.contains("nstat")
                || metric.name.starts_with("mariadb.")
                || metric.reproduce.contains("nf_conntrack")
                || metric.name.starts_with("pressure.");
            if needs_a_service(&metric.reproduce) || metric.name.contains('*') || optional {
                continue;
            }
            let output = std::process::Command::new("sh").args(["-c", &metric.reproduce]).output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            let first = shown.split_ascii_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            assert!(first.is_some(), "`{}` shows `{shown}`", metric.reproduce);
        }
    }

    #[test]
    fn several_problems_are_all_told() {
        let mut reading = Reading::failed("a");
        reading.problem("b");
        assert_eq!(reading.error.as_deref(), Some("a; b"));
    }
}

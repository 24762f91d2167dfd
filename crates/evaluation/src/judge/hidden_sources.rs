//! What a diagnosis is worth where signals are missing: recordings with one or two sources taken out of them.
//!
//! What each source tells: docs/metrics.md. What needs rights: proc(5) (`/proc/PID/fd`, `smaps_rollup`, `syscall`:
//! PTRACE_MODE_READ), hidepid in proc(5), syslog(2), and the modes that Debian gives logs and sockets.

use webdyno_analysis::measurement::Measurement;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::{Link, Topology};

/// A source of signals that a host may not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignalSource {
    /// No mod_status, or it does not answer.
    StatusPage,
    /// No logs can be read, the kernel's neither.
    Logs,
    /// The agent runs without rights.
    Root,
    /// Processes of others are not seen (hidepid).
    Processes,
    /// No access to the database.
    Database,
}

impl SignalSource {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::StatusPage, Self::Logs, Self::Root, Self::Processes, Self::Database];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::StatusPage => "no mod_status",
            Self::Logs => "no logs",
            Self::Root => "no root",
            Self::Processes => "no /proc of others",
            Self::Database => "no database access",
        }
    }

    /// The beginnings of the names of metrics that it gives.
    fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::StatusPage => &["apache."],
            Self::Logs => &["access_log.", "apache_log.", "kernel_log."],
            Self::Root => &[
                "worker_memory.",
                "kernel_log.",
                "access_log.",
                "apache_log.",
                "process.open_files",
                "process.fullest",
                "php_fpm.",
                "opcache.",
                "mariadb.",
                "php_functions.",
                "php_scripts.",
                "apache_scripts.",
                "profile.",
                "syns.",
            ],
            Self::Processes => &[
                "process.",
                "worker_memory.",
                "workers.",
                "foreign.",
                "php_fpm.",
                "opcache.",
                "clients.",
                "cgroup.",
                "pressure.group",
            ],
            Self::Database => &["mariadb."],
        }
    }

    fn hides(self, metric: &str) -> bool {
        let is_of = self.metrics().iter().any(|beginning| metric.starts_with(beginning));
        let is_public = match self {
            // Of a database that lets nobody in the sockets are seen (proc_pid_net(5)).
            Self::Database => metric == CLIENTS,
            // The front's configuration says which PHP-FPM is its own, and that one's where it listens (proc_pid_cmdline(5)). The only
            // database of a machine is taken for the site's.
            Self::Root => is_of_pool(metric) || metric == CLIENTS,
            _ => metric == RECEIVING,
        };
        // Lines of FPM's log are counted among what its pools tell.
        (is_of && !is_public)
            || (self == Self::Logs && metric.contains(".log_"))
            || (self == Self::Root && is_of_backend(metric))
    }

    fn hide_of_service(self, service: &mut ServiceSnapshot) {
        match self {
            Self::StatusPage => service.status_url = None,
            Self::Logs => service.logs.clear(),
            Self::Processes => {}
            // Who is not root is not let in, either.
            Self::Root | Self::Database => {
                service.statements.clear();
                if service.service == DATABASE {
                    service.settings.values_mut().for_each(|setting| setting.running = None);
                }
            }
        }
    }
}

/// Sockets of the port are listed for everybody, with what came in on each and when (sock_diag(7)): an agent as `nobody` reads all of
/// `clients.`. Without /proc of others only those that send slowly are left: whose the others are is told by descriptors.
const RECEIVING: &str = "clients.receiving_count";

/// Whether a metric is what anybody sees of PHP-FPM's pools: their processes, and their sockets' queues.
fn is_of_pool(metric: &str) -> bool {
    const SEEN: [&str; 3] = [".listen_queue_count", ".listen_queue_max_count", ".processes_count"];
    metric.starts_with("php_fpm.") && SEEN.iter().any(|end| metric.ends_with(end))
}

/// Whether a metric is that of a program behind the service: `process.unknown.cpu_s`, and only root reads it. What PHP-FPM and a database
/// use is told by proc_pid_stat(5).
fn is_of_backend(metric: &str) -> bool {
    let is_found = || [PHP, DATABASE].iter().any(|name| metric.contains(&format!(".{name}.")));
    ["process.", "threads."].iter().any(|beginning| metric.starts_with(beginning))
        && metric.matches('.').count() > 1
        && (metric.contains(".fullest_") || !is_found())
}

const PHP: &str = "php_fpm";
const DATABASE: &str = "mariadb";
const CLIENTS: &str = "mariadb.clients_count";

/// A measurement without what these sources tell. Who listens at a socket, and who is connected to it, is told by descriptors, which
/// only root reads.
pub fn hide_sources(sources: &[SignalSource], of: &Measurement) -> Measurement {
    let mut measurement = of.clone();
    for timed in &mut measurement.samples {
        timed.sample.values.retain(|metric, _| !sources.iter().any(|source| source.hides(metric)));
    }
    measurement.samples.retain(|timed| !timed.sample.values.is_empty() || timed.sample.error.is_some());
    let is_blind =
        [SignalSource::Processes, SignalSource::Root].iter().any(|source| sources.contains(source));
    if is_blind {
        // Old recordings have none.
        let topology = measurement.topology.get_or_insert_default();
        hide_backends(topology, !sources.contains(&SignalSource::Processes));
    }
    if let Some(topology) = &mut measurement.topology {
        for service in topology.front.iter_mut().chain(&mut topology.backends) {
            sources.iter().for_each(|source| source.hide_of_service(service));
        }
    }
    if let Some(service) = &mut measurement.service {
        sources.iter().for_each(|source| source.hide_of_service(service));
    }
    measurement
}

/// What the front's configuration names is left, and of PHP-FPM who it is, and a database that is the only one, unless processes are not
/// seen either.
fn hide_backends(topology: &mut Topology, sees_programs: bool) {
    let front = topology.front.as_ref().map(|front| front.pid);
    let databases = topology.backends.iter().filter(|backend| backend.service == DATABASE).count();
    let is_database = |link: &Link| databases == 1 && link.to.as_deref() == Some(DATABASE);
    topology.links.retain(|link| Some(link.from_pid) == front || (sees_programs && is_database(link)));
    let is_found = |link: &Link| sees_programs && (link.to.as_deref() == Some(PHP) || is_database(link));
    for link in &mut topology.links {
        link.connections_count = None;
        if !is_found(link) {
            (link.to, link.to_pid) = (None, None);
        }
    }
    let links = &topology.links;
    topology.backends.retain(|backend| links.iter().any(|link| link.to_pid == Some(backend.pid)));
    let why = "the sockets of processes cannot be seen: permission denied";
    topology.missing.push(MissingSignal::new("topology", why, "run webdyno as root"));
}

/// Each source, and each pair of them.
pub fn source_sets() -> Vec<Vec<SignalSource>> {
    let singles = SignalSource::ALL.iter().map(|source| vec![*source]);
    let pairs = SignalSource::ALL.iter().enumerate().flat_map(|(index, first)| {
        SignalSource::ALL[index + 1..].iter().map(move |second| vec![*first, *second])
    });
    singles.chain(pairs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_analysis::measurement::TimedSample;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;

    #[test]
    fn what_is_hidden_is_gone_and_the_rest_is_there() {
        let names = [
            "apache.slots_count",
            "clients.idle_count",
            "cpu.user_s",
            "mariadb.x",
            "php_fpm.www.log_timeouts_count",
        ];
        let values = names.map(|name| (name.to_owned(), Number(1.0)));
        let sample = Sample { source: "x".into(), values: values.into(), ..Sample::default() };
        let service = ServiceSnapshot { status_url: Some("http://x/".into()), ..ServiceSnapshot::default() };
        let of = Measurement {
            samples: vec![TimedSample { t_s: 0.0, sample }],
            service: Some(service),
            ..Measurement::default()
        };
        let left = |sources: &[SignalSource]| {
            let without = hide_sources(sources, &of);
            let names: Vec<String> = without.samples[0].sample.values.keys().cloned().collect();
            (names.join(" "), without.service.unwrap().status_url.is_some())
        };
        assert_eq!(
            left(&[SignalSource::StatusPage]),
            ("clients.idle_count cpu.user_s mariadb.x php_fpm.www.log_timeouts_count".to_owned(), false)
        );
        assert_eq!(
            left(&[SignalSource::Logs, SignalSource::Database]),
            ("apache.slots_count clients.idle_count cpu.user_s".to_owned(), true)
        );
        assert_eq!(
            left(&[SignalSource::Root]),
            ("apache.slots_count clients.idle_count cpu.user_s".to_owned(), true)
        );
        assert_eq!(source_sets().len(), 15);
    }
}

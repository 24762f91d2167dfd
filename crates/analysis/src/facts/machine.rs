//! Facts of processors and processes: how busy they are, who uses them, who waits for one.
//!
//! Sources: the collectors `cpu`, `process`, `pressure`, `cgroup`, `softnet`, `foreign` (docs/metrics.md).

use super::{Builder, From, Row};

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[Row] = &[
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
    ("pressure_cpu_some_fraction", "fraction", "pressure.cpu_some_us", From::Rate(1e-6)),
    ("pressure_io_full_fraction", "fraction", "pressure.io_full_us", From::Rate(1e-6)),
    ("pressure_group_cpu_some_fraction", "fraction", "pressure.group_cpu_some_us", From::Rate(1e-6)),
    ("pressure_group_cpu_full_fraction", "fraction", "pressure.group_cpu_full_us", From::Rate(1e-6)),
    ("service_running_mean", "processes", "process.running_count", From::Mean),
    ("backend_cpu_cores", "cores", "process.*.cpu_s", From::Rate(1.0)),
    ("agent_cpu_cores", "cores", "process.agent_cpu_s", From::Rate(1.0)),
    ("foreign_program_cpu_cores", "cores", "foreign.*.cpu_s", From::Rate(1.0)),
    ("kernel_threads_cpu_cores", "cores", "foreign.kernel_threads_cpu_s", From::Rate(1.0)),
    ("cpus_allowed", "cores", "cgroup.cpus_count", From::Latest),
    ("cpu_quota_cores", "cores", "cgroup.quota_cores_count", From::Latest),
    ("group_cpu_cores", "cores", "cgroup.cpu_s", From::Rate(1.0)),
    ("cpu_periods", "periods", "cgroup.periods_count", From::Rise),
    ("throttled_periods", "periods", "cgroup.throttled_periods_count", From::Rise),
    ("throttled_cores", "cores", "cgroup.throttled_s", From::Rate(1.0)),
    ("core_busy_fraction", "fraction", "cpu.*.busy_s", From::Rate(1.0)),
    ("core_softirq_fraction", "fraction", "cpu.*.softirq_s", From::Rate(1.0)),
    ("softirq_max_core_fraction", "fraction", "cpu.softirq_max_fraction", From::Mean),
    ("packets_squeezed_per_s", "looks/s", "softnet.squeezed_count", From::Rate(1.0)),
    ("packets_dropped_per_s", "packets/s", "softnet.dropped_count", From::Rate(1.0)),
];

impl Builder<'_> {
    /// Shares of the machine's CPU time by kind.
    pub(super) fn cpu(&mut self) {
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
            self.add_from(name, "fraction", value, ("cpu.idle_s", From::Rate(1.0)));
        }
        self.usable_cores();
        self.throttling();
    }

    /// The cores that the service may use, and how busy they were. Of a service on some of the cores it is not told which:
    /// these are at least as busy as its group keeps them, and at most as busy as the busiest of all cores.
    fn usable_cores(&mut self) {
        let Some(cores) = self.number("cores") else { return };
        let allowed = self.number("cpus_allowed").filter(|allowed| *allowed >= 1.0);
        let usable = allowed.map_or(cores, |allowed| allowed.min(cores));
        let limited = ("cgroup.cpus_count", From::Latest);
        let whole = ("cpu.cores_count", From::Latest);
        let source = if usable < cores { limited } else { whole };
        self.add_from("usable_cores", "cores", Some(usable), source);
        let busy = match usable < cores {
            true => self.busiest(usable).or_else(|| self.number("group_cpu_cores").map(|used| used / usable)),
            false => self.number("cpu_busy_fraction"),
        };
        let busy = busy.map(|busy| busy.min(1.0));
        self.add_from("usable_busy_fraction", "fraction", busy, ("cpu.idle_s", From::Rate(1.0)));
    }

    /// How busy the busiest of the cores were, this many of them.
    fn busiest(&self, count: f64) -> Option<f64> {
        let each = self.each.get("core_busy_fraction")?;
        let mut each: Vec<f64> = each.values().map(|fact| fact.value).collect();
        each.sort_by(|a, b| b.total_cmp(a));
        let of: Vec<f64> = each.into_iter().take(count as usize).collect();
        crate::stats::mean(&of)
    }

    /// In which share of the periods of its quota the service was stopped.
    fn throttling(&mut self) {
        let periods = self.number("cpu_periods").filter(|periods| *periods >= 1.0);
        let share =
            self.number("throttled_periods").zip(periods).map(|(stopped, all)| (stopped / all).min(1.0));
        let stopped = ("cgroup.throttled_periods_count", From::Rise);
        self.add_from("throttled_fraction", "fraction", share, stopped);
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.facts.get(name).map(|fact| fact.value)
    }
}

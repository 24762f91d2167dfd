//! Facts of processors and processes: how busy they are, who uses them, who waits for one.
//!
//! Sources: the collectors `cpu`, `process`, `pressure`, `cgroup`, `softnet`, `foreign` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};

fact_table! {
    (cores, "cores", "cpu.cores_count", Derivation::Latest),
    (run_queue_mean, "processes", "cpu.run_queue_count", Derivation::Mean),
    (forks_per_s, "processes/s", "cpu.forks_count", Derivation::Rate(1.0)),
    (service_cpu_cores, "cores", "process.cpu_s", Derivation::Rate(1.0)),
    (client_cpu_cores, "cores", "process.client_cpu_s", Derivation::Rate(1.0)),
    (foreign_cpu_cores, "cores", "process.foreign_cpu_s", Derivation::Rate(1.0)),
    (service_processes_mean, "processes", "process.count", Derivation::Mean),
    (service_processes_max, "processes", "process.count", Derivation::Max),
    (service_processes_min, "processes", "process.count", Derivation::Min),
    (pressure_cpu_some_fraction, "fraction", "pressure.cpu_some_us", Derivation::Rate(1e-6)),
    (pressure_io_full_fraction, "fraction", "pressure.io_full_us", Derivation::Rate(1e-6)),
    (pressure_group_cpu_some_fraction, "fraction", "pressure.group_cpu_some_us", Derivation::Rate(1e-6)),
    (pressure_group_cpu_full_fraction, "fraction", "pressure.group_cpu_full_us", Derivation::Rate(1e-6)),
    (service_running_mean, "processes", "process.running_count", Derivation::Mean),
    (backend_cpu_cores, "cores", "process.*.cpu_s", Derivation::Rate(1.0)),
    (agent_cpu_cores, "cores", "process.agent_cpu_s", Derivation::Rate(1.0)),
    (foreign_program_cpu_cores, "cores", "foreign.*.cpu_s", Derivation::Rate(1.0)),
    (kernel_threads_cpu_cores, "cores", "foreign.kernel_threads_cpu_s", Derivation::Rate(1.0)),
    (cpus_allowed, "cores", "cgroup.cpus_count", Derivation::Latest),
    (backend_cpus_allowed, "cores", "process.*.cpus_count", Derivation::Latest),
    (cpu_quota_cores, "cores", "cgroup.quota_cores_count", Derivation::Latest),
    (backend_quota_cores, "cores", "cgroup.*.quota_cores_count", Derivation::Latest),
    (backend_cpu_periods, "periods", "cgroup.*.periods_count", Derivation::Rise),
    (backend_cpu_periods_total, "periods", "cgroup.*.periods_count", Derivation::Latest),
    (backend_throttled_periods, "periods", "cgroup.*.throttled_periods_count", Derivation::Rise),
    (group_cpu_cores, "cores", "cgroup.cpu_s", Derivation::Rate(1.0)),
    (cpu_periods, "periods", "cgroup.periods_count", Derivation::Rise),
    (throttled_periods, "periods", "cgroup.throttled_periods_count", Derivation::Rise),
    (throttled_cores, "cores", "cgroup.throttled_s", Derivation::Rate(1.0)),
    (core_busy_fraction, "fraction", "cpu.*.busy_s", Derivation::Rate(1.0)),
    (core_usable, "cores", "cgroup.*.usable_count", Derivation::Latest),
    (core_softirq_fraction, "fraction", "cpu.*.softirq_s", Derivation::Rate(1.0)),
    (packets_squeezed_per_s, "looks/s", "softnet.squeezed_count", Derivation::Rate(1.0)),
    (packets_dropped_per_s, "packets/s", "softnet.dropped_count", Derivation::Rate(1.0)),
    "fraction": cpu_busy_fraction, cpu_softirq_fraction, cpu_steal_fraction, cpu_iowait_fraction,
        usable_busy_fraction, throttled_fraction;
    "cores": usable_cores;
}

/// Shares of the time of all cores, for five seconds: what is not idle (`id`) and not waiting for a disk (`wa`) is busy.
const CPU_BY_HAND: &str = "vmstat 5 2 | sed -n '2p;$p'";

/// What ran between two looks that are nearer to each other says nothing about a load.
const NAMED_AFTER_MIN_S: f64 = 2.0;

impl FactBuilder<'_> {
    /// Shares of the machine's CPU time by kind.
    pub(super) fn cpu(&mut self) {
        const BUSY: [&str; 6] = ["user", "nice", "system", "irq", "softirq", "steal"];
        let rate = |kind: &str| self.series.rate(&format!("cpu.{kind}_s"));
        let busy: Option<f64> = BUSY.iter().map(|kind| rate(kind)).sum();
        let (idle, iowait) = (rate("idle"), rate("iowait").unwrap_or(0.0));
        let total = busy.zip(idle).map(|(busy, idle)| busy + idle + iowait).filter(|total| *total > 0.0);
        let share = |part: Option<f64>| part.zip(total).map(|(part, total)| part / total);
        let shares = [
            (FactId::cpu_busy_fraction, share(busy)),
            (FactId::cpu_softirq_fraction, share(rate("softirq"))),
            (FactId::cpu_steal_fraction, share(rate("steal"))),
            (FactId::cpu_iowait_fraction, share(Some(iowait))),
        ];
        for (name, value) in shares {
            self.add_from(name, value, ("cpu.idle_s", Derivation::Rate(1.0)));
            if let Some(fact) = self.facts.get_mut(&name) {
                fact.reproduce = CPU_BY_HAND.into();
            }
        }
        self.usable_cores();
        self.throttling();
    }

    /// Programs that were named only once, as the load was short: all of them are counted from the first look on, which names
    /// none yet.
    pub(super) fn late_named_programs(&mut self) {
        const TEMPLATE: &str = "foreign.*.cpu_s";
        const NAME: FactId = FactId::foreign_program_cpu_cores;
        let Some(begin) = self.series.all("foreign.cpu_s").first().copied().filter(|(_, used)| *used == 0.0)
        else {
            return;
        };
        let Some(template) = self.series.template(TEMPLATE) else { return };
        let found: Vec<_> = self.series.instances(template).collect();
        for (program, metric) in found {
            let [(time, used)] = *self.series.all(metric) else { continue };
            let seconds = time - begin.0;
            let cores = (seconds >= NAMED_AFTER_MIN_S).then(|| used / seconds);
            self.add_instance(program, (NAME, cores), (metric, Derivation::Latest));
        }
    }

    /// The cores that the service may use, and how busy they were. Older recordings do not tell which: these are at least as
    /// busy as its group keeps them, and at most as busy as the busiest of all cores.
    fn usable_cores(&mut self) {
        let Some(cores) = self.number(FactId::cores) else { return };
        let allowed = self.number(FactId::cpus_allowed).filter(|allowed| *allowed >= 1.0);
        let usable = allowed.map_or(cores, |allowed| allowed.min(cores));
        let limited = ("cgroup.cpus_count", Derivation::Latest);
        let whole = ("cpu.cores_count", Derivation::Latest);
        let source = if usable < cores { limited } else { whole };
        self.add_from(FactId::usable_cores, Some(usable), source);
        let busy = match usable < cores {
            true => self
                .usable_cores_busy()
                .or_else(|| self.busiest(usable))
                .or_else(|| self.number(FactId::group_cpu_cores).map(|used| used / usable)),
            false => self.number(FactId::cpu_busy_fraction),
        };
        let busy = busy.map(|busy| busy.min(1.0));
        self.add_from(FactId::usable_busy_fraction, busy, ("cpu.idle_s", Derivation::Rate(1.0)));
    }

    /// How busy the cores were that the service may use, where all of them are known.
    fn usable_cores_busy(&self) -> Option<f64> {
        let (which, each) =
            (self.each.get(&FactId::core_usable)?, self.each.get(&FactId::core_busy_fraction)?);
        let busy: Option<Vec<f64>> = which.keys().map(|core| each.get(core).map(|fact| fact.value)).collect();
        crate::measurement::statistics::mean(&busy?)
    }

    /// How busy the busiest of the cores were, this many of them.
    fn busiest(&self, count: f64) -> Option<f64> {
        let each = self.each.get(&FactId::core_busy_fraction)?;
        let mut each: Vec<f64> = each.values().map(|fact| fact.value).collect();
        each.sort_by(|a, b| b.total_cmp(a));
        let of: Vec<f64> = each.into_iter().take(count as usize).collect();
        crate::measurement::statistics::mean(&of)
    }

    /// In which share of the periods of its quota the service was stopped.
    fn throttling(&mut self) {
        let periods = self.number(FactId::cpu_periods).filter(|periods| *periods >= 1.0);
        let share = self
            .number(FactId::throttled_periods)
            .zip(periods)
            .map(|(stopped, all)| (stopped / all).min(1.0));
        let stopped = ("cgroup.throttled_periods_count", Derivation::Rise);
        self.add_from(FactId::throttled_fraction, share, stopped);
    }

    fn number(&self, name: FactId) -> Option<f64> {
        self.facts.get(&name).map(|fact| fact.value)
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::sample;
    use crate::facts::{FactId, facts};
    use crate::measurement::Measurement;
    use webdyno_model::sample::{CollectorInfo, Metric, MetricKind};

    #[test]
    fn of_a_service_on_some_of_the_cores_these_count() {
        let metric = |name: &str, kind| Metric { name: name.into(), kind, ..Metric::default() };
        let metrics = vec![
            metric("cpu.*.busy_s", MetricKind::Counter),
            metric("cgroup.*.usable_count", MetricKind::Gauge),
        ];
        let collectors = vec![CollectorInfo { name: "cpu".into(), metrics }];
        let busy = |which: &[(&str, f64)]| {
            // The first core is idle, the second one a half busy, the third one full.
            let reading = |t_s: f64| {
                let cores =
                    [("cpu.core0.busy_s", 0.0), ("cpu.core1.busy_s", 0.5 * t_s), ("cpu.core2.busy_s", t_s)];
                let known = [("cpu.cores_count", 3.0), ("cgroup.cpus_count", 2.0)];
                sample(t_s, "cpu", &[&cores[..], &known, which].concat())
            };
            let samples = vec![reading(0.0), reading(10.0)];
            let collectors = collectors.clone();
            let measurement =
                Measurement { samples, collectors, measured_to_s: 10.0, ..Measurement::default() };
            facts(&measurement, None).unwrap().value(FactId::usable_busy_fraction)
        };
        assert_eq!(busy(&[]), Some(0.75), "the busiest two, as nobody said which");
        let first = [("cgroup.core0.usable_count", 1.0), ("cgroup.core1.usable_count", 1.0)];
        assert_eq!(busy(&first), Some(0.25));
        let unseen = [("cgroup.core0.usable_count", 1.0), ("cgroup.core40.usable_count", 1.0)];
        assert_eq!(busy(&unseen), Some(0.75), "one of them is not told");
    }

    #[test]
    fn a_program_that_is_named_only_once_is_counted_from_the_first_look_on() {
        let metric =
            Metric { name: "foreign.*.cpu_s".into(), kind: MetricKind::Counter, ..Metric::default() };
        let collectors = vec![CollectorInfo { name: "foreign".into(), metrics: vec![metric] }];
        let cores = |first: f64, at_s: f64| {
            let named = [("foreign.cpu_s", first + 4.0), ("foreign.perl.cpu_s", 4.0)];
            let samples =
                vec![sample(0.0, "foreign", &[("foreign.cpu_s", first)]), sample(at_s, "foreign", &named)];
            let collectors = collectors.clone();
            let of = Measurement { samples, collectors, measured_to_s: 10.0, ..Measurement::default() };
            facts(&of, None).unwrap().value_of(FactId::foreign_program_cpu_cores, "perl")
        };
        assert_eq!(cores(0.0, 5.0), Some(0.8));
        assert_eq!(cores(0.0, 0.5), None, "a moment");
        assert_eq!(cores(7.0, 5.0), None, "the first look is not there: who knows since when");
    }
}

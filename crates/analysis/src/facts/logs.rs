//! Facts of what the site writes: its logs, what they say, and the disks that hold them.
//!
//! Sources: the collectors `apache_log`, `access_log`, `kernel_log`, `disk` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};

fact_table! {
    (error_log_bytes_per_s, "bytes/s", "apache_log.written_bytes", Derivation::Rate(1.0)),
    (error_log_lines_per_s, "lines/s", "apache_log.lines_count", Derivation::Rate(1.0)),
    (access_log_bytes_per_s, "bytes/s", "access_log.written_bytes", Derivation::Rate(1.0)),
    (look_ups_mean, "lookups", "sockets.look_ups_count", Derivation::Mean),
    (service_cores_limit, "cores", "cgroup.cores_count", Derivation::Latest),
    (cpu_system_cores, "cores", "cpu.system_s", Derivation::Rate(1.0)),
    (cpu_user_cores, "cores", "cpu.user_s", Derivation::Rate(1.0)),
    (backend_unreachable_logged, "messages", "apache_log.AH00957.messages_count", Derivation::Rise),
    (backend_connections_failed_logged, "messages", "apache_log.AH01079.messages_count", Derivation::Rise),
    (backend_dispatch_failed_logged, "messages", "apache_log.AH01075.messages_count", Derivation::Rise),
    (backend_socket_failed_logged, "messages", "apache_log.AH02454.messages_count", Derivation::Rise),
    (proxy_connections_failed_logged, "messages", "apache_log.AH01114.messages_count", Derivation::Rise),
    (connections_refused_logged, "messages", "apache_log.connection_refused.messages_count", Derivation::Rise),
    (no_address_logged, "messages", "apache_log.cannot_assign_address.messages_count", Derivation::Rise),
    (no_descriptors_logged, "messages", "apache_log.too_many_open_files.messages_count", Derivation::Rise),
    (server_errors_answered_per_s, "answers/s", "access_log.status_5xx_count", Derivation::Rate(1.0)),
    (answers_logged_per_s, "answers/s", "access_log.requests_count", Derivation::Rate(1.0)),
    "fraction": log_disk_busy_fraction;
    "writes/s": log_disk_writes_per_s;
    "reads/s": log_disk_reads_per_s;
    "bytes/s": log_disk_written_bytes_per_s;
    "us": log_disk_await_us;
}

impl FactBuilder<'_> {
    /// What the disk that holds the logs does: the busiest of them where several do.
    pub(super) fn log_disk(&mut self) {
        let Some(template) = self.series.template("disk.*.logs_count") else { return };
        let disks: Vec<String> = self
            .series
            .instances(template)
            .filter(|(_, metric)| self.series.latest(metric).is_some_and(|logs| logs >= 1.0))
            .map(|(disk, _)| disk.to_owned())
            .collect();
        let rate = |disk: &str, what: &str| self.series.rate(&format!("disk.{disk}.{what}"));
        let busy = |disk: &String| rate(disk, "busy_s").unwrap_or(0.0);
        let Some(disk) = disks.into_iter().max_by(|a, b| busy(a).total_cmp(&busy(b))) else { return };
        let writes = rate(&disk, "writes_count");
        let await_us = rate(&disk, "writing_s").zip(writes.filter(|writes| *writes >= 1.0));
        let facts = [
            (FactId::log_disk_busy_fraction, rate(&disk, "busy_s"), "busy_s"),
            (FactId::log_disk_writes_per_s, writes, "writes_count"),
            (FactId::log_disk_reads_per_s, rate(&disk, "reads_count"), "reads_count"),
            (FactId::log_disk_written_bytes_per_s, rate(&disk, "written_bytes"), "written_bytes"),
            (FactId::log_disk_await_us, await_us.map(|(s, writes)| s / writes * 1e6), "writing_s"),
        ];
        for (name, value, metric) in facts {
            self.add_from(name, value, (&format!("disk.{disk}.{metric}"), Derivation::Rate(1.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::sample;
    use crate::facts::{FactId, facts};
    use crate::measurement::Measurement;
    use webdyno_model::sample::{CollectorInfo, Metric, MetricKind};

    #[test]
    fn the_disk_of_the_logs_is_told_apart() {
        let metric = |name: &str, kind| Metric { name: name.into(), kind, ..Metric::default() };
        let reading = |t_s: f64| {
            let values = [
                ("disk.vda.logs_count", 0.0),
                ("disk.vda.busy_s", t_s),
                ("disk.vdb.logs_count", 2.0),
                ("disk.vdb.busy_s", 0.5 * t_s),
                ("disk.vdb.writes_count", 60.0 * t_s),
                ("disk.vdb.writing_s", 6.0 * t_s),
            ];
            sample(t_s, "disk", &values)
        };
        let names = ["busy_s", "writes_count", "writing_s"];
        let counters = names.map(|name| metric(&format!("disk.*.{name}"), MetricKind::Counter));
        let metrics = [vec![metric("disk.*.logs_count", MetricKind::Gauge)], counters.into()].concat();
        let measurement = Measurement {
            samples: vec![reading(0.0), reading(10.0)],
            collectors: vec![CollectorInfo { name: "disk".into(), metrics }],
            measured_to_s: 10.0,
            ..Measurement::default()
        };
        let facts = facts(&measurement, None).unwrap();
        assert_eq!(facts.value(FactId::log_disk_busy_fraction), Some(0.5));
        assert_eq!(facts.value(FactId::log_disk_await_us), Some(100_000.0));
    }
}

//! Facts of limits that may lie ahead: what is used of a table, a pool or a link, and how large it is.
//!
//! Sources: the collectors `mariadb`, `php_fpm`, `conntrack`, `sockets`, `ports`, `process`, `nic`, `qdisc`, `cgroup`
//! (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::statistics;
use webdyno_model::number::significant;

fact_table! {
    (ahead_database_limit, "connections", "mariadb.connections_limit_count", Derivation::Latest),
    (ahead_database_connected_mean, "connections", "mariadb.threads_connected_count", Derivation::Mean),
    (ahead_database_attempts_per_s, "connections/s", "mariadb.connections_attempted_count", Derivation::Rate(1.0)),
    (ahead_database_failed_per_s, "connections/s", "mariadb.connections_failed_count", Derivation::Rate(1.0)),
    (ahead_database_scanned_rows_per_s, "rows/s", "mariadb.rows_read_in_scans_count", Derivation::Rate(1.0)),
    (ahead_database_selects_per_s, "statements/s", "mariadb.selects_count", Derivation::Rate(1.0)),
    (ahead_database_sort_buffer_bytes, "bytes", "mariadb.sort_buffer_bytes", Derivation::Latest),
    (ahead_database_join_buffer_bytes, "bytes", "mariadb.join_buffer_bytes", Derivation::Latest),
    (ahead_database_read_buffer_bytes, "bytes", "mariadb.read_buffer_bytes", Derivation::Latest),
    (ahead_database_read_rnd_buffer_bytes, "bytes", "mariadb.read_rnd_buffer_bytes", Derivation::Latest),
    (ahead_database_thread_stack_bytes, "bytes", "mariadb.thread_stack_bytes", Derivation::Latest),
    (ahead_database_binlog_cache_bytes, "bytes", "mariadb.binlog_cache_bytes", Derivation::Latest),
    (ahead_database_buffer_pool_bytes, "bytes", "mariadb.buffer_pool_limit_bytes", Derivation::Latest),
    (ahead_database_key_buffer_bytes, "bytes", "mariadb.key_buffer_limit_bytes", Derivation::Latest),
    (ahead_accept_queue_allowed, "connections", "sockets.somaxconn_count", Derivation::Latest),
    (ahead_fpm_processes_max, "processes", "php_fpm.*.processes_count", Derivation::Max),
    (ahead_fpm_busy_mean, "processes", "php_fpm.*.processes_busy_count", Derivation::Mean),
    (ahead_fpm_queue_mean, "requests", "php_fpm.*.listen_queue_count", Derivation::Mean),
    (ahead_fpm_child_bytes, "bytes", "php_fpm.*.pss_mean_bytes", Derivation::Mean),
    (ahead_tracked_max, "connections", "conntrack.entries_count", Derivation::Max),
    (ahead_tracked_limit, "connections", "conntrack.max_count", Derivation::Latest),
    (ahead_tracked_rise_per_s, "connections/s", "conntrack.entries_count", Derivation::Rate(1.0)),
    (ahead_tracked_service_max, "connections", "conntrack.service.entries_count", Derivation::Max),
    (ahead_tracked_service_limit, "connections", "conntrack.service.max_count", Derivation::Latest),
    (ahead_tracked_service_rise_per_s, "connections/s", "conntrack.service.entries_count", Derivation::Rate(1.0)),
    (ahead_time_wait_max, "sockets", "sockets.time_wait_count", Derivation::Max),
    (ahead_time_wait_limit, "sockets", "sockets.time_wait_limit_count", Derivation::Latest),
    (ahead_time_wait_rise_per_s, "sockets/s", "sockets.time_wait_count", Derivation::Rate(1.0)),
    (ahead_ports_available, "ports", "ports.available_count", Derivation::Latest),
    (ahead_ports_reuse_mode, "mode", "ports.time_wait_reuse_mode", Derivation::Latest),
    (ahead_ports_used_max, "ports", "ports.*.used_count", Derivation::Max),
    (ahead_ports_time_wait_per_s, "ports/s", "ports.*.time_wait_count", Derivation::Rate(1.0)),
    (ahead_open_files_max, "descriptors", "process.open_files_max_count", Derivation::Max),
    (ahead_open_files_limit, "descriptors", "process.open_files_limit_count", Derivation::Latest),
    (ahead_fullest_open_files_max, "descriptors", "process.fullest_open_files_count", Derivation::Max),
    (ahead_fullest_open_files_limit, "descriptors", "process.fullest_open_files_limit_count", Derivation::Latest),
    (ahead_link_sent_bytes_per_s, "bytes/s", "nic.*.sent_bytes", Derivation::Rate(1.0)),
    (ahead_link_speed_bits_per_s, "bits/s", "nic.*.speed_bits_per_s", Derivation::Latest),
    (ahead_link_shaped_bits_per_s, "bits/s", "qdisc.*.rate_bits_per_s", Derivation::Latest),
    (ahead_service_link_sent_bytes_per_s, "bytes/s", "nic.service.*.sent_bytes", Derivation::Rate(1.0)),
    (ahead_service_link_speed_bits_per_s, "bits/s", "nic.service.*.speed_bits_per_s", Derivation::Latest),
    (ahead_service_link_shaped_bits_per_s, "bits/s", "qdisc.service.*.rate_bits_per_s", Derivation::Latest),
    (ahead_backend_cpu_cores, "cores", "process.*.cpu_s", Derivation::Rate(1.0)),
    (ahead_yielding_cpu_cores, "cores", "cpu.nice_s", Derivation::Rate(1.0)),
    (ahead_group_cpu_cores, "cores", "cgroup.cpu_s", Derivation::Rate(1.0)),
    (ahead_group_cores, "cores", "cgroup.cores_count", Derivation::Latest),
    (ahead_group_quota_cores, "cores", "cgroup.quota_cores_count", Derivation::Latest),
    "fraction": ahead_workers_busy_ci95_fraction, ahead_database_connected_ci95_fraction;
}

/// Levels whose mean has an interval: `(fact, metric)`.
const WITH_INTERVAL: [(FactId, &str); 2] = [
    (FactId::ahead_workers_busy_ci95_fraction, "apache.workers_busy_count"),
    (FactId::ahead_database_connected_ci95_fraction, "mariadb.threads_connected_count"),
];

impl FactBuilder<'_> {
    /// Half the width of the 95% interval of the mean of a level, as a share of it.
    pub(super) fn intervals_of_levels(&mut self) {
        for (fact, metric) in WITH_INTERVAL {
            let levels = self.series.levels(metric);
            let series = statistics::describe(&levels).filter(|series| series.mean > 0.0);
            let half = series.map(|series| significant(series.half_width_95() / series.mean, 4));
            self.add_from(fact, half, (metric, Derivation::Mean));
        }
    }
}

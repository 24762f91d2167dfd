//! Facts of the database behind the site.
//!
//! Sources: the collectors `mariadb`, `process` and `apache_log` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};

fact_table! {
    (db_cpu_cores, "cores", "process.mariadb.cpu_s", Derivation::Rate(1.0)),
    (db_connections_limit, "connections", "mariadb.connections_limit_count", Derivation::Latest),
    (db_connections_used_max, "connections", "mariadb.connections_used_max_count", Derivation::Latest),
    (db_connections_max, "connections", "mariadb.threads_connected_count", Derivation::Max),
    (db_clients_max, "connections", "mariadb.clients_count", Derivation::Max),
    (db_clients_mean, "connections", "mariadb.clients_count", Derivation::Mean),
    (db_connections_per_s, "connections/s", "mariadb.connections_attempted_count", Derivation::Rate(1.0)),
    (db_connections_failed_per_s, "connections/s", "mariadb.connections_failed_count", Derivation::Rate(1.0)),
    (db_connections_refused, "connections", "mariadb.connections_refused_count", Derivation::Rise),
    (db_own_connections_refused, "connections", "mariadb.refused_count", Derivation::Rise),
    (db_refusals_logged, "messages", "apache_log.database_refuses.messages_count", Derivation::Rise),
    (db_refusals_logged_per_s, "messages/s", "apache_log.database_refuses.messages_count", Derivation::Rate(1.0)),
    (db_threads_created_per_s, "threads/s", "mariadb.threads_created_count", Derivation::Rate(1.0)),
    (db_thread_cache_limit, "threads", "mariadb.thread_cache_limit_count", Derivation::Latest),
    (db_tables_opened_per_s, "tables/s", "mariadb.tables_opened_count", Derivation::Rate(1.0)),
    (db_tables_open, "tables", "mariadb.tables_open_count", Derivation::Latest),
    (db_table_cache_limit, "tables", "mariadb.table_cache_limit_count", Derivation::Latest),
    (db_files_limit, "files", "mariadb.files_limit_count", Derivation::Latest),
    (db_threads_running_mean, "threads", "mariadb.threads_running_count", Derivation::Mean),
    (db_statements_per_s, "statements/s", "mariadb.questions_count", Derivation::Rate(1.0)),
    (db_selects_per_s, "statements/s", "mariadb.selects_count", Derivation::Rate(1.0)),
    (db_scans_per_s, "statements/s", "mariadb.select_scans_count", Derivation::Rate(1.0)),
    (db_full_joins_per_s, "statements/s", "mariadb.select_full_joins_count", Derivation::Rate(1.0)),
    (db_rows_scanned_per_s, "rows/s", "mariadb.rows_read_in_scans_count", Derivation::Rate(1.0)),
    (db_rows_read_in_order_per_s, "rows/s", "mariadb.rows_read_in_order_count", Derivation::Rate(1.0)),
    (db_sort_merges_per_s, "merges/s", "mariadb.sort_merge_passes_count", Derivation::Rate(1.0)),
    (db_lock_waiting_mean, "statements", "mariadb.lock_waiting_count", Derivation::Mean),
    (db_query_cache_lock_waiting_mean, "statements", "mariadb.query_cache_lock_waiting_count", Derivation::Mean),
    (db_metadata_lock_waiting_mean, "statements", "mariadb.metadata_lock_waiting_count", Derivation::Mean),
    (db_query_cache_limit_bytes, "bytes", "mariadb.query_cache_limit_bytes", Derivation::Latest),
    (db_table_lock_waits_per_s, "waits/s", "mariadb.table_lock_waits_count", Derivation::Rate(1.0)),
    (db_committing_mean, "statements", "mariadb.committing_count", Derivation::Mean),
    (db_disk_syncs_per_s, "syncs/s", "mariadb.disk_syncs_count", Derivation::Rate(1.0)),
    (db_row_lock_waiting_mean, "statements", "mariadb.row_lock_waiting_count", Derivation::Mean),
    (db_row_lock_time_fraction, "s/s", "mariadb.row_lock_time_ms", Derivation::Rate(1e-3)),
    (db_row_lock_waits_per_s, "waits/s", "mariadb.row_lock_waits_count", Derivation::Rate(1.0)),
    (db_cache_disk_reads, "pages", "mariadb.buffer_pool_disk_reads_count", Derivation::Rise),
    (db_cache_disk_reads_per_s, "pages/s", "mariadb.buffer_pool_disk_reads_count", Derivation::Rate(1.0)),
    (db_cache_requests_per_s, "pages/s", "mariadb.buffer_pool_read_requests_count", Derivation::Rate(1.0)),
    (db_cache_limit_bytes, "bytes", "mariadb.buffer_pool_limit_bytes", Derivation::Latest),
    (db_statement_running_mean, "statements", "mariadb.*.time_us", Derivation::Rate(1e-6)),
    (db_statement_rows_per_s, "rows/s", "mariadb.*.rows_examined_count", Derivation::Rate(1.0)),
    (db_statement_per_s, "statements/s", "mariadb.*.executions_count", Derivation::Rate(1.0)),
    "bytes": db_connection_memory_bytes;
    "pages": db_cache_filled;
    "cores": site_cpu_cores;
}

/// What a connection may take beside the memory that all share: each of these once, if it sorts, joins and reads.
const PER_CONNECTION: [&str; 6] = [
    "mariadb.sort_buffer_bytes",
    "mariadb.join_buffer_bytes",
    "mariadb.read_buffer_bytes",
    "mariadb.read_rnd_buffer_bytes",
    "mariadb.thread_stack_bytes",
    "mariadb.binlog_cache_bytes",
];
const FREE_PAGES: &str = "mariadb.buffer_pool_free_pages";

impl FactBuilder<'_> {
    /// What one connection may take, by how much the free part of the cache shrank, and what the processors spend on the
    /// whole site: the service and all that stands behind it.
    pub(super) fn database(&mut self) {
        let parts: Option<f64> = PER_CONNECTION.iter().map(|metric| self.series.latest(metric)).sum();
        let sort = ("mariadb.sort_buffer_bytes", Derivation::Latest);
        self.add_from(FactId::db_connection_memory_bytes, parts, sort);
        let fell = self.series.span(FREE_PAGES).map(|(first, last)| (first.1 - last.1).max(0.0));
        self.add_from(FactId::db_cache_filled, fell, (FREE_PAGES, Derivation::Rate(1.0)));
        if !self.facts.contains_key(&FactId::db_cpu_cores) {
            self.derive(FactId::db_cpu_cores, "mariadb.cpu_s", Derivation::Rate(1.0));
        }
        let known = [FactId::service_cpu_cores, FactId::fpm_cpu_cores, FactId::db_cpu_cores];
        let known = known.iter().filter_map(|name| Some(self.facts.get(name)?.value));
        // Application servers, and further ones of those.
        let behind = self.each.get(&FactId::backend_cpu_cores).into_iter().flatten();
        let others = behind.filter(|(name, _)| !["php_fpm", "mariadb"].contains(&name.as_str()));
        let parts: Vec<f64> = known.chain(others.map(|(_, fact)| fact.value)).collect();
        let site = (!parts.is_empty()).then(|| parts.iter().sum());
        self.add_from(FactId::site_cpu_cores, site, ("process.cpu_s", Derivation::Rate(1.0)));
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::testing::sample;
    use crate::facts::{FactId, facts};
    use crate::measurement::Measurement;
    use webdyno_model::sample::{CollectorInfo, Metric, MetricKind};

    #[test]
    fn what_the_site_computes_is_that_of_all_its_programs() {
        let metric =
            |name: &str| Metric { name: name.into(), kind: MetricKind::Counter, ..Metric::default() };
        let metrics = vec![metric("process.cpu_s"), metric("process.*.cpu_s")];
        let collectors = vec![CollectorInfo { name: "process".into(), metrics }];
        let reading = |t_s: f64| {
            let used = [
                ("process.cpu_s", 0.1 * t_s),
                ("process.unknown.cpu_s", 1.2 * t_s),
                ("process.mariadb.cpu_s", 0.5 * t_s),
            ];
            sample(t_s, "process", &used)
        };
        let samples = vec![reading(0.0), reading(10.0)];
        let seen = Measurement { samples, collectors, measured_to_s: 10.0, ..Measurement::default() };
        let site = facts(&seen, None).unwrap().value(FactId::site_cpu_cores);
        assert_eq!(site.map(|cores| (cores * 10.0).round()), Some(18.0));
    }
}

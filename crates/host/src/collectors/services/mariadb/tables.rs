//! Which status variables and system variables become which metrics.
//!
//! Facts: as in the parent module. Times of InnoDB's row locks are in milliseconds.

use super::NAME;
use crate::collectors::on_change::on_change;
use crate::collectors::{Metric, counter, gauge};
use std::collections::HashMap;
use webdyno_model::sample::MetricKind::{self, Counter, Gauge};

/// A variable as a metric.
#[derive(Debug)]
pub struct Row {
    /// Without `mariadb.`.
    pub metric: &'static str,
    variable: &'static str,
    kind: MetricKind,
}

impl Row {
    /// Its value; `None` when this server does not have it, or it is no number.
    pub fn of(&self, values: &HashMap<String, String>) -> Option<f64> {
        let value = values.get(self.variable)?;
        match value.as_str() {
            "ON" => Some(1.0),
            "OFF" => Some(0.0),
            number => number.parse().ok().filter(|number: &f64| *number >= 0.0),
        }
    }
}

const fn row(metric: &'static str, variable: &'static str, kind: MetricKind) -> Row {
    Row { metric, variable, kind }
}

/// Of `SHOW GLOBAL STATUS`.
#[rustfmt::skip] // a table, one row a line
pub const STATUS: &[Row] = &[
    row("connections_attempted_count", "Connections", Counter),
    row("connections_refused_count", "Connection_errors_max_connections", Counter),
    row("connections_failed_count", "Aborted_connects", Counter),
    row("connections_aborted_count", "Aborted_clients", Counter),
    row("connections_used_max_count", "Max_used_connections", Gauge),
    row("threads_connected_count", "Threads_connected", Gauge),
    row("threads_running_count", "Threads_running", Gauge),
    row("threads_cached_count", "Threads_cached", Gauge),
    row("threads_created_count", "Threads_created", Counter),
    row("questions_count", "Questions", Counter),
    row("queries_count", "Queries", Counter),
    row("selects_count", "Com_select", Counter),
    row("inserts_count", "Com_insert", Counter),
    row("updates_count", "Com_update", Counter),
    row("deletes_count", "Com_delete", Counter),
    row("slow_queries_count", "Slow_queries", Counter),
    row("select_scans_count", "Select_scan", Counter),
    row("select_full_joins_count", "Select_full_join", Counter),
    row("rows_read_in_scans_count", "Handler_read_rnd_next", Counter),
    row("rows_read_by_key_count", "Handler_read_key", Counter),
    row("rows_read_in_order_count", "Handler_read_next", Counter),
    row("temporary_tables_count", "Created_tmp_tables", Counter),
    row("temporary_disk_tables_count", "Created_tmp_disk_tables", Counter),
    row("sort_merge_passes_count", "Sort_merge_passes", Counter),
    row("row_lock_waits_count", "Innodb_row_lock_waits", Counter),
    row("row_lock_time_ms", "Innodb_row_lock_time", Counter),
    row("row_lock_waiting_count", "Innodb_row_lock_current_waits", Gauge),
    row("deadlocks_count", "Innodb_deadlocks", Counter),
    row("table_lock_waits_count", "Table_locks_waited", Counter),
    row("buffer_pool_read_requests_count", "Innodb_buffer_pool_read_requests", Counter),
    row("buffer_pool_disk_reads_count", "Innodb_buffer_pool_reads", Counter),
    row("buffer_pool_total_pages", "Innodb_buffer_pool_pages_total", Gauge),
    row("buffer_pool_free_pages", "Innodb_buffer_pool_pages_free", Gauge),
    row("buffer_pool_wait_free_count", "Innodb_buffer_pool_wait_free", Counter),
    row("disk_read_bytes", "Innodb_data_read", Counter),
    row("disk_written_bytes", "Innodb_data_written", Counter),
    row("disk_syncs_count", "Innodb_data_fsyncs", Counter),
    row("log_waits_count", "Innodb_log_waits", Counter),
    row("key_read_requests_count", "Key_read_requests", Counter),
    row("key_disk_reads_count", "Key_reads", Counter),
    row("tables_opened_count", "Opened_tables", Counter),
    row("tables_open_count", "Open_tables", Gauge),
    row("files_open_count", "Open_files", Gauge),
    row("query_cache_hits_count", "Qcache_hits", Counter),
    row("query_cache_prunes_count", "Qcache_lowmem_prunes", Counter),
    row("received_bytes", "Bytes_received", Counter),
    row("sent_bytes", "Bytes_sent", Counter),
    row("uptime_s", "Uptime", Gauge),
];

/// Of `SHOW GLOBAL VARIABLES`.
#[rustfmt::skip] // a table, one row a line
pub const VARIABLES: &[Row] = &[
    row("connections_limit_count", "max_connections", Gauge),
    row("thread_cache_limit_count", "thread_cache_size", Gauge),
    row("buffer_pool_limit_bytes", "innodb_buffer_pool_size", Gauge),
    row("key_buffer_limit_bytes", "key_buffer_size", Gauge),
    row("table_cache_limit_count", "table_open_cache", Gauge),
    row("files_limit_count", "open_files_limit", Gauge),
    row("sort_buffer_bytes", "sort_buffer_size", Gauge),
    row("join_buffer_bytes", "join_buffer_size", Gauge),
    row("read_buffer_bytes", "read_buffer_size", Gauge),
    row("read_rnd_buffer_bytes", "read_rnd_buffer_size", Gauge),
    row("thread_stack_bytes", "thread_stack", Gauge),
    row("binlog_cache_bytes", "binlog_cache_size", Gauge),
    row("temporary_table_limit_bytes", "tmp_table_size", Gauge),
    row("query_cache_limit_bytes", "query_cache_size", Gauge),
    row("packet_limit_bytes", "max_allowed_packet", Gauge),
    row("connect_errors_limit_count", "max_connect_errors", Gauge),
    row("backlog_count", "back_log", Gauge),
    row("slow_query_limit_s", "long_query_time", Gauge),
];

/// Of each form of statements: the metric's last word, and the column.
pub const STATEMENTS: [(&str, &str); 5] = [
    ("executions_count", "COUNT_STAR"),
    ("time_us", "SUM_TIMER_WAIT DIV 1000000"),
    ("lock_time_us", "SUM_LOCK_TIME DIV 1000000"),
    ("rows_examined_count", "SUM_ROWS_EXAMINED"),
    ("without_index_count", "SUM_NO_INDEX_USED"),
];

/// What these tables are, for the catalogue. DATABASE is where it listens, as options of the client.
pub fn metrics() -> Vec<Metric> {
    let metric = |row: &Row, what: &str, source: &str| {
        let name = format!("{NAME}.{}", row.metric);
        let show = format!("mariadb DATABASE -Ne \"SHOW GLOBAL {what} LIKE '{}'\" | cut -f2", row.variable);
        match row.kind {
            Counter => on_change(counter(name, source, show)),
            Gauge => gauge(name, source, show),
        }
    };
    let status = STATUS.iter().map(|row| metric(row, "STATUS", "SHOW GLOBAL STATUS"));
    let variables = VARIABLES.iter().map(|row| metric(row, "VARIABLES", "SHOW GLOBAL VARIABLES"));
    let table = "performance_schema.events_statements_summary_by_digest";
    let statements = STATEMENTS.map(|(name, column)| {
        let show = format!("mariadb DATABASE -Ne \"SELECT {column} FROM {table} WHERE DIGEST='INSTANCE'\"");
        // Read now and then only: left out they would count as unchanged.
        counter(format!("{NAME}.*.{name}"), table, show)
    });
    status.chain(variables).chain(statements).collect()
}

/// Whether a value is left out while it does not change: a total that is read in each reading.
pub fn may_miss(name: &str) -> bool {
    let bare = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('.'));
    bare.is_some_and(|bare| STATUS.iter().any(|row| row.metric == bare && row.kind == Counter))
}

/// The names of all variables for a query.
pub fn quoted() -> String {
    VARIABLES.iter().map(|row| format!("'{}'", row.variable)).collect::<Vec<_>>().join(",")
}

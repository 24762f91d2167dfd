//! Facts that Apache tells: its status page and its workers.
//!
//! Sources: the collectors `apache_status` and `workers` (docs/metrics.md).

use super::{From, Row};

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[Row] = &[
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

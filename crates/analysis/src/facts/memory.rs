//! Facts of memory: what is left, what is swapped and read again, what workers have.
//!
//! Sources: the collectors `memory`, `pressure`, `cgroup`, `worker_memory` (docs/metrics.md).

use super::{From, Row};

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[Row] = &[
    ("memory_available_min_bytes", "bytes", "memory.available_bytes", From::Min),
    ("memory_limit_bytes", "bytes", "memory.limit_bytes", From::Latest),
    ("memory_total_bytes", "bytes", "memory.total_bytes", From::Latest),
    ("memory_used_in_limit_max_bytes", "bytes", "memory.used_in_limit_bytes", From::Max),
    ("swapped_in_pages_per_s", "pages/s", "memory.swapped_in_pages", From::Rate(1.0)),
    ("swapped_out_pages_per_s", "pages/s", "memory.swapped_out_pages", From::Rate(1.0)),
    ("refaults_per_s", "pages/s", "memory.refaults_count", From::Rate(1.0)),
    ("major_faults_per_s", "faults/s", "memory.major_faults_count", From::Rate(1.0)),
    ("oom_kills", "processes", "memory.oom_kills_count", From::Rise),
    ("group_oom_kills", "processes", "memory.group_oom_kills_count", From::Rise),
    ("pressure_memory_some_fraction", "fraction", "pressure.memory_some_us", From::Rate(1e-6)),
    ("pressure_memory_full_fraction", "fraction", "pressure.memory_full_us", From::Rate(1e-6)),
    ("pressure_group_memory_full_fraction", "fraction", "pressure.group_memory_full_us", From::Rate(1e-6)),
    ("worker_memory_sum_bytes", "bytes", "worker_memory.pss_sum_bytes", From::Latest),
    ("worker_swap_sum_bytes", "bytes", "worker_memory.swap_pss_sum_bytes", From::Latest),
    ("worker_memory_mean_bytes", "bytes", "worker_memory.pss_mean_bytes", From::Latest),
    ("worker_private_mean_bytes", "bytes", "worker_memory.private_mean_bytes", From::Latest),
];

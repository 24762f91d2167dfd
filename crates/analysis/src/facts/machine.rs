//! Facts of processors and processes: how busy they are, who uses them, who waits for one.
//!
//! Sources: the collectors `cpu`, `process`, `pressure`, `cgroup`, `softnet`, `foreign` (docs/metrics.md).

use super::{From, Row};

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
];

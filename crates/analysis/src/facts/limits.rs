//! Facts of limits on numbers: open files, processes, tasks.
//!
//! Sources: the collectors `process`, `files`, `cgroup` (docs/metrics.md).

use super::Row;

/// What follows from one metric each.
pub(super) const ROWS: &[Row] = &[];

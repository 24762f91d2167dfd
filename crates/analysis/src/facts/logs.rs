//! Facts of what the site writes: its logs, what they say, and the disks that hold them.
//!
//! Sources: the collectors `apache_log`, `access_log`, `kernel_log`, `disk` (docs/metrics.md).

use super::Row;

/// What follows from one metric each.
pub(super) const ROWS: &[Row] = &[];

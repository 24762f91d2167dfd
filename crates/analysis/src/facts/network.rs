//! Facts of links and of the kernel's tables: rates against what a link may carry, tracked connections, ports.
//!
//! Sources: the collectors `nic`, `qdisc`, `tcp`, `conntrack`, `ports` (docs/metrics.md).

use super::Row;

/// What follows from one metric each.
pub(super) const ROWS: &[Row] = &[];

//! Incidents that belong to no limit, and the list of all.

use crate::limits;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, LOGGED, SHARE, row};
use std::sync::LazyLock;

/// All kinds: those of the limits, in their order, then those of none.
pub static ALL: LazyLock<Vec<IncidentRule>> =
    LazyLock::new(|| limits::ALL.iter().flat_map(|limit| limit.incidents).chain(OF_NONE).copied().collect());

#[rustfmt::skip] // a table, one rule a line
const OF_NONE: &[IncidentRule] = &[
    row("pressure.io_full_us", SHARE, (0.4, 10), 0.2, "all tasks stall on disks", "backups and logs do that briefly; ten seconds of nearly half the time delay requests"),
    row("pressure.cpu_some_us", SHARE, (0.8, 30), 0.5, "tasks wait for CPU nearly all the time", "a busy CPU is no fault; half a minute of waiting is a queue"),
    row("kernel_log.*.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "message in the kernel log", "the kernel logs little: each of the counted kinds means a limit or a fault"),
    row("access_log.status_5xx_count", IncidentFigure::Rate(1.0), (1.0, 3), 0.2, "requests failed with a server error (5xx)", "a single one may be a visitor's; one per second is what users see"),
    row("apache_log.AH02324.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache could not accept a connection (AH02324)", LOGGED),
    row("apache_log.php_memory_limit.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "a PHP script reached its memory limit", EACH),
];

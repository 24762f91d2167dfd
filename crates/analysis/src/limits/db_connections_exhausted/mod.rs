//! `db-connections-exhausted`: the database refuses connections, as `max_connections` is reached.
//!
//! Each process of the application needs its own connection. If more of them are busy at once than `max_connections` allows,
//! the database refuses the others, and their pages are errors. Errors are fast: counting all responses shows a higher rate
//! than ever; counting successful ones shows the loss.
//!
//! ## How it is recognised
//! From inside: connections fail (`Connection_errors_max_connections`, `Aborted_connects`) while as many are connected as are
//! allowed. From outside: the site's log has `Too many connections` (or `max_user_connections`, the limit of one user), or the
//! database refuses webdyno's own connection for the same reason, or as many clients are connected to its sockets as it allows,
//! which also who is not let in sees. And successful responses are missing: by their status, or by
//! as many requests as connections were refused, since pages that catch the error often say "come again" with status 200.
//!
//! ## What to do
//! Set `max_connections` to the number of the application's workers, plus 10%, plus ten for other programs; at most what fits
//! in half of the available memory, by what one connection may use for its buffers. Applied live. If connections are held
//! because statements are slow or wait for locks, fix that instead.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Max_used_connections'`, `'Connection_errors_max_connections'` and `'Aborted_connects'`;
//! `grep -c 'Too many connections' error.log`.

pub(crate) mod ceiling;
pub(crate) mod config_check;
pub(crate) mod finding;
pub(crate) mod remedy;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_database_attempts_per_s, ahead_database_connected_ci95_fraction, ahead_database_connected_mean,
        ahead_database_limit, answers_logged_per_s, db_clients_max, db_connection_memory_bytes, db_connections_failed_per_s,
        db_connections_limit, db_connections_max, db_connections_per_s, db_connections_refused,
        db_connections_used_max, db_own_connections_refused, db_refusals_logged, db_refusals_logged_per_s,
        ended_per_s, failed_fraction, fpm_processes_max, offered_rate, pages_failed_per_s, rate,
        rate_ci95_fraction, server_error_fraction, server_errors_answered_per_s, users, workers_limit,
    }],
    causes: &[LimitId::BackendRefused, LimitId::AppWorkersExhausted],
    ceilings: &[ceiling::ceiling],
    config_checks: &[config_check::fewer_connections_than_workers],
    keeps_hold_times: true,
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Failures),
    makes_errors: true,
    incidents: INCIDENTS,
    ..Limit::of(LimitId::DbConnectionsExhausted, "Database connections exhausted", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("mariadb.connections_refused_count", IncidentFigure::Rise, (1.0, 1), 1.0, "database refused connections (max_connections reached)", EACH),
    row("mariadb.threads_connected_count", IncidentFigure::ShareOf("mariadb.connections_limit_count"), (0.95, 5), 0.8, "database connections nearly exhausted", "application pools hold many; the next ones are refused"),
    row("apache_log.database_refuses.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "the application's database connection was refused", EACH),
];

//! `php-fpm-workers-exhausted`: all children of a PHP-FPM pool are busy, and requests wait in its backlog.
//!
//! A child of PHP-FPM serves one request at a time, and stays busy while it waits for a database or another backend. When
//! `pm.max_children` of them are busy, requests wait in the backlog of the pool's socket. Apache has handed them over by then:
//! its workers look busy, its log shows nothing, and the CPU may be idle.
//!
//! ## How it is recognised
//! The backlog of the pool's socket is not empty in most samples and is a large share of the requests in flight, all children
//! of the pool are busy (its status page, or the processes themselves), and no more are started: there are as many as
//! `pm.max_children` allows, their number is constant, or the log says `server reached pm.max_children`. A free child accepts a
//! request at once, so the backlog alone shows that none is free, with less confidence. Behind a server that turns requests away for want of files or
//! connections hardly any reaches the backlog: there it is enough that all children are busy nearly all the time. If the site itself saturates the CPU,
//! or memory is short, more children would only wait for those. Where the server is only observed and most children wait 200 ms or more
//! for another machine, nobody knows whether that is slow for one request, too: then it is half sure.
//!
//! ## What to do
//! Raise `pm.max_children` to 1.3 times the demand: busy children plus waiting requests. Never above what memory holds. If the
//! children wait for a database that is itself at its limit, fix that first: more children make it worse. A reload by hand ends
//! requests in flight unless `process_control_timeout` is set; `tune --apply` lets them finish first in any case. If memory is
//! known to hold all of them, `pm = static` is set too: a pool that starts them one by one needs many seconds for a burst. If
//! `process.max` bounds all pools together, it is raised too; where that is what the pool meets before its own limit, it is the
//! setting to change.
//!
//! ## By hand
//! `ss -ltn` or `ss -lx` (Recv-Q of the pool's socket) under load; the status page of the pool (`pm.status_path`):
//! `listen queue` and `idle processes`; `grep max_children` in the log of PHP-FPM, which says it once in each wave.

pub(crate) mod ceiling;
pub(crate) mod finding;
pub(crate) mod pool;
pub(crate) mod remedy;
mod search;

use crate::facts::fact_ids;
use crate::limits::incident::{IncidentFigure, IncidentRule, LOGGED, row};
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, ahead_fpm_busy_mean, ahead_fpm_processes_max, ahead_fpm_queue_mean,
        ahead_yielding_cpu_cores, backend_queue_mean, backend_waiting_fraction, client_cpu_cores,
        connections_cap, cores, cpu_busy_fraction, fpm_active_mean, fpm_at_most_fraction, fpm_cpu_cores,
        fpm_full_fraction, fpm_limit_logged, fpm_limit_reached, fpm_process_memory_bytes,
        fpm_processes_busy_mean, fpm_processes_max, fpm_processes_mean, fpm_program_processes, fpm_queue_mean,
        fpm_waiting_fraction, in_flight_mean, offered_rate, pool_swap_mean_bytes, rate,
        response_time_alone_us, response_time_mean_us, site_cpu_cores, workers_busy_mean, workers_writing_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::BackendRefused,
        LimitId::AcceptQueueOverflow,
    ],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    search: Some(search::range),
    after_lifting: Some(ceiling::remove_fpm_queue),
    kind: Some(LimitKind::Documents),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::PhpFpmWorkersExhausted, "All PHP-FPM children busy", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("php_fpm.*.listen_queue_count", IncidentFigure::Level, (1.0, 5), 1.0, "requests wait for a child of PHP-FPM", "it starts children at once up to its limit; five seconds mean a growing queue"),
    row("php_fpm.*.max_children_reached_count", IncidentFigure::Rise, (1.0, 1), 1.0, "PHP-FPM reached pm.max_children", LOGGED),
];

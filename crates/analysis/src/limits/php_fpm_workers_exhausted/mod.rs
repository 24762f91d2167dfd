//! `php-fpm-workers-exhausted`: every process of a pool of PHP-FPM is busy, and requests wait for one.
//!
//! A process of PHP-FPM serves one request at a time, and keeps it while it waits for a database or another server. When
//! `pm.max_children` of them are busy, requests wait in the queue of the pool's socket. Apache has handed them over by
//! then: its workers look busy, its log says nothing, and the machine may have nothing to do.
//!
//! ## How it is recognised
//! The queue of the pool's socket is not empty in most readings and is a good part of what is under way, all processes of
//! the pool are busy (its status page, or the processes themselves), and no more are started: there are as many as
//! `pm.max_children` allows, their number stands still, or the log says `server reached pm.max_children`. A free process
//! takes a request at once, so that the queue alone says that none is free, with less certainty. Where the
//! processors are full of the site's own work, or memory is short, more processes would only wait for those.
//!
//! ## What to do
//! Raise `pm.max_children` to 1.3 times what is wanted at once: what is busy and what waits. Never above what memory
//! holds. If the processes wait for a database that is itself at its limit, that comes first: more of them make it worse.
//! A reload by hand ends requests that are under way unless `process_control_timeout` is set; `tune --apply` lets them finish
//! first, whatever it is. Where memory is known to hold all of them, `pm = static` goes along: a pool that starts them one by
//! one needs many seconds for a burst. Where `process.max` bounds all pools together, it goes along.
//!
//! ## By hand
//! `ss -ltn` or `ss -lx` (Recv-Q of the pool's socket) under load; the status page of the pool (`pm.status_path`): `listen
//! queue` and `idle processes`; `grep max_children` in the log of PHP-FPM, which says it once in each wave.

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
        response_time_mean_us, site_cpu_cores, workers_busy_mean, workers_writing_mean,
    }],
    causes: &[LimitId::ApacheWorkersExhausted, LimitId::BackendRefused, LimitId::AcceptQueueOverflow],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    search: Some(search::range),
    after_lifting: Some(ceiling::remove_fpm_queue),
    kind: Some(LimitKind::Documents),
    incidents: INCIDENTS,
    ..Limit::new(
        LimitId::PhpFpmWorkersExhausted,
        "All PHP-FPM children busy",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("php_fpm.*.listen_queue_count", IncidentFigure::Level, (1.0, 5), 1.0, "requests wait for a child of PHP-FPM", "it starts children at once while it may; five seconds are a queue that grows"),
    row("php_fpm.*.max_children_reached_count", IncidentFigure::Rise, (1.0, 1), 1.0, "PHP-FPM reached pm.max_children", LOGGED),
];

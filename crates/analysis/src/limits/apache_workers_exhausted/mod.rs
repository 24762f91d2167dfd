//! `apache-workers-exhausted`: all Apache workers are busy, and connections wait in the accept queue.
//!
//! A worker (a process under prefork, a thread under worker and event) serves one request at a time. When all
//! `MaxRequestWorkers` of them are busy, new connections wait in the kernel's accept queue, even if the machine is idle: the
//! workers may be blocked themselves, on a database or a slow client.
//!
//! ## How it is recognised
//! In most samples the scoreboard of mod_status has neither an idle worker (`_`) nor a free slot (`.`), or only a few idle ones
//! while connections wait, the accept queue of the port is not empty, and CPU is available. If the status page is missing or
//! waits for a worker itself, as when keep-alive connections hold them all: as many server processes as `MaxRequestWorkers`
//! allows in at least half of the samples, and the same queue. When memory is short (`memory-exhausted`), when the service
//! waits for CPU most of the time (`cpu-saturated`), or when the workers wait for a disk or for the log, that is the limit, and
//! more workers would make it worse. When idle keep-alive connections hold them, that is `keepalive-holds-workers`; when the
//! event MPM accepts no more connections while threads are idle, `apache-async-cap`; when half of them wait for connections to a
//! backend while the table of tracked connections is full, `conntrack-full`; when a third of them
//! close connections while one segment in five is sent again, `upstream-bandwidth` comes first. The finding reports the state of
//! the workers (`W`, `K`, `R`).
//!
//! For an Apache behind another server, such as an application behind nginx or behind another Apache, the queue of its own
//! socket is the evidence: connections wait there in most samples, and only free workers would accept them.
//!
//! ## What to do
//! Raise `MaxRequestWorkers` (and `ServerLimit` with it) to 1.3 times the demand: the larger of the goal rate times the time a
//! request holds a worker (Little's law), and what is busy, queued or in flight now. Never above what fits in memory: swapping
//! costs more than queueing. Above the running `ServerLimit` this needs a restart, up to it a graceful reload: if worthwhile,
//! the running limit is the second proposal. More workers also means more connections to a database behind them.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` and `ss -ltn` (Recv-Q of the port) under load; the error log
//! says once in a parent's life `server reached MaxRequestWorkers setting` (AH00161, AH00286, AH00484).

mod backend_apache;
pub(crate) mod backend_wait;
pub(crate) mod ceiling;
pub(crate) mod finding;
mod search;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, LOGGED, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_max, accept_queue_mean, ahead_workers_busy_ci95_fraction, backend_queue_mean,
        backend_waiting_fraction, cpu_busy_fraction, ended_per_s,
        fpm_queue_behind_mean, in_flight_mean, offered_rate, pressure_group_cpu_some_fraction,
        processes_at_limit_fraction, rate, rate_ci95_fraction, response_time_mean_us, scoreboard_full_fraction, service_cpu_cores, service_processes_mean,
        status_unanswered_fraction, upstream_connecting_mean, worker_memory_sum_bytes, worker_private_mean_bytes, worker_time_first_us,
        worker_time_mean_us, workers_busy_mean, workers_keepalive_mean, workers_limit, workers_reading_mean,
        workers_when_full, workers_writing_mean,
    }],
    causes: &[LimitId::AcceptQueueOverflow],
    ceilings: &[ceiling::ceiling],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    search: Some(search::range),
    kind: Some(LimitKind::Workers),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::ApacheWorkersExhausted, "All Apache workers busy", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache.workers_busy_count", IncidentFigure::ShareOf("apache.slots_count"), (1.0, 5), 0.9, "all workers of the web server are busy", "five seconds at the limit are a queue that grows"),
    row("apache_log.AH00161.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache reached MaxRequestWorkers (AH00161)", LOGGED),
    row("apache_log.AH00286.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache reached MaxRequestWorkers (AH00286)", LOGGED),
    row("apache_log.AH00484.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache reached MaxRequestWorkers (AH00484)", LOGGED),
];

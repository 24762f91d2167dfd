//! `keepalive-holds-workers`: idle keep-alive connections hold the workers while new connections wait for one.
//!
//! Under prefork and worker a kept connection holds a whole process or thread until the client sends another request, closes
//! it, or `KeepAliveTimeout` expires. A page with its pictures takes a moment; then the visitor reads, and the worker stays
//! held. The CPU is idle, established connections get responses at once, and new ones wait for seconds.
//!
//! ## How it is recognised
//! No worker is free, connections wait in the accept queue, CPU is free, and more than half of the busy workers are in `K`
//! (mod_status). The status page waits like any request and often times out: then as many processes run as `MaxRequestWorkers`
//! allows, while the requests in flight that are not in the queue (by the load engine's count) are fewer than half of the
//! workers, and connections carry more than one request (not where the sockets show that those are not idle; within a tick of the
//! kernel's clock they tell nothing); or the sockets show it alone: on as many accepted connections as half of the workers
//! nothing was asked since the last response (tcp_info). Under the event MPM an idle connection holds no thread, so this is not
//! reported; nor is it where the requests alone, by how long one takes that is alone, need a fifth more workers than there are.
//!
//! ## What to do
//! Best is the event MPM, where one thread per process waits for all idle connections, if all modules support threads (mod_php
//! does not). Else a shorter `KeepAliveTimeout`: long enough for the parts of a page, which follow each other within a moment,
//! and too short for reading: between one and three seconds, as large as the queue allows. More workers help only while there
//! are fewer readers than workers.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` under load: count the `K`; `ss -ltn`: Recv-Q of the port;
//! `ps -o stat,wchan -C apache2`: all asleep.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! { failed_fraction, response_time_alone_us,
        accept_queue_mean, connections_opened_per_s, connections_reused_fraction, cpu_busy_fraction,
        idle_connections_mean, in_flight_mean, offered_rate, processes_at_limit_fraction, rate, requests_in_workers_mean, response_time_p50_us,
        response_time_p99_us, scoreboard_full_fraction, service_cpu_cores, service_processes_mean,
        status_unanswered_fraction, unsure_connections_mean, users, worker_private_mean_bytes, workers_busy_mean, workers_keepalive_mean,
        workers_limit, workers_writing_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::SynQueueOverflow,
    ],
    config_checks: &[config_check::prefork_keepalive],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    kind: Some(LimitKind::IdleConnections),
    gain: Some(LimitGain::Waiting),
    ..Limit::of(
        LimitId::KeepaliveHoldsWorkers,
        "Idle keep-alive connections hold the workers",
        finding::check,
    )
};

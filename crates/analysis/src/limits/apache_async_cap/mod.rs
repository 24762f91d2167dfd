//! `apache-async-cap`: the event MPM accepts no more connections, although threads are idle.
//!
//! The event MPM holds idle connections without a thread, but not any number of them: a process accepts `ThreadsPerChild`
//! connections, plus `AsyncRequestWorkerFactor` (2 by default) for each of its idle threads. Clients that keep connections open
//! while they read fill that limit; new ones then wait in the accept queue until one closes. The error log says that
//! MaxRequestWorkers is reached (AH00484), which is misleading.
//!
//! ## How it is recognised
//! Connections wait in the accept queue the whole time, most threads are idle (mod_status, or by the requests in flight in the
//! server), CPU is available, and the connections held by the processes reach their limit. The process table of the status page
//! shows processes with idle threads that do not accept.
//!
//! ## What to do
//! Raise `AsyncRequestWorkerFactor` so that the limit covers the open connections and the waiting ones, with 30% headroom, even
//! while half of the threads are busy. A graceful reload is enough. A shorter `KeepAliveTimeout` helps as well, if clients stay
//! idle for longer than that.
//!
//! ## By hand
//! `curl -s http://localhost/server-status` under load: the table of processes, column "accepting"; `ss -ltn`: Recv-Q.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_max, accept_queue_mean, apache_connections_mean, apache_processes_mean,
        connections_held_mean, idle_connections_mean, in_flight_mean, processes_capped_max, rate, requests_in_workers_mean,
        response_time_mean_us, response_time_p99_us, scoreboard_full_fraction, service_cpu_cores,
        service_processes_mean, workers_busy_mean, workers_idle_mean, workers_limit,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::SynQueueOverflow,
    ],
    relieves: &[Resource::Workers],
    kind: Some(LimitKind::IdleConnections),
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::ApacheAsyncCap, "Apache's limit of asynchronous connections reached", finding::check)
};

//! `apache-async-cap`: the event MPM takes no more connections, although threads are idle.
//!
//! The event MPM holds idle connections without a thread, but not any number of them: a process takes
//! `ThreadsPerChild` connections, and `AsyncRequestWorkerFactor` (2 by default) more for each of its threads that is
//! idle. Visitors who read and do not close their connections fill that number; who comes then waits in the kernel's
//! queue until one of them leaves. The error log says that MaxRequestWorkers is reached (AH00484), which is misleading.
//!
//! ## How it is recognised
//! Connections wait in the accept queue the whole time, most threads are idle (mod_status, or by the requests that are
//! with the server), the processors have room, and the connections that the processes hold come to the number that they
//! may take. The table of processes on the status page says of a process with idle threads that it does not accept.
//!
//! ## What to do
//! Raise `AsyncRequestWorkerFactor`, so that the number covers the connections there are and those that wait, with 30%
//! headroom, also while half of the threads are busy. A graceful reload is enough. A shorter `KeepAliveTimeout` helps as
//! well, where visitors read for longer than that.
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
        connections_held_mean, in_flight_mean, processes_capped_max, rate, requests_in_workers_mean,
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
    ..Limit::new(
        LimitId::ApacheAsyncCap,
        "Apache's limit of asynchronous connections reached",
        include_str!("mod.rs"),
        finding::check,
    )
};

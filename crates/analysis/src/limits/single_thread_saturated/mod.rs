//! `single-thread-saturated`: one thread has a core to itself all the time, and the other cores are idle.
//!
//! A program that does its work in one thread can use one core, whatever else the machine has: an event loop (Node, Redis, one
//! worker of nginx), a program behind a global lock (Python), one connection of a database. From outside the machine is half
//! idle, and requests wait for each other all the same.
//!
//! ## How it is recognised
//! The busiest thread of the service, or of a program behind it, uses at least 88% of one core on average, while other cores that
//! the service may use are idle; or all threads of one process together use one core and never more, as behind a global lock. Where
//! connections wait until that program accepts them, or the generator and others take the rest of the machine and requests take
//! twice as long as alone, three quarters of a core are enough. Several requests are in
//! flight, so that more than one thread would have something to do, and at a rate that clients decide not all are answered. nginx
//! with fewer workers than cores has a finding of its own (`nginx-workers-saturated`); the workers of lighttpd, fewer than cores and
//! all as busy, are found here.
//!
//! ## What to do
//! Let several threads or processes do it: as many workers of the application server as cores (`--workers` of gunicorn, cluster
//! mode of Node and Puma), and a listening socket that all of them accept from. If one worker of nginx has all the connections,
//! `listen .. reuseport` spreads new ones over all workers; kept connections of few clients stay where they are. If nginx compresses,
//! a lower `gzip_comp_level` makes each response cheaper. In a database the statement of one connection uses one core: an index
//! makes it shorter. Where none of that can be done, a core that is faster helps, and more of them do not.
//!
//! ## By hand
//! `top -H` under load: one thread at 100%; `mpstat -P ALL 1`: the other cores idle.

mod ceiling;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        backend_busiest_process_cores, backend_busiest_process_max_cores, backend_busiest_thread_fraction,
        backend_cpu_cores, backend_processes_mean, backend_queue_mean, backend_saturated_threads_mean,
        backend_threads_mean, busiest_process_cores,
        busiest_process_max_cores, busiest_thread_fraction, client_connections_mean, client_cpu_cores, cores,
        cpu_busy_fraction, cpu_quota_cores, group_cpu_cores, idle_connections_mean, in_flight_mean, rate,
        rate_ci95_fraction, response_time_alone_us, response_time_mean_us, saturated_threads_mean, service_cpu_cores,
        throttled_fraction, upstream_waiting_mean, usable_busy_fraction, usable_cores,
    }],
    causes: &[
        LimitId::AppWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::BackendRefused,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
    ],
    ceilings: &[ceiling::ceiling],
    kind: Some(LimitKind::Concurrency),
    gain: Some(LimitGain::Explained),
    ..Limit::of(LimitId::SingleThreadSaturated, "One thread saturates its core", finding::check)
};

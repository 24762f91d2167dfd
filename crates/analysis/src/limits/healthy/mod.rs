//! `healthy`: no limit was reached; the server did all that was asked of it.
//!
//! ## How it is recognised
//! The goal, where there is one, is met; nearly all answers were good; no connection waited to be accepted, or took a
//! second to establish (then its first packet was lost), and no request in front of a backend or in the database; the processors had room, or others filled them and the service
//! did not wait for one; memory and disks were not short, workers were free, and answers took hardly longer than the
//! quickest of their kind and than the first ones of the load, or by less than a few milliseconds, and not many times as long as
//! a request that is alone, as a few were that were sent before the load: nothing queued. Where
//! requests arrive at a rate of their own (`-r`), at least 95% of it was answered. The readings went on to the end, and
//! so did the load: it did no harm. Where the server is only watched, short answers that hold a worker for more than a second
//! while nothing works behind the server are not called healthy.
//!
//! ## What to do
//! Nothing. The finding says which limit is nearest, and at which rate it is expected. To find where the limit lies, load
//! it more: more connections (`-c`) or a higher rate (`-r`).
//!
//! ## By hand
//! `vmstat 1`, `ss -ltn`, `curl -s http://localhost/server-status?auto` under load: idle processors, empty queues,
//! free workers.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, backend_queue_mean, backend_time_mean_us, connect_time_max_us, connect_timeouts,
        cores, cpu_busy_fraction, db_cpu_cores, failed_fraction, fpm_queue_mean, in_flight_mean, offered_rate,
        pressure_cpu_some_fraction, pressure_group_cpu_some_fraction, pressure_group_io_full_fraction,
        pressure_group_memory_full_fraction, pressure_io_full_fraction, pressure_memory_full_fraction, rate,
        response_time_alone_us, response_time_drift_ratio, response_time_excess_us, response_time_first_us, response_time_inflation,
        response_time_mean_us, scoreboard_full_fraction, service_time_mean_us, status_unanswered_fraction,
        usable_busy_fraction, usable_cores, workers_idle_mean, workers_startable_mean,
    }],
    keeps_hold_times: true,
    is_fault: false,
    meaning: Some(
        "No limit of the server was reached: it answers all that was asked of it. To find out how far it goes, \
             ask for more with more connections (-c) or a higher rate (-r).",
    ),
    ..Limit::new(LimitId::Healthy, "No limit reached", include_str!("mod.rs"), finding::check)
};

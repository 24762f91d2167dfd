//! `unknown`: no rule can prove what limits.
//!
//! ## How it is recognised
//! No other rule fired. Either signals are missing (the finding names those that would have said most, the list of missing
//! signals says how to enable them), or the limit is one that no rule knows: a lock in the application, a service far away.
//!
//! It says where the time goes: the mean response time split by Little's law, how much of a worker's time is spent on a
//! processor, and whether the first answers of the load were quicker, when few requests had come: then requests wait for each
//! other.
//!
//! ## What to do
//! Enable the missing signals and measure again. Time in a worker without processor use points to what it waits for: a service
//! that is not known, or a lock in the program; behind the workers to PHP-FPM or the database; in no known place to what no
//! signal here shows: the way through the network, or queues that nobody counts.
//!
//! ## By hand
//! `strace -c -f -p PID` of a worker shows what it waits for; `ss -tnp` shows whom it talks to.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, backend_queue_mean, backend_time_mean_us, connect_time_max_us, cpu_busy_fraction,
        failed_fraction, memory_available_min_bytes, offered_rate, rate, response_time_alone_us, response_time_first_us,
        response_time_inflation, response_time_mean_us, scoreboard_full_fraction, service_cpu_cores,
        usable_busy_fraction, worker_time_first_us, worker_time_mean_us, workers_busy_mean, workers_idle_mean,
    }],
    keeps_hold_times: true,
    is_fault: false,
    meaning: Some(
        "No known cause could be proved. The time table and the missing signals show \
             where to look next; a guess would be worse than none.",
    ),
    ..Limit::new(LimitId::Unknown, "Limit unknown", include_str!("mod.rs"), finding::check)
};

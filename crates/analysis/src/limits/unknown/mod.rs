//! `unknown`: the limit could not be proven.
//!
//! ## How it is recognised
//! No other rule fired. Either signals are missing (the finding names the most useful ones, the list of missing signals shows
//! how to enable them), or no rule knows the limit: a lock in the application, a remote service.
//!
//! It shows where the time goes: the mean response time split by Little's law, how much of a worker's time is CPU time, and
//! whether the first responses of the load were faster, when few requests were in flight: then requests wait for each other.
//! Where a few responses are much slower than all others, it says how many, in which part of a request their time passes, and
//! whether they come together, as they do where something stops the server at times.
//!
//! ## What to do
//! Enable the missing signals and measure again. Time in a worker without CPU use points to what it waits for: an unknown
//! service, or a lock in the program; time in the backend to PHP-FPM or the database; unexplained time to what no signal shows:
//! the network path, or queues that are not counted.
//!
//! ## By hand
//! `strace -c -f -p PID` of a worker shows what it waits for; `ss -tnp` shows its peers.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            accept_queue_mean, backend_queue_mean, backend_time_mean_us, busiest_thread_fraction, connect_time_max_us, cpu_busy_fraction,
            failed_fraction, file_lock_waiting_mean, lock_waiting_mean, memory_available_min_bytes, offered_rate, pressure_group_io_full_fraction,
            pressure_io_full_fraction, rate, response_time_alone_us, response_time_first_us,
            response_time_inflation, response_time_mean_us, scoreboard_full_fraction, service_cpu_cores, upstream_waiting_mean,
            usable_busy_fraction, worker_processes_blocked_mean, worker_time_first_us, worker_time_mean_us, workers_busy_mean,
            workers_idle_mean,
        },
        &crate::resources::slow_responses::FACTS,
    ],
    keeps_hold_times: true,
    is_fault: false,
    meaning: Some(
        "No known cause could be proven. The time table and the missing signals show where to look next.",
    ),
    ..Limit::of(LimitId::Unknown, "Limit unknown", finding::check)
};

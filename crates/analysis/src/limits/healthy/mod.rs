//! `healthy`: no limit was reached; the server kept up with the load.
//!
//! ## How it is recognised
//! The goal, if there is one, is met, and nearly all requests succeeded. No connection waited in the accept queue or took a
//! second to establish (its SYN was lost then), and no request waited in front of a backend, in the database, or for a lock on a
//! file. CPU was free, or other processes used it and the service did not wait for it; memory and disks were not short, and
//! workers were free. Responses took hardly longer than the fastest of their kind and than the first ones of the load (or by less
//! than a few milliseconds, or a hundredth of the time from one request of a user to the next; a twentieth where users come together:
//! the CPU is a third busy, and in most of that somebody waits for it), and not many times as long as a
//! request alone, as sent a few times before the load: nothing queued. Nor do one in a hundred responses take many times as long
//! as four fifths of their kind, or a few for so long that a tenth of the clients' waiting is theirs, unless all of that is less
//! than 150 ms each in a single second; nor do the slowest in a hundred take five times as long as the slowest request alone,
//! which the mean of several kinds of requests does not show. Where users set the pace and processors are half idle, 1.6 times as
//! long is too long, and from a few milliseconds on 2.5 times as long where they ask again at once; where no request could be
//! sent alone and most of a long response time is in no known place, it is half sure, as where they take 1.3 times as long and
//! processors idle for two thirds of the time, or where a disk is waited for beside a database that does not let webdyno in. In an open loop (`-r`) at least 95% of the
//! rate was answered. Samples and load continued to the end, without harm. If the server is only observed, short responses that
//! hold a worker for more than a second while no backend works are not called healthy, nor connections on which the client spoke
//! last where by Little's law they wait for more than a second, nor one of which every twentieth segment is sent again.
//!
//! ## What to do
//! Nothing. The finding names the nearest limit and the rate at which it is expected. To find where the limit lies, increase
//! the load: more connections (`-c`) or a higher rate (`-r`).
//!
//! ## By hand
//! `vmstat 1`, `ss -ltn`, `curl -s http://localhost/server-status?auto` under load: idle CPU, empty queues, free workers.

pub(crate) mod finding;
mod hidden_queues;
pub(crate) mod response_time;
mod room;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, backend_queue_mean, backend_time_mean_us, client_connections_mean,
        connect_time_max_us, connect_timeouts, cores, cpu_busy_fraction, db_cpu_cores, failed_fraction, fpm_queue_mean,
        idle_connections_mean, in_flight_mean, lock_waiting_mean, offered_rate, pressure_cpu_some_fraction,
        pressure_group_cpu_some_fraction, pressure_group_io_full_fraction,
        pressure_group_memory_full_fraction, pressure_io_full_fraction, pressure_memory_full_fraction, rate,
        response_time_alone_us, response_time_drift_ratio, response_time_excess_us, response_time_first_us,
        response_time_inflation, response_time_mean_us, response_time_p99_us, response_time_slowest_kind_us, retransmits_per_s, retransmitted_fraction, saturated_threads_mean, scoreboard_full_fraction,
        sending_connections_mean, service_time_mean_us,
        status_unanswered_fraction, usable_busy_fraction,
        usable_cores, users, workers_idle_mean,
        workers_startable_mean,
    }],
    keeps_hold_times: true,
    is_fault: false,
    meaning: Some(
        "No limit reached: the server kept up with the load. To find its limit, use more connections (-c) or a \
             higher rate (-r).",
    ),
    ..Limit::of(LimitId::Healthy, "No limit reached", finding::check)
};

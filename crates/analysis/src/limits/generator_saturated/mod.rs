//! `generator-saturated`: the load generator is the bottleneck, not the server.
//!
//! ## How it is recognised
//! One of these: the busiest engine thread used more than 70% of a core. The generator's own delay was more than a tenth of the
//! response time (p50, and more than 100 µs; p90 or the median second, and more than 250 µs: on a machine with other work a
//! program that wakes up waits that long now and then). Half of the responses waited in the socket buffer for a tenth of their
//! response time. More than one request in 1000 found no local port or descriptor on the generator's machine. Little's law does
//! not hold between the requests in flight and rate times response time: over the whole load the integral of requests in flight
//! is the sum of their times, and differs by more than 1% only if requests were lost or counted twice. The server has more than
//! twice as many concurrent requests as the generator has in flight, with no other clients and no request abandoned.
//!
//! A generator that is only late sends less than it should: if a link is full or the server saturates the CPU all the same,
//! that is the limit, and only the latency of the run is not valid. Where nobody sees the processors (from outside), a generator
//! that is only late is named half sure: a server on the same machine may be what takes its time.
//!
//! Or in an open loop (`-r`) requests wait in the generator because all its connections (`-c`) are in use, less than 95% of the
//! rate is answered, and the server has idle workers, no queue and spare CPU; no connection was lost or took a second to
//! establish, nothing failed, and responses take hardly longer than in the first second, before the connections were in use.
//! These figures are valid for so many connections; only the requested rate was never offered. A slow server makes requests
//! wait in the generator too: without a view of idle workers and an empty queue there is no finding.
//!
//! ## What to do
//! Discard the run. Use more engine threads (`-t`), another machine for the generator, or a lower rate; if ports or descriptors
//! ran out, keep connections (no `--no-keepalive`) or raise the limit that the run names. On one machine generator and server
//! compete for cores: the server looks slower than it is. If all connections were in use, allow more (`-c`).
//!
//! ## By hand
//! `top -H` on the generator's machine under load: a thread near 100% is a generator that measures itself.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, client_cpu_cores, client_cpu_fraction_max_thread, client_delay_mean_us,
        client_delay_p90_us, connect_time_max_us, connect_timeouts, connections_cap, cpu_busy_fraction,
        failed_early_fraction, failed_fraction, offered_rate, pressure_group_cpu_some_fraction, rate, response_time_mean_us,
        scoreboard_full_fraction, service_time_first_us, service_time_mean_us, throttled_fraction,
        waiting_in_generator_mean, workers_idle_mean, workers_startable_mean,
    }],
    invalidates_run: true,
    meaning: Some(
        "The load generator is at its limit: the server may be faster than measured. Use a generator with more \
             cores, or another machine than the server's.",
    ),
    ..Limit::of(LimitId::GeneratorSaturated, "The load generator is the bottleneck", finding::check)
};

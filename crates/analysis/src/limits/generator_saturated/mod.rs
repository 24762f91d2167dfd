//! `generator-saturated`: the load generator was the bottleneck, not the server.
//!
//! ## How it is recognised
//! The busiest engine thread used more than 70% of a core, or its own delay was more than a tenth of the response time
//! (medians, and more than 100 us; 90th percentiles or the usual second, and more than 250 us: a machine with other work
//! lets a program that wakes up wait for as long now and then), or half of the answers lay unread for a tenth of the time
//! since they were asked for, or more than one request in 1000 found no local port or descriptor on the generator's
//! machine, or Little's law does not hold between the requests in flight and rate times response time: over the whole
//! load the integral of requests in flight is the sum of their times, and differs from it by more than 1% only if
//! requests were lost sight of or counted twice. The same is said when the server has more than twice as many requests at
//! once as the generator has in flight, although nobody else uses it and no request was given up.
//!
//! A generator that is only late sends less than it should: where a link is full, or the server fills the processors, in spite
//! of that, they are the limit, and only the times of the run are wrong.
//!
//! Or requests arrive at a rate of their own (`-r`) and wait in the generator, because all its connections (`-c`) are in
//! use, less than 95% of the rate is answered, and the server could do more: it has idle workers, no queue, and
//! processors to spare; no connection was lost or took a second to establish, nothing failed, and answers take hardly
//! longer than in the first second, before the connections were in use. The figures are those of so many connections and
//! stay valid; only the rate that was asked for was never offered. A slow server makes requests wait in the generator
//! too: without the view of idle workers and an empty queue nothing is said.
//!
//! ## What to do
//! Discard the run. Use more engine threads (`-t`), another machine for the generator, or a lower rate; without ports or
//! descriptors keep connections (no `--no-keepalive`), or raise the limit that the run names. On one
//! machine generator and server take the cores from each other: the server looks slower than it is. Where all
//! connections were in use, allow more of them (`-c`).
//!
//! ## By hand
//! `top -H` on the generator's machine while the load runs: a thread near 100% is a generator that measures itself.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, client_cpu_cores, client_cpu_fraction_max_thread, client_delay_mean_us,
        client_delay_p90_us, connect_time_max_us, connect_timeouts, connections_cap, cpu_busy_fraction,
        failed_fraction, offered_rate, pressure_group_cpu_some_fraction, rate, response_time_mean_us,
        scoreboard_full_fraction, service_time_first_us, service_time_mean_us, throttled_fraction,
        waiting_in_generator_mean, workers_idle_mean, workers_startable_mean,
    }],
    invalidates_run: true,
    meaning: Some(
        "The machine that makes the load is at its own limit: the server may be faster than these figures. Use \
             a generator with more cores, or one that is not the server's machine.",
    ),
    ..Limit::new(
        LimitId::GeneratorSaturated,
        "The load generator is the bottleneck",
        include_str!("mod.rs"),
        finding::check,
    )
};

//! `proxy-loopback`: the server proxies requests to itself, and each of them holds two workers.
//!
//! If mod_proxy proxies an address to another one of the same server, the worker that proxies waits for the one that does the
//! work. So 32 workers serve at most 16 pages at a time; and when all workers hold a request and wait for a second worker,
//! nothing progresses until a timeout.
//!
//! ## How it is recognised
//! A ProxyPass in force leads to a port that the same Apache listens on, all workers are busy, connections wait in the accept
//! queue, and the server counts more requests, or holds more of them, than the clients have sent. Without own load: it opens
//! connections at the rate at which it accepts them.
//!
//! ## What to do
//! Best: do not proxy to itself. A redirect, an alias, or the same handler for both addresses needs one worker. Else count both
//! halves when sizing `MaxRequestWorkers`: 1.3 times twice the requests in flight.
//!
//! ## By hand
//! `ss -tn state established '( sport = :80 )' src 127.0.0.1` (the proxied port); `grep -ri ProxyPass /etc/apache2`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, active_opens_per_s, cpu_busy_fraction, ended_per_s, in_flight_mean,
        new_connections_per_s, processes_at_limit_fraction, rate, requests_at_server_mean,
        response_time_mean_us, scoreboard_full_fraction, server_requests_per_s, workers_busy_mean,
        workers_limit,
    }],
    causes: &[LimitId::ApacheWorkersExhausted, LimitId::AcceptQueueOverflow, LimitId::LostSyns],
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::ProxyLoopback, "The proxy requests itself", finding::check)
};

//! `slow-uploads`: clients that send the bodies of their requests slowly hold the workers.
//!
//! A worker of Apache that has read the headers of a request, and a child of PHP-FPM whose request is not buffered in front of
//! it, wait for the body. A photo of 7 MB from a phone with a bad line takes minutes, and for so long the worker does nothing
//! else. The CPU is idle, the network nearly empty, and everybody else waits in the accept queue. The event MPM does not help:
//! it waits for requests without a thread, and for their bodies with one. Clients that do it on purpose are known as slow POST
//! attacks.
//!
//! ## How it is recognised
//! All workers are busy and connections wait, or all children of a pool of PHP-FPM and its backlog. On many of the clients'
//! connections bytes come in second by second while nothing is sent: as many as three in ten of the workers; of those that our
//! load does not have, where it has fewer than half of them. Each of them gets little: what the machine receives divided by them
//! is no fast line.
//!
//! ## What to do
//! A proxy in front that takes in whole requests before it hands them over (nginx with `proxy_request_buffering on`, its
//! default; lighttpd with `server.stream-request-body = 0`, its default) holds no worker for them. Without one, `RequestReadTimeout` with a least rate for bodies ends clients that are too
//! slow, honest ones too. More workers help as long as there are fewer slow clients than workers.
//!
//! ## By hand
//! `ss -tni state established '( sport = :80 )'` twice: `bytes_received` rises and `bytes_sent` does not;
//! `curl -s http://localhost/server-status?auto | grep Scoreboard`: all `W` (`R` while headers are read); `vmstat 1`: idle.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, cpu_busy_fraction, fpm_queue_mean, in_flight_mean, network_received_bytes_per_s,
        processes_at_limit_fraction, rate, receiving_connections_mean, response_time_mean_us, scoreboard_full_fraction,
        service_cpu_cores, workers_busy_mean, workers_reading_mean, workers_writing_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
    ],
    relieves: &[Resource::Workers, Resource::PhpChildren],
    kind: Some(LimitKind::Transfer),
    gain: Some(LimitGain::SlowClients),
    ..Limit::of(LimitId::SlowUploads, "Slow uploads hold the workers", finding::check)
};

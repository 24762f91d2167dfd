//! `php-fpm-spawn-lag`: requests wait for children of PHP-FPM that are allowed and not started yet.
//!
//! With `pm = dynamic` PHP-FPM looks once a second how many children are idle. Where fewer are than `pm.min_spare_servers` it
//! starts as many as are missing: with one spare server one a second (with many at first one, then up to two, four, 32). With
//! `pm = ondemand` it keeps none: each is started when a request comes, and ends after `pm.process_idle_timeout`. A ramp from
//! idle to full load meets a few children and a queue that grows until there are enough, and takes as long again to drain.
//! `pm.max_children` is far away meanwhile, and a minute later no trace is left.
//!
//! ## How it is recognised
//! Requests wait in the backlog of the pool's socket while its children become more (their number, second by second), and there
//! are fewer of them than `pm.max_children` allows; the pool is `dynamic` or `ondemand`. That they are what is waited for is
//! proven if the queue drains once they are there, or if children end and are started anew while requests wait. A queue that
//! stands at the end may have another cause: then it is half sure. If the site itself saturates the CPU, or memory is short, it
//! is none.
//!
//! ## What to do
//! `pm = static`, if memory holds all children that are allowed: they are there before the first request. Else as many in
//! reserve as a ramp needs: `pm.min_spare_servers` and `pm.start_servers`, with `pm.max_spare_servers` above both (under `pm =
//! dynamic`).
//!
//! ## By hand
//! `watch -n 1 'pgrep -fc "php-fpm: pool"; ss -lx | grep php'` while load ramps up; the log of PHP-FPM says "seems busy"
//! where it starts eight at a time.

pub(crate) mod finding;
mod pool;
mod remedy;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        fpm_children_ended, fpm_children_started, fpm_limit_logged, fpm_limit_reached, fpm_process_memory_bytes,
        fpm_processes_max, fpm_queue_last, fpm_queue_mean, fpm_waiting_fraction, in_flight_mean, offered_rate, rate,
        response_time_mean_us, response_time_p99_us,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::BackendRefused,
    ],
    keeps_hold_times: true,
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::PhpFpmSpawnLag, "PHP-FPM starts children too slowly", finding::check)
};

//! `apache-spawn-lag`: visitors come faster than Apache starts workers; it has caught up some seconds later.
//!
//! Apache keeps some spare workers and starts others as these are taken, at first one a second, then two, four, up to 32
//! (prefork), or processes of threads in the same way. A rush from nothing to full load within a second finds a few workers
//! and a queue that grows until the number has caught up, and takes as long again to be worked off. Half a minute
//! later nothing is to be seen of it.
//!
//! ## How it is recognised
//! Connections wait to be accepted although more workers may be started, and the number of processes rises throughout the
//! window while hardly one ends. So it is no limit, but a lag: the wait ends by itself. Where as many end as begin it is
//! `apache-worker-churn`. Where all workers that are allowed were there at some time and as many connections wait at the end,
//! and where the workers wait for a pool of PHP-FPM, it is no lag either: more workers end neither.
//!
//! ## What to do
//! Let as many workers be there as the first second of a rush needs: `MinSpareServers` (`MinSpareThreads`), and
//! `StartServers` for the time after a start, with `MaxSpareServers` above both. They cost memory while they wait.
//!
//! ## By hand
//! `watch -n 1 'pgrep -c apache2; ss -ltn'` while a rush begins; with `LogLevel info` the error log says "server seems busy"
//! (AH00162, AH00486).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_last, accept_queue_max, accept_queue_mean, fpm_queue_behind_mean, offered_rate,
        processes_at_limit_fraction, rate, requests_in_workers_mean, response_time_mean_us, response_time_p50_us,
        response_time_p99_us, scoreboard_full_fraction, service_processes_grew, service_processes_max, service_processes_min, worker_processes_ended_per_s,
        worker_processes_started, worker_processes_started_per_s, worker_time_mean_us, workers_busy_mean,
        workers_startable_mean,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::LostSyns, LimitId::SynQueueOverflow],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    gain: Some(LimitGain::Waiting),
    ..Limit::new(
        LimitId::ApacheSpawnLag,
        "Apache spawns workers too slowly",
        include_str!("mod.rs"),
        finding::check,
    )
};

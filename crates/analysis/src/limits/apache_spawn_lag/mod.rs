//! `apache-spawn-lag`: load ramps faster than Apache spawns workers; it catches up some seconds later.
//!
//! Apache keeps some spare workers and spawns more as these become busy, at first one a second, then two, four, up to 32
//! (prefork), or processes of threads in the same way. A ramp from idle to full load within a second meets a few workers and a
//! queue that grows until the number has caught up, and takes as long again to drain. Half a minute later no trace of it is
//! left.
//!
//! ## How it is recognised
//! Connections wait in the accept queue although more workers may be started, and the number of processes rises throughout the
//! window while hardly any ends. So it is no limit, but a lag: the wait ends by itself. If as many end as start it is
//! `apache-worker-churn`. If all allowed workers ran at some time and as many connections still wait at the end, or if the
//! workers wait for a PHP-FPM pool, it is no lag either: more workers would not help. It is as sure as the queue has drained at the
//! end of the window: half sure of one that is as long as its mean, most sure of half of that. A service whose control group cannot be
//! read may wait for a quota: then it is less sure.
//!
//! ## What to do
//! Keep as many idle workers as the first second of a ramp needs: `MinSpareServers` (`MinSpareThreads`), and `StartServers` for
//! the time after a start, with `MaxSpareServers` above both. They use memory while idle.
//!
//! ## By hand
//! `watch -n 1 'pgrep -c apache2; ss -ltn'` while load ramps up; with `LogLevel info` the error log says "server seems busy"
//! (AH00162, AH00486).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_last, accept_queue_max, accept_queue_mean, fpm_queue_behind_mean, group_cpu_cores, offered_rate,
        pressure_group_cpu_some_fraction, processes_at_limit_fraction, rate, requests_in_workers_mean, response_time_mean_us, response_time_p50_us,
        response_time_p99_us, scoreboard_full_fraction, service_processes_grew, service_processes_max, service_processes_min, worker_processes_ended_per_s,
        worker_processes_started, worker_processes_started_per_s, worker_time_mean_us, workers_busy_mean,
        workers_startable_mean,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::LostSyns, LimitId::SynQueueOverflow],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::ApacheSpawnLag, "Apache spawns workers too slowly", finding::check)
};

//! `apache-setting-clamped`: Apache runs with fewer workers than its files say, and all of them are busy.
//!
//! `MaxRequestWorkers` is not always used as written. `ServerLimit` limits the processes, and with `ThreadsPerChild` the
//! workers; a number that is no multiple of the threads is rounded down. `ServerLimit` itself is read at start and never at a
//! reload. Apache reports it on the terminal at start (AH00515), in the error log at a reload (AH00516), and runs with the
//! lower number; `apachectl configtest` says "Syntax OK".
//!
//! ## How it is recognised
//! The scoreboard is as long as the workers in force: shorter than the `MaxRequestWorkers` in the files. All of these workers
//! are busy, and connections wait in the accept queue: the clamp costs time now. If the status page cannot be read, the files
//! alone show it (ServerLimit x ThreadsPerChild), together with that many processes that have requests: no fewer than end, each for as
//! long as one alone takes, as the queue also has connections that were given up, and with the idle connections that prefork
//! and worker keep; or the error log says that no place is left. Files that are pending a reload are reported separately.
//!
//! ## What to do
//! If `ThreadLimit` (default 64) is below `ThreadsPerChild`, raise it to that. Otherwise raise `ServerLimit` to what
//! `MaxRequestWorkers` needs (divided by `ThreadsPerChild`), bounded by memory, and restart Apache: a graceful reload ignores
//! it.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | sed -n 's/^Scoreboard: //p' | wc -c` against
//! `grep -r MaxRequestWorkers /etc/apache2`; `grep -E 'AH005(13|14|15|16)|AH0031[6-9]|AH0018[01]' /var/log/apache2/error.log`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, clamp_messages, cpu_busy_fraction, idle_connections_mean, in_flight_mean,
        processes_at_limit_fraction, rate, requests_in_workers_mean, response_time_mean_us, scoreboard_full_fraction,
        scoreboard_full_messages, scoreboard_full_messages_worker, service_processes_mean, workers_busy_mean, workers_limit,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheScoreboardFull,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::SynQueueOverflow,
    ],
    config_checks: &[config_check::clamped],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    kind: Some(LimitKind::Concurrency),
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::ApacheSettingClamped, "Apache setting clamped by another one", finding::check)
};

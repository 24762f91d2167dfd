//! `hostname-lookups`: each request waits for a DNS lookup of its client.
//!
//! With `HostnameLookups On` Apache looks up the name of each client's address when it writes the line to the access log; with
//! `Double`, and for names in `Require` (or `Allow` and `Deny`), it does two lookups before it serves the page, whatever
//! `HostnameLookups` says. The worker is held as long as the resolver takes.
//!
//! ## How it is recognised
//! The setting is in force for the requested paths, and the lookups in flight (sockets towards port 53) are at all times a
//! large share of the busy workers or of the requests in flight; where others hold nearly all workers, of the load's requests in the
//! rest. The time of one follows from their number by Little's law. The
//! scoreboard shows such workers as `L` (for the log) or `W` (for access rules), never as `D`. Without the setting, or
//! with `On` while few workers are in `L`, the lookups belong to the site's or other programs; with it and without lookups it costs nothing.
//!
//! ## What to do
//! `HostnameLookups Off`: names can be looked up later, from the log (`logresolve`). In access rules, use addresses instead of
//! names. A nearby caching resolver shortens the wait for returning clients, not for new ones.
//!
//! ## By hand
//! `ss -uan 'dport = :53'` under load; `grep -ri -e hostnamelookups -e 'require.*host' /etc/apache2`; `time host ADDRESS`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ended_per_s, in_flight_mean, look_ups_mean, rate, requests_in_workers_mean, response_time_mean_us, server_requests_per_s,
        status_unanswered_fraction, workers_busy_mean, workers_logging_mean, workers_writing_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LogIo,
        LimitId::SlowClients,
        LimitId::ApacheScoreboardFull,
        LimitId::ApacheSpawnLag,
    ],
    config_checks: &[config_check::host_names],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    ..Limit::of(LimitId::HostnameLookups, "DNS lookups for each request", finding::check)
};

//! `lighttpd-connections-exhausted`: lighttpd has as many connections as server.max-connections allows, and accepts no more.
//!
//! lighttpd is one process that serves all connections, or several (`server.max-worker`), each with these limits of its own. With
//! `server.max-connections` of them it stops to accept: new ones wait in the kernel's accept queue until another one ends, also behind
//! connections that are kept and idle. The process may be idle meanwhile. Without the setting it is a third of `server.max-fds`, and
//! never more than half.
//!
//! ## How it is recognised
//! Connections wait in the accept queue, those that were accepted are about as many as `server.max-connections` allows all processes
//! together, and no process has a core to itself. Connections are listed every few seconds: where that met no such moment, the requests
//! that are served at once tell it (at least those that wait behind lighttpd, at most as many as end for the time of the slowest one
//! alone), and it is less sure. So it is where connections wait in each reading while the process sleeps and nothing else is short.
//!
//! ## What to do
//! Raise `server.max-connections`, and `server.max-fds` to at least twice that: each connection takes a file, and another one for what it
//! sends or passes on. A shorter `server.max-keep-alive-idle` closes the connections of clients that ask nothing. Manual change.
//!
//! ## By hand
//! `ss -ltn` under load: Recv-Q of the port; `ss -tn state established '( sport = :80 )' | wc -l` less that against
//! `server.max-connections` of `lighttpd -p -f /etc/lighttpd/lighttpd.conf`.

mod ceiling;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, accept_queue_waiting_fraction, busiest_thread_fraction, client_connections_mean,
        connections_held_mean, cpu_busy_fraction, idle_connections_mean, in_flight_mean, open_files_fraction, rate,
        response_time_alone_us, response_time_mean_us, upstream_waiting_mean, worker_processes_blocked_mean,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::LostSyns, LimitId::SynQueueOverflow],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Failures),
    ..Limit::of(
        LimitId::LighttpdConnectionsExhausted,
        "lighttpd server.max-connections exhausted",
        finding::check,
    )
};

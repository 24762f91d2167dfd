//! `accept-queue-overflow`: connections arrive in bursts that overflow the accept queue, and are dropped.
//!
//! The kernel keeps established connections in a queue until the server accepts them. Its length is the smaller of the server's
//! `ListenBacklog` (511 by default) and `net.core.somaxconn`. When it is full, new connections are dropped, and clients retry
//! after 1, 3 and 7 seconds: tail latency (a p99 of exactly 1 s or 3 s) shows it long before the rate does.
//!
//! ## How it is recognised
//! `ListenOverflows` rises under load although workers are free at times: arrivals are bursty. A burst lasts milliseconds, so
//! one sample per second rarely sees a full queue; connections established only after whole seconds count as evidence too. If
//! the queue was never seen half full and no connection of the load generator was late, the counter may belong to another port,
//! and the finding says so.
//!
//! When all workers are busy all the time, the queue overflows because nothing drains it: that is `apache-workers-exhausted`,
//! and the overflow is its effect, whatever else argues against more workers (clients that gave up leave dead connections in
//! the queue). So while the worker limit is reached this is only told beside it, where one connection in a hundred is late, or
//! for responses that are slow by drops: as many at most as were dropped, by a retransmission at least (connections after 1, 3,
//! 7 s; requests after 0.2, 0.6, 1.4, 3, 6 s where the last packet of the handshake was dropped, and the client believes that
//! it is connected), and by more than who stands in the queue waits. A queue that is full most of the time also has another
//! cause: the server does not get to accept. `check` names a backlog below 64 without any load.
//!
//! ## What to do
//! Make both limits at least as large as one second of new connections: `ListenBacklog` in Apache (restart, as the listening
//! socket survives a graceful reload), `listen 80 backlog=N` in nginx, once per address (a reload is enough: nginx calls
//! listen(2) again), and `net.core.somaxconn`. Raising only one has no effect. `tune --apply` gives the running sockets the
//! longer queue without a restart (listen(2) again), until the next start.
//!
//! ## By hand
//! `nstat -az TcpExtListenOverflows TcpExtListenDrops` twice under load; `ss -ltn`: Recv-Q is the queue now, Send-Q its limit.

pub(crate) mod ceiling;
pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            accept_queue_limit, accept_queue_max, accept_queue_mean, ahead_accept_queue_allowed,
            connect_time_max_us, connect_timeouts, connecting_fraction, listen_overflows, listen_overflows_per_s,
            listen_queue_worst_fraction, lost_syn_connections, lost_syn_fraction, new_connections_per_s,
            response_time_p99_us, scoreboard_full_fraction,
        },
        &crate::resources::slow_responses::FACTS,
    ],
    ceilings: &[ceiling::ceiling],
    config_checks: &[
        config_check::capped_by_kernel,
        config_check::ineffective_somaxconn,
        config_check::short_queue,
    ],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::AcceptQueueOverflow, "Accept queue overflows", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("sockets.listen_overflows_count", IncidentFigure::Rate(1.0), (1.0, 1), 0.5, "connections dropped, accept queue full", EACH),
    row("sockets.accept_queue_count", IncidentFigure::ShareOf("sockets.accept_queue_max_count"), (0.9, 3), 0.5, "accept queue nearly full", "3 s are longer than a burst; the next connections are dropped"),
];

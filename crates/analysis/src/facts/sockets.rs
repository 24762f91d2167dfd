//! Facts of connections on the way to a worker: queues of the kernel, what it dropped, states.
//!
//! Sources: the collectors `sockets` and `tcp` (docs/metrics.md).

use super::{From, Row};

/// What follows from one metric each.
#[rustfmt::skip] // a table, one row a line
pub(super) const ROWS: &[Row] = &[
    ("accept_queue_mean", "connections", "sockets.accept_queue_count", From::Mean),
    ("accept_queue_max", "connections", "sockets.accept_queue_count", From::Max),
    ("accept_queue_limit", "connections", "sockets.accept_queue_max_count", From::Latest),
    ("listen_overflows", "connections", "sockets.listen_overflows_count", From::Rise),
    ("listen_overflows_per_s", "connections/s", "sockets.listen_overflows_count", From::Rate(1.0)),
    ("listen_drops", "connections", "sockets.listen_drops_count", From::Rise),
    ("syn_queue_drops", "connections", "sockets.syn_queue_drops_count", From::Rise),
    ("new_connections_per_s", "connections/s", "sockets.passive_opens_count", From::Rate(1.0)),
    ("retransmits_per_s", "segments/s", "sockets.retransmits_count", From::Rate(1.0)),
    ("time_wait_mean", "sockets", "sockets.time_wait_count", From::Mean),
];

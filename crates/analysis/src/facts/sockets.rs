//! Facts of connections on the way to a worker: queues of the kernel, what it dropped, states.
//!
//! Sources: the collectors `sockets` and `kernel_log` (docs/metrics.md).

use super::{Derivation, FactBuilder, FactId};

fact_table! {
    (accept_queue_mean, "connections", "sockets.accept_queue_count", Derivation::Mean),
    (accept_queue_max, "connections", "sockets.accept_queue_count", Derivation::Max),
    (accept_queue_limit, "connections", "sockets.accept_queue_max_count", Derivation::Latest),
    (listen_overflows, "connections", "sockets.listen_overflows_count", Derivation::Rise),
    (listen_overflows_per_s, "connections/s", "sockets.listen_overflows_count", Derivation::Rate(1.0)),
    (listen_drops, "connections", "sockets.listen_drops_count", Derivation::Rise),
    (syn_queue_drops, "connections", "sockets.syn_queue_drops_count", Derivation::Rise),
    (new_connections_per_s, "connections/s", "sockets.passive_opens_count", Derivation::Rate(1.0)),
    (retransmits_per_s, "segments/s", "sockets.retransmits_count", Derivation::Rate(1.0)),
    (time_wait_mean, "sockets", "sockets.time_wait_count", Derivation::Mean),
    (listen_drops_per_s, "connections/s", "sockets.listen_drops_count", Derivation::Rate(1.0)),
    (syn_cookies, "connections", "sockets.syn_cookies_count", Derivation::Rise),
    (half_open_max, "connections", "sockets.syn_received_count", Derivation::Max),
    (listen_queue_worst_fraction, "fraction", "sockets.worst_listen_queue_fraction", Derivation::Max),
    (time_wait_overflows, "sockets", "sockets.time_wait_overflows_count", Derivation::Rise),
    (time_wait_overflows_per_s, "sockets/s", "sockets.time_wait_overflows_count", Derivation::Rate(1.0)),
    (time_wait_limit, "sockets", "sockets.time_wait_limit_count", Derivation::Latest),
    (syn_cookies_mode, "mode", "sockets.syn_cookies_mode", Derivation::Latest),
    (syn_backlog_limit, "connections", "sockets.syn_backlog_limit_count", Derivation::Latest),
    (syn_flooding_messages, "messages", "kernel_log.syn_flooding.messages_count", Derivation::Rise),
    (retransmits, "segments", "sockets.retransmits_count", Derivation::Rise),
    "connections/s": new_connections_peak_per_s;
    "connections": listen_drops_without_overflow;
}

/// Two readings of a counter that are nearer to each other say nothing about a second.
const SECOND_MIN_S: f64 = 0.5;

impl FactBuilder<'_> {
    /// Connections that were accepted in the busiest second, the warm-up included: what clients begin when nothing is in
    /// their way yet. And what was dropped on the way to the accept queue, but not for its length.
    pub(super) fn connection_attempts(&mut self) {
        const OPENED: &str = "sockets.passive_opens_count";
        let seconds = self.series.all(OPENED).windows(2).filter_map(|pair| {
            let (rise, length_s) = (pair[1].1 - pair[0].1, pair[1].0 - pair[0].0);
            (length_s >= SECOND_MIN_S && rise >= 0.0).then(|| rise / length_s)
        });
        let peak = seconds.reduce(f64::max);
        self.add_from(FactId::new_connections_peak_per_s, peak, (OPENED, Derivation::Rate(1.0)));
        const DROPS: &str = "sockets.listen_drops_count";
        let overflows = self.series.increase("sockets.listen_overflows_count");
        let others = self.series.increase(DROPS).zip(overflows);
        let others = others.map(|((drops, _), (overflows, _))| (drops - overflows).max(0.0));
        self.add_from(FactId::listen_drops_without_overflow, others, (DROPS, Derivation::Rise));
    }
}

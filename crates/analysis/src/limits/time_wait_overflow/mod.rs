//! `time-wait-overflow`: more sockets in TIME_WAIT than the kernel keeps. It costs nothing by itself.
//!
//! The side that closes a connection first remembers it for a minute (TIME_WAIT), so that its late packets are not mistaken for
//! those of a new one. `net.ipv4.tcp_max_tw_buckets` limits how many are kept. Beyond that they are dropped at once, the
//! counter `TCPTimeWaitOverflow` rises and the kernel logs it. No request waits for it.
//!
//! ## How it is recognised
//! `TCPTimeWaitOverflow` rises while something else limits: it is reported so that it is not mistaken for the cause. Alone it
//! is no finding.
//!
//! ## What to do
//! Nothing for performance. `net.ipv4.tcp_max_tw_buckets` of at least the connections closed per second times 60 restores the
//! guard against late packets (about 250 bytes of kernel memory each); keep-alive reduces them.
//!
//! ## By hand
//! `nstat -az TcpExtTCPTimeWaitOverflow` twice; `ss -s` (timewait); `sysctl net.ipv4.tcp_max_tw_buckets`.

pub(crate) mod ceiling;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_time_wait_limit, ahead_time_wait_max, ahead_time_wait_rise_per_s, time_wait_limit,
        time_wait_mean, time_wait_overflows, time_wait_overflows_per_s,
    }],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::TimeWaitOverflow, "TIME_WAIT table full", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("sockets.time_wait_overflows_count", IncidentFigure::Rate(1.0), (100.0, 5), 10.0, "sockets in TIME_WAIT beyond their limit", "it costs little; that many mean connections without keep-alive"),
];

//! `time-wait-overflow`: more connections wait after their close than the kernel keeps. It costs nothing by itself.
//!
//! Who closes a connection first remembers it for a minute (TIME_WAIT), so that packets of it that come late are not taken for
//! those of a new one. `net.ipv4.tcp_max_tw_buckets` says how many are kept. Beyond that they are forgotten at once, the counter
//! `TCPTimeWaitOverflow` climbs and the kernel's log says so. No request waits for it.
//!
//! ## How it is recognised
//! `TCPTimeWaitOverflow` climbs while something else limits: it is said so that nobody takes it for the cause. Alone it is
//! no finding.
//!
//! ## What to do
//! Nothing, as far as speed is concerned. `net.ipv4.tcp_max_tw_buckets` at least the connections that are closed in a
//! second times 60 restores the guard against late packets (about 250 bytes of kernel memory each); keep-alive makes fewer.
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
    ..Limit::new(LimitId::TimeWaitOverflow, "TIME_WAIT table full", include_str!("mod.rs"), finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("sockets.time_wait_overflows_count", IncidentFigure::Rate(1.0), (100.0, 5), 10.0, "sockets in TIME_WAIT beyond their limit", "it costs little; that many tell of connections that nobody keeps"),
];

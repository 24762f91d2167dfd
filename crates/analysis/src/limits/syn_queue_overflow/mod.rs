//! `syn-queue-overflow`: the SYN backlog is full, and SYNs are dropped.
//!
//! A server keeps an entry for each connection from its first packet (SYN) to the third one. Usually that is a millisecond; but
//! clients that never reply (a firewall that allows only one direction, forged senders) leave entries for seconds or a minute.
//! With `net.ipv4.tcp_syncookies = 1`, the default, a full backlog does no harm: the kernel encodes the state in its reply.
//! With 0 it drops SYNs of all senders.
//!
//! ## How it is recognised
//! Cookies are not used, and `TCPReqQFullDrop` rises (the backlog is limited by the accept queue's limit), or `ListenDrops`
//! rises without `ListenOverflows` (its last quarter, by `net.ipv4.tcp_max_syn_backlog`, is reserved for known addresses);
//! there are half-open connections, and clients connect after whole seconds or not at all.
//!
//! ## What to do
//! `net.ipv4.tcp_syncookies = 1`: takes effect at once; the backlog may then be as long as the accept queue, and further SYNs
//! get a cookie. If cookies are not acceptable, `net.ipv4.tcp_max_syn_backlog` and the accept queue (`ListenBacklog` and
//! `net.core.somaxconn`, with a restart) must hold all half-open connections: the finding names the smaller one. Then find who
//! does not reply: `ss -tan state syn-recv` shows the addresses.
//!
//! ## By hand
//! `nstat -az TcpExtTCPReqQFullDrop TcpExtListenDrops TcpExtListenOverflows` twice under load;
//! `ss -tan state syn-recv | wc -l`; `sysctl net.ipv4.tcp_syncookies net.ipv4.tcp_max_syn_backlog`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_limit, accept_queue_max, connect_timeouts, connecting_fraction, half_open_max,
        listen_drops, listen_drops_without_overflow, listen_overflows, lost_syn_fraction, syn_backlog_limit,
        syn_cookies, syn_cookies_mode, syn_flooding_messages, syn_queue_drops,
    }],
    causes: &[LimitId::LostSyns],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::SynQueueOverflow, "SYN backlog full", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("sockets.syn_queue_drops_count", IncidentFigure::Rate(1.0), (1.0, 1), 0.5, "SYNs dropped, SYN backlog full", EACH),
];

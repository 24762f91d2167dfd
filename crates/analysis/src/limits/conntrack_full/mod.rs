//! `conntrack-full`: the kernel's connection tracking table is full, and new connections are dropped.
//!
//! A firewall that tracks connections (any rule with `ct state`, NAT, Docker's and Kubernetes' networks) keeps an entry for
//! each one, for about two minutes after its close (`nf_conntrack_tcp_timeout_time_wait`). At `net.netfilter.nf_conntrack_max`
//! entries, packets that open a connection are dropped. Clients retransmit after seconds, or give up; established connections
//! work. In the long run only (size / entry lifetime) new connections per second get through: 65,536 entries are about 550/s.
//!
//! ## How it is recognised
//! The number of entries stays at the limit, and the kernel reports drops: the counter `drop` of `/proc/net/stat/nf_conntrack`,
//! `nf_conntrack: table full, dropping packet` in its log, or clients whose connections needed a retransmit of a second or
//! more. Each of these alone gives less confidence. The limit is machine-wide and applies to each network namespace separately,
//! so a container shows its own count against its host's limit.
//!
//! ## What to do
//! Set `net.netfilter.nf_conntrack_max` to at least 1.5 times the connections *attempted* per second (more than get through
//! now) times 120 seconds, and the buckets (`nf_conntrack_buckets`) to match; an entry costs about 320 bytes of unswappable
//! memory. Or use keep-alive: one entry then serves many requests. Or do not track the connections of this port (`notrack`), if
//! no rule needs their state. Never switch the firewall off. For a container this is set on its host. Applied live; existing
//! entries stay until they expire.
//!
//! ## By hand
//! `sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max`; `conntrack -S | grep -o 'drop=[0-9]*'`;
//! `dmesg | grep 'table full'`.

pub(crate) mod ceiling;
pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_ports_available, ahead_tracked_limit, ahead_tracked_max, ahead_tracked_rise_per_s,
        ahead_tracked_service_limit, ahead_tracked_service_max, ahead_tracked_service_rise_per_s,
        connect_timeouts, connecting_fraction, connection_attempts_per_s, conntrack_buckets,
        conntrack_closed_life_s, conntrack_drops, conntrack_drops_per_s, conntrack_early_drops,
        conntrack_entries_max, conntrack_full_fraction, conntrack_full_messages, conntrack_limit,
        lost_syn_connections, lost_syn_fraction, new_connections_peak_per_s, new_connections_per_s, rate,
    }],
    causes: &[LimitId::LostSyns],
    ceilings: &[ceiling::ceiling],
    config_checks: &[config_check::smaller_than_port_range],
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::ConntrackFull, "Connection tracking table full", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("conntrack.entries_count", IncidentFigure::ShareOf("conntrack.max_count"), (0.9, 2), 0.8, "conntrack table nearly full", TRACKED),
    row("conntrack.service.entries_count", IncidentFigure::ShareOf("conntrack.service.max_count"), (0.9, 2), 0.8, "conntrack table of the service's network namespace nearly full", TRACKED),
    row("conntrack.drop_count", IncidentFigure::Rate(1.0), (1.0, 1), 0.5, "packets dropped, conntrack table full", EACH),
];

/// Why the table is watched from nine tenths on.
const TRACKED: &str = "when full, new connections are dropped; entries live for minutes, so it drains slowly";

//! `conntrack-full`: the table in which the packet filter remembers connections is full, and new ones are dropped.
//!
//! A firewall that tracks connections (any rule with `ct state`, NAT, Docker's and Kubernetes' networks) keeps an entry for
//! each one, for about two minutes after its close (`nf_conntrack_tcp_timeout_time_wait`). When
//! `net.netfilter.nf_conntrack_max` of them are there, packets that begin a connection are dropped. Clients send them again
//! after seconds, or give up; who has got in is served at once. In the long run only (size / life of an entry) new
//! connections a second get through: 65,536 entries are about 550 a second.
//!
//! ## How it is recognised
//! The number of entries stands at the limit, and the kernel says that it dropped: the counter `drop` of
//! `/proc/net/stat/nf_conntrack`, `nf_conntrack: table full, dropping packet` in its log, or clients whose connections were
//! begun again a second or more later. Each of these alone is less sure. The limit is the machine's and holds for each
//! network on its own, so that a container shows its own count against its host's limit.
//!
//! ## What to do
//! Make `net.netfilter.nf_conntrack_max` at least 1.5 times the connections that are *attempted* in a second (more than get
//! through now) times 120 seconds, and the buckets (`nf_conntrack_buckets`) to match; an entry costs about 320 bytes of
//! memory that cannot be swapped. Or keep connections (keep-alive): one entry then serves many requests. Or do not track the
//! connections of this port (`notrack`), where no rule needs to know their state. Never switch the firewall off. In a
//! container this has to be done on its host. It takes effect at once; entries that are there stay until their time is over.
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
    ..Limit::new(
        LimitId::ConntrackFull,
        "Connection tracking table full",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("conntrack.entries_count", IncidentFigure::ShareOf("conntrack.max_count"), (0.9, 2), 0.8, "the table of connections that the firewall tracks is nearly full", TRACKED),
    row("conntrack.service.entries_count", IncidentFigure::ShareOf("conntrack.service.max_count"), (0.9, 2), 0.8, "the table of tracked connections of the service's network is nearly full", TRACKED),
    row("conntrack.drop_count", IncidentFigure::Rate(1.0), (1.0, 1), 0.5, "packets dropped, as the table of tracked connections is full", EACH),
];

/// Why the table is watched from nine tenths on.
const TRACKED: &str =
    "at its end packets of new connections are dropped; entries live for minutes, so that it falls slowly";

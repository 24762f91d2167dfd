//! `softirq-bound`: one core is saturated by packet handling, while others are idle.
//!
//! A network card with one queue interrupts one core, and that core takes each packet through the kernel: firewall, routing,
//! TCP. When it is saturated no more packets come in, whatever the other cores could do. Workers wait for requests, and the
//! machine looks half used.
//!
//! ## How it is recognised
//! One core was busy at least 90% of the time, most of that (60% of its time) with soft interrupts, and no other core had as
//! much as half of that: packets are not spread. Packets that this core postponed (`squeezed`) or dropped confirm it from the
//! kernel's side. It needs /proc/stat by core; if links are visible, their packets must be enough to saturate a core.
//!
//! ## What to do
//! First check the cost per packet: thousands of firewall rules in a row become a set of addresses in one rule (`nft add set`,
//! `ipset`), with the same effect. Then spread the packets: more queues of the card (`ethtool -L`), or receive packet steering
//! (`rps_cpus`). If packets are dropped before they are processed, `net.core.netdev_max_backlog`. The firewall stays.
//!
//! ## By hand
//! `mpstat -P ALL 1` or `top` and `1` (column `si`), `cat /proc/net/softnet_stat` (dropped, squeezed),
//! `nft list ruleset | wc -l`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        core_busy_fraction, core_softirq_fraction, cpu_busy_fraction, cpu_softirq_fraction,
        packets_dropped_per_s, packets_squeezed_per_s, rate, received_packets_per_s, service_cpu_cores,
        service_received_packets_per_s,
    }],
    causes: &[LimitId::CpuSaturated, LimitId::AcceptQueueOverflow],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Concurrency),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::SoftirqBound, "One core saturated by network interrupts", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("softnet.dropped_count", IncidentFigure::Rate(1.0), (1.0, 3), 0.2, "packets dropped before they were processed", "the CPU does not keep up with incoming packets"),
];

//! `softirq-bound`: one core does nothing but handle packets, while others have time.
//!
//! A network card with one queue interrupts one core, and that core takes each packet through the kernel: firewall,
//! routing, TCP. When it has no time left no more packets come in, whatever the other cores could do. Workers wait for
//! requests, and the machine looks half used.
//!
//! ## How it is recognised
//! One core was busy at least 90% of the time, most of that (60% of its time) with soft interrupts, and no other core had
//! as much as half of that: packets are not spread. That this core left packets for later (`squeezed`) or dropped them
//! says the same from the kernel's side. It needs /proc/stat by core; where links are seen, their packets must be enough to
//! fill a core.
//!
//! ## What to do
//! First look at what each packet costs: a firewall of thousands of rules in a row is a set of addresses in one rule
//! (`nft add set`, `ipset`), and does the same. Then spread the packets: more queues of the card (`ethtool -L`), or receive
//! packet steering (`rps_cpus`). Where packets are dropped before they are looked at, `net.core.netdev_max_backlog`.
//! The firewall stays.
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
    ..Limit::new(
        LimitId::SoftirqBound,
        "One core saturated by network interrupts",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("softnet.dropped_count", IncidentFigure::Rate(1.0), (1.0, 3), 0.2, "packets dropped before they were looked at", "the processors do not keep up with what comes in"),
];

//! The table of tracked connections: an entry lives for 120 s, most of them after its connection has ended.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::{connections_per_answer, rate};

/// nf_conntrack_tcp_timeout_time_wait.
pub(crate) const LIVES_S: f64 = 120.0;
/// A table this full gives up entries as others come: how it grows says nothing then.
const FULL_FRACTION: f64 = 0.95;

/// The network that the service has of its own comes before the machine's.
const PLACES: [[FactId; 3]; 2] = [
    fact_ids! {
        ahead_tracked_service_max, ahead_tracked_service_limit, ahead_tracked_service_rise_per_s,
    },
    [FactId::ahead_tracked_max, FactId::ahead_tracked_limit, FactId::ahead_tracked_rise_per_s],
];

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    PLACES.into_iter().find_map(|[used, limit, rise]| {
        let (now, max) = (facts.value(used)?, facts.value(limit)?);
        // Without a firewall nothing is tracked.
        (now > 0.0 && max > 0.0).then_some(())?;
        let grown = facts.value(rise).filter(|_| now < FULL_FRACTION * max).zip(rate(facts));
        let grown = grown.map(|(rise, rate)| rise / rate);
        let each = grown.into_iter().chain(connections_per_answer(facts)).reduce(f64::max);
        let binds_at_rate = each.filter(|each| *each > 0.0).map(|each| max / LIVES_S / each);
        let known =
            ResourceUsage { now: Some(now), max: Some(max), binds_at_rate, ..ResourceUsage::default() };
        known.table(
            Resource::TrackedConnections,
            "tracked connections",
            "nf_conntrack",
            Some(LimitId::ConntrackFull),
        )
    })
}

//! Connections of lighttpd. They grow with clients and what these keep open, not with the rate.

use super::finding::connections_max;
use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = connections_max(facts).filter(|_| facts.is_service("lighttpd"))?;
    let now = facts.value(FactId::client_connections_mean);
    ResourceUsage { now, max: Some(max), ..ResourceUsage::default() }.ceiling(
        Resource::FrontConnections,
        "lighttpd connections",
        "the sockets, and the configuration",
        Some(LimitId::LighttpdConnectionsExhausted),
    )
}

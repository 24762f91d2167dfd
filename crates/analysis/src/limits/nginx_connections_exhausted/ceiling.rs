//! Places for connections of nginx. They grow with clients and what these keep open, not with the rate.

use super::finding::{places_each, places_max};
use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = places_max(facts).filter(|_| facts.is_service("nginx"))?;
    let now = facts.value(FactId::client_connections_mean).map(|clients| clients * places_each(facts));
    ResourceUsage { now, max: Some(max), ..ResourceUsage::default() }.ceiling(
        Resource::FrontConnections,
        "nginx connections",
        "the sockets, and the configuration",
        Some(LimitId::NginxConnectionsExhausted),
    )
}

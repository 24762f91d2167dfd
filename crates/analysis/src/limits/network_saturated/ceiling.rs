//! The link over which most is sent: nine tenths of what it carries, over the bytes of a response on the wire.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::saturation_rate;

/// The share of a link's rate from which on queues build up.
const USABLE: f64 = 0.9;

/// Names of the facts: where the service has a network of its own, and of the machine.
const PLACES: [[FactId; 3]; 2] = [
    fact_ids! {
        ahead_service_link_sent_bytes_per_s, ahead_service_link_shaped_bits_per_s,
        ahead_service_link_speed_bits_per_s,
    },
    fact_ids! {
        ahead_link_sent_bytes_per_s, ahead_link_shaped_bits_per_s, ahead_link_speed_bits_per_s,
    },
];

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    PLACES.iter().find_map(|names| link_ceiling(facts, *names))
}

fn link_ceiling(facts: &Facts, [sent, shaped, speed]: [FactId; 3]) -> Option<ResourceCeiling> {
    let rate_of = |link: &str| {
        let rates = [shaped, speed].map(|name| facts.value_of(name, link).filter(|bits| *bits > 0.0));
        rates.into_iter().flatten().reduce(f64::min)
    };
    // Nothing on the loopback leaves the machine.
    let links = facts.each(sent).filter(|(link, _)| *link != "lo" && !link.starts_with("service."));
    let busiest = links.filter_map(|(link, bytes)| Some((link, bytes * 8.0, rate_of(link)?)));
    let (link, now, max) = busiest.max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    let known = ResourceUsage {
        now: Some(now),
        max: Some(max),
        binds_at_rate: saturation_rate(facts, now, USABLE * max),
        error: facts.value(FactId::rate_ci95_fraction),
        ..ResourceUsage::default()
    };
    known.ceiling(
        Resource::Link,
        &format!("bits/s sent over {link}"),
        "the link's rate",
        Some(LimitId::NetworkSaturated),
    )
}

//! `nic-negotiated-low`: an interface negotiated less than it supports with its link partner, and that is now the limit.
//!
//! A card and a switch port negotiate their speed. A slower port or card, a damaged or old cable, or autonegotiation disabled
//! on one side reduce it to a tenth, or to half duplex, in which both directions share the line and collide.
//!
//! ## How it is recognised
//! The speed in force is below what the card supports (ethtool), and the link is saturated at that speed (`network-saturated`).
//! In half duplex both directions count together, and half of the speed is already much.
//!
//! ## What to do
//! Check the cable and the switch port: the finding shows what the partner advertises, if known. Enable autonegotiation on both
//! sides. Do not force a speed on one side alone: the other one then falls back to half duplex.
//!
//! ## By hand
//! `ethtool eth0` (Speed, Duplex, Supported link modes, Link partner advertised link modes, Auto-negotiation).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        nic_full_duplex, nic_partner_bits_per_s, nic_received_fraction, nic_sent_bits_per_s,
        nic_sent_fraction, nic_sent_limit_bits_per_s, nic_supported_bits_per_s, rate, response_time_inflation,
    }],
    causes: &[
        LimitId::NetworkSaturated,
        LimitId::LostSyns,
        LimitId::UpstreamBandwidth,
        LimitId::SlowClients,
        LimitId::ApacheSpawnLag,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Link],
    kind: Some(LimitKind::Transfer),
    ..Limit::of(LimitId::NicNegotiatedLow, "Network link negotiated too slow", finding::check)
};

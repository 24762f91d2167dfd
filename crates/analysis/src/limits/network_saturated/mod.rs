//! `network-saturated`: a network link of the server is saturated.
//!
//! ## How it is recognised
//! An interface sends (or receives) at least 90% of its negotiated speed, or a shaped link (`tc`: tbf, htb, cake..) at least
//! 90% of its rate, and packets wait for it: a queue that is hardly ever empty, drops, retransmits, or responses that take
//! longer than they need. A queue in nearly all samples is proof from 80% on: shaped traffic is counted without the gaps
//! between packets. A virtual interface has no speed, and proves nothing; nor does a link of which the responses take less than a
//! fifth while another one has room for them.
//!
//! ## What to do
//! Send fewer bytes per request first, in this order: compression of text (`mod_deflate`, `mod_brotli`: html, css and scripts
//! shrink to a quarter or less; images and archives do not), headers that let browsers and caches keep what does not change
//! (`Expires`, `Cache-Control`), smaller images, a CDN. Then more bandwidth. The rate that a link allows is its bits per second
//! divided by the bits of a response. More workers, memory or CPU do not help.
//!
//! ## By hand
//! `sar -n DEV 1` or `ip -s link` against `ethtool eth0 | grep Speed`; `tc -s qdisc show dev eth0` (rate, backlog, dropped).

pub(crate) mod ceiling;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::facts::network::{NIC_RECEIVED, NIC_SENT, SHAPER_SENT};
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            ahead_link_sent_bytes_per_s, ahead_link_shaped_bits_per_s, ahead_link_speed_bits_per_s,
            ahead_service_link_sent_bytes_per_s, ahead_service_link_shaped_bits_per_s,
            ahead_service_link_speed_bits_per_s, rate, rate_ci95_fraction, received_bytes_per_answer,
            received_bytes_per_s, response_time_inflation, retransmits_per_s, shaper_backlog_mean_bytes,
            shaper_drops, shaper_waiting_fraction,
        },
        &NIC_SENT.cited(),
        &NIC_RECEIVED.cited(),
        &SHAPER_SENT.cited(),
    ],
    causes: &[
        LimitId::LostSyns,
        LimitId::UpstreamBandwidth,
        LimitId::SlowClients,
        LimitId::ApacheSpawnLag,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    ceilings: &[ceiling::ceiling],
    relieves: &[Resource::Link],
    ends_tuning: true,
    kind: Some(LimitKind::Transfer),
    meaning: Some(
        "The network is the limit. To go further, send smaller responses (compression, caching) or add bandwidth.",
    ),
    ..Limit::of(LimitId::NetworkSaturated, "Network link saturated", finding::check)
};

//! `upstream-bandwidth`: the line between server and visitors is full, somewhere that the server cannot see.
//!
//! ## How it is recognised
//! What the visitors receive together stays at the same number of bytes a second, while packets wait or are lost on the way:
//! round trips take many times as long as the shortest one, and the server sends segments again. Nothing of the server
//! is at its limit: its own links have room or no rate, workers are free, no connection waits to be accepted. Seen from the
//! server alone (bytes a second that stay the same, segments sent again, nothing busy) it is a suspicion.
//!
//! ## What to do
//! As for `network-saturated`: fewer bytes per request (compression, caching, smaller images, a cache or CDN on the other
//! side of the line), then a wider line from whoever provides it. To be sure where it is, load the server from its own
//! network or without the embedded resources: what is quick then is not the server's fault.
//!
//! ## By hand
//! `ss -ti state established` on the server (rtt against minrtt, retrans, Send-Q); `nstat -az TcpRetransSegs TcpOutSegs`
//! twice under load; `mtr` from a visitor shows from which hop on round trips grow.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, listen_drops_per_s, nic_sent_bits_per_s, nic_sent_spread_fraction, rate,
        received_bytes_per_answer, received_bytes_per_s, received_spread_fraction, receiving_fraction,
        response_time_inflation, retransmits, retransmits_per_s, retransmitted_fraction, round_trip_mean_us,
        round_trip_min_us, workers_idle_mean,
    }],
    causes: &[LimitId::LostSyns, LimitId::SlowClients],
    relieves: &[Resource::Link],
    ends_tuning: true,
    kind: Some(LimitKind::Transfer),
    meaning: Some(
        "The network carries all it can. More needs smaller answers (compression, caching) or more bandwidth.",
    ),
    ..Limit::new(
        LimitId::UpstreamBandwidth,
        "Link to the backend saturated",
        include_str!("mod.rs"),
        finding::check,
    )
};

//! `upstream-bandwidth`: the network path between server and clients is saturated, at a point that the server cannot see.
//!
//! ## How it is recognised
//! All clients together receive a constant number of bytes per second, while packets wait or are lost on the path: round trips
//! take many times as long as the shortest one, and the server retransmits; in a long queue nothing is lost, and most of the
//! requests in flight have an answer that was sent and is not confirmed. On a fast line a TCP connect takes longer than a whole
//! request did that was alone, while no SYN is lost, the CPU is at most 70% busy, and the bytes of all seconds are the same to a
//! hundredth. Nothing on the server is at its limit: its own links have room or no rate, workers are free, the accept queue is
//! empty.
//!
//! Where one segment in five is sent again, SYNs are lost and round trips long, most of what is sent does not fit: then the few
//! bytes that arrive say nothing. Where as much is sent again while a third of the busy workers close connections, the workers
//! wait for the path. Where the bytes of all seconds are the same and no round trip is long it is half sure: a point that drops what is
//! too much has no queue.
//!
//! From the server alone the round trips of the clients on other machines show it: that of the client in the middle is many
//! times as long as the shortest one of the same address, while the CPU is at most 70% busy. They must take 50 ms longer, as
//! confirmations may be held back for 40; 10 ms are half sure where nine in ten connections send, answer after answer, and the link
//! carries the same each second.
//! With one segment in twenty sent again and most connections sending it is half sure, also where seconds differ; with one in
//! five, lost SYNs tell it without round trips, as clients on slow lines of their own lose none. Retransmits alone are a
//! suspicion, as it is from outside alone, and where a response spends its time elsewhere.
//!
//! ## What to do
//! As for `network-saturated`: fewer bytes per request (compression, caching, smaller images, a cache or CDN on the other side
//! of the line), then more bandwidth from the provider. To locate it, load the server from its own network or without the
//! embedded resources: what is fast then is not the server's fault.
//!
//! ## By hand
//! `ss -ti state established` on the server (rtt against the shortest minrtt of the same address, retrans, Send-Q); `nstat -az TcpRetransSegs TcpOutSegs` twice
//! under load; `mtr` from a client shows at which hop round trips grow.

pub(crate) mod finding;
mod path;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, answer_bytes_mean, client_connections_mean, client_round_trip_mean_us, client_round_trip_min_us, connect_time_mean_us, cpu_busy_fraction, in_flight_mean,
        listen_drops_per_s, lost_syn_fraction, other_connections_mean,
        nic_sent_bits_per_s, nic_sent_spread_fraction, rate,
        received_bytes_per_answer, received_bytes_per_s, received_spread_fraction, receiving_fraction,
        response_time_alone_us, response_time_inflation, response_time_mean_us, retransmits, retransmits_per_s, retransmitted_fraction, round_trip_mean_us,
        round_trip_min_us, sending_connections_mean, usable_busy_fraction, workers_busy_mean, workers_closing_mean, workers_idle_mean,
    }],
    causes: &[LimitId::LostSyns, LimitId::SlowClients],
    relieves: &[Resource::Link],
    ends_tuning: true,
    kind: Some(LimitKind::Transfer),
    meaning: Some(
        "The network is the limit. To go further, send smaller responses (compression, caching) or add bandwidth.",
    ),
    ..Limit::of(LimitId::UpstreamBandwidth, "Network path to the clients saturated", finding::check)
};

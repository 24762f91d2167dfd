//! `lost-syns`: SYNs (the first packets of connections) are lost on the way, and retransmitted after a second or more.
//!
//! Only a timer retransmits a SYN: after 1, 2, 3, 4, 5 and 7 seconds since Linux 6.5, after 1, 3 and 7 before. Connect times at
//! these values, with hardly any between, show that SYNs (or the replies to them) are lost. Servers lose them too, in full
//! queues and tables; these have findings of their own. This one is the remaining case: the path between clients and server.
//!
//! ## How it is recognised
//! At least 1 in 100 connections took what lost SYNs cost, or was abandoned, while the server's own counters of dropped
//! connections do not rise, and its conntrack table has room. Without these counters it is only a suspicion. Without load of
//! our own the server's side tells it, as far as the packets came to it: a first packet that comes again, with the same port and
//! sequence number, had no answer. Where the CPU is saturated in spite of it, more connections would get no more of it: it is half
//! sure then. Answers that are errors of the server are not explained by it, however long their connections took.
//!
//! ## What to do
//! No setting of the web server helps. Look for what drops the packets: rate limits for new connections on a firewall or load
//! balancer, or in the machine's own rules (`nft list ruleset`, fail2ban), which may be intended: ask its owners; a full connection table
//! there, a full or damaged line (then other packets are retransmitted too). Keep-alive makes it rarer.
//!
//! ## By hand
//! `ss -tan state syn-sent | wc -l` on a client under load; `nstat -az TcpExtListenDrops` on the server does not rise;
//! `tcpdump -ni any 'tcp[tcpflags] & tcp-syn != 0'` on both sides shows which packets do not arrive.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_max, connect_time_max_us, connect_time_p99_us, connect_timeouts, connecting_fraction,
        conntrack_drops, listen_drops, listen_overflows, lost_syn_connections, lost_syn_fraction,
        packets_dropped_unread, response_time_p99_us, syn_queue_drops,
    }],
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Waiting),
    ..Limit::of(LimitId::LostSyns, "Connection attempts lost", finding::check)
};

//! `lost-syns`: first packets of connections are lost on the way, and sent again after a second or more.
//!
//! A connection begins with a packet (SYN) that nothing but a timer makes come again: after 1, 2, 3, 4, 5 and 7 seconds since
//! Linux 6.5, after 1, 3 and 7 before. Connect times that stand at these values, with hardly any between, say that such
//! packets (or the answers to them) are lost. Servers lose them too, in queues and tables that are full; these have findings
//! of their own. This one is what is left: the way between clients and server.
//!
//! ## How it is recognised
//! At least one in a hundred connections took what lost SYNs cost, or was given up, while the server's own counters of
//! dropped connections stand still, and its firewall's table has room. Without a view of these counters this is a suspicion.
//!
//! ## What to do
//! Nothing on the web server mends this. Look for what drops the packets: rate limits for new connections on a firewall or
//! load balancer (which may be meant: ask who made them), another table of connections that is full there, a line that is
//! full or damaged (then other packets are sent again too). Keeping connections open makes it rarer.
//!
//! ## By hand
//! `ss -tan state syn-sent | wc -l` on a client under load; `nstat -az TcpExtListenDrops` on the server stays as it is;
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
    ..Limit::new(LimitId::LostSyns, "Connection attempts lost", include_str!("mod.rs"), finding::check)
};

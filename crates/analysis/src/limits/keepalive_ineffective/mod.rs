//! `keepalive-ineffective`: clients would keep their connections, the server closes them, and new ones cost most of the time.
//!
//! A kept connection carries the next request at once. A new one costs a round trip, and over TLS a handshake with a
//! signature: often far more than the answer itself. Connections are closed although clients would keep them when
//! `KeepAlive` is off, when `MaxKeepAliveRequests` is small (Apache does not count the first request: 1 allows for two),
//! when answers come without a length from HTTP/1.0, or when the program behind the server says `Connection: close`.
//!
//! ## How it is recognised
//! The load keeps its connections, and yet they carry one or two requests each; establishing them (connect and TLS handshake)
//! is a fifth of the response time and more, over TLS a tenth. Where keep-alive was switched off on a site with TLS, that
//! is `tls-handshakes`. The settings in force say why: or they allow for many requests on a
//! connection, then it is the program that closes it. Where the server is only watched, connections that all carry exactly what
//! a small limit allows say that clients would send more. Visitors who leave after a page are told by the settings only. Lost
//! connection attempts are another matter, and so are connections that a busy server closes for want of workers.
//!
//! ## What to do
//! Change the cause that is named: `KeepAlive On`, `MaxKeepAliveRequests 100` (a reload). What the program sends has to be
//! changed there; answers of HTTP/1.0 backends need a length.
//!
//! ## By hand
//! `curl -skv URL URL 2>&1 | grep -iE 'connection|reusing|closing'` shows whether the second request finds the connection open.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connect_time_max_us, connect_time_mean_us, connections_opened_per_s, connections_reused_fraction,
        cpu_busy_fraction, cpu_per_request_us, ended_per_s, handshake_mean_us, plain_requests_reused_fraction,
        rate, requests_per_connection, response_time_mean_us, resumed_fraction, service_cpu_cores,
    }],
    causes: &[LimitId::TlsHandshakes, LimitId::CpuSaturated],
    relieves: &[Resource::Processors],
    ..Limit::new(
        LimitId::KeepaliveIneffective,
        "A new connection for nearly each request",
        include_str!("mod.rs"),
        finding::check,
    )
};

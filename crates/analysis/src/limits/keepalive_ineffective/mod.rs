//! `keepalive-ineffective`: the server closes connections that clients would keep, and new ones cost most of the time.
//!
//! A kept connection carries the next request at once. A new one costs a round trip, and over TLS a handshake with a signature:
//! often far more than the response itself. Connections that clients would keep are closed when `KeepAlive` is off, when
//! `MaxKeepAliveRequests` is small (Apache does not count the first request: 1 allows two), nginx's `keepalive_requests` or
//! lighttpd's `server.max-keep-alive-requests` is, when HTTP/1.0 responses have no length, or when the program behind the server
//! sends `Connection: close`.
//!
//! ## How it is recognised
//! The load keeps its connections, yet they carry one or two requests each, and establishing them (connect and TLS handshake)
//! takes a fifth of the response time or more, over TLS a tenth. If keep-alive is off on a site with TLS, that is
//! `tls-handshakes`. The settings in force show the cause; if they allow many requests per connection, the program closes it.
//! If the server is only observed, connections that all carry exactly what a small limit allows, or one request each with
//! `KeepAlive Off`, are a sign that clients would send more. If nothing of the server is seen, it is half sure. For visitors who leave after a page only the settings count. Lost connection attempts are not this, nor are
//! connections that a busy server closes for lack of workers.
//!
//! ## What to do
//! Change the named cause: `KeepAlive On`, `MaxKeepAliveRequests 100`, `keepalive_requests 1000` (a reload).
//! What the program sends has to be changed there; responses of HTTP/1.0 backends need a length.
//!
//! ## By hand
//! `curl -skv URL URL 2>&1 | grep -iE 'connection|reusing|closing'` shows whether the second request reuses the connection.

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
    ..Limit::of(LimitId::KeepaliveIneffective, "A new connection for nearly each request", finding::check)
};

//! `nginx-connections-exhausted`: all worker_connections of nginx are in use.
//!
//! Each worker of nginx allows `worker_connections` connections, 512 by default and 768 on Debian. A client connection counts
//! while it is open, also while it is idle; a proxied request (proxy_pass, fastcgi_pass) counts twice. If all are in use nginx
//! closes idle connections, then new ones without a response, and logs it.
//!
//! ## How it is recognised
//! The error log says `worker_connections are not enough`, or the status page (stub_status) counts connections accepted and not
//! handled; requests fail with closed connections, or with 500 if the second one was missing. Where a full pool of PHP-FPM, or a database
//! that refuses connections, decides how many are answered, this is half sure: more connections would only wait or fail there. So it is where `limit_req` may hold
//! as many requests as there are connections, and all take as long: it would hold more of them.
//!
//! ## What to do
//! Raise `worker_connections` in the block `events`: each costs about 400 bytes. Every connection is an open file, so
//! `worker_rlimit_nofile` is raised with it if the limit of the process is lower. A reload is enough.
//!
//! ## By hand
//! `grep -c 'worker_connections are not enough'` of the error log;
//! `nginx -T | grep -E 'worker_(connections|processes|rlimit)'`; `curl -s http://localhost/nginx_status`: accepts and handled
//! differ.

mod ceiling;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_open_files_max, client_connections_mean, cores, failed_fraction, in_flight_mean, nginx_connections_messages,
        nginx_dropped, open_files_limit, rate,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::BackendRefused, LimitId::LostSyns],
    ceilings: &[ceiling::ceiling],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Failures),
    makes_errors: true,
    ..Limit::of(LimitId::NginxConnectionsExhausted, "nginx worker_connections exhausted", finding::check)
};

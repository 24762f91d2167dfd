//! `nginx-connections-exhausted`: nginx has no place left for a connection.
//!
//! Each worker of nginx has `worker_connections` places, 512 by default and 768 on Debian. A visitor takes one for as long as the
//! connection is open, also while it is idle; a request that is passed on (proxy_pass, fastcgi_pass) takes a second one. When
//! all are taken nginx closes idle connections, then new ones without an answer, and says so in its error log.
//!
//! ## How it is recognised
//! The error log says `worker_connections are not enough`, or the status page (stub_status) tells of connections that were
//! accepted and not handled; requests fail with connections that are closed, or with 500 where the second place was missing.
//!
//! ## What to do
//! Raise `worker_connections` in the block `events`: places cost about 400 bytes each. Every place is an open file, so
//! `worker_rlimit_nofile` goes along where the limit of the process is lower. A reload is enough.
//!
//! ## By hand
//! `grep -c 'worker_connections are not enough'` of the error log; `nginx -T | grep -E 'worker_(connections|processes|rlimit)'`;
//! `curl -s http://localhost/nginx_status`: accepts and handled differ.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        client_connections_mean, cores, failed_fraction, in_flight_mean, nginx_connections_messages,
        nginx_dropped, open_files_limit, rate,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::BackendRefused, LimitId::LostSyns],
    keeps_hold_times: true,
    kind: Some(LimitKind::Connections),
    gain: Some(LimitGain::Failures),
    makes_errors: true,
    ..Limit::new(
        LimitId::NginxConnectionsExhausted,
        "nginx worker_connections exhausted",
        include_str!("mod.rs"),
        finding::check,
    )
};

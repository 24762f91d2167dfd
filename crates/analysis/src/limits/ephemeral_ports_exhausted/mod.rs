//! `ephemeral-ports-exhausted`: the server has no local ports left towards a backend.
//!
//! Each connection to a backend uses a local port. If the server closes it first, the pair of addresses and ports stays in use
//! for another minute (TIME_WAIT). Towards one address and port there are only as many as `net.ipv4.ip_local_port_range` has,
//! 28,232 by default: some 470 new connections/s. Beyond that connecting fails at once (EADDRNOTAVAIL, 99), and clients get 503
//! from a proxy whose backend is idle.
//!
//! ## How it is recognised
//! The error log of Apache or nginx says `Cannot assign requested address` (99), or a program behind Apache writes that there;
//! or the ports in use towards one backend, TIME_WAIT included, nearly reach the limit, and requests fail.
//!
//! ## What to do
//! Keep connections to the backend open: no `disablereuse=on`, `keepalive` in the backend, in nginx `keepalive` in the upstream
//! with `proxy_http_version 1.1` and an empty `Connection`, persistent connections to a database; a few then carry all
//! requests. To PHP-FPM it takes `fastcgi_keep_conn`, and each kept connection holds a child: no more than are free. On one
//! machine a unix socket needs no ports. Otherwise a wider range (`net.ipv4.ip_local_port_range`, applied live) helps, and
//! `net.ipv4.tcp_tw_reuse=1` lets outgoing connections reuse ports in TIME_WAIT after a second (over loopback the kernel does so
//! by itself).
//!
//! ## By hand
//! `ss -tan state time-wait dst ADDRESS:PORT | wc -l`; `sysctl net.ipv4.ip_local_port_range`;
//! `grep 'Cannot assign requested address' /var/log/apache2/error.log | tail -3`.

pub(crate) mod ceiling;
pub(crate) mod finding;
mod upstream;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_ports_available, ahead_ports_reuse_mode, ahead_ports_time_wait_per_s,
        ahead_ports_used_max, cores, failed_fraction, in_flight_mean, nginx_no_port_messages, no_port_messages,
        no_port_messages_of_program, ports_available,
        ports_time_wait_max, ports_used_max, proxy_refused_messages, rate,
    }],
    causes: &[LimitId::BackendRefused],
    ceilings: &[ceiling::ceiling],
    gain: Some(LimitGain::Failures),
    ..Limit::of(LimitId::EphemeralPortsExhausted, "Local ports exhausted", finding::check)
};

//! `tls-handshakes`: the processors greet visitors instead of answering them.
//!
//! A new encrypted connection begins with a handshake, which the server signs with its key: a tenth of a millisecond with
//! a key on an elliptic curve, about one with RSA of 2048 bits, several with 4096. A session that is resumed saves the
//! signature, a connection that is kept the whole handshake.
//!
//! ## How it is recognised
//! The service's processors are full, new connections over TLS come nearly as often as requests, and by what handshakes
//! with this kind of key cost they are a good part of the service's work. They could be fewer or cheaper: the server
//! refuses to keep connections that clients want to keep, or does not know sessions again, or signs with a large key.
//! Clients who never come back, towards a small key, are no fault.
//!
//! ## What to do
//! First `KeepAlive On`, with a timeout of a few seconds. Then sessions: `SSLSessionCache shmcb:...`, or tickets
//! (`SSLSessionTickets on`). Then a certificate with a key on an elliptic curve (ECDSA P-256), beside the old one for
//! clients that do not know it.
//!
//! ## By hand
//! `openssl s_client -connect HOST:443 -reconnect </dev/null | grep -e New -e Reused`; `openssl speed rsa2048 ecdsap256`;
//! `perf top` shows bn_mul and the like.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connections_reused_fraction, cores, cpu_per_request_us, ended_per_s, new_connections_per_s,
        pressure_group_cpu_some_fraction, rate, server_requests_per_s, service_cores_limit, service_cpu_cores,
        tls_handshake_mean_us, tls_handshakes_per_s, tls_resumed_fraction,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::KeepaliveIneffective,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Connections),
    ..Limit::new(
        LimitId::TlsHandshakes,
        "TLS handshakes saturate the CPU",
        include_str!("mod.rs"),
        finding::check,
    )
};

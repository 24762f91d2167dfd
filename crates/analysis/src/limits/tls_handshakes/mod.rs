//! `tls-handshakes`: TLS handshakes saturate the CPU.
//!
//! A new encrypted connection begins with a handshake, which the server signs with its key: a tenth of a millisecond with a key
//! on an elliptic curve, about one with RSA of 2048 bits, several with 4096. A resumed session saves the signature, a kept
//! connection the whole handshake.
//!
//! ## How it is recognised
//! The service's CPU is saturated, new TLS connections are nearly as frequent as requests, and by the cost of handshakes with
//! this kind of key they are a large share of the service's work; where samples of what the processors do (99 a second) tell
//! signatures and the exchange of keys from the encryption of what is sent, that share counts, also where nobody counts requests. They could be fewer or cheaper: the server closes connections
//! that clients want to keep, or does not resume sessions, or signs with a large key. Clients that never return, with a small
//! key, are no fault.
//!
//! ## What to do
//! First `KeepAlive On`, with a timeout of a few seconds (`keepalive_timeout` of nginx). Then sessions:
//! `SSLSessionCache shmcb:...` (`ssl_session_cache shared:...`), or tickets (`SSLSessionTickets on`). Then a certificate with
//! a key on an elliptic curve (ECDSA P-256), beside the old one for clients that do not support it: a second
//! `SSLCertificateFile`, or `ssl_certificate`.
//!
//! ## By hand
//! `openssl s_client -connect HOST:443 -reconnect </dev/null | grep -e New -e Reused`; `openssl speed rsa2048 ecdsap256`;
//! `perf top` shows bn_mul and the like.

pub(crate) mod finding;
mod settings;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind, LimitWork};
use webdyno_model::processor_time::ProcessorWork;

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connections_reused_fraction, cores, cpu_per_request_us, ended_per_s, new_connections_per_s,
        pressure_group_cpu_some_fraction, rate, server_requests_per_s, service_cores_limit, service_cpu_cores,
        tls_handshake_mean_us, tls_handshakes_per_s, tls_resumed_fraction, usable_cores,
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
    work: Some(LimitWork {
        certain: &[ProcessorWork::TlsHandshakes],
        possible: &[
            ProcessorWork::Cryptography,
            ProcessorWork::Network,
            ProcessorWork::Memory,
            ProcessorWork::Copy,
        ],
    }),
    ..Limit::of(LimitId::TlsHandshakes, "TLS handshakes saturate the CPU", finding::check)
};

//! The engine against real sockets on loopback: scripted servers that are slow, hostile, or close when they like.
//! Times are checked loosely where the machine may be busy, counts exactly.

// Helpers of tests may fail like the tests themselves; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod certificates;
mod clock;
mod coded;
mod endings;
mod hostile;
mod hostile_cases;
mod hostile_cuts;
mod hostile_matrix;
mod http3;
mod keepalive;
mod killed;
mod network;
mod nginx;
#[path = "../../../host/tests/it/ports.rs"]
mod ports;
mod probing;
mod proxy;
mod redirects;
#[path = "../../examples/reference/server.rs"]
mod reference;
mod refusing;
mod secure;
mod server;
#[path = "../../../host/tests/it/skip.rs"]
mod skip;
mod stopping;
mod tls;
mod transport;
mod truth;
mod uring;
mod websocket;

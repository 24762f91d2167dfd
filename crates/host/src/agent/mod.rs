//! The agent: webdyno at the server's end, framed messages on stdin and stdout; and the client that speaks to it.

pub mod address;
pub mod client;
pub mod framing;
pub mod hardening;
pub mod host;
pub mod protocol;
pub mod server;
pub mod voice;
pub mod worker;

pub use address::{Role, ServerAddress, ServerList};
pub use client::{AgentClient, RevertedChange, Start};
pub use server::{Options, serve};

/// Which build this is. Tool and agent of different builds refuse to work together.
pub const BUILD: &str = match option_env!("WEBDYNO_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

/// This machine's CLOCK_MONOTONIC in microseconds.
pub fn clock_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

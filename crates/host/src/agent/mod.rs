//! The agent: webdyno at the server's end, framed messages on stdin and stdout; and the client that speaks to it.

pub mod address;
mod bootstrap;
pub mod client;
pub mod clock;
mod connect;
mod entering;
mod following;
mod foreground;
pub mod framing;
pub mod hardening;
pub mod host;
pub mod outbox;
pub mod protocol;
mod responses;
pub mod server;
mod stderr_capture;
mod targets;
mod tuned_before;
pub mod worker;

pub use address::{Role, ServerAddress, ServerList};
pub use client::{AgentClient, RevertedChange};
pub use connect::Start;
pub use connect::{Connection, only_starts_an_agent, run_on_server, start_on_server};
pub use entering::tools_that_enter;
pub use server::{serve, serve_stdio};
pub use stderr_capture::show_lines_by;
pub use worker::Options;

use std::sync::OnceLock;

/// Which build this is, where the program does not say it: by its version.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

static THIS_BUILD: OnceLock<&str> = OnceLock::new();

/// Says which build this program is, once, before anything else.
pub fn name_build(build: &'static str) {
    // The first one counts.
    let _ = THIS_BUILD.set(build);
}

/// Which build this is. Tool and agent of different builds refuse to work together.
pub fn this_build() -> &'static str {
    THIS_BUILD.get().copied().unwrap_or(BUILD)
}

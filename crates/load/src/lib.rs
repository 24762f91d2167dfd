//! The load engine: a workload in, intervals out.
//!
//! [`prepare`] checks a workload and makes it ready, [`probe`] sends one request to see that there is a server, and
//! [`run`] loads it and reports every second. Inside, one thread per core has its own event loop, connections and
//! histograms and shares nothing; a request on a kept connection costs one `send`, one `recv` and a share of one
//! `epoll_wait`, and allocates nothing. Clock and sockets stand behind the trait `World`, so pacing,
//! connection handling and counting are tested against a simulated server.
//!
//! What is promised about the figures: intended starts are stamped when a request was due, not when the engine came
//! to it; every started request has exactly one outcome or is in flight at the end; timeouts stay in the
//! distribution at their bound; nothing is made up.

mod answer;
mod chunked;
mod content;
mod control;
mod course;
mod deadlines;
mod descriptors;
#[cfg(test)]
mod differential_tests;
mod engine;
mod epoll;
mod failure;
pub mod form;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod hope;
mod levels;
mod merge;
mod pacer;
pub mod ports;
mod prepare;
mod probe;
mod random;
mod recorder;
mod resolver;
mod run;
mod script;
mod sockets;
mod stamps;
mod tcp_info;
mod tls;
pub mod tree;
pub mod urls;
mod wire;
pub mod workload_file;
mod world;

pub use control::Control;
pub use descriptors::connections_allowed;
pub use prepare::{Destination, Prepared, USER_AGENT, check_url, prepare};
pub use probe::{Probe, probe};
pub use run::run;
pub use webdyno_model::interval::{EndReason, Interval, LoadEnd};

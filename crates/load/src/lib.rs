//! The load engine: a workload in, intervals out.
//!
//! [`prepare`] checks a workload and makes it ready, [`probe`] sends one request to see that there is a server, and
//! [`run`] loads it and reports every second. Inside, one thread per core has its own event loop, connections and
//! histograms and shares nothing; a request on a kept connection costs one `send`, one `recv` and a share of one
//! `epoll_wait`, and allocates nothing. Clock and sockets are behind the trait `NetworkIo`, so pacing,
//! connection handling and counting are tested against a simulated server.
//!
//! What is promised about the figures: intended starts are stamped when a request was due, not when the engine came
//! to it; every started request has exactly one outcome or is in flight at the end; timeouts stay in the
//! distribution at their bound; nothing is made up.
mod engine;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod io;
mod plan;
mod random;
pub mod results;
pub mod schedule;
pub mod workload;

pub use crate::engine::control::Control;
pub use crate::engine::run::{run, run_at};
pub use crate::io::clock::monotonic_ns;
pub use crate::io::descriptors::connections_allowed;
pub use crate::plan::probe::{Probe, measure_alone, probe, repeated_answers};
pub use crate::plan::{Destination, Prepared, USER_AGENT, check_url, prepare, prepare_share};
pub use webdyno_model::interval::{EndReason, Interval, LoadEnd};

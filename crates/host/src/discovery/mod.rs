//! Discovery: from a service to those behind it.
//!
//! The parts: `diag` reads sockets, `processes` who holds them, `links` (pure) tells who talks to whom, `survey` follows that,
//! and `unprivileged` names the service whose processes may not be seen.

pub mod diag;
pub mod links;
pub mod processes;
pub mod survey;
pub mod unprivileged;

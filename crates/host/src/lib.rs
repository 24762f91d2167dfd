//! The only crate that touches a server's machine: reads it (collectors), recognises and operates its services
//! (services), writes to it (change, and nothing else), and speaks for it (agent).
//!
//! Its rooms in their layers; each uses only those before it:
//! os < visibility < probes < logs, config_management < services (common < each service) < discovery < collectors < harm_guard
//! < change (action < seams < file < journal < location, boot < undo < apply) < agent.
//!
//! Everything that is written to a server passes through [`change::journal`], after its undo is on disk.

pub mod agent;
pub mod change;
pub mod collectors;
pub mod config_management;
pub mod discovery;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod harm_guard;
pub mod logs;
pub mod os;
pub mod probes;
pub mod services;
pub mod visibility;

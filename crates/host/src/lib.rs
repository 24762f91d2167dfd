//! The only crate that touches a server's machine: reads it (collectors), recognises and operates its services
//! (services), writes to it (change, and nothing else), and speaks for it (agent).
//!
//! Everything that is written to a server passes through [`change::journal`], after its undo is on disk.

pub mod agent;
mod asked;
pub mod brake;
pub mod change;
pub mod collectors;
pub mod discover;
pub mod elsewhere;
pub mod fastcgi;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod kmsg;
pub mod limits;
pub mod logs;
pub mod machine;
pub mod managed;
pub mod netns;
pub mod observer;
pub mod outside;
pub mod process;
pub mod procfs;
pub mod reach;
pub mod rooted;
pub mod scratch;
pub mod services;
pub mod site;
pub mod spawn;
pub mod status_page;
pub mod tables;

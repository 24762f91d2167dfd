//! The harm guard: sees that a load of ours begins to do harm, and says so at once, so that the engine is stopped.
//!
//! Harm is what was not there before the load: swapping, a machine or a control group in which nothing can run for want
//! of memory, a process that the kernel kills for it, errors that other clients get, a site that does not answer any
//! more. Every 200 ms a thread of the agent takes a [`reading`]; [`decide`] looks at the readings since the load began,
//! against those of the seconds before, and does nothing else. From the reading to the engine's end it takes a message
//! and a look of the tool every 50 ms, so that less than half a second passes.
//!
//! To add a signal: a field of [`reading::Reading`], a file that reads it, and a rule in [`decide`].

pub mod decide;
pub mod kernel_log;
pub mod others;
pub mod probe;
pub mod reading;
pub mod watch;

pub use watch::LoadWatch;

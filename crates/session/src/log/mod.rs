//! The event log: append-only JSON lines in the run directory. Writer, reader and follower, and the ring that keeps the last while.

mod context;
mod follow;
mod freeze;
mod lines;
mod merge;
pub mod reader;
pub mod ring;
pub mod writer;

pub use follow::LogFollower;
pub use freeze::{
    AFTER_US as FROZEN_AFTER_US, FOLDER as INCIDENTS, FrozenIncident, INCIDENT_AFTER_US, INCIDENT_BEFORE_US,
    freeze,
};

/// Name of the log in a run directory.
pub const FILE_NAME: &str = "events.jsonl";

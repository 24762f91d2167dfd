//! The event log: append-only JSON lines in the run directory. Writer and reader.

pub mod reader;
pub mod writer;

/// Name of the log in a run directory.
pub const FILE_NAME: &str = "events.jsonl";

//! Processes of the service, its workers, and those of others.

pub mod other_processes;
pub mod process;
pub mod worker_memory;
pub mod workers;

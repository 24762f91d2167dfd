//! Processes of the service, its workers, and those of others.

pub mod locks;
pub mod other_processes;
pub mod php_functions;
pub mod process;
pub mod profile;
pub mod threads;
pub mod worker_memory;
pub mod workers;

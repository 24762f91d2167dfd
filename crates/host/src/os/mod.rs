//! The operating system as this crate reads it: processes, the kernel log, the machine, programs that are started.

pub mod kernel_log;
pub mod kernel_tables;
pub mod machine;
pub mod process;
pub mod process_location;
pub mod procfs;
pub mod scratch;
pub mod spawn;
pub mod timeouts;

//! The operating system as this crate reads it: processes, the kernel log, the machine, programs that are started.

pub mod cancellation;
pub mod clock;
pub(crate) mod control_group;
pub mod kernel_log;
pub mod kernel_tables;
pub(crate) mod key_values;
pub mod machine;
pub(crate) mod netlink;
pub(crate) mod object_file;
pub mod page_cache;
pub mod process;
pub mod process_location;
pub(crate) mod processors;
pub mod procfs;
pub mod program;
pub(crate) mod sock_diag;
pub mod sockets;
pub mod spawn;
pub mod timeouts;
pub mod wildcard;

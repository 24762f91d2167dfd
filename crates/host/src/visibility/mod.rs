//! What a process may see: namespaces of network and files, containers, and what anyone may read without rights.

pub mod foreign_namespace;
pub mod listeners;
pub mod mount_namespace;
pub mod network_namespace;
pub mod process_view;
pub(crate) mod program_query;
pub mod scratch;

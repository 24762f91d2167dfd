//! What the kernel tells of the machine and of control groups: one file per source.

pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod files;
pub mod kernel_log;
pub mod memory;
pub mod pressure;
pub mod softnet;

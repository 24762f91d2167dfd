//! `working-set-exceeds-memory`: the files that are asked for do not fit in memory, and most come from the disk.
//!
//! Linux keeps files that were read in memory that nobody else needs. As long as all that are asked for fit there, the
//! disk has nothing to do; beyond, each one that is read pushes out one that will be asked for soon, and the server gives
//! what the disk gives. Programs are not short of memory: nothing of theirs is swapped for it, nobody is killed.
//!
//! ## How it is recognised
//! Pages of files are read again that had just been given up (refaults), at a rate that is a good part of what is served.
//! Requests wait for the disk meanwhile (pressure stall information, `io`), the memory of the service is full, and what
//! programs hold is not what fills it. The control group's figures count before the machine's.
//!
//! ## What to do
//! More memory: what is missing is that part of the files which is not in memory. By the share of what is served that comes
//! from the disk, files that are asked for alike need (what is in memory now) / (share that comes from memory). Where few
//! files are asked for most of the time, less does most. Or smaller files, a cache in front, a faster disk.
//!
//! ## By hand
//! `grep workingset_refault /proc/vmstat` twice, `cat /proc/pressure/io`, `iostat -x 1`; of the control group `memory.stat`
//! (`file`, `anon`, `workingset_refault_file`) and `io.pressure`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        disk_busy_fraction, disk_read_bytes_per_s, file_refaults_per_s, group_anonymous_refaults_per_s,
        group_file_refaults_per_s, group_memory_used_max_bytes, group_oom_kills, group_page_cache_mean_bytes,
        memory_available_min_bytes, memory_limit_bytes, memory_used_in_limit_max_bytes, offered_rate,
        pressure_group_io_some_fraction, pressure_io_some_fraction, rate, response_time_inflation,
        served_bytes_log_per_s, served_bytes_per_s, served_bytes_status_per_s, swapped_in_pages_per_s,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheAsyncCap,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::SlowClients,
        LimitId::KeepaliveHoldsWorkers,
        LimitId::LogIo,
    ],
    gain: Some(LimitGain::Cost),
    meaning: Some("Memory is the limit. More needs less memory per process, or more memory."),
    ..Limit::new(
        LimitId::WorkingSetExceedsMemory,
        "Files do not fit in the page cache",
        include_str!("mod.rs"),
        finding::check,
    )
};

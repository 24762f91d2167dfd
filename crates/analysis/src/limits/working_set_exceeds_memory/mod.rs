//! `working-set-exceeds-memory`: the requested files do not fit in the page cache, and most are read from disk.
//!
//! Linux caches files that were read in unused memory. As long as all requested files fit there, the disk is idle; beyond, each
//! file read evicts one that will be requested soon, and the server is as fast as the disk. Programs are not short of memory:
//! they do not swap, and no process is killed.
//!
//! ## How it is recognised
//! File pages that were evicted are read again (refaults), in most seconds, at a rate that is a large share of the bytes served. Requests
//! wait for the disk meanwhile (PSI, `io`), the memory of the service is full, and not with what programs hold. The control
//! group's figures count before the machine's. The kernel also counts pages as read again that were evicted long ago: a backup, or
//! `gzip` of an old log, looks alike. So a server that is only watched is less sure, and where fewer requests are in it than tasks wait
//! for the disk, it is others who wait.
//!
//! ## What to do
//! More memory: what is missing is the part of the files that is not in memory. By the share of the bytes served that comes
//! from disk, files requested equally often need (what is in memory now) / (share that comes from memory). If few files get
//! most requests, less is enough for most of them. Or smaller files, a cache in front, a faster disk.
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
        disk_busy_fraction, disk_read_bytes_per_s, file_refaults_median_per_s, file_refaults_per_s, group_anonymous_refaults_per_s,
        group_file_refaults_per_s, group_memory_used_max_bytes, group_oom_kills, group_page_cache_mean_bytes,
        in_flight_mean, memory_available_min_bytes, memory_limit_bytes, memory_used_in_limit_max_bytes, offered_rate,
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
    meaning: Some("Memory is the limit. To go further, use less memory per process or add memory."),
    ..Limit::of(LimitId::WorkingSetExceedsMemory, "Files do not fit in the page cache", finding::check)
};

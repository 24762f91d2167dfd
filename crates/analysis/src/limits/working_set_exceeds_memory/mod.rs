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

use crate::limits::{LimitGain, Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
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
    ..Limit::new(LimitId::WorkingSetExceedsMemory, include_str!("mod.rs"), finding::check)
};

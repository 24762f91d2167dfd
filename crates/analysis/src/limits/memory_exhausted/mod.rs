//! `memory-exhausted`: the server needs more memory than it has, and pages move to and from swap.
//!
//! Each worker costs memory. If all of them together do not fit, the kernel swaps, and every request waits for the disk: far
//! slower than if fewer workers had made it wait in the queue. If the control group allows no swap, the kernel kills processes
//! instead.
//!
//! ## How it is recognised
//! All tasks stall on memory at times (PSI, `full`) while pages are swapped in, or, without swapping, while recently evicted
//! file pages are read again, as programs hold nearly all of the memory. Or the kernel killed processes for lack of memory, one in
//! a minute or more: the control group's counter shows whether they were the service's. The machine's counter alone may mean any container on it:
//! then the confidence is only half, unless the number of the service's processes fell.
//!
//! The largest holder follows from what processes share (PSS) and have in swap. If that cannot be seen, the confidence is half:
//! the cause may also be workers that grow (`worker-memory-growth`) or a database's connections (`db-connection-memory`).
//!
//! The control group's figures count before the machine's: if the group has free memory, a neighbour swaps; if files that could
//! be dropped fill it, programs are not short of memory (`working-set-exceeds-memory`). A load that was stopped for swapping,
//! stalls or a kill is proof by itself: the harm guard reads five times a second, and what it saw may be in no sample.
//!
//! ## What to do
//! Allow fewer of those that hold the memory: `MaxRequestWorkers`, or `pm.max_children` of the PHP-FPM pool, to (available
//! memory + what they hold now - a reserve of a tenth) / what one more of them costs, its swapped parts included. The true size
//! of a worker is its share (PSS), not its resident size: the latter counts shared pages once per process. More of them fit if
//! they share more: code and data that the parent loads before it forks. Where the kernel killed some, no more than half of those that
//! worked then: who is killed is never seen as large as it would have been. Then more memory, if the rate is not sufficient.
//!
//! ## By hand
//! `vmstat 1` (si, so), `cat /proc/pressure/memory`, `cat /proc/PID/smaps_rollup`, `dmesg | grep -i 'killed process'`; of a
//! control group `memory.max`, `memory.current`, `memory.swap.current`, `memory.pressure` and `memory.events`.

pub(crate) mod ceiling;
pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, KILLED, SHARE, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_fpm_busy_mean, ahead_fpm_child_bytes, ahead_fpm_processes_max, brake_limit, brake_reading,
        database_resident_max_bytes, failed_fraction, group_anonymous_refaults_per_s,
        group_file_refaults_per_s, group_limit_hits_per_s, group_memory_used_max_bytes, group_oom_kills,
        group_swap_limit_hits_per_s, group_swap_used_max_bytes, in_flight_mean, memory_available_min_bytes,
        memory_limit_bytes, memory_total_bytes, memory_used_in_limit_max_bytes, oom_kills, pool_child_largest_bytes,
        pool_children_killed, pool_children_max, pool_children_mean, pool_memory_max_bytes,
        pool_memory_mean_bytes, pool_swap_mean_bytes, pressure_group_memory_full_fraction,
        pressure_memory_full_fraction, rate, refaults_per_s, service_processes_fell_max,
        service_processes_mean, swapped_in_pages_per_s, swapped_out_pages_per_s, worker_memory_sum_bytes,
        worker_private_mean_bytes, worker_swap_sum_bytes, workers_busy_mean, workers_limit,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheWorkerChurn,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::KeepaliveHoldsWorkers,
        LimitId::SlowClients,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::BackendRefused,
        LimitId::DbConnectionsExhausted,
        LimitId::DbLockContention,
        LimitId::DbSlowQueries,
        LimitId::LogIo,
        LimitId::ForeignLoad,
        LimitId::TlsHandshakes,
        LimitId::WorkingSetExceedsMemory,
    ],
    ceilings: &[ceiling::ceiling, ceiling::fpm_ceiling],
    config_checks: &[config_check::workers_beyond_memory, config_check::children_beyond_memory],
    relieves: &[Resource::Processors, Resource::Memory],
    kind: Some(LimitKind::Concurrency),
    gain: Some(LimitGain::Cost),
    meaning: Some("Memory is the limit. To go further, use less memory per process or add memory."),
    incidents: INCIDENTS,
    frees_memory: true,
    ..Limit::of(LimitId::MemoryExhausted, "Memory exhausted", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("memory.oom_kills_count", IncidentFigure::Rise, (1.0, 1), 1.0, "processes killed for memory on this machine", KILLED),
    row("memory.group_oom_kills_count", IncidentFigure::Rise, (1.0, 1), 1.0, "processes of the service's group killed for memory", KILLED),
    row("pressure.memory_full_us", SHARE, (0.1, 3), 0.02, "all tasks stall on memory", "users notice a tenth of the time; a single second may be a start"),
    row("pressure.group_memory_full_us", SHARE, (0.1, 3), 0.02, "all tasks of the service's group stall on memory", "as for the whole machine"),
    row("cgroup.oom_kills_count", IncidentFigure::Rise, (1.0, 1), 1.0, "processes of the service's control group killed for memory", KILLED),
];

//! `worker-memory-growth`: workers grow with each request and never free the memory, until none is left.
//!
//! A page that leaks memory makes its worker larger each time, and a worker that never ends grows without limit. When all
//! together fill the memory, the kernel swaps or kills the largest one, with its request. Fewer workers would only grow larger
//! each.
//!
//! ## How it is recognised
//! Memory is proven to be short (as for `memory-exhausted`), and growth fills it: within workers memory rises with age, and
//! continues to rise. The largest worker still grows, or older workers hold more than younger ones in proportion to their age.
//! What workers gain once while they warm up is no growth.
//!
//! ## What to do
//! `MaxConnectionsPerChild` ends a worker in time: when it has grown by a tenth of its size, but never so soon that starting
//! new ones becomes the limit (prefork checks once a second, and starts one, then two, then four, at most 32). Then find the
//! leak.
//!
//! ## By hand
//! `ps -o pid,etimes,rss --sort etimes --ppid PID`: do the oldest hold most? The same again a minute later: did they grow?
//! `cat /proc/PID/smaps_rollup`, `dmesg | grep -i 'killed process'`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        connections_opened_per_s, failed_fraction, group_oom_kills, memory_limit_bytes,
        memory_used_in_limit_max_bytes, new_connections_per_s, oom_kills, rate, server_requests_per_s,
        swapped_in_pages_per_s, worker_age_mean_s, worker_count_mean, worker_growth_by_age_bytes,
        worker_growth_by_age_explained, worker_growth_within_bytes, worker_largest_rise_bytes,
        worker_memory_largest_bytes, worker_memory_mean_bytes,
    }],
    causes: &[
        LimitId::MemoryExhausted,
        LimitId::CpuSaturated,
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheWorkerChurn,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::SlowClients,
        LimitId::KeepaliveHoldsWorkers,
        LimitId::ForeignLoad,
        LimitId::TlsHandshakes,
    ],
    relieves: &[Resource::Processors, Resource::Memory],
    gain: Some(LimitGain::Cost),
    frees_memory: true,
    ..Limit::of(LimitId::WorkerMemoryGrowth, "Apache workers leak memory", finding::check)
};

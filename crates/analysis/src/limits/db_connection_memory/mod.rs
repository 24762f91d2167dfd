//! `db-connection-memory`: the buffers of the database connections do not fit in memory.
//!
//! `sort_buffer_size`, `join_buffer_size`, `read_buffer_size` and `read_rnd_buffer_size` are allocated not once but by each
//! connection that sorts, joins or reads: times `max_connections` they may exceed the machine's memory by far. A value raised
//! to make one report fast takes the memory from all other programs.
//!
//! ## How it is recognised
//! Memory is proven to be short (as for `memory-exhausted`), the database holds most of it, and far more than its caches: the
//! buffers of the open connections explain it. All allowed connections together would need more than there is. If the load had
//! to be stopped at once, the evidence is the database's growth since the load began.
//!
//! ## What to do
//! Lower the largest buffer to what fits for the number of open connections, at most MariaDB's default (2 MB for sorts, 256 kB
//! for joins): sorts then use temporary files, which is hardly slower. It applies to new connections at once, and must be
//! written to a file to persist. Fewer connections help, too: the others wait, or are refused.
//!
//! ## By hand
//! `mariadb -e "SHOW VARIABLES LIKE '%buffer_size'; SHOW STATUS LIKE 'Max_used_connections'"`, `ps -o rss,vsz -C mariadbd`,
//! `grep VmSwap /proc/$(pidof mariadbd)/status`, `cat /proc/pressure/memory`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_database_binlog_cache_bytes, ahead_database_buffer_pool_bytes, ahead_database_join_buffer_bytes,
        ahead_database_key_buffer_bytes, ahead_database_limit, ahead_database_read_buffer_bytes,
        ahead_database_read_rnd_buffer_bytes, ahead_database_sort_buffer_bytes,
        ahead_database_thread_stack_bytes, database_binlog_cache_bytes, database_buffer_pool_bytes,
        database_connected_max, database_connections_limit, database_join_buffer_bytes,
        database_key_buffer_bytes, database_query_cache_bytes, database_read_buffer_bytes,
        database_read_rnd_buffer_bytes, database_resident_max_bytes, database_sort_buffer_bytes,
        database_thread_stack_bytes, group_held_before_bytes, group_oom_kills, group_rest_grown_bytes,
        group_swap_used_max_bytes, memory_limit_bytes, memory_used_in_limit_max_bytes, pool_children_busy_mean,
        pool_children_max, pool_memory_mean_bytes,
        pressure_group_memory_full_fraction, pressure_memory_full_fraction, rate, swapped_in_pages_per_s,
        swapped_out_pages_per_s, users, worker_memory_sum_bytes, workers_limit,
    }],
    causes: &[
        LimitId::MemoryExhausted,
        LimitId::WorkerMemoryGrowth,
        LimitId::WorkingSetExceedsMemory,
        LimitId::CpuSaturated,
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::BackendRefused,
        LimitId::DbConnectionsExhausted,
        LimitId::DbSlowQueries,
        LimitId::DbCacheTooSmall,
        LimitId::DbLockContention,
        LimitId::LogIo,
        LimitId::ForeignLoad,
    ],
    config_checks: &[config_check::buffers_beyond_memory],
    relieves: &[Resource::Memory],
    gain: Some(LimitGain::Cost),
    frees_memory: true,
    ..Limit::of(LimitId::DbConnectionMemory, "Memory exhausted by database connections", finding::check)
};

//! `db-cache-too-small`: InnoDB reads the same pages from the disk again and again.
//!
//! InnoDB keeps pages of its tables in its buffer pool. What does not fit is read from the disk for each statement that
//! wants it, and as InnoDB usually goes around the system's cache (`O_DIRECT`), free memory does not help.
//!
//! ## How it is recognised
//! Pages are read from the disk in the place of others that were given up: not into a part of the pool that was still
//! free, as after a start. And statements wait for it: a good part of what is under way are statements that run
//! without computing, and not for want of a row that is locked.
//!
//! ## What to do
//! Raise `innodb_buffer_pool_size` by what is read within a minute: whatever is wanted once a minute then stays. No more
//! than half of the memory that is available. MariaDB takes it at once (10.2.2 and later); it belongs into the file, too.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read%'` twice under load: `reads` are those from the disk, of
//! `read_requests`; `iostat -x 1` shows the disk.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, cpu_iowait_fraction, db_cache_disk_reads, db_cache_disk_reads_per_s,
        db_cache_filled, db_cache_limit_bytes, db_cache_requests_per_s, db_cpu_cores, db_threads_running_mean,
        in_flight_mean, memory_available_min_bytes, rate,
    }],
    causes: &[
        LimitId::WorkingSetExceedsMemory,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    ..Limit::new(
        LimitId::DbCacheTooSmall,
        "Database buffer pool too small",
        include_str!("mod.rs"),
        finding::check,
    )
};

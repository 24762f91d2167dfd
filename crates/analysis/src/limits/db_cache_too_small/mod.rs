//! `db-cache-too-small`: the InnoDB buffer pool is too small, and the same pages are read from disk repeatedly.
//!
//! InnoDB caches pages of its tables in its buffer pool. What does not fit is read from disk for each statement that needs it,
//! and as InnoDB usually bypasses the page cache (`O_DIRECT`), free memory does not help.
//!
//! ## How it is recognised
//! Pages are read from disk to replace evicted ones: not into a part of the pool that was still free, as after a start. And
//! statements wait for it: a good part of the requests that are worked on are statements that run without using CPU, and do not wait for a
//! row lock.
//!
//! A database that does not let webdyno in (no root, no account) is suspected if tasks wait for the disk a quarter of the time, the
//! disk reads four times as much as is sent to clients, and memory is not short.
//!
//! ## What to do
//! Raise `innodb_buffer_pool_size` by what is read within a minute: pages needed once a minute then stay. At most half of the
//! available memory. MariaDB applies it live (10.2.2 and later); write it to the file, too.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read%'` twice under load: `reads` are those from disk, of `read_requests`;
//! `iostat -x 1` shows the disk.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, cpu_iowait_fraction, db_cache_disk_reads, db_cache_disk_reads_per_s,
        db_cache_filled, db_cache_limit_bytes, db_cache_requests_per_s, db_clients_mean, db_cpu_cores,
        db_threads_running_mean, disk_read_bytes_per_s, in_flight_mean, pressure_group_io_some_fraction, pressure_io_some_fraction, rate,
        response_time_alone_us, response_time_mean_us, served_bytes_log_per_s, served_bytes_per_s,
        served_bytes_status_per_s,
    }],
    causes: &[
        LimitId::WorkingSetExceedsMemory,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::NginxConnectionsExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::OpenFilesExhausted,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    ..Limit::of(LimitId::DbCacheTooSmall, "Database buffer pool too small", finding::check)
};

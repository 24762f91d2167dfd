//! `disk-commit-bound`: transactions of the database wait until their log is on the disk.
//!
//! A transaction is done when it survives a power failure: InnoDB writes its log and waits for the disk (`fsync`) at each commit.
//! Transactions that commit meanwhile go together, so the rate does not fall to that of the disk, but each request waits for a
//! write or two. A disk without a protected cache does 50 to 200 of these a second, one with it, or an SSD, thousands.
//!
//! ## How it is recognised
//! Three in ten of the requests that are worked on, or two where a sync takes 5 ms and more, are statements in the states of a
//! commit (`Commit`; `Updating status`, which a connection keeps while its log is written), while CPU has room and rows are not
//! locked; InnoDB's number of `fsync` a second tells how long one takes. Where a sync is that slow, no queue is longer, and requests
//! take longer than one alone (if the server is only observed: tasks wait for the disk half of the time), one in ten is suspected:
//! they commit in groups, which few readings meet. A database that does not let webdyno in is suspected if tasks
//! wait for the disk half of the time, and the disk is flushed five times a second and more, and hardly reads.
//!
//! ## What to do
//! Commit less often: several statements in one transaction, counters and sessions in memory (Redis, memcached) instead of a table.
//! A disk that is faster at `fsync`, of its own. `innodb_flush_log_at_trx_commit = 2` flushes once a second: a power failure then
//! costs the transactions of the last second, the end of the process alone costs none. Only the owner of the data can decide that:
//! webdyno never changes it. MariaDB from 10.8.4 on writes its log past the page cache: a disk that is slow to write is waited for all
//! the same, unless `innodb_log_file_buffering = ON`.
//!
//! ## By hand
//! `SHOW PROCESSLIST` a few times under load: the column State; `SHOW GLOBAL STATUS LIKE 'Innodb_data_fsyncs'` twice;
//! `iostat -x 1`: `f_await`; `SHOW VARIABLES LIKE 'innodb_flush_log_at_trx_commit'`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, db_clients_mean, db_committing_mean, db_cpu_cores, db_disk_syncs_per_s, disk_flushes_per_s,
        disk_read_bytes_per_s, disk_written_bytes_per_s, in_flight_mean, pressure_group_io_some_fraction,
        pressure_io_some_fraction, rate, response_time_alone_us, response_time_mean_us,
    }],
    causes: &[
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::DbLockContention,
        LimitId::AcceptQueueOverflow,
        LimitId::AppWorkersExhausted,
    ],
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::ExplainedOfEach),
    ..Limit::of(LimitId::DiskCommitBound, "Transactions wait for the disk", finding::check)
};

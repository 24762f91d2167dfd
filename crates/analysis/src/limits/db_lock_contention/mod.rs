//! `db-lock-contention`: statements wait for locks that other transactions hold.
//!
//! A changed row is locked until its transaction ends. If all requests change the same row (a counter, a sum) and do something
//! slow before they commit, they are serialized, whatever the number of workers, cores and connections. More connections make
//! the queue longer.
//!
//! ## How it is recognised
//! InnoDB counts how long statements waited for rows (`Innodb_row_lock_time`), and how many wait now: by Little's law seconds
//! waited per second are the number that waits. It is a good part of all that is in flight, while CPU is not what these
//! statements wait for.
//!
//! Tables of MyISAM, Aria and MEMORY are locked as a whole: one writes, or several read; `GET_LOCK` is the application's own. The
//! states of the statements (SHOW PROCESSLIST) show how many wait. If these cannot be read, `Table_locks_waited` counts the waits: if
//! a good part of the requests wait, these are the statements that run without using CPU.
//!
//! One lock guards the whole query cache: every statement looks into it, and each change of a table invalidates all entries of
//! that table. If most waiting statements are in the state `Waiting for query cache lock`, the cache itself is the limit.
//!
//! A transaction keeps the definition of each table that it used, of any engine, until it ends. `ALTER TABLE` and its like wait for
//! it, and whoever comes after them waits behind them (`Waiting for table metadata lock`); so does everybody while `LOCK TABLES ..
//! WRITE` is in force. If most waiting statements are in such a state, another engine would not help.
//!
//! A database that does not let webdyno in (no root, no account) is suspected if most requests that are worked on are connected to it and
//! take twice as long as one alone or longer, while it hardly uses CPU or disk.
//!
//! ## What to do
//! Fix the application: change the contended row last, commit at once, do nothing slow in between (no calls of other servers),
//! find the row by an index (else all rows examined are locked), or split it into several. Convert tables that are locked as a
//! whole to InnoDB (`ALTER TABLE .. ENGINE=InnoDB`), which locks rows. The query cache is a setting: `query_cache_size` 0
//! switches it off live, the default since MariaDB 10.1.7. Of metadata locks find the holder, and end it: the transaction that is
//! open longest, or the statement that changes or locks the table. Change tables with a short `lock_wait_timeout` (a day or more by
//! default): then the change gives up, and nobody waits behind it.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock%'` twice under load; `SELECT * FROM information_schema.INNODB_TRX`;
//! `SHOW GLOBAL STATUS LIKE 'Table_locks_waited'`; `SHOW FULL PROCESSLIST` names the state; `SHOW ENGINE INNODB STATUS` shows
//! who waits for what; `SELECT * FROM performance_schema.metadata_locks` (or the plugin METADATA_LOCK_INFO) shows who has which.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, db_clients_mean, db_cpu_cores, db_lock_waiting_mean, db_metadata_lock_waiting_mean, db_query_cache_limit_bytes,
        db_query_cache_lock_waiting_mean, db_row_lock_time_fraction, db_row_lock_waiting_mean, db_row_lock_waits_per_s, db_table_lock_waits_per_s, db_threads_running_mean,
        ended_per_s, failed_fraction, in_flight_mean, pressure_group_io_some_fraction, pressure_io_some_fraction, rate,
        response_time_alone_us, response_time_mean_us,
    }],
    causes: &[
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::AppWorkersExhausted,
        LimitId::NginxConnectionsExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::OpenFilesExhausted,
    ],
    kind: Some(LimitKind::Documents),
    meaning: Some("The database takes the time. The remedy is in queries and indexes, not in a setting."),
    ..Limit::of(LimitId::DbLockContention, "Database lock contention", finding::check)
};

//! `db-lock-contention`: statements wait for rows that other transactions hold.
//!
//! A row that was changed is locked until its transaction ends. Where all requests change the same row, a counter or a
//! sum, and do something slow before they commit, they go one after the other, however many workers, processors and
//! connections there are. More connections make the line longer.
//!
//! ## How it is recognised
//! InnoDB counts how long statements waited for rows (`Innodb_row_lock_time`), and how many wait now: by Little's law
//! seconds waited per second are the number that waits. It is a good part of all that is under way, while the processors
//! are not what these statements wait for.
//!
//! Tables of MyISAM, Aria and MEMORY are locked as a whole: one writes, or some read; `LOCK TABLES` and a change of a table
//! that waits for its turn lock any; `GET_LOCK` is the program's own. The states of the statements (SHOW PROCESSLIST) say how
//! many wait. Where these may not be seen, it is counted how often tables were waited for (`Table_locks_waited`): where that
//! is for a good part of the requests, the statements that run without computing are those that wait.
//!
//! One lock guards the whole query cache: every statement looks into it, and each change of a table throws out all that was
//! kept of it. Where most of those that wait are in the state `Waiting for query cache lock`, the cache itself is the limit.
//!
//! ## What to do
//! The remedy is in the program: change the contended row last, commit at once, do nothing slow in between (no calls of
//! other servers), find the row by an index (else all rows that are looked at are locked), or split it into several. A table
//! that is locked as a whole belongs into InnoDB (`ALTER TABLE .. ENGINE=InnoDB`), which locks rows. The query cache is a
//! setting: `query_cache_size` 0 switches it off at once, as it is by default since MariaDB 10.1.7.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock%'` twice under load; `SELECT * FROM information_schema.INNODB_TRX`;
//! `SHOW GLOBAL STATUS LIKE 'Table_locks_waited'`; `SHOW FULL PROCESSLIST` names the state; `SHOW ENGINE INNODB STATUS` shows who waits for what.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, db_cpu_cores, db_lock_waiting_mean, db_query_cache_limit_bytes,
        db_query_cache_lock_waiting_mean, db_row_lock_time_fraction, db_row_lock_waiting_mean, db_row_lock_waits_per_s, db_table_lock_waits_per_s, db_threads_running_mean,
        ended_per_s, in_flight_mean, rate, response_time_mean_us,
    }],
    causes: &[
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    kind: Some(LimitKind::Documents),
    meaning: Some(
        "The database spends the time. That is changed in its queries and indexes, not in a setting.",
    ),
    ..Limit::new(
        LimitId::DbLockContention,
        "Database lock contention",
        include_str!("mod.rs"),
        finding::check,
    )
};

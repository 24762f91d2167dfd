//! `db-slow-queries`: statements examine far more rows than they return, and that is what requests wait for.
//!
//! Without a matching index, MariaDB does a full table scan for each statement. While the table is small the cost is
//! negligible; as it grows each page costs more CPU, and a CPU saturated with scans looks like useful work.
//!
//! ## How it is recognised
//! The statements read thousands of rows each in scans (`Handler_read_rnd_next`), and that is what the database spends its time
//! on: so many rows per CPU second that it can have done little else. And it matters: the CPUs are saturated and a good part of
//! that is the database, or a good part of the requests that are worked on are statements that use CPU.
//!
//! Not all needless work is a scan: a join without an index compares each row of one table with each of the other
//! (`Select_full_join`), a long list is sorted for a few of its rows (`Sort_merge_passes`), thousands of rows are skipped
//! (`Handler_read_next`). What they have in common is their cost: a statement that finds its rows by an index takes some tenths
//! of a millisecond of CPU time, connection included; these take tens of times as much.
//!
//! Without root nobody sees what the statements do, nor who sends them, and a database may not let webdyno in: that it takes most of full
//! CPUs is half sure. PostgreSQL, which webdyno does not ask, is suspected in the same way, and so is a database that was found behind the service
//! when most of the load was over: on full CPUs that takes seconds.
//!
//! While another limit shields the database from more of them, such as too few workers, that limit comes first.
//!
//! ## What to do
//! An index for the statement, or another statement: manual change. If `performance_schema` is on, or the statement was seen
//! running, the finding names it; else the slow log does
//! (`SET GLOBAL slow_query_log = ON, long_query_time = 0.05, log_queries_not_using_indexes = ON` takes effect at once for new
//! connections). Never a bigger `join_buffer_size`: it makes the scan a little cheaper, but each connection allocates it.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'` twice under load, over `Com_select`; `SHOW FULL PROCESSLIST`; `EXPLAIN` of
//! the statement says `type: ALL`.

pub(crate) mod finding;
pub(crate) mod named_statement;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        backend_cpu_cores, cores, cpu_busy_fraction, db_cpu_cores, db_full_joins_per_s, db_rows_read_in_order_per_s,
        db_rows_scanned_per_s, db_scans_per_s, db_selects_per_s, db_sort_merges_per_s, db_statement_per_s,
        db_statement_rows_per_s, db_statement_running_mean, db_statements_per_s, db_threads_running_mean,
        foreign_program_cpu_cores, in_flight_mean, rate, site_cpu_cores, usable_busy_fraction, usable_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::DbConnectionsExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::AppWorkersExhausted,
        LimitId::SingleThreadSaturated,
        LimitId::ForeignLoad,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    meaning: Some("The database takes the time. The remedy is in queries and indexes, not in a setting."),
    ..Limit::of(LimitId::DbSlowQueries, "Slow database queries", finding::check)
};

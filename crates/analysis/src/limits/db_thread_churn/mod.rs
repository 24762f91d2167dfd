//! `db-thread-churn`: the database creates a thread for each connection, and discards it.
//!
//! MariaDB gives each connection a thread, and caches up to `thread_cache_size` idle ones for the next connections. If the
//! cache is too small and the site opens a connection for each page, or several, each costs the start and the end of a thread.
//!
//! ## How it is recognised
//! Threads are created nearly as fast as connections are opened, thousands per second, and the CPUs are saturated: the cost of a
//! thread (some 50 µs, more where system calls are slow) times their number is a good part of the CPU time used. Without root,
//! or an account, nobody sees what the database does: it is suspected where several threads and processes for each request begin on the machine,
//! and it takes a good part of the CPU.
//!
//! ## What to do
//! `thread_cache_size`: MariaDB's own default, 256 or `max_connections` if that is less, and more than were ever connected at
//! once. Applied live. Persistent connections in the application would do the same and more.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Threads_created'` and `'Connections'` twice under load.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, db_connections_limit, db_connections_per_s, db_connections_used_max,
        db_cpu_cores, db_thread_cache_limit, db_threads_created_per_s, foreign_program_cpu_cores, forks_per_s, rate,
        usable_busy_fraction, worker_processes_started_per_s,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Documents),
    ..Limit::of(LimitId::DbThreadChurn, "Database threads created for each connection", finding::check)
};

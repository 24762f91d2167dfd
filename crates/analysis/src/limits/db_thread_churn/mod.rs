//! `db-thread-churn`: the database starts a thread for each connection, and throws it away.
//!
//! MariaDB gives each connection a thread, and keeps `thread_cache_size` of those that are free for the next ones. Where it
//! keeps too few and the site opens a connection for each page, or several, each costs the start and the end of a thread.
//!
//! ## How it is recognised
//! Threads are created nearly as fast as connections are opened, thousands a second, and the processors are full: what a
//! thread costs (some 50 us, more where calls into the kernel are slow) times their number is a good part of what the processors do.
//!
//! ## What to do
//! `thread_cache_size`: MariaDB's own default, 256 or `max_connections` if that is less, and more than were ever
//! connected at once. It takes effect at once. Persistent connections in the program would do the same and more.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Threads_created'` and `'Connections'` twice under load.

pub(crate) mod finding;

use crate::limits::ceiling::Resource;
use crate::limits::{LimitKind, Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    causes: &[
        LimitId::CpuSaturated,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Documents),
    ..Limit::new(LimitId::DbThreadChurn, include_str!("mod.rs"), finding::check)
};

//! Faults of the database.

use super::{Fault, nothing, too_few, waits};
use crate::draw::server::{Extra, Query};

/// What a table takes to be read without an index, milliseconds.
const SCAN_MS: f64 = 20.0;
/// Commits a second that a disk of 60 writes may not do. Where a page waits longer for something else, a commit is hardly felt.
const COMMITS_MIN: f64 = 25.0;
const COMMIT_WAIT_MS_MAX: u32 = 250;

pub const FAULTS: &[Fault] = &[
    Fault {
        id: "db-connections",
        findings: &["db-connections-exhausted"],
        applies: |server| {
            // The database takes ten in any case.
            server.query == Some(Query::Item) && server.wait_ms > 0 && server.demand() >= 20.0
        },
        prepare: nothing,
        set: |server, random| {
            server.settings.db_connections = too_few(server, random).max(10);
            format!("max_connections {} for {:.0} under way", server.settings.db_connections, server.demand())
        },
    },
    Fault {
        id: "db-no-index",
        findings: &["db-slow-queries"],
        applies: |server| server.query == Some(Query::Item) && server.is_overloaded_by(SCAN_MS),
        prepare: nothing,
        set: |server, _| {
            server.settings.index = false;
            "no index on the column that is asked for".into()
        },
    },
    Fault {
        id: "db-lock",
        findings: &["db-lock-contention"],
        applies: |server| waits(server) && server.query == Some(Query::Number),
        prepare: nothing,
        set: |server, _| {
            server.settings.number_first = true;
            format!("a row stays locked for {} ms", server.wait_ms)
        },
    },
    Fault {
        id: "db-threads",
        findings: &["db-thread-churn"],
        applies: |server| server.query == Some(Query::Item) && server.is_full(),
        prepare: |server| server.extras.extend([Extra::Boxes]),
        set: |server, _| {
            server.settings.thread_cache = Some(0);
            "thread_cache_size 0, and a connection for each box of a page".into()
        },
    },
    Fault {
        id: "db-cache",
        findings: &["db-cache-too-small"],
        // Each request reads a hundred pages of a table that does not fit.
        applies: |server| server.query == Some(Query::Item) && server.rate() > 15.0,
        prepare: |server| server.extras.extend([Extra::DataDisk]),
        set: |server, _| {
            server.settings.buffer_pool_mb = Some(8);
            "innodb_buffer_pool_size 8M, and a disk of 400 reads a second".into()
        },
    },
    Fault {
        id: "db-commit",
        findings: &["disk-commit-bound"],
        // A commit waits for a write or two of a sixtieth of a second each.
        applies: |server| {
            let writes = server.query == Some(Query::Number) && server.rate() >= COMMITS_MIN;
            writes && server.wait_ms <= COMMIT_WAIT_MS_MAX
        },
        prepare: |server| server.extras.extend([Extra::DataDisk]),
        set: |server, _| {
            server.settings.flushes_commits = true;
            "innodb_flush_log_at_trx_commit 1 on a disk of 60 writes a second".into()
        },
    },
];

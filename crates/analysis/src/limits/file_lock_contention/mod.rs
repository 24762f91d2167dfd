//! `file-lock-contention`: requests wait for a lock on one file, which is held for a good part of each.
//!
//! A program that locks a file (`flock`, `fcntl`, `lockf`) while it works serves one request after the other, however many workers
//! and processors there are: counters and caches in files, SQLite while something is written, log files that are locked for each
//! line, lock files of frameworks around "only one at a time". Each request that waits holds a worker, so that the pools look
//! exhausted. Session files of PHP are `session-lock`.
//!
//! ## How it is recognised
//! In the kernel's table of locks, processes of the service or of what is behind it wait for one file: at least a fifth of the
//! requests in flight, half of the children of a pool, or half of Apache's workers with nearly all other requests in the queue
//! for them. Without load of our own that is enough; under load a request takes much longer than one that is alone. Workers of
//! Apache without a request may wait in a lock around accept: about as many as are idle do not count.
//!
//! ## What to do
//! Hold the lock for less long: read and compute before, write after. One lock for each record and not for all; readers that share
//! (`LOCK_SH`); SQLite with `journal_mode=WAL`, or a database server; a counter in memory (APCu, Redis). Manual change in the
//! application. More workers only let more requests wait.
//!
//! ## By hand
//! `grep -e '->' /proc/locks` under load: who waits, and the file's inode; `ls -l /proc/PID/fd` names it.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cpu_busy_fraction, file_lock_waiting_mean, in_flight_mean, lock_waiting_mean, rate, response_time_alone_us,
        response_time_mean_us, workers_idle_mean,
    }],
    causes: super::session_lock::CAUSES,
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Explained),
    ..Limit::of(LimitId::FileLockContention, "Requests wait for a lock on a file", finding::check)
};

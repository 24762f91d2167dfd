//! `session-lock`: requests of one session wait for each other, in a lock on the session's file.
//!
//! PHP keeps each session in a file, and locks it from `session_start()` to the end of the request: of one visitor's requests
//! only one is served at a time, however many workers are free. A page that asks for several things at once (scripts that poll, a
//! long export in another tab) waits for the slowest of them; each that waits holds a worker. Whoever tests with one cookie
//! meets this and nothing else.
//!
//! ## How it is recognised
//! In the kernel's table of locks, processes of the service or of PHP-FPM wait for a file that PHP names as a session (`sess_`):
//! a good part of the requests in flight, or of the workers that serve. The processors may be idle. The name of the session is
//! not recorded, only the folder.
//!
//! ## What to do
//! Let go of the session as soon as it was read: `session_write_close()` after the last change, or
//! `session_start(['read_and_close' => true])` where nothing is changed; no session at all for what needs none. Manual change in
//! the application. More workers only let more requests wait. Sessions in Redis or memcached lock as well, unless that is
//! switched off, and then the last one to end wins.
//!
//! ## By hand
//! `grep -e '->' /proc/locks` under load: who waits, and the file's inode; `ls -l /proc/PID/fd` names it.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// Who waits for a file holds a worker: what a lock on one makes look exhausted.
pub(crate) const CAUSES: &[LimitId] = &[
    LimitId::PhpFpmWorkersExhausted,
    LimitId::ApacheWorkersExhausted,
    LimitId::ApacheSpawnLag,
    LimitId::NginxConnectionsExhausted,
    LimitId::LighttpdConnectionsExhausted,
    LimitId::AppWorkersExhausted,
    LimitId::BackendRefused,
    LimitId::AcceptQueueOverflow,
    LimitId::LostSyns,
];

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, backend_queue_mean, cpu_busy_fraction, file_lock_waiting_mean, fpm_processes_busy_mean, fpm_processes_max,
        fpm_queue_mean, in_flight_mean, lock_waiting_mean, rate, response_time_alone_us, response_time_mean_us, session_lock_waiting_mean,
    }],
    causes: CAUSES,
    kind: Some(LimitKind::Documents),
    gain: Some(LimitGain::Explained),
    ..Limit::of(LimitId::SessionLock, "Requests of one session wait for each other", finding::check)
};

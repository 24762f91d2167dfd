//! `open-files-exhausted`: a process of the service, or of a backend, has reached its open files limit.
//!
//! A connection is a file, and so is each connection to a backend, each file that is sent and each end of a pipe to a program:
//! a proxy needs two for a request, a CGI program six more than a file. At the limit, what needs one fails: 503 if it was for
//! the backend; if it was for a client's connection, Apache ends the whole process.
//!
//! ## How it is recognised
//! The log of the service says `(24)Too many open files` (for the whole machine: `(23)Too many open files in system`, and the
//! kernel's log), and a process was seen near its limit. Without logs: a process is at its limit while requests fail, or
//! while connections wait in its accept queue. Where all children of PHP-FPM behind it are busy all the time, these decide how many are
//! answered (`php-fpm-workers-exhausted`), and this is half sure.
//!
//! ## What to do
//! Raise the limit of the process to twice what its settings can need: two for each connection that a process can have, and
//! some for logs, modules and sockets. Debian's start script gives Apache 8192. A limit is inherited when a process starts:
//! restart the service.
//!
//! ## By hand
//! `grep -c 'Too many open files'` of the error log; `ls /proc/PID/fd | wc -l` and `grep 'open files' /proc/PID/limits` of each
//! process; of the machine `cat /proc/sys/fs/file-nr`.

pub(crate) mod ceiling;
pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{IncidentFigure, IncidentRule, LOGGED, row};
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        ahead_fullest_open_files_limit, ahead_fullest_open_files_max, ahead_open_files_limit,
        ahead_open_files_max, backend_open_files_fraction, backend_open_files_limit, backend_open_files_max,
        backend_queue_mean, failed_fraction, kernel_file_max_messages, nginx_open_files_messages,
        open_files_fraction, open_files_limit, open_files_max, open_files_messages, open_files_program_messages,
        open_files_system_messages, rate, resource_short_exits, system_open_files_limit, system_open_files_max,
    }],
    causes: &[
        LimitId::BackendRefused,
        LimitId::NginxConnectionsExhausted,
        LimitId::LighttpdConnectionsExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::AppWorkersExhausted,
        LimitId::ApacheWorkerChurn,
        LimitId::ApacheSpawnLag,
        LimitId::ApacheScoreboardFull,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::DbConnectionsExhausted,
        LimitId::CpuSaturated,
        LimitId::ForeignLoad,
    ],
    ceilings: &[ceiling::ceiling],
    config_checks: &[config_check::fewer_files_than_connections],
    keeps_hold_times: true,
    gain: Some(LimitGain::Failures),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::OpenFilesExhausted, "Open file limit reached", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("process.open_files_max_count", IncidentFigure::ShareOf("process.open_files_limit_count"), (0.9, 1), 0.8, "a process of the service is near its open files limit", "at the limit it accepts no connections"),
    row("apache_log.too_many_open_files.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache reached its open files limit", LOGGED),
    row("files.open_count", IncidentFigure::ShareOf("files.max_count"), (0.9, 1), 0.8, "the machine is near its open files limit", "at the limit nothing can be opened or accepted"),
];

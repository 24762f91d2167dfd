//! `log-io`: workers are held until their lines are in the log.
//!
//! A worker writes the line of a request to the access log after the response was sent, and is free again when the write has
//! returned. Usually that is a copy into memory. It is not if the disk must have the line first (mounted `sync`, or so busy
//! that writes wait), or if the log is a pipe whose program cannot keep up: then all writers wait for it. A worker of nginx
//! serves all its connections in turn, and none of them while a line is written.
//!
//! ## How it is recognised
//! Many of the busy workers are writing the log (`L` in the scoreboard) while CPU is free, and there are no DNS lookups
//! (`hostname-lookups` shows as `L`, too), or are seen within a write to it: where a line is written after its connection was
//! cleaned up the scoreboard shows `W`. Either processes of the service's group wait for a disk (PSI, or the disk of the
//! logs is busy and slow), or the log goes to a program. If the scoreboard cannot be read, a disk of the logs that is busy with
//! small writes is evidence, with less confidence. nginx has no scoreboard: its workers must be seen waiting in a write to an
//! access log without a buffer, or such a disk. Not if memory is short: then everything waits for the disk.
//!
//! ## What to do
//! For a file: `BufferedLogs On`, in nginx `access_log FILE combined buffer=64k flush=1s`, which write a block of lines at a
//! time, or a disk that may delay writes. For a program: log to a file and let the program read that; no request waits for it
//! then.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` (many `L`), `cat /proc/pressure/io`, `iostat -x 1`,
//! `findmnt -T /var/log/apache2`; `grep -ri customlog /etc/apache2` (a `|` is a program).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        access_log_bytes_per_s, cpu_busy_fraction, log_disk_await_us, log_disk_busy_fraction,
        log_disk_reads_per_s, log_disk_writes_per_s, log_disk_written_bytes_per_s, look_ups_mean,
        nginx_workers_logging_mean, nginx_workers_mean,
        pressure_group_io_some_fraction, pressure_group_memory_full_fraction, pressure_io_some_fraction, rate,
        response_time_mean_us, swapped_in_pages_per_s, worker_threads_logging_mean, worker_threads_seen_mean, workers_busy_mean, workers_logging_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSettingClamped,
        LimitId::AcceptQueueOverflow,
        LimitId::ApacheScoreboardFull,
        LimitId::SlowClients,
        LimitId::NginxConnectionsExhausted,
    ],
    kind: Some(LimitKind::RequestCost),
    gain: Some(LimitGain::Cost),
    ..Limit::of(LimitId::LogIo, "Log writes limited by the disk", finding::check)
};

//! `log-io`: workers are held until their lines are in the log.
//!
//! A worker writes the line of a request into the access log after the answer was sent, and is free again when the write
//! has returned. Usually that is a copy into memory. It is not where the disk must have the line first (mounted `sync`,
//! or so busy that writes wait), or where the log is a pipe whose program cannot keep up: then all who write wait for it.
//!
//! ## How it is recognised
//! Many of the busy workers are at the log (`L` in the scoreboard) while the processors have room, and no names are looked
//! up (`hostname-lookups` shows as `L`, too). Either processes of the service's group wait for a disk (pressure stall
//! information, or the disk of the logs is busy and slow), or the log goes to a program. Where the scoreboard cannot be
//! read, a disk of the logs that is busy with small writes tells, with less certainty. Not when memory is short: then
//! everything waits for the disk.
//!
//! ## What to do
//! For a file: `BufferedLogs On`, which writes a block of lines at a time, or a disk that may keep writes back. For a
//! program: let the log be a file, and the program read that; no visitor waits for it then.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep Scoreboard` (many `L`), `cat /proc/pressure/io`, `iostat -x 1`,
//! `findmnt -T /var/log/apache2`; `grep -ri customlog /etc/apache2` (a `|` is a program).

pub(crate) mod finding;

use crate::limits::{LimitGain, LimitKind, Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::ApacheScoreboardFull,
        LimitId::SlowClients,
    ],
    kind: Some(LimitKind::RequestCost),
    gain: Some(LimitGain::Cost),
    ..Limit::new(LimitId::LogIo, include_str!("mod.rs"), finding::check)
};

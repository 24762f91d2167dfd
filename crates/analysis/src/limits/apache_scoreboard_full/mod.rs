//! `apache-scoreboard-full`: processes that shall end keep their places, and new ones find none.
//!
//! After a graceful reload, or when there are more workers than needed, a process takes nobody in any more but stays
//! until what it serves is done: a download over a slow line, a connection that is kept open by an application. Until then
//! it keeps its place among the `ServerLimit` places of the scoreboard. With several reloads an hour the places run
//! out: few processes are left to serve everybody, far fewer than `MaxRequestWorkers` allows.
//!
//! ## How it is recognised
//! Connections wait to be accepted, the status page shows processes that are stopping (`Stopping`, `G` in the
//! scoreboard), all places are taken, and without the stopping ones there are fewer workers than MaxRequestWorkers. The
//! error log says "scoreboard is full, not at MaxRequestWorkers" (AH03490; AH00288 under the worker MPM), each second under
//! the event MPM: that alone, with as many processes as ServerLimit, suffices where the page cannot be read.
//!
//! ## What to do
//! Raise `ServerLimit` to one and a half times the processes that MaxRequestWorkers needs, and at least by those that are
//! stopping now and half as many more. This takes a stop and a start. Then look at who reloads so often, and why.
//!
//! ## By hand
//! `curl -s http://localhost/server-status?auto | grep -E 'Stopping|Scoreboard'`; `grep -c AH03490 /var/log/apache2/error.log`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, LOGGED, row};
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, apache_processes_mean, config_generation, in_flight_mean, processes_stopping_mean,
        rate, response_time_mean_us, scoreboard_full_messages, scoreboard_full_messages_worker,
        service_processes_mean, workers_busy_mean, workers_finishing_mean, workers_idle_mean, workers_limit,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::SynQueueOverflow,
    ],
    relieves: &[Resource::Workers],
    keeps_hold_times: true,
    kind: Some(LimitKind::Concurrency),
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::new(
        LimitId::ApacheScoreboardFull,
        "Apache scoreboard full",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache_log.AH00288.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache's scoreboard is full (AH00288)", LOGGED),
];

//! `apache-scoreboard-full`: processes that are stopping keep their scoreboard slots, and no new ones can start.
//!
//! After a graceful reload, or when there are more workers than needed, a process accepts no more connections but stays until
//! its current ones are done: a download over a slow line, a connection that an application keeps open. Until then it keeps one
//! of the `ServerLimit` slots of the scoreboard. With several reloads an hour the slots run out: the few active processes
//! provide far fewer workers than `MaxRequestWorkers` allows.
//!
//! ## How it is recognised
//! Connections wait in the accept queue, the status page shows stopping processes (`Stopping`, `G` in the scoreboard), all
//! slots are in use, and without the stopping ones there are fewer workers than MaxRequestWorkers. The error log says
//! "scoreboard is full, not at MaxRequestWorkers" (AH03490; AH00288 under the worker MPM), each second under the event MPM:
//! that alone, with as many processes as ServerLimit, suffices if the page cannot be read.
//!
//! ## What to do
//! Raise `ServerLimit` to 1.5 times the processes that MaxRequestWorkers needs, and at least by 1.5 times the processes that
//! are stopping now. Applied by restart. Then find out what reloads so often, and why.
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
    ..Limit::of(LimitId::ApacheScoreboardFull, "Apache scoreboard full", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache_log.AH00288.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache scoreboard full (AH00288)", LOGGED),
];

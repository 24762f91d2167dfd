//! `process-limit`: the service may start no more processes or threads, although its own settings allow more workers.
//!
//! Three limits can refuse a new process: the tasks of the service's control group (`TasksMax` of systemd, `pids.max`), those
//! of its user (`ulimit -u`, which does not apply to root), and those of the whole machine (`kernel.threads-max`,
//! `kernel.pid_max`). After each failed fork the main process of Apache sleeps ten seconds, so it does little else.
//!
//! ## How it is recognised
//! The kernel refused tasks to the control group during the load, or Apache's log reports a failed fork (AH00159), and the
//! tasks are at one of these limits. From the outside alone: the group is at its limit all the time, while connections wait and
//! the scoreboard has free slots for more workers.
//!
//! ## What to do
//! Raise the reached limit to what the settings of the service can need, and half as much again: one task for each worker, and
//! for threaded workers two more per process. By hand stop and start it then: a graceful reload is refused the same way.
//! `tune --apply` raises the limit of running processes, if the control group is the service's own, and keeps it with a file
//! that is added to the unit (`/etc/systemd/system/UNIT.d/zzz-webdyno.conf`). The limit of a container or a slice is raised
//! where it is set: `docker update --pids-limit N CONTAINER`, `systemctl set-property NAME.slice TasksMax=N`.
//!
//! ## By hand
//! `systemctl show -p TasksMax -p TasksCurrent apache2`, `pids.current`, `pids.max` and `pids.events` of the control group,
//! `grep AH00159` of the error log, `grep 'Max processes' /proc/PID/limits`, `dmesg | grep 'fork rejected'`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::incident::{EACH, IncidentFigure, IncidentRule, LOGGED, row};
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, failed_fraction, fork_failed_messages, kernel_process_limit_messages,
        machine_threads_limit, machine_threads_max, no_processes_left_messages, rate, service_processes_mean,
        tasks_limit, tasks_max, tasks_refused, user_tasks_limit, user_tasks_max, workers_busy_mean,
        workers_limit, workers_startable_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::ApacheWorkerChurn,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
        LimitId::LostSyns,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::KeepaliveHoldsWorkers,
        LimitId::SlowClients,
    ],
    gain: Some(LimitGain::Waiting),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::ProcessLimit, "Process limit reached", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("apache_log.AH00159.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache could not start a process (AH00159)", LOGGED),
    row("apache_log.no_processes_left.messages_count", IncidentFigure::Rise, (1.0, 1), 1.0, "Apache may start no more processes", LOGGED),
    row("cgroup.tasks_refused_count", IncidentFigure::Rise, (1.0, 1), 1.0, "the service's group may start no more processes", EACH),
];

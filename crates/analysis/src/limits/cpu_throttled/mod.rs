//! `cpu-throttled`: the service's control group used up its CPU quota, and is throttled until the next period.
//!
//! A container limited to 0.5 cores may run for 50 ms in each 100 ms. When these are used (by two processes at once after 25
//! ms) the kernel stops all its processes until the next period starts. The machine looks idle, from within too; responses are
//! late by tens or hundreds of milliseconds.
//!
//! ## How it is recognised
//! The kernel throttled the group in at least a tenth of the periods (`nr_throttled` against `nr_periods` in the `cpu.stat` of
//! the group or of a parent), for at least 2% of the time in total. Fewer periods, from one in two hundred on, are the cause of
//! responses that are slow now and then, as users wait for them in the server, by no more than some periods. A group that uses less
//! than 85% of its quota, and is throttled in fewer than nine of ten periods, is hardly more than half sure. Where the
//! periods were read too seldom, as webdyno itself is throttled with the service, all tasks of a group with a quota that wait for CPU at
//! the same time (PSI) beside idle processors show it; and where it could not even read how busy it was, with a quota of half a core or
//! less, it is suspected if requests take much longer than alone. Without the
//! control group's files (in a container, in another mount namespace) tasks of the service that are ready to run and do not,
//! while cores are idle, still show it, with less confidence: they are held back by something that cannot be read.
//! A backend in a control group of its own (the container of PHP-FPM or of the database) is throttled alike: the queue in front of it
//! looks like one of too few workers, and more of them would wait as well. Backends of one group use its quota together.
//!
//! ## What to do
//! Raise the quota (`cpu.max`, `docker update --cpus`, `CPUQuota=` of a unit, `limits.cpu` in Kubernetes); applied live. It
//! should be the CPU cost of a request times the wanted rate, plus a third, as requests do not arrive evenly.
//!
//! ## By hand
//! `grep throttled cpu.stat` in the control group twice under load; `cat cpu.max` (version 1: `cpu.cfs_quota_us`).

mod backend;
pub(crate) mod finding;
mod quota;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            backend_cpu_cores, backend_cpu_periods, backend_cpu_periods_total, backend_cpus_allowed, backend_quota_cores, backend_throttled_periods, cores, cpu_busy_fraction, cpu_periods, cpu_quota_cores, group_cpu_cores, offered_rate, pressure_cpu_some_fraction,
            pressure_group_cpu_full_fraction, rate, response_time_alone_us, response_time_mean_us, service_cpu_cores, service_running_mean, throttled_cores,
            throttled_fraction, throttled_periods, usable_busy_fraction, usable_cores,
        },
        &crate::resources::slow_responses::FACTS,
    ],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::ForeignLoad,
        LimitId::ApacheWorkersExhausted,
        LimitId::AppWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::PhpFpmSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Concurrency),
    meaning: Some(
        "A quota throttles the service although CPU is available. Raise it where it was set (container, service unit).",
    ),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::CpuThrottled, "CPU throttled by a control group quota", finding::check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("cgroup.throttled_s", IncidentFigure::Rate(1.0), (0.1, 3), 0.02, "the service is throttled by its CPU quota (seconds)", "users notice 10% of the time; any burst is throttled briefly"),
];

//! `cpu-throttled`: the control group of the service has used up its quota of processor time, and is stopped until the next
//! period.
//!
//! A container that may use 0.5 cores may run for 50 ms in each 100 ms. When these are used (by two processes at once after
//! 25 ms) the kernel stops all its processes until the next period begins. The machine looks idle, from within too; answers
//! are late by tens or hundreds of milliseconds.
//!
//! ## How it is recognised
//! In at least a tenth of the periods the kernel stopped the group (`nr_throttled` against `nr_periods` in the `cpu.stat` of
//! the group or of one above it), for at least 2% of the time in all. It needs the control group's files; without them a
//! service that waits for processors although these are idle remains.
//!
//! ## What to do
//! Raise the quota (`cpu.max`, `docker update --cpus`, `CPUQuota=` of a unit, `limits.cpu` in Kubernetes): it holds at once.
//! What a request costs times the rate that is wanted, and a third more, since requests do not come evenly.
//!
//! ## By hand
//! `grep throttled cpu.stat` in the control group twice under load; `cat cpu.max` (version 1: `cpu.cfs_quota_us`).

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, cpu_periods, cpu_quota_cores, group_cpu_cores, offered_rate,
        pressure_group_cpu_full_fraction, rate, response_time_mean_us, service_cpu_cores, throttled_cores,
        throttled_fraction, throttled_periods, usable_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::ForeignLoad,
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Concurrency),
    meaning: Some(
        "A quota holds the processors back although they are free. Whoever set it (container, service unit) can \
             raise it.",
    ),
    incidents: INCIDENTS,
    ..Limit::new(
        LimitId::CpuThrottled,
        "CPU throttled by a control group quota",
        include_str!("mod.rs"),
        finding::check,
    )
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("cgroup.throttled_s", IncidentFigure::Rate(1.0), (0.1, 3), 0.02, "the service's group is held back by its processor quota (seconds)", "a tenth of the time is what users feel; quotas bite for moments at each burst"),
];

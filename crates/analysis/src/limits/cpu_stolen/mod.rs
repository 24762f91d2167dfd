//! `cpu-stolen`: the host of the virtual machine gives its processors to others.
//!
//! A virtual machine has its processors only as far as the host lets it. What it wanted and did not get is counted as steal
//! time. It belongs to other guests of that host, or is kept back by a limit of the provider (burst credits that are used up).
//!
//! ## How it is recognised
//! At least a tenth of the machine's processor time was stolen, and the rest left nothing idle to speak of (those processors
//! that the service may use at least 85% busy, stolen time included): the machine wanted more than it got. It needs /proc/stat,
//! nothing else. Or somebody of the service's control group waited for a processor in at least half of the time, although no
//! quota keeps it from one.
//!
//! Where less than a quarter was stolen, and the service fills its processors with the rest, what fills them is the limit
//! (`cpu-saturated` says what was stolen). Where memory seems to be short as well it is only half sure: the host reads and
//! writes what is swapped.
//!
//! ## What to do
//! Discard the run: it says how busy the neighbours were. Ask the provider, choose dedicated processors or a larger share, or
//! measure at another time. No setting of the server gives that time back.
//!
//! ## By hand
//! `vmstat 1` (column `st`), `top` (`st`), `mpstat -P ALL 1`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, cpu_steal_fraction, pressure_cpu_some_fraction,
        pressure_group_cpu_some_fraction, rate, run_queue_mean, service_cpu_cores, throttled_fraction,
        usable_busy_fraction, usable_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::ForeignLoad,
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    meaning: Some(
        "Other virtual machines take this one's processor time. Measure again when it is quiet, or move.",
    ),
    ..Limit::new(
        LimitId::CpuStolen,
        "CPU time stolen by the hypervisor",
        include_str!("mod.rs"),
        finding::check,
    )
};

//! `cpu-stolen`: the hypervisor gives this virtual machine's CPU time to others.
//!
//! A virtual machine gets CPU only as far as the host schedules it. What it wanted and did not get is counted as steal time:
//! used by other guests of that host, or withheld by a limit of the provider (burst credits used up).
//!
//! ## How it is recognised
//! At least a tenth of the machine's CPU time was stolen, and the rest left hardly any idle time (the cores that the service
//! may use at least 85% busy, stolen time included): the machine wanted more than it got. It needs only /proc/stat. Or tasks of
//! the service's control group waited for CPU at least half of the time, although no quota throttles it.
//!
//! If less than a quarter was stolen, and the service saturates the rest, the limit is what saturates it (`cpu-saturated`
//! reports the stolen time). If memory seems short as well, confidence drops to 0.5: the host does the I/O of swapping.
//!
//! ## What to do
//! Discard the run: it shows how busy the neighbours were. Ask the provider, choose dedicated CPUs or a larger share, or
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
        "The hypervisor gives this machine's CPU time to others. Measure again at a quiet time, or move.",
    ),
    ..Limit::of(LimitId::CpuStolen, "CPU time stolen by the hypervisor", finding::check)
};

//! `foreign-load`: other programs take the processors that the service lacks.
//!
//! A backup, a virus scan, a second site: what is neither the service's, nor its backends', nor ours. The kernel is fair to
//! each process, so that twelve programs that compute leave a few workers a fraction of what they need. Whoever looks only at
//! the web server sees pages that take longer.
//!
//! ## How it is recognised
//! The processors that the service may use are full and it waits for them (as `cpu-saturated` says), and others have at least
//! a fifth of them: what is left of the machine's time (without interrupts) when the service's, its backends', the load
//! generator's, the agent's and the kernel threads' are taken off. Programs that can be seen are named. Time that nobody who
//! can be seen has used (another container, short processes) is a suspicion only. Others that fill processors for which the
//! service does not wait, at low priority, are none.
//!
//! ## What to do
//! Move these programs to another machine or another time, or give them what is left over: `nice -n 19`, a control group
//! with a low `cpu.weight`, a `CPUWeight=` of their unit. Never end what you do not know.
//!
//! ## By hand
//! `top` or `pidstat 5` under load: who uses the processors beside the web server?

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            foreign_program_cpu_cores, offered_rate, rate, response_time_mean_us,
        },
        &crate::resources::processors::FACTS,
    ],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    meaning: Some(
        "Other programs on the server take what this one needs. Measure again without them, or move them.",
    ),
    ..Limit::new(LimitId::ForeignLoad, "Other programs use the CPU", include_str!("mod.rs"), finding::check)
};

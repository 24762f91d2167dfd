//! `foreign-load`: other programs use the CPU that the service needs.
//!
//! A backup, a virus scan, a second site: neither the service nor its backends nor webdyno. The kernel schedules all processes
//! fairly, so twelve programs that compute leave a few workers a fraction of what they need. Seen from the web server alone,
//! pages just take longer.
//!
//! ## How it is recognised
//! The cores that the service may use are saturated and it waits for them (as `cpu-saturated` says), and other programs use at
//! least a fifth of them: what is left of the machine's CPU time (without interrupts) after subtracting the service, its
//! backends, the load generator, the agent and kernel threads. Visible programs are named. CPU time of no visible process
//! (another container, short-lived processes) is a suspicion only. It explains their share of the time that a request is at a
//! processor or waits for one (what it takes, as much longer as tasks want each core); where requests queue for workers of a
//! pool that are there for less than a third of their time, it is the pool that is too small, and this is no finding. Programs
//! that use the CPU at times only are found by the slow responses of these seconds: others' cores and the wait for one must be
//! more in them than else. Programs at low priority on cores that the service does not wait for are no finding.
//!
//! ## What to do
//! Move these programs to another machine or another time, or lower their priority: `nice -n 19`, a control group with a low
//! `cpu.weight`, a `CPUWeight=` of their unit. Never kill what you do not know.
//!
//! ## By hand
//! `top` or `pidstat 5` under load: what uses CPU beside the web server?

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
        &crate::resources::slow_responses::FACTS,
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
        "Other programs on the server use the CPU it needs. Measure again without them, or move them.",
    ),
    ..Limit::of(LimitId::ForeignLoad, "Other programs use the CPU", finding::check)
};

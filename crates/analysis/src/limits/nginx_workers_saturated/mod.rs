//! `nginx-workers-saturated`: nginx has fewer workers than processors, and they compute all the time.
//!
//! A worker of nginx is one thread: it takes one processor at most. `worker_processes` is 1 where nothing else is written, so
//! that on a machine of eight processors compression, TLS and copying have one eighth of it.
//!
//! ## How it is recognised
//! The workers together use as many processors as there are workers, while others of the machine, or of the control group's
//! quota, are idle.
//!
//! ## What to do
//! As many workers as processors: `worker_processes` of their number, or `auto`. A reload is enough. Under a control group's
//! quota `auto` counts the machine's processors: then the number is better.
//!
//! ## By hand
//! `top -H` under load: `nginx: worker process` at 100%; `nproc`; `nginx -T | grep worker_processes`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, cpu_per_request_us, rate, response_time_mean_us, service_cores_limit,
        service_cpu_cores,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::SynQueueOverflow, LimitId::LostSyns],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Concurrency),
    ..Limit::new(
        LimitId::NginxWorkersSaturated,
        "nginx workers saturate their cores",
        include_str!("mod.rs"),
        finding::check,
    )
};

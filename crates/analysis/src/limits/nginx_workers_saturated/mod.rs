//! `nginx-workers-saturated`: nginx has fewer workers than cores, and they use 100% CPU.
//!
//! A worker of nginx is one thread: it uses one core at most. The default of `worker_processes` is 1, so on a machine of eight
//! cores compression, TLS and copying get one eighth of it.
//!
//! ## How it is recognised
//! The workers together use as many cores as there are workers, while other cores of the machine, or of the control group's
//! quota, are idle.
//!
//! ## What to do
//! As many workers as cores: `worker_processes` to their number, or `auto`. A reload is enough. Under a control group's quota
//! `auto` counts the machine's cores: then the number is better.
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
        client_cpu_cores, cores, cpu_busy_fraction, cpu_per_request_us, rate, response_time_mean_us, service_cores_limit,
        service_cpu_cores,
    }],
    causes: &[LimitId::AcceptQueueOverflow, LimitId::SynQueueOverflow, LimitId::LostSyns],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::Concurrency),
    ..Limit::of(LimitId::NginxWorkersSaturated, "nginx workers saturate their cores", finding::check)
};

//! `apache-worker-churn`: processes end after a few connections, and the parent cannot start others as fast.
//!
//! `MaxConnectionsPerChild` ends a process after that many connections, as a cure for modules that leak memory. Each new
//! process costs a fork; and the parent looks only once a second how many are idle, and starts at most 32 each time under
//! prefork. So the rate cannot be above 32 times that number, whatever the machine could do, and between two looks there
//! may be nobody to take the next connection in.
//!
//! ## How it is recognised
//! Processes begin and end all the time (their ids change), as many connections were accepted for each of them as
//! MaxConnectionsPerChild says, connections wait to be accepted, and more workers would be allowed. Where answers are so quick
//! that processes are gone before anybody looks, 32 times that number of connections a second tell. Where the ids cannot be
//! seen, forks of the whole machine at such a pace tell the same, with less certainty.
//!
//! ## What to do
//! `MaxConnectionsPerChild 0`, or 10,000 where a module is known to leak: then a process ends rarely. A graceful reload is
//! enough.
//!
//! ## By hand
//! `watch -n 1 'pgrep -P $(cat /run/apache2/apache2.pid)'`; `vmstat 1` (idle processors, no swap); `ss -ltn`.

pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        accept_queue_mean, connections_opened_per_s, forks_per_s, new_connections_per_s, rate,
        response_time_mean_us, service_cpu_cores, service_processes_mean, worker_growth_by_age_bytes,
        worker_oldest_mean_s, worker_processes_ended_per_s, worker_processes_mean,
        worker_processes_started_per_s, workers_startable_mean,
    }],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::ApacheSpawnLag,
        LimitId::AcceptQueueOverflow,
        LimitId::LostSyns,
        LimitId::CpuSaturated,
    ],
    relieves: &[Resource::Workers, Resource::Processors],
    gain: Some(LimitGain::Waiting),
    ..Limit::new(
        LimitId::ApacheWorkerChurn,
        "Apache replaces its processes too often",
        include_str!("mod.rs"),
        finding::check,
    )
};

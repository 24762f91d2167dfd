//! `apache-worker-churn`: processes end after a few connections, and the parent cannot start others as fast.
//!
//! `MaxConnectionsPerChild` ends a process after that many connections, as a workaround for modules that leak memory. Each new
//! process costs a fork; and the parent checks only once a second how many are idle, and starts at most 32 each time under
//! prefork. So the rate is limited to 32 times that number, whatever the machine could do, and between two checks there may be
//! no worker to accept the next connection.
//!
//! ## How it is recognised
//! Processes start and end all the time (their ids change), each accepted as many connections as MaxConnectionsPerChild says,
//! connections wait in the accept queue, and more workers would be allowed. If responses are so fast that processes are gone
//! between two samples, a rate of 32 times that number of connections a second shows it, or the forks of the whole machine, if no
//! process is older than two seconds. Where others hold workers of old processes, most of those that begin end at once, however
//! slowly: no worker is idle, more may be started, and connections wait. If the ids cannot be seen, forks at such a pace show the
//! same, with less confidence.
//!
//! ## What to do
//! `MaxConnectionsPerChild 0`, or 10,000 if a module is known to leak: processes then end rarely. A graceful reload is enough.
//!
//! ## By hand
//! `watch -n 1 'pgrep -P $(cat /run/apache2/apache2.pid)'`; `vmstat 1` (idle CPUs, no swap); `ss -ltn`.

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
        worker_processes_started_per_s, workers_idle_mean, workers_startable_mean,
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
    ..Limit::of(LimitId::ApacheWorkerChurn, "Apache replaces its processes too often", finding::check)
};

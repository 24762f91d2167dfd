//! `cpu-saturated`: the processors are full of work, and requests wait for them.
//!
//! This is the hardware's limit, and ends tuning: the machine gives what it can. More workers do not help: they wait for a
//! processor instead of in the queue, and cost memory. What remains is to make each request cheaper, or to use more or
//! faster cores.
//!
//! ## How it is recognised
//! The processors that the service may use (those of its cpuset, else the machine's) were at least 85% busy, and in at least
//! half of the time some process of the service waited for one: by the pressure stall information of its control group; where
//! there is none, by more of its processes that want to run than do, or by the machine's pressure, if the service uses at
//! least half of the processors. At a rate of the clients' own (`-r`) that is answered in full, processors below 95% have
//! room. The finding says who used them: the service, its backends by name, the generator on the same machine, others by
//! name. Where these others (`foreign-load`), a quota (`cpu-throttled`), the host (`cpu-stolen`) or the packets of one core
//! (`softirq-bound`) take them, that is the answer.
//!
//! Where a database or PHP-FPM that uses a good part of them cannot be asked what for, the work may be needless: a suspicion.
//! Without the control group's figures, without /proc of the service's processes and without pressure it can still be told by
//! the run queue and the service's time, with less confidence.
//!
//! ## What to do
//! Where Apache sends files that it compresses at a high `DeflateCompressionLevel`, and most of its time is spent within the program
//! and not by sending, a lower level costs a few percent of the size; nginx that compresses files for each request does it in a
//! third of the time with `gzip_comp_level 1`. Else look at what the time is spent on before buying: an opcode cache that is off, a
//! scan in the database and `.htaccess` lookups also look like this. Then size: capacity grows with cores. Where the generator runs on the
//! same machine, measure from another one.
//!
//! Where many requests share the processors, each one costs more: they push each other out of the caches, and wait for the same
//! locks. With `--goal max`, time left and nobody else there, `tune --apply` halves the number that bounds them (workers of Apache,
//! children of the pool of PHP-FPM), and keeps fewer only where that gives more.
//!
//! ## By hand
//! `vmstat 1` (us + sy near 100, r above the number of cores), `top`, `cat /proc/pressure/cpu`; of a service in a control
//! group `cpu.pressure` and `cpu.stat` there.

pub(crate) mod ceiling;
mod deflate;
pub(crate) mod finding;
mod gzip;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            ahead_backend_cpu_cores, ahead_database_scanned_rows_per_s, ahead_database_selects_per_s,
            ahead_group_cores, ahead_group_cpu_cores, ahead_group_quota_cores, answer_bytes_mean, backend_cpu_cores,
            client_cpu_cores, core_usable, cores, cpu_busy_fraction, cpu_per_request_us, cpu_steal_fraction,
            db_statements_per_s, fpm_queue_mean, offered_rate, opcache_enabled, rate, rate_ci95_fraction,
            response_time_mean_us,
        },
        &crate::resources::processors::FACTS,
    ],
    causes: &[
        LimitId::ApacheWorkersExhausted,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
    ],
    ceilings: &[ceiling::ceiling],
    relieves: &[Resource::Processors],
    ends_tuning: true,
    is_past_peak: true,
    kind: Some(LimitKind::Concurrency),
    meaning: Some(
        "The processors do useful work all the time. No setting makes them faster: more needs less work per \
             request (caching, lighter pages) or more or faster cores.",
    ),
    ..Limit::new(LimitId::CpuSaturated, "CPU saturated", include_str!("mod.rs"), finding::check)
};

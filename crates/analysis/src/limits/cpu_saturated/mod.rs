//! `cpu-saturated`: the CPUs are saturated with work, and requests wait for them.
//!
//! This is the hardware's limit, and ends tuning: the machine gives what it can. More workers do not help: they wait for CPU
//! instead of in the queue, and use memory. What remains is to make each request cheaper, or to use more or faster cores.
//!
//! ## How it is recognised
//! The cores that the service may use (those of its cpuset, else the machine's) were at least 85% busy, and some process of the
//! service waited for CPU at least half of the time: by the pressure stall information (PSI) of its control group; without it,
//! by more of its processes runnable than running, or by the machine's PSI, if the service uses at least half of the cores. In
//! an open loop (`-r`) whose rate is served in full, cores below 95% have headroom. Cores that are at least 45% busy are saturated
//! whenever there is work where users of a closed loop wait for each other, in step, a fifth longer than a request alone; so are full ones that the service shares with the
//! generator on the same machine, if it waits for CPU a fifth of the time. The finding reports who used them: the
//! service, its backends by name, the generator on the same machine, other programs by name. If other programs
//! (`foreign-load`), a quota (`cpu-throttled`), the host (`cpu-stolen`) or the packets of one core (`softirq-bound`) use them,
//! that is the finding. A program behind the service that may use only some of the cores (an affinity mask, a cpuset of its own), and
//! keeps these busy, is short of them while others idle. Where sampling is permitted it says what the service's CPU time was for: compression, TLS, PHP, copying,
//! network and so on, by 99 samples a second of each core; of PHP also which scripts its processes execute, as the status pages of
//! PHP-FPM's pools and of Apache tell, and in which functions they compute (the executing frame, read 20 times a second as root). The same samples decide between causes: what they show for 40% of the time is proven, and what
//! they hardly show is not named.
//!
//! If a database or PHP-FPM uses a good part of them and cannot be queried, its work may be needless: a suspicion. Without the
//! control group's figures, without /proc of the service's processes and without PSI, the run queue and the service's CPU time
//! still show it, with less confidence.
//!
//! ## What to do
//! If Apache compresses files at a high `DeflateCompressionLevel`, and spends most of its time in user space and not on
//! sending, a lower level costs a few percent of size; nginx that compresses files for each request does it in a third of the
//! time with `gzip_comp_level 1`. If OPcache looks for changes of each script at each request (`opcache.revalidate_freq` 0) and
//! that is a twentieth of what PHP computes, PHP's own value of 2 s takes it away; `opcache.validate_timestamps` 0 is for a person
//! to decide. If a child of PHP-FPM ends after a few requests (`pm.max_requests`) and starting others is a tenth of what PHP
//! computes, each serves 500; `check` names ten requests and fewer without any load. If MariaDB opens tables anew all the time as its cache of open tables is full, and that is a tenth of what it
//! computes, `table_open_cache` is raised. Where samples tell what the time is for, the remedy says what would save it: sessions that
//! are resumed, a lower level of compression, log lines by the block, OPcache, rules that are not read for each request. Otherwise look at what the time is spent on before buying: a disabled opcode cache, table
//! scans in the database and `.htaccess` lookups also look like this. Where answers of a program repeat for everybody, a cache of one
//! second in front may give many times the rate: `webdyno export DIR --cache-config -` writes its configuration. Then size: capacity grows with cores. If the generator
//! runs on the same machine, measure from another one.
//!
//! With many concurrent requests each one costs more CPU: they evict each other from the caches, and contend for the same
//! locks. With `--goal max`, time left and no other clients, `tune --apply` halves the number that bounds concurrency (Apache
//! workers, children of the PHP-FPM pool), and keeps fewer only if that gives more.
//!
//! ## By hand
//! `perf record -F 99 -e cpu-clock -a -g sleep 10; perf report --no-children --sort comm,dso,symbol`; `vmstat 1` (us + sy near 100, r above the number of cores), `top`, `cat /proc/pressure/cpu`; of a service in a control group
//! `cpu.pressure` and `cpu.stat` there.

pub(crate) mod ceiling;
mod child_turnover;
pub(crate) mod config_check;
pub(crate) mod deflate;
pub(crate) mod finding;
pub(crate) mod gzip;
mod less_work;
mod pinned;
mod revalidation;
mod table_cache;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[
        &fact_ids! {
            ahead_backend_cpu_cores, ahead_database_scanned_rows_per_s, ahead_database_selects_per_s,
            ahead_group_cores, ahead_group_cpu_cores, ahead_group_quota_cores, answer_bytes_mean,
            backend_cpu_cores, backend_cpus_allowed, client_cpu_cores, connections_reused_fraction, core_usable, cores, cpu_busy_fraction, cpu_per_request_us,
            cpu_steal_fraction, cpu_system_cores, cpu_user_cores, db_connections_limit, db_cpu_cores, db_files_limit, db_statements_per_s,
            db_table_cache_limit, db_tables_open, db_tables_opened_per_s, failed_fraction, fpm_queue_mean,
            offered_rate, opcache_enabled, opcache_hits_per_s, php_script_fraction, processor_time_fraction, rate, rate_ci95_fraction, response_time_mean_us,
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
    config_checks: &[config_check::few_requests],
    relieves: &[Resource::Processors],
    ends_tuning: true,
    is_past_peak: true,
    kind: Some(LimitKind::Concurrency),
    meaning: Some(
        "The CPUs do useful work all the time, and no setting makes them faster: a higher rate needs less work per \
             request (caching, lighter pages), or more or faster cores.",
    ),
    ..Limit::of(LimitId::CpuSaturated, "CPU saturated", finding::check)
};

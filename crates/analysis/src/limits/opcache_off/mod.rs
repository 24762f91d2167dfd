//! `opcache-off`: PHP translates its scripts anew for each request, and that fills the processors.
//!
//! PHP reads the text of each script, translates it, and runs it. OPcache keeps what was translated in memory that all
//! processes share. Without it a framework of a hundred files is translated for every page, which takes most of the
//! processor time that the page takes.
//!
//! ## How it is recognised
//! The pool's own answer (`opcache_get_status()`), or else its settings, say that OPcache is off, and PHP is what the
//! processors are full of, or what the requests under way compute. Where PHP runs in Apache's own workers, these share no
//! memory that could be the cache's.
//!
//! ## What to do
//! `opcache.enable = 1` in the configuration of PHP, and a reload. Where releases are to be seen at once,
//! `opcache.validate_timestamps` (the default) sees to that within `opcache.revalidate_freq` seconds.
//!
//! ## By hand
//! `php-fpm -i | grep opcache.enable`, `opcache_get_status()` from a page; `perf top` shows `zendparse` and `lex_scan`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, cpu_per_request_us, ended_per_s, fpm_cpu_cores, in_flight_mean,
        opcache_enabled, rate, service_cpu_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    config_checks: &[config_check::opcache_off],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    ..Limit::new(LimitId::OpcacheOff, "OPcache is off", include_str!("mod.rs"), finding::check)
};

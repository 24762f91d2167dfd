//! `opcache-off`: PHP compiles its scripts for each request, and that saturates the CPU.
//!
//! PHP reads each script, compiles it, and runs it. OPcache keeps the compiled scripts in memory that all processes share.
//! Without it a framework of a hundred files is compiled for every page, which takes most of the CPU time of the page.
//!
//! ## How it is recognised
//! The pool's own status (`opcache_get_status()`), or else its settings, show that OPcache is off, and PHP saturates the CPU
//! or uses up the quota of its control group, or computes for most of the response time. If PHP runs in Apache's own workers,
//! these share no memory for the cache.
//!
//! ## What to do
//! `opcache.enable = 1` in the configuration of PHP, and a reload. If releases must be visible at once,
//! `opcache.validate_timestamps` (the default) ensures that within `opcache.revalidate_freq` seconds.
//!
//! ## By hand
//! `php-fpm -i | grep opcache.enable`, `opcache_get_status()` from a page; `perf top` shows `zendparse` and `lex_scan`.

pub(crate) mod config_check;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind, opcache_full};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, cpu_per_request_us, ended_per_s, fpm_cpu_cores, in_flight_mean,
        opcache_enabled, rate, service_cpu_cores,
    }],
    causes: opcache_full::LIMIT.causes,
    config_checks: &[config_check::opcache_off],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    work: opcache_full::LIMIT.work,
    ..Limit::of(LimitId::OpcacheOff, "OPcache is off", finding::check)
};

//! `opcache-full`: OPcache is full, and PHP compiles the remaining scripts for each request.
//!
//! A full OPcache evicts nothing. It restarts only when a large part of it is out of date; else PHP compiles the scripts that
//! did not fit for each request, without any message.
//!
//! ## How it is recognised
//! OPcache is on and restarted for lack of memory or of keys; or scripts are missed repeatedly, several for each request, without being
//! added to it, unless much of its memory is free; or it reports that it is full, and nobody knows what is missed. And PHP saturates
//! the CPU or uses up the quota of its control group, or computes for most of the response time.
//!
//! In Apache's own workers (mod_php) nobody is asked: it is full if one worker uses four tenths of the memory that the cache may have
//! (`/proc/PID/smaps`; a quarter where samples show that a quarter of the service's CPU time compiles PHP), and each request reads 50 kB
//! and more of files that are not sent.
//!
//! ## What to do
//! If its keys are used up, `opcache.max_accelerated_files`: twice as many. Else `opcache.memory_consumption`: the mean size of
//! the cached scripts times the number needed, and half as much again; no less than twice the current size and PHP's own
//! default of 128 MB. By hand it takes a reload, which ends requests in flight while `process_control_timeout` is 0.
//!
//! ## By hand
//! `opcache_get_status()` from a page of the site: `cache_full`, `misses`, `oom_restarts`, `hash_restarts`, `num_cached_keys`.

pub(crate) mod finding;
pub(crate) mod in_apache;

use crate::facts::{Facts, fact_ids};
use crate::limits::ceiling::Resource;
use crate::limits::incident::{IncidentFigure, IncidentRule, row};
use crate::limits::{Limit, LimitId, LimitKind, LimitWork};
use webdyno_model::diagnosis::Finding;
use webdyno_model::processor_time::ProcessorWork;

fn check(facts: &Facts) -> Option<Finding> {
    finding::check(facts).or_else(|| in_apache::check(facts))
}

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        cores, cpu_busy_fraction, ended_per_s, fpm_cpu_cores, opcache_enabled, opcache_full,
        answer_bytes_mean, cpu_per_request_us, opcache_mapping_bytes, opcache_read_bytes_per_s,
        opcache_resident_bytes, service_cpu_cores,
        opcache_hash_restarts, opcache_keys, opcache_keys_limit, opcache_memory_free_bytes,
        opcache_memory_used_bytes, opcache_memory_wasted_bytes, opcache_misses, opcache_misses_per_s,
        opcache_oom_restarts, opcache_scripts, opcache_scripts_added, rate, server_requests_per_s,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::PhpFpmWorkersExhausted,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::DocumentCost),
    work: Some(LimitWork {
        certain: &[ProcessorWork::PhpCompilation],
        possible: &[
            ProcessorWork::Php,
            ProcessorWork::FileSystem,
            ProcessorWork::Memory,
            ProcessorWork::Copy,
        ],
    }),
    incidents: INCIDENTS,
    ..Limit::of(LimitId::OpcacheFull, "OPcache is full", check)
};

#[rustfmt::skip] // a table, one rule a line
const INCIDENTS: &[IncidentRule] = &[
    row("opcache.*.oom_restarts_count", IncidentFigure::Rise, (1.0, 1), 1.0, "OPcache was full and restarted empty", "every script is compiled anew after it"),
];

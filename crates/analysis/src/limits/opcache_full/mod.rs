//! `opcache-full`: OPcache holds no more scripts, and PHP translates the others anew for each request.
//!
//! A cache that is full throws nothing away. OPcache begins anew only when a good part of it is out of date; else it
//! translates what found no room again for each request, and tells nobody.
//!
//! ## How it is recognised
//! OPcache is on and says that it is full, or began anew for want of memory or of keys; or scripts are missed again and
//! again, several for each request, without being added to it. And PHP is what the processors are full of, or what the
//! requests under way compute.
//!
//! ## What to do
//! If its keys are used up, `opcache.max_accelerated_files`: twice as many. Else `opcache.memory_consumption`: what the
//! scripts that it holds take each, times all that are wanted, and half as much again; no less than twice what it has, and
//! than PHP's own default of 128 MB. It takes a reload, which ends requests under way while `process_control_timeout` is 0.
//!
//! ## By hand
//! `opcache_get_status()` from a page of the site: `cache_full`, `misses`, `oom_restarts`, `hash_restarts`, `num_cached_keys`.

pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "opcache-full";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = super::opcache_off::CAUSES;

//! `cpu-throttled`: the control group of the service has used up its quota of processor time, and is stopped until the next
//! period.
//!
//! A container that may use 0.5 cores may run for 50 ms in each 100 ms. When these are used (by two processes at once after
//! 25 ms) the kernel stops all its processes until the next period begins. The machine looks idle, from within too; answers
//! are late by tens or hundreds of milliseconds.
//!
//! ## How it is recognised
//! In at least a tenth of the periods the kernel stopped the group (`nr_throttled` against `nr_periods` in the `cpu.stat` of
//! the group or of one above it), for at least 2% of the time in all. It needs the control group's files; without them a
//! service that waits for processors although these are idle remains.
//!
//! ## What to do
//! Raise the quota (`cpu.max`, `docker update --cpus`, `CPUQuota=` of a unit, `limits.cpu` in Kubernetes): it holds at once.
//! What a request costs times the rate that is wanted, and a third more, since requests do not come evenly.
//!
//! ## By hand
//! `grep throttled cpu.stat` in the control group twice under load; `cat cpu.max` (version 1: `cpu.cfs_quota_us`).

pub(crate) mod finding;

/// Stable id.
pub const ID: &str = "cpu-throttled";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &[
    "cpu-saturated",
    "foreign-load",
    "apache-workers-exhausted",
    "php-fpm-workers-exhausted",
    "accept-queue-overflow",
    "syn-queue-overflow",
];

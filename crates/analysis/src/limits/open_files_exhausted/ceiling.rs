//! Open files of the process that has most of them. They grow with connections and files, not with the rate.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let of = |used: &str, limit: &str| Some((facts.value(used)?, facts.value(limit)?));
    let (now, max) = of("ahead_fullest_open_files_max", "ahead_fullest_open_files_limit")
        .or_else(|| of("ahead_open_files_max", "ahead_open_files_limit"))?;
    let known = ResourceUsage { now: Some(now), max: Some(max), ..ResourceUsage::default() };
    known.ceiling(
        Resource::OpenFiles,
        "open files of a process",
        "/proc/PID/fd",
        Some(LimitId::OpenFilesExhausted),
    )
}

//! Open files of the process that has most of them. They grow with connections and files, not with the rate.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let of = |used: FactId, limit: FactId| Some((facts.value(used)?, facts.value(limit)?));
    let (now, max) = of(FactId::ahead_fullest_open_files_max, FactId::ahead_fullest_open_files_limit)
        .or_else(|| of(FactId::ahead_open_files_max, FactId::ahead_open_files_limit))?;
    let known = ResourceUsage { now: Some(now), max: Some(max), ..ResourceUsage::default() };
    known.ceiling(
        Resource::OpenFiles,
        "open files of a process",
        "/proc/PID/fd",
        Some(LimitId::OpenFilesExhausted),
    )
}

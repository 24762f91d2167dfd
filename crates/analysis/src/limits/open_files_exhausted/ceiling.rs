//! Open files of the process that has most of them. They grow with connections and files, not with the rate.

use crate::facts::Facts;
use crate::limits::ceiling::{Known, Limit};

/// What it becomes when it binds.
const ID: &str = "open-files-exhausted";

pub(crate) fn limit(facts: &Facts) -> Option<Limit> {
    let of = |used: &str, limit: &str| Some((facts.value(used)?, facts.value(limit)?));
    let (now, max) = of("ahead_fullest_open_files_max", "ahead_fullest_open_files_limit")
        .or_else(|| of("ahead_open_files_max", "ahead_open_files_limit"))?;
    let known = Known { now: Some(now), max: Some(max), ..Known::default() };
    known.limit("open files of a process", "/proc/PID/fd", Some(ID))
}

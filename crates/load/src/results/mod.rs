//! What the threads counted, merged into intervals.

pub(crate) mod failure;
pub(crate) mod merge;
pub(crate) mod recorder;

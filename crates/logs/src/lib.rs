//! Access logs: what a site is requested, by whom, when, and what a cache of it would need.
//!
//! Everything but [`reading`] is pure: bytes in, figures out, no I/O and no clock. Threads scan blocks of whole lines
//! ([`scan::Counts`], in any order, merged at the end); what needs the order of the log is counted from the events that they leave
//! ([`ordered::Ordered`]). Memory has a bound, whatever the log: what is too much is sampled or estimated, and says so.
//! A crate of its own, as it works for every byte and is compiled for speed, which the analysis of recordings is not.

pub mod class;
pub mod distinct;
pub mod entry;
pub mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod number;
pub mod ordered;
pub mod rates;
pub mod reading;
pub mod redact;
pub mod replay;
pub mod report;
pub mod scan;
pub mod sessions;
pub mod timestamp;
pub mod urls;
pub mod working_set;

//! From facts to an answer: every limit judged, ranked, with what comes next and what is not known.

mod caching;
pub mod check;
pub mod documents_only;
pub mod experiments;
pub(crate) mod forecast;
pub mod incidents;
pub mod missing;
pub mod next_limit;
mod pipeline;
pub mod prediction;
pub mod ranking;

pub use pipeline::{diagnose, diagnose_with};

//! A measured figure as a diagnosis cites it.

use serde::{Deserialize, Serialize};

/// A number with its unit, its window, where it was read, and how to read it by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// `accept_queue_mean`.
    pub name: String,
    /// `None` never occurs in a finding; a fact that is not known is not cited.
    #[serde(serialize_with = "crate::number::serialize")]
    pub value: f64,
    /// `connections`, `us`, `fraction`, ...
    pub unit: String,
    /// Start of its window, seconds since the load (or the observation) began.
    pub from_s: f64,
    /// End of its window.
    pub to_s: f64,
    /// Where it was read.
    pub source: String,
    /// A shell command that shows the same figure by hand.
    pub reproduce: String,
}

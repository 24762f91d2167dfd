//! The load brake: what made a load stop, so that the load is not the harm.

use crate::number::Number;
use serde::{Deserialize, Serialize};

/// Why a load must end at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrakeCause {
    /// The machine swaps.
    Swapping,
    /// All tasks wait for memory.
    MemoryPressure,
    /// The kernel killed a process for want of memory.
    OutOfMemory,
    /// Other clients get errors of the server.
    OthersFail,
    /// The site cannot be reached any more.
    Unreachable,
}

impl BrakeCause {
    /// The words that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Swapping => "swapping",
            Self::MemoryPressure => "full memory pressure",
            Self::OutOfMemory => "out of memory",
            Self::OthersFail => "errors of other clients",
            Self::Unreachable => "unreachable site",
        }
    }
}

/// A brake that was pulled, with the reading that did it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Brake {
    /// Why.
    pub cause: BrakeCause,
    /// The metric that was read.
    pub metric: String,
    /// What was read, in the unit of the metric.
    pub value: Number,
    /// From this value on the brake is pulled.
    pub limit: Number,
    /// One sentence for people.
    pub text: String,
}

//! The load brake: what made a load stop, so that the load is not the harm.

use crate::number::Number;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Why a load must end at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HarmCause {
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

impl HarmCause {
    /// Whether it is about memory: then the service needs more of it than there is.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Swapping | Self::MemoryPressure | Self::OutOfMemory)
    }

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
pub struct HarmGuardTrip {
    /// Why.
    pub cause: HarmCause,
    /// The metric that was read, where it is one of the catalogue's.
    pub metric: String,
    /// What was read over the last second, in the unit of the metric.
    pub value: Number,
    /// From this value on the brake is pulled.
    pub limit: Number,
    /// What was seen, in words that can end a sentence: `the kernel killed 2 processes for want of memory`.
    pub text: String,
}

impl HarmGuardTrip {
    /// The metric of a site that refuses nobody and answers nobody. Whoever loads it knows better: a site that answers
    /// the load is busy, not unreachable.
    pub const SITE_SILENT: &str = "brake.site_silent_us";
}

/// What whoever watches the server must know of a load, to tell its harm from what it did not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteUnderLoad {
    /// Where the load connects to; at least one.
    pub addresses: Vec<SocketAddr>,
    /// Host and port as the requests name them.
    pub host: String,
    /// The `User-Agent` of the requests, each once; variables stand in it as `${name}`.
    pub user_agents: Vec<String>,
    /// The addresses that the load comes from; empty when it comes from another machine, where they may be rewritten
    /// on the way.
    pub generators: Vec<IpAddr>,
    /// How long the load waits for an answer, in microseconds.
    pub timeout_us: u64,
    /// Whether the service's own limit of memory is what is varied: that it waits for memory is then no harm.
    pub varies_memory: bool,
}

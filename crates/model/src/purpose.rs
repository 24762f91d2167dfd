//! Why a load was made.

use serde::{Deserialize, Serialize};

/// Why a load was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The user asked for a load.
    Run,
    /// The same pages with their documents only, to compare with.
    WithoutResources,
    /// The same with a new connection for each request.
    WithoutKeepalive,
    /// The same at half the rate, or with half the connections.
    HalfLoad,
    /// The same from the server's own machine, over loopback.
    FromLoopback,
    /// To diagnose.
    Diagnose,
    /// The first measurement of a tuning session.
    Baseline,
    /// The measurement after a change.
    Verify,
    /// A point of a sweep.
    Sweep,
    /// A step of a search for the capacity.
    Capacity,
    /// What the next load asks for, read once so that it is in memory; nothing is measured.
    WarmCache,
}

impl Purpose {
    /// Loads with one thing changed, to compare with the one before them; what costs the server least comes first.
    pub const EXPERIMENTS: [Self; 4] =
        [Self::WithoutResources, Self::WithoutKeepalive, Self::HalfLoad, Self::FromLoopback];

    /// As it stands in recordings and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::WithoutResources => "without_resources",
            Self::WithoutKeepalive => "without_keepalive",
            Self::HalfLoad => "half_load",
            Self::FromLoopback => "from_loopback",
            Self::Diagnose => "diagnose",
            Self::Baseline => "baseline",
            Self::Verify => "verify",
            Self::Sweep => "sweep",
            Self::Capacity => "capacity",
            Self::WarmCache => "warm_cache",
        }
    }
}

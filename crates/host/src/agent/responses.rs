//! What an agent's answers come to, for those who asked.

use crate::agent::clock::ClockOffset;
use std::net::IpAddr;
use webdyno_model::change::JournalPlace;
use webdyno_model::environment::Environment;
use webdyno_model::sample::CollectorInfo;
use webdyno_model::service::ServiceSnapshot;

/// What the agent said of itself and its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct HelloInfo {
    /// The machine.
    pub environment: Environment,
    /// What its collectors read.
    pub collectors: Vec<CollectorInfo>,
    /// Its clock, as it was known then.
    pub clock: ClockOffset,
}

/// A change that is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedChange {
    /// Names the state before it, for [`AgentClient::revert`].
    pub mark: u64,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
    /// The service as it is now.
    pub snapshot: ServiceSnapshot,
    /// Where its undo is; `None` when nothing had to be written.
    pub journal: Option<JournalPlace>,
}

/// Which addresses belong to the agent's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Of those that were asked for.
    pub addresses: Vec<IpAddr>,
    /// Whether we are on the same machine, in the same network.
    pub same_network: bool,
}

/// What was undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevertedChange {
    /// One line each.
    pub actions: Vec<String>,
    /// What is not as before until the next restart, one line each; among the actions, too.
    pub left: Vec<String>,
    /// How long no connection was answered; 0 when none was missed, `None` when that was not measured.
    pub outage_us: Option<u64>,
}

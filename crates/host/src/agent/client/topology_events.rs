//! What the agent reports unsolicited of the services while they are observed.

use super::AgentClient;
use webdyno_model::topology::Topology;

impl AgentClient {
    /// The services and who talks to whom, if that was seen to be something else since this was asked last: while something
    /// is observed the agent looks again every half minute.
    pub fn topology_news(&self) -> Option<Topology> {
        self.shared.received().topology.take()
    }
}

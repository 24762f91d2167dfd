//! What needs the order of the log: sessions and the working set, from the events of one block after the other.

use crate::sessions::{SessionRequest, Sessions};
use crate::working_set::{Followed, Reference, WorkingSet};

/// Which clients and objects are sampled.
#[derive(Debug, Clone)]
pub struct Sampled {
    /// Clients with a hash below.
    pub clients: u64,
    /// Objects.
    pub objects: Followed,
}

impl Default for Sampled {
    fn default() -> Self {
        Self { clients: u64::MAX, objects: Followed::default() }
    }
}

/// What a block leaves to be counted in order.
#[derive(Debug, Clone, Default)]
pub struct BlockEvents {
    /// References to objects, all.
    pub references: u64,
    /// Their bytes.
    pub reference_bytes: u64,
    /// Those to sampled objects.
    pub objects: Vec<Reference>,
    /// Requests of sampled clients, bots apart.
    pub clients: Vec<SessionRequest>,
}

impl BlockEvents {
    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        (self.references, self.reference_bytes) = (0, 0);
        self.objects.clear();
        self.clients.clear();
    }
}

/// Sessions and working set.
#[derive(Debug, Clone, Default)]
pub struct Ordered {
    /// Sessions.
    pub sessions: Sessions,
    /// Working set.
    pub working_set: WorkingSet,
}

impl Ordered {
    /// Counts the events of the next block. Gives what is sampled from now on; events of blocks that were scanned before may be more.
    pub fn add(&mut self, events: &BlockEvents) -> Sampled {
        self.working_set.count(events.references, events.reference_bytes);
        self.working_set.add_all(&events.objects);
        self.sessions.add_all(&events.clients);
        Sampled { clients: self.sessions.threshold(), objects: self.working_set.followed() }
    }
}

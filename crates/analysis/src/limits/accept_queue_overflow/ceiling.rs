//! The accept queue: it should hold one second of new connections, so that a pause of that length loses none.

use crate::facts::{FactId, Facts};
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::{connections_per_answer, rate};

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = facts.value(FactId::accept_queue_limit);
    let at = max.zip(connections_per_answer(facts)).map(|(max, each)| max / each);
    // A server that is past it without a pause shows that it has none.
    let binds_at_rate = at.filter(|at| rate(facts).is_some_and(|rate| rate <= *at));
    let known = ResourceUsage {
        now: facts.value(FactId::accept_queue_max),
        max,
        binds_at_rate,
        ..ResourceUsage::default()
    };
    known.ceiling(Resource::AcceptQueue, "accept queue", "ss -ltn", None)
}

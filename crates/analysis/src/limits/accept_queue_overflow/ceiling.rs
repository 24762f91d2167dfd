//! The accept queue: it should hold one second of new connections, so that a pause of that length loses none.

use crate::facts::Facts;
use crate::limits::ceiling::{Known, Limit, connections_per_answer, rate};

pub(crate) fn limit(facts: &Facts) -> Option<Limit> {
    let max = facts.value("accept_queue_limit");
    let at = max.zip(connections_per_answer(facts)).map(|(max, each)| max / each);
    // A server that is past it without a pause shows that it has none.
    let binds_at_rate = at.filter(|at| rate(facts).is_some_and(|rate| rate <= *at));
    let known = Known { now: facts.value("accept_queue_max"), max, binds_at_rate, ..Known::default() };
    known.limit("accept queue", "ss -ltn", None)
}

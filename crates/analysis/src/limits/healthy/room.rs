//! Whether the machine and the service have room: processors, queues, memory, disks, workers. Tested by what `healthy` says
//! ([`super::finding`]).
//!
//! Facts: Documentation/accounting/psi.rst, mod_status's scoreboard.

use crate::facts::{FactId, Facts};
use crate::limits::healthy::hidden_queues;
use crate::limits::healthy::response_time::is_below;
use crate::resources::processors;
use crate::resources::time_breakdown::noticed_queue;

pub(super) const CPU_FRACTION_MAX: f64 = 0.95;
/// Fuller processors are others', if the service's group waits for one in less of the time than this.
const CPU_WAIT_FRACTION_MAX: f64 = 0.5;
/// Up to so full, and with responses that take so many times as long as alone, waiting for a processor costs nothing to speak of.
const CPU_FRACTION_ROOM: f64 = 0.8;
const INFLATION_UNNOTICED: f64 = 1.1;
/// In more of the time nothing runs because all wait for a disk.
const IO_FULL_FRACTION_MAX: f64 = 0.5;
/// Below this share nobody notices that memory is short: what waits for less, and swaps nothing, reads files anew
/// ([`crate::limits::memory_exhausted::finding`]).
const MEMORY_FULL_FRACTION_MAX: f64 = 0.05;
/// The same where requests take as long as one that is alone.
const MEMORY_FULL_FRACTION_ALONE_MAX: f64 = 0.1;
pub(super) const FULL_FRACTION_MAX: f64 = 0.2;
/// With a shorter queue than this nobody waits when all workers are busy.
const EMPTY_QUEUE_MAX: f64 = 0.5;
const EMPTY_QUEUE_FRACTION_MAX: f64 = 0.01;

/// Whether nothing of the machine and of the service is full.
pub(super) fn has_room(facts: &Facts, busy: f64) -> bool {
    // Of a service whose group cannot be seen, that may have fewer processors than there are, the machine's waiting may be its.
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction);
    let somebody_waits = waits.or(facts.value(FactId::pressure_cpu_some_fraction));
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    let processors_have_room = (busy < CPU_FRACTION_MAX
        || waits.is_some_and(|wait| wait < CPU_WAIT_FRACTION_MAX))
        && (somebody_waits.is_none_or(|wait| wait < CPU_WAIT_FRACTION_MAX) || waits_cost_nothing(facts))
        && !processors::are_short(facts);
    (processors_have_room || usable.is_some_and(|usable| processors::are_others_short(facts, usable)))
        && noticed_queue(facts).is_none()
        && !hidden_queues::is_queued_at_backend(facts)
        && !hidden_queues::waits_for_locks(facts)
        && stalled_share(
            facts,
            [FactId::pressure_group_memory_full_fraction, FactId::pressure_memory_full_fraction],
        )
        .is_none_or(|full| full <= memory_full_fraction_max(facts))
        && stalled_share(facts, [FactId::pressure_group_io_full_fraction, FactId::pressure_io_full_fraction])
            .is_none_or(|full| full <= IO_FULL_FRACTION_MAX)
        && crate::limits::memory_exhausted::finding::check(facts).is_none()
        && (is_below(facts, FactId::scoreboard_full_fraction, FULL_FRACTION_MAX) || has_no_queue(facts))
}

fn memory_full_fraction_max(facts: &Facts) -> f64 {
    if takes_as_long_as_alone(facts) { MEMORY_FULL_FRACTION_ALONE_MAX } else { MEMORY_FULL_FRACTION_MAX }
}

fn takes_as_long_as_alone(facts: &Facts) -> bool {
    let times = facts.value(FactId::response_time_mean_us).zip(facts.value(FactId::response_time_alone_us));
    times.is_some_and(|(usual, alone)| usual <= INFLATION_UNNOTICED * alone)
}

/// Whether responses take no longer than that of a request alone: many short tasks at a core that has room wait for each other now
/// and then, and nobody notices. Of which cores the service may use must be known.
fn waits_cost_nothing(facts: &Facts) -> bool {
    facts.value(FactId::usable_busy_fraction).is_some_and(|busy| busy <= CPU_FRACTION_ROOM)
        && facts.value(FactId::response_time_inflation).is_some_and(|times| times <= INFLATION_UNNOTICED)
}

/// The share of time in which nothing runs for lack of memory, or of a disk. In the machine's figure any program shows that alone
/// waits for a disk of its own, and in that of the service's group a moment in which little ran: what costs time is in both.
fn stalled_share(facts: &Facts, pressure: [FactId; 2]) -> Option<f64> {
    pressure.into_iter().filter_map(|name| facts.value(name)).reduce(f64::min)
}

/// Whether all workers are busy and just enough: as many clients as workers, and none of them queues, or next to none of many where
/// requests take as long as one that is alone.
fn has_no_queue(facts: &Facts) -> bool {
    let many = facts.value(FactId::in_flight_mean).filter(|_| takes_as_long_as_alone(facts));
    let most = many.map_or(EMPTY_QUEUE_MAX, |count| EMPTY_QUEUE_MAX.max(EMPTY_QUEUE_FRACTION_MAX * count));
    facts.value(FactId::accept_queue_mean).is_some_and(|queue| queue < most)
        && facts.value(FactId::status_unanswered_fraction).is_some_and(|unanswered| unanswered == 0.0)
}

//! What proves that memory is short, and what that costs.

use crate::facts::{FactId, Facts};
use crate::resources::memory_pressure;
use crate::wording::{format_bytes, format_number};
use webdyno_model::number::significant;

/// Below this share of time in which nobody could work for want of memory, it costs less than the noise.
pub(crate) const FULL_FRACTION_MIN: f64 = 0.02;

/// Without swap the stall must be longer, and so many pages a second be read again: files are read at any time.
const FULL_FRACTION_MIN_NO_SWAP: f64 = 0.05;
const REFAULTS_PER_S_MIN: f64 = 100.0;

const KILL_EVERY_S: f64 = 60.0;

/// Less than this in swap was put there once and is not asked for.
const SWAPPED_BYTES_MIN: f64 = 1e6;

/// Whether memory is proven to be short, so that whatever waits may be waiting for it.
pub(crate) fn is_proven(facts: &Facts) -> bool {
    evidence(facts).is_some_and(|evidence| evidence.confidence > CONFIDENCE_OTHER_PROCESSES)
}

/// What proves that memory is short.
pub(crate) struct MemoryEvidence {
    /// In words, with figures.
    pub words: String,
    /// How sure that is.
    pub confidence: f64,
}

const CONFIDENCE: f64 = 0.9;
/// Nothing says that it is the service's memory, and nothing speaks against it.
const CONFIDENCE_MACHINE: f64 = 0.7;
/// What is believed where it may be the memory of others.
pub(crate) const CONFIDENCE_OTHER_PROCESSES: f64 = 0.5;

/// How many of the service's processes the kernel killed for want of memory.
pub(crate) fn oom_kills(facts: &Facts) -> Option<f64> {
    kills(facts, FactId::group_oom_kills)
}

/// One kill in a minute or more: what happened once in an hour is not what limits it.
fn kills(facts: &Facts, name: FactId) -> Option<f64> {
    let often = |killed: &f64| facts.window_s(name).is_none_or(|window_s| *killed >= window_s / KILL_EVERY_S);
    facts.value(name).filter(|killed| *killed >= 1.0).filter(often)
}

/// What proves that memory is short; `None` when nothing does.
pub(crate) fn evidence(facts: &Facts) -> Option<MemoryEvidence> {
    let proven = |words: String| MemoryEvidence { words, confidence: CONFIDENCE };
    if let Some(trip) = facts.harm_guard_trip.as_ref().filter(|trip| trip.cause.is_memory()) {
        return Some(proven(format!("the load was stopped because {}", trip.text)));
    }
    let processes =
        |killed: f64| format!("{} process{}", format_number(killed), if killed == 1.0 { "" } else { "es" });
    if let Some(killed) = oom_kills(facts) {
        return Some(proven(format!("the kernel killed {} of its control group", processes(killed))));
    }
    // Where the group's own counter was read and stands still, the kernel killed elsewhere.
    let unread = facts.value(FactId::group_oom_kills).is_none();
    let of_machine = kills(facts, FactId::oom_kills).filter(|_| unread);
    let fell = facts.value(FactId::service_processes_fell_max).is_some_and(|fell| fell >= 1.0);
    if let Some(killed) = of_machine.filter(|_| fell) {
        return Some(proven(format!(
            "the kernel killed {} while some of the service's ended",
            processes(killed)
        )));
    }
    thrashing_evidence(facts).or_else(|| {
        of_machine.map(|killed| MemoryEvidence {
            words: format!(
                "the kernel killed {} on this machine, perhaps of another service (only the machine's counter is known)",
                processes(killed)
            ),
            confidence: CONFIDENCE_OTHER_PROCESSES,
        })
    })
}

/// What pages travel, if everything stalls for them.
fn thrashing_evidence(facts: &Facts) -> Option<MemoryEvidence> {
    let full = memory_pressure::stalled_fraction(facts).filter(|full| *full >= FULL_FRACTION_MIN)?;
    let (is_full, is_short) = (memory_pressure::is_full(facts), memory_pressure::is_short(facts));
    if is_full == Some(false) || is_short == Some(false) {
        return None;
    }
    let is_ours = is_short == Some(true) || !memory_pressure::stall_is_of_machine(facts);
    let swapped_in = facts.value(FactId::swapped_in_pages_per_s).unwrap_or(0.0);
    if swapped_in >= 1.0 && has_swapped(facts) {
        let swapped = swapped_in + facts.value(FactId::swapped_out_pages_per_s).unwrap_or(0.0);
        let words = format!("{} pages/s are swapped in and out", format_number(swapped));
        return Some(MemoryEvidence {
            words,
            confidence: if is_ours { CONFIDENCE } else { CONFIDENCE_MACHINE },
        });
    }
    let refaults =
        facts.value(FactId::group_file_refaults_per_s).or_else(|| facts.value(FactId::refaults_per_s));
    let refaults = refaults.filter(|refaults| *refaults >= REFAULTS_PER_S_MIN)?;
    (full >= FULL_FRACTION_MIN_NO_SWAP).then(|| MemoryEvidence {
        words: format!("{} just evicted pages/s are read again", format_number(refaults)),
        confidence: if is_short == Some(true) { CONFIDENCE } else { CONFIDENCE_OTHER_PROCESSES },
    })
}

/// Whether anything of the service is in swap, as far as that is known.
fn has_swapped(facts: &Facts) -> bool {
    let known =
        [FactId::group_swap_used_max_bytes, FactId::worker_swap_sum_bytes].map(|name| facts.value(name));
    let swapped = known.into_iter().flatten().reduce(f64::max);
    swapped.is_none_or(|bytes| bytes >= SWAPPED_BYTES_MIN)
}

/// A site that holds less than this share of the memory in use is not who fills the machine.
const OTHERS_HOLD_FRACTION_MAX: f64 = 0.3;

/// Why a load that was stopped for want of memory says nothing of the service: the machine's counters did it, and neither its group
/// nor its own programs are short. `None` where the service's part in it is not known.
pub(crate) fn memory_of_others(facts: &Facts) -> Option<String> {
    let trip = facts.harm_guard_trip.as_ref()?;
    let is_of_machine = trip.cause.is_memory() && !trip.metric.contains("group_");
    let swapped = [FactId::worker_swap_sum_bytes, FactId::pool_swap_mean_bytes].map(|name| facts.value(name));
    let is_swapped = swapped.into_iter().flatten().any(|bytes| bytes >= SWAPPED_BYTES_MIN);
    (is_of_machine && oom_kills(facts).is_none() && !is_swapped).then_some(())?;
    if memory_pressure::is_limited(facts)? {
        let stalled = facts.value(FactId::pressure_group_memory_full_fraction)?;
        let swapped = facts.value(FactId::group_swap_used_max_bytes).unwrap_or(0.0);
        let is_calm = stalled < FULL_FRACTION_MIN && swapped < SWAPPED_BYTES_MIN;
        let has_room = memory_pressure::is_full(facts) == Some(false);
        return (is_calm && has_room)
            .then(|| "the service's control group has free memory and hardly stalled on it".into());
    }
    let total = facts.value(FactId::memory_total_bytes)?;
    let used = total - facts.value(FactId::memory_available_min_bytes)?;
    let group = facts.value(FactId::group_memory_used_max_bytes);
    let held =
        memory_pressure::memory_holders(facts).into_iter().map(|(_, bytes)| bytes).reduce(|a, b| a + b);
    let own = group.into_iter().chain(held).reduce(f64::max)?;
    (own < OTHERS_HOLD_FRACTION_MAX * used).then(|| {
        let [own, used] = [own, used].map(format_bytes);
        format!("the service and its backends hold {own} of the {used} of memory in use")
    })
}

/// What the lack of memory costs: the time in which nobody could run, or the requests that ended with their worker.
pub(crate) fn lost_fraction(facts: &Facts) -> Option<f64> {
    let stalled = memory_pressure::stalled_fraction(facts);
    let failed = facts.value(FactId::failed_fraction).filter(|_| oom_kills(facts).is_some());
    stalled.into_iter().chain(failed).reduce(f64::max).map(|share| significant(share.min(1.0), 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, over, with_changes, with_harm_guard_trip};

    #[test]
    fn one_kill_in_an_hour_is_not_what_limits() {
        for (killed, seconds, proven) in
            [(1.0, 30.0, true), (1.0, 3600.0, false), (59.0, 3600.0, false), (60.0, 3600.0, true)]
        {
            let mut facts = facts(&[], &[]);
            over(&mut facts, FactId::group_oom_kills, killed, seconds);
            assert_eq!(is_proven(&facts), proven, "{killed} in {seconds} s");
        }
    }

    #[test]
    fn memory_that_others_fill_is_told_from_the_services_own() {
        const SWAP: &str = "memory.swapped_out_pages";
        // Another program fills a machine of 16 GB; the service holds 300 MB.
        let machine = [
            (FactId::memory_total_bytes, 16e9),
            (FactId::memory_limit_bytes, 16e9),
            (FactId::memory_available_min_bytes, 0.5e9),
            (FactId::worker_memory_sum_bytes, 300e6),
        ];
        // A group of 1 GB beside others.
        let group = [
            (FactId::memory_total_bytes, 16e9),
            (FactId::memory_limit_bytes, 1e9),
            (FactId::group_memory_used_max_bytes, 400e6),
            (FactId::pressure_group_memory_full_fraction, 0.0),
        ];
        let unknown = f64::NAN;
        for (base, metric, changes, expected) in [
            (machine, SWAP, vec![], true),
            (machine, "pressure.memory_full_us", vec![], true),
            (machine, "memory.group_oom_kills_count", vec![], false),
            (machine, "brake.site_refused_count", vec![(FactId::memory_total_bytes, unknown)], false),
            (machine, SWAP, vec![(FactId::worker_memory_sum_bytes, 9e9)], false),
            (machine, SWAP, vec![(FactId::database_resident_max_bytes, 9e9)], false),
            (machine, SWAP, vec![(FactId::worker_swap_sum_bytes, 50e6)], false),
            (machine, SWAP, vec![(FactId::worker_memory_sum_bytes, unknown)], false),
            (machine, SWAP, vec![(FactId::group_oom_kills, 1.0)], false),
            (group, SWAP, vec![], true),
            (group, SWAP, vec![(FactId::pressure_group_memory_full_fraction, 0.1)], false),
            (group, SWAP, vec![(FactId::pressure_group_memory_full_fraction, unknown)], false),
            (group, SWAP, vec![(FactId::group_memory_used_max_bytes, 990e6)], false),
            (group, SWAP, vec![(FactId::group_swap_used_max_bytes, 90e6)], false),
        ] {
            let mut facts = facts(&with_changes(&base, &changes), &[]);
            facts.harm_guard_trip = Some(with_harm_guard_trip(metric));
            assert_eq!(memory_of_others(&facts).is_some(), expected, "{metric} {changes:?}");
        }
    }
}

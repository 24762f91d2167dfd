//! Memory that is short: where the limit is, whether it is filled by what programs hold or by files that were read, and
//! which program holds most.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst, Documentation/accounting/psi.rst. A control group that is full of pages
//! of files is not short of memory: these are dropped when programs need the place. What programs hold goes to swap, or
//! somebody is killed. The machine's counters tell of all its groups; a neighbour that swaps shows in them, too.

use crate::facts::{FactId, Facts};

/// From this share of the limit on, what cannot be dropped leaves no room for the files that are in use: programs
/// themselves are read from files.
const HELD_FRACTION_MIN: f64 = 0.85;

/// A machine with more than this share of its memory available is not short of it, whatever happens in one of its groups.
const AVAILABLE_FRACTION_MAX: f64 = 0.15;

/// A group that never came nearer to its limit was not held back by it.
const FULL_FRACTION_MIN: f64 = 0.95;

/// The memory that the service may use: its group's limit, or all that the machine has.
pub fn limit_bytes(facts: &Facts) -> Option<f64> {
    let known = [FactId::group_memory_limit_bytes, FactId::memory_limit_bytes, FactId::memory_total_bytes];
    known.into_iter().filter_map(|name| facts.value(name)).reduce(f64::min)
}

/// Whether the limit is a group's, and not that of the whole machine; `None` when that is not known.
pub fn is_limited(facts: &Facts) -> Option<bool> {
    Some(limit_bytes(facts)? < facts.value(FactId::memory_total_bytes)?)
}

/// Whether all of the limit was in use at some time, files included; `None` when that is not known.
pub fn is_full(facts: &Facts) -> Option<bool> {
    if is_limited(facts) == Some(false) {
        // The machine's memory is always full of files: what is free tells nothing.
        return is_short(facts);
    }
    Some(facts.value(FactId::group_memory_used_max_bytes)? >= FULL_FRACTION_MIN * limit_bytes(facts)?)
}

/// Whether what cannot be dropped fills the limit; `None` when that is not known.
pub fn is_short(facts: &Facts) -> Option<bool> {
    let limit = limit_bytes(facts)?;
    let held =
        facts.value(FactId::memory_used_in_limit_max_bytes).filter(|_| is_limited(facts) != Some(false));
    if let Some(held) = held {
        return Some(held >= HELD_FRACTION_MIN * limit);
    }
    if is_limited(facts) == Some(true) {
        return None;
    }
    Some(facts.value(FactId::memory_available_min_bytes)? <= AVAILABLE_FRACTION_MAX * limit)
}

/// The share of time in which nobody of the service could work for want of memory: the group's own figure, the machine's
/// only where the group has none.
pub fn stalled_fraction(facts: &Facts) -> Option<f64> {
    facts
        .value(FactId::pressure_group_memory_full_fraction)
        .or_else(|| facts.value(FactId::pressure_memory_full_fraction))
}

/// Whether that figure is the machine's, in which neighbours show.
pub fn stall_is_of_machine(facts: &Facts) -> bool {
    facts.value(FactId::pressure_group_memory_full_fraction).is_none()
}

/// Who holds memory.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryHolder {
    /// The workers of the service.
    Workers,
    /// The children of this pool of PHP-FPM.
    Pool(String),
    /// The database.
    Database,
}

/// More than its limit cannot be in a group's memory; pages of files that a process shares with others may be charged to them.
const OUTSIDE_FRACTION_MIN: f64 = 1.5;

/// Whether a program has so much in memory that it cannot be in the service's group: it has a container of its own.
fn is_outside(facts: &Facts, bytes: f64) -> bool {
    is_limited(facts) == Some(true)
        && limit_bytes(facts).is_some_and(|limit| bytes > OUTSIDE_FRACTION_MIN * limit)
}

/// Who holds how much, what is swapped included; the largest first.
pub fn memory_holders(facts: &Facts) -> Vec<(MemoryHolder, f64)> {
    let value = |name: FactId| facts.value(name);
    let swapped = value(FactId::worker_swap_sum_bytes).unwrap_or(0.0);
    let mut all = vec![];
    all.extend(value(FactId::worker_memory_sum_bytes).map(|bytes| (MemoryHolder::Workers, bytes + swapped)));
    let mut swapped_by_known = swapped;
    for (pool, each) in facts.each(FactId::pool_memory_mean_bytes) {
        let swapped = facts.value_of(FactId::pool_swap_mean_bytes, pool).unwrap_or(0.0);
        let children = facts.value_of(FactId::pool_children_max, pool).unwrap_or(0.0);
        swapped_by_known += swapped * children;
        all.push((MemoryHolder::Pool(pool.to_owned()), (each + swapped) * children));
    }
    // Of the database only what is in memory is told: what is swapped and nobody else's is its own.
    let others =
        value(FactId::group_swap_used_max_bytes).map_or(0.0, |all| (all - swapped_by_known).max(0.0));
    let database = value(FactId::database_resident_max_bytes).filter(|bytes| !is_outside(facts, *bytes));
    all.extend(database.map(|bytes| (MemoryHolder::Database, bytes + others)));
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// With less of all that is in memory and in swap, the largest that is known need not be the largest there is.
const MOST_FRACTION_MIN: f64 = 0.3;

/// Who holds most, if it is known to be enough of all that is held; `None` where processes could not be seen.
pub fn largest_holder(facts: &Facts) -> Option<MemoryHolder> {
    let all = limit_bytes(facts)? + facts.value(FactId::group_swap_used_max_bytes).unwrap_or(0.0);
    let (holder, bytes) = memory_holders(facts).into_iter().next()?;
    (bytes >= MOST_FRACTION_MIN * all).then_some(holder)
}

/// Memory that more of what one holder has could take: what is free and what it holds of the memory now, less the reserve.
/// Swapped parts come back into memory: they use up what is available.
pub fn usable_bytes(facts: &Facts, held_in_memory: f64) -> Option<f64> {
    let limit = limit_bytes(facts)?;
    let usable = (free_bytes(facts)? + held_in_memory).min(limit) - RESERVE_FRACTION * limit;
    // None is known to be there: that is no unknown.
    Some(usable.max(0.0))
}

/// What is free of the memory that the service may use: of the machine's, and of its group's.
fn free_bytes(facts: &Facts) -> Option<f64> {
    let of_machine = facts.value(FactId::memory_available_min_bytes);
    let used = facts.value(FactId::memory_used_in_limit_max_bytes);
    let of_group = limit_bytes(facts).zip(used).map(|(limit, used)| (limit - used).max(0.0));
    of_machine.into_iter().chain(of_group).reduce(f64::min)
}

/// What more of something may take: this share of what is free, as others grow with it, and nothing of the reserve.
pub(crate) fn room_bytes(facts: &Facts, share: f64) -> Option<f64> {
    let free = free_bytes(facts)?;
    let beside_reserve = limit_bytes(facts).map_or(free, |limit| free - RESERVE_FRACTION * limit);
    Some((share * free).min(beside_reserve).max(0.0))
}

/// Memory kept for the kernel, the page cache and everything else.
pub const RESERVE_FRACTION: f64 = 0.10;

/// How many workers fit into memory: (available + held by the workers - reserve) / cost of one more process, in whole
/// processes of so many workers each. `None` when it cannot be told.
pub(crate) fn workers_that_fit(facts: &Facts) -> Option<f64> {
    let (usable, each) = worker_room(facts)?;
    Some((usable / each).floor() * facts.threads_per_process())
}

/// The memory that all workers may take, and what one process of them costs.
pub(crate) fn worker_room(facts: &Facts) -> Option<(f64, f64)> {
    let each = facts.value(FactId::worker_private_mean_bytes).filter(|bytes| *bytes > 0.0)?;
    let usable = usable_bytes(facts, facts.value(FactId::worker_memory_sum_bytes)?)?;
    // A worker that is swapped out is larger than the part of it that is in memory.
    let swapped = facts.value(FactId::worker_swap_sum_bytes).unwrap_or(0.0);
    let workers = facts.value(FactId::service_processes_mean).filter(|count| *count >= 1.0);
    Some((usable, workers.map_or(each, |count| each + swapped / count)))
}

/// What may still be used, and of how much.
pub(crate) fn free_and_limit(facts: &Facts) -> Option<(f64, f64)> {
    let limit =
        facts.value(FactId::memory_limit_bytes).or_else(|| facts.value(FactId::memory_total_bytes))?;
    let of_machine = facts.value(FactId::memory_available_min_bytes)?;
    let of_group = facts.value(FactId::memory_used_in_limit_max_bytes).map(|used| (limit - used).max(0.0));
    Some((of_group.map_or(of_machine, |group| group.min(of_machine)), limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, set};

    #[test]
    fn a_group_full_of_files_is_not_short_and_a_neighbours_swapping_is_not_ours() {
        let group = [
            (FactId::memory_limit_bytes, 200e6),
            (FactId::memory_total_bytes, 16e9),
            (FactId::memory_available_min_bytes, 8e9),
        ];
        for (held, used, short, full) in
            [(60e6, 199e6, false, true), (190e6, 200e6, true, true), (60e6, 100e6, false, false)]
        {
            let observed =
                [(FactId::memory_used_in_limit_max_bytes, held), (FactId::group_memory_used_max_bytes, used)];
            let facts = facts(&[&group[..], &observed[..]].concat(), &[]);
            assert_eq!((is_short(&facts), is_full(&facts)), (Some(short), Some(full)), "{held} {used}");
        }
        for (available, short) in [(8e9, false), (0.5e9, true)] {
            let machine = [(FactId::memory_total_bytes, 16e9), (FactId::memory_limit_bytes, 16e9)];
            let facts =
                facts(&[&machine[..], &[(FactId::memory_available_min_bytes, available)][..]].concat(), &[]);
            assert_eq!((is_short(&facts), is_full(&facts)), (Some(short), Some(short)), "{available}");
        }
        assert_eq!(is_short(&facts(&group, &[])), None, "the machine's room says nothing of the group's");
    }

    #[test]
    fn swap_that_is_nobody_elses_is_the_databases() {
        let observed = facts(
            &[
                (FactId::worker_memory_sum_bytes, 10e6),
                (FactId::worker_swap_sum_bytes, 20e6),
                (FactId::database_resident_max_bytes, 100e6),
                (FactId::group_swap_used_max_bytes, 300e6),
            ],
            &[],
        );
        assert_eq!(
            memory_holders(&observed),
            [(MemoryHolder::Database, 380e6), (MemoryHolder::Workers, 30e6)]
        );
        let largest = |limit| {
            let mut limited = observed.clone();
            set(&mut limited, FactId::memory_limit_bytes, limit);
            largest_holder(&limited)
        };
        assert_eq!((largest(200e6), largest(2e9)), (Some(MemoryHolder::Database), None));
    }

    #[test]
    fn a_database_that_is_larger_than_the_group_is_not_in_it() {
        let holder = |limit: f64| {
            let observed = [
                (FactId::memory_total_bytes, 16e9),
                (FactId::memory_limit_bytes, limit),
                (FactId::worker_memory_sum_bytes, 400e6),
                (FactId::database_resident_max_bytes, 2e9),
            ];
            largest_holder(&facts(&observed, &[]))
        };
        assert_eq!([500e6, 4e9].map(holder), [Some(MemoryHolder::Workers), Some(MemoryHolder::Database)]);
    }
}

//! Memory with pools of other sizes: what the processes take now, and what more of them cost; and whether it is there.

use super::Outcome;
use super::model::ServerModel;
use crate::facts::{FactId, Facts};
use crate::limits::ceiling::{Resource, ResourceCeiling};
use crate::resources::memory_pressure;
use webdyno_model::number::significant;
use webdyno_model::prediction::Estimate;

/// Fewer places are none.
const PLACES_MIN: f64 = 0.5;

/// What the server's processes hold now; `None` where it was not read.
pub(crate) fn now_bytes(facts: &Facts) -> Option<f64> {
    let children = children_bytes(facts);
    let of = |name: FactId| facts.value(name);
    let parts = [of(FactId::worker_memory_sum_bytes), children, of(FactId::database_resident_max_bytes)];
    parts.into_iter().flatten().reduce(|sum, one| sum + one)
}

/// What the children of all pools hold.
pub(crate) fn children_bytes(facts: &Facts) -> Option<f64> {
    let pools = facts.each(FactId::pool_memory_mean_bytes);
    let of_pool =
        |(pool, each): (&str, f64)| each * facts.value_of(FactId::pool_children_mean, pool).unwrap_or(0.0);
    pools.map(of_pool).reduce(|sum, one| sum + one)
}

/// What one more in use of a pool costs: the least and the most.
pub(crate) fn each_bytes(facts: &Facts, pool: &ResourceCeiling) -> Option<[f64; 2]> {
    match pool.resource {
        Resource::Workers => {
            let private = facts.value(FactId::worker_private_mean_bytes)?;
            let most = facts.value(FactId::worker_memory_mean_bytes).unwrap_or(private).max(private);
            Some([private, most].map(|bytes| bytes / facts.threads_per_process()))
        }
        Resource::PhpChildren => {
            let name = pool.ceiling.limit.rsplit(' ').next()?;
            let each = facts.value_of(FactId::pool_memory_mean_bytes, name)?;
            let most = facts.value_of(FactId::pool_child_largest_bytes, name).unwrap_or(each);
            Some([each, most.max(each)])
        }
        _ => facts.value(FactId::db_connection_memory_bytes).map(|most| [0.0, most]),
    }
}

/// What they are predicted to hold, if as many run as are used. `None` where it was not read, or what one of them costs was not.
pub(super) fn predicted_bytes(facts: &Facts, now: &ServerModel, found: &Outcome) -> Option<Estimate> {
    let held = now_bytes(facts)?;
    let (mut least, mut most) = (held, held);
    for (pool, more) in now.pools.iter().zip(more_places(facts, now, found)) {
        if more.abs() >= PLACES_MIN {
            let each = each_bytes(facts, pool)?;
            least += more * each[0];
            most += more * each[1];
        }
    }
    let bounds = [least.min(most), least.max(most)].map(|bytes| bytes.max(0.0));
    let value = f64::midpoint(bounds[0], bounds[1]);
    // What a process takes in another mix of requests was not seen.
    let ci95 = [bounds[0] - 0.05 * value, bounds[1] + 0.05 * value].map(|bytes| significant(bytes, 3));
    Some(Estimate { value: significant(value, 3), ci95: Some(ci95) })
}

/// How many more of each pool run: spare ones stay spare, up to as many as are allowed.
fn more_places(facts: &Facts, now: &ServerModel, found: &Outcome) -> Vec<f64> {
    let used = now.busy(now.rate / now.good_fraction);
    let more = |(index, pool): (usize, &ResourceCeiling)| {
        let spare = spare(facts, pool, used[index]);
        let places = found.model.network.pools[index].places;
        (found.busy[index] + spare).min(places) - (used[index] + spare)
    };
    now.pools.iter().enumerate().map(more).collect()
}

/// What more of several pools take at least beyond what there is for them, bytes; `None` where there is enough, or of one pool alone,
/// whose own ceiling says how many fit.
pub(super) fn lacking_bytes(facts: &Facts, now: &ServerModel, found: &Outcome) -> Option<f64> {
    let more = now.pools.iter().zip(more_places(facts, now, found));
    let more =
        more.filter(|(pool, more)| *more >= PLACES_MIN && pool.resource != Resource::DatabaseConnections);
    let needed: Vec<f64> = more.filter_map(|(pool, more)| Some(more * each_bytes(facts, pool)?[0])).collect();
    let lacking = needed.iter().sum::<f64>() - memory_pressure::usable_bytes(facts, 0.0)?;
    (needed.len() > 1 && lacking > 0.0).then_some(lacking)
}

fn spare(facts: &Facts, pool: &ResourceCeiling, used: f64) -> f64 {
    let running = match pool.resource {
        Resource::Workers => {
            facts.value(FactId::worker_count_mean).map(|count| count * facts.threads_per_process())
        }
        Resource::PhpChildren => {
            let name = pool.ceiling.limit.rsplit(' ').next().unwrap_or_default();
            facts.value_of(FactId::pool_children_mean, name)
        }
        _ => None,
    };
    running.map_or(0.0, |running| (running - used).max(0.0))
}

/// The ceiling of memory that holds fewer than are used of its pool.
pub(super) fn exceeded(found: &Outcome) -> Option<&ResourceCeiling> {
    let memory = found.model.others.iter().filter(|one| one.resource == Resource::Memory);
    let mut exceeded = memory.filter(|one| {
        let of_children = one.ceiling.limit.starts_with("children");
        let is_its = |pool: &ResourceCeiling| (pool.resource == Resource::PhpChildren) == of_children;
        let pools = found.model.pools.iter().zip(&found.busy);
        let used = pools.filter(|(pool, _)| is_its(pool) && pool.resource != Resource::DatabaseConnections);
        used.map(|(_, busy)| *busy).zip(one.ceiling.max).any(|(busy, fits)| busy > fits)
    });
    exceeded.next()
}

/// Whether so much memory is less than was in use beside what can be dropped.
pub(super) fn is_too_small(facts: &Facts, bytes: f64) -> bool {
    let known = memory_pressure::free_and_limit(facts).zip(memory_pressure::limit_bytes(facts));
    known.is_some_and(|((free, _), limit)| bytes < limit - free)
}

/// The facts of a machine with so much memory.
pub(super) fn with_bytes(facts: &Facts, bytes: f64) -> Facts {
    let mut facts = facts.clone();
    let Some(limit) = memory_pressure::limit_bytes(&facts) else { return facts };
    let more = bytes - limit;
    for name in [FactId::memory_limit_bytes, FactId::memory_total_bytes, FactId::group_memory_limit_bytes] {
        if let Some(value) = facts.value(name) {
            facts.assume(name, (value + more).max(0.0));
        }
    }
    if let Some(value) = facts.value(FactId::memory_available_min_bytes) {
        facts.assume(FactId::memory_available_min_bytes, (value + more).max(0.0));
    }
    facts
}

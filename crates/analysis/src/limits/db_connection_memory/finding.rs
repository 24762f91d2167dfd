//! When `db-connection-memory` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::memory_pressure::MemoryHolder;
use crate::resources::{memory_evidence, memory_pressure, setting_source};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What a connection takes, with what MariaDB 10.11 has by itself.
const BUFFERS: [(FactId, &str, f64); 6] = [
    (FactId::database_sort_buffer_bytes, "sort_buffer_size", 2_097_152.0),
    (FactId::database_join_buffer_bytes, "join_buffer_size", 262_144.0),
    (FactId::database_read_buffer_bytes, "read_buffer_size", 131_072.0),
    (FactId::database_read_rnd_buffer_bytes, "read_rnd_buffer_size", 262_144.0),
    (FactId::database_binlog_cache_bytes, "binlog_cache_size", 32_768.0),
    (FactId::database_thread_stack_bytes, "thread_stack", 299_008.0),
];

/// What the program itself takes beside its caches.
const PROGRAM_BYTES: f64 = 100e6;

/// Below this share of the memory others are to blame.
const HELD_FRACTION_MIN: f64 = 0.3;

/// Of what was free before a load that filled it, its allocator keeps a part for a while: so much is there for the next one.
const NEW_SHARE: f64 = 0.5;

/// No buffer is made smaller than this: each sort needs a few pages of it.
const BUFFER_BYTES_MIN: f64 = 65_536.0;

/// A setting of this name as the database tells it, or as its files have it.
fn buffer(facts: &Facts, (fact, setting, usual): (FactId, &str, f64)) -> f64 {
    let configured = || facts.backends("mariadb").find_map(|service| service.number(setting));
    facts.value(fact).or_else(configured).unwrap_or(usual)
}

/// What of the database is no connection's.
fn caches(facts: &Facts) -> f64 {
    let caches = fact_ids! {
        database_buffer_pool_bytes, database_key_buffer_bytes, database_query_cache_bytes,
    };
    caches.into_iter().filter_map(|name| facts.value(name)).sum::<f64>() + PROGRAM_BYTES
}

/// What the database took since the load began that was stopped for it: no other process of the group did. A load that ends within a
/// second leaves no time for more than that.
fn grown(facts: &Facts) -> Option<f64> {
    facts.harm_guard_trip.as_ref()?;
    let grown = facts.value(FactId::group_rest_grown_bytes)?;
    facts.value(FactId::database_resident_max_bytes).filter(|held| *held >= 0.5 * grown).map(|_| grown)
}

fn connections(facts: &Facts) -> Option<f64> {
    let observed =
        facts.value(FactId::database_connected_max).or_else(|| facts.value(FactId::pool_children_busy_mean));
    observed.filter(|count| *count >= 1.0)
}

/// Fires when memory is short, the database holds it, and its connections' buffers explain that.
pub fn check(facts: &Facts) -> Option<Finding> {
    let evidence = memory_evidence::evidence(facts)?;
    let limit = memory_pressure::limit_bytes(facts)?;
    let (holder, held) = memory_pressure::memory_holders(facts).into_iter().next()?;
    let of_connections = (held - caches(facts)).max(grown(facts).unwrap_or(0.0));
    if holder != MemoryHolder::Database || of_connections < HELD_FRACTION_MIN * limit {
        return None;
    }
    let known = facts.value(FactId::database_sort_buffer_bytes).is_some()
        || facts.backends("mariadb").any(|service| service.number("sort_buffer_size").is_some());
    let each: f64 = BUFFERS.iter().map(|row| buffer(facts, *row)).sum();
    let usual: f64 = BUFFERS.iter().map(|(_, _, usual)| usual).sum();
    let open = connections(facts)?;
    let allowed = facts.value(FactId::database_connections_limit).unwrap_or(open);
    // What is usual is not what takes the memory, and what the connections cannot have taken belongs to others.
    if !known || each <= usual || open * each < 0.5 * of_connections || allowed * each + caches(facts) < limit
    {
        return None;
    }
    Some(Finding {
        id: LimitId::DbConnectionMemory.into(),
        summary: format!(
            "Buffers of database connections exhaust memory: up to {} for each of {} open connections ({} allowed); {}. The \
             database holds most of the memory, far more than its caches.",
            format_bytes(each),
            format_number(open),
            format_number(allowed),
            evidence.words
        ),
        confidence: evidence.confidence,
        explains_fraction: memory_evidence::lost_fraction(facts),
        facts: facts.cite(CITED),
        remedies: remedy(facts, limit, wanted(facts, open)).into_iter().collect(),
    })
}

const CITED: &[FactId] = &fact_ids! {
    pressure_group_memory_full_fraction, pressure_memory_full_fraction, swapped_in_pages_per_s,
    swapped_out_pages_per_s, group_swap_used_max_bytes, group_oom_kills, memory_limit_bytes,
    memory_used_in_limit_max_bytes, group_held_before_bytes, group_rest_grown_bytes, database_resident_max_bytes,
    database_buffer_pool_bytes, database_connected_max, database_connections_limit, database_sort_buffer_bytes,
    database_join_buffer_bytes, database_read_buffer_bytes, database_read_rnd_buffer_bytes,
    worker_memory_sum_bytes, pool_memory_mean_bytes, rate,
};

/// How many connections there may be at once: one for each who is served, where a load was stopped before all of them were.
fn wanted(facts: &Facts, open: f64) -> f64 {
    let served = facts.value(FactId::users).filter(|_| facts.harm_guard_trip.is_some());
    let most = facts.value(FactId::pool_children_max).or(facts.value(FactId::workers_limit));
    let wanted = served.zip(most).map_or(open, |(users, most)| users.min(most).max(open));
    facts.value(FactId::database_connections_limit).map_or(wanted, |limit| wanted.min(limit))
}

/// The buffer that is furthest above what is usual, to what fits; others that are above it, to what is usual.
fn remedy(facts: &Facts, limit: f64, open: f64) -> Option<Remedy> {
    let excess = |row: (FactId, &str, f64)| buffer(facts, row) - row.2;
    // The stack is the program's, and of a thread the least.
    let mut above: Vec<_> = BUFFERS.into_iter().take(5).filter(|row| excess(*row) > 0.0).collect();
    above.sort_by(|a, b| excess(*b).total_cmp(&excess(*a)));
    let (largest, others) = above.split_first()?;
    let held: f64 = memory_pressure::memory_holders(facts)
        .iter()
        .filter(|(holder, _)| *holder != MemoryHolder::Database)
        .map(|(_, bytes)| bytes)
        .sum();
    // What was there before the load holds the caches as far as they are filled.
    let before = facts.value(FactId::group_held_before_bytes).filter(|_| facts.harm_guard_trip.is_some());
    let there = before.map_or(held + caches(facts), |before| before.min(held + caches(facts)));
    let share = if before.is_some() { NEW_SHARE } else { 1.0 };
    let room = share * (limit * (1.0 - memory_pressure::RESERVE_FRACTION) - there);
    let beside: f64 =
        BUFFERS.iter().filter(|row| row.1 != largest.1).map(|row| buffer(facts, *row).min(row.2)).sum();
    // What is usual of a small one is less than that.
    let fits = (room / open - beside).clamp(BUFFER_BYTES_MIN.min(largest.2), largest.2);
    // As such values are written.
    let to = 2f64.powf(fits.log2().floor());
    let usual = |row: &(FactId, &str, f64)| SettingChange {
        setting: SettingId::of_service("mariadb", row.1),
        to: SettingValue::Integer(row.2 as i64),
    };
    Some(Remedy {
        setting: SettingId::of_service("mariadb", largest.1),
        from: Some(setting_source::kibibytes(buffer(facts, *largest))),
        to: Some(SettingValue::Integer(to as i64)),
        class: ApplyClass::Live,
        risk:
            "large sorts and joins use temporary files; open connections keep their buffers until they close"
                .into(),
        why: format!(
            "{} connections then fit in memory beside the caches and other programs, with 10% in reserve; MariaDB's default \
             is {}",
            format_number(open),
            format_bytes(largest.2)
        ),
        predicted: None,
        together_with: others.iter().map(usual).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const SORTING: [(FactId, f64); 14] = [
        (FactId::pressure_group_memory_full_fraction, 0.3),
        (FactId::swapped_in_pages_per_s, 20_000.0),
        (FactId::memory_limit_bytes, 400e6),
        (FactId::memory_total_bytes, 16e9),
        (FactId::memory_used_in_limit_max_bytes, 399e6),
        (FactId::group_memory_used_max_bytes, 400e6),
        (FactId::group_swap_used_max_bytes, 700e6),
        (FactId::worker_memory_sum_bytes, 100e6),
        (FactId::database_resident_max_bytes, 280e6),
        (FactId::database_buffer_pool_bytes, 32e6),
        (FactId::database_connected_max, 50.0),
        (FactId::database_connections_limit, 200.0),
        (FactId::database_sort_buffer_bytes, 33_554_432.0),
        (FactId::database_join_buffer_bytes, 16_777_216.0),
    ];

    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        let values = with_changes(&SORTING, changes);
        check(&facts(&values, &[]))
    }

    #[test]
    fn the_largest_buffer_is_made_to_fit_and_the_others_usual() {
        let finding = with(&[]).unwrap();
        let remedy = &finding.remedies[0];
        assert_eq!((finding.confidence, remedy.setting.name.as_str()), (0.9, "sort_buffer_size"));
        // (360 - 100 - 132) MB for 50 connections, less the megabyte of their other buffers, as a power of two.
        assert_eq!(remedy.to, Some(SettingValue::Integer(1_048_576)));
        assert_eq!(remedy.together_with.len(), 1);
        assert_eq!(remedy.together_with[0].setting.name, "join_buffer_size");
        // The cache of a transaction's log is usually smaller than the least that others are made.
        let log = [
            (FactId::database_sort_buffer_bytes, 2_097_152.0),
            (FactId::database_join_buffer_bytes, 262_144.0),
            (FactId::database_binlog_cache_bytes, 67_108_864.0),
        ];
        let remedy = with(&log).unwrap().remedies.remove(0);
        assert_eq!(
            (remedy.setting.name.as_str(), remedy.to),
            ("binlog_cache_size", Some(SettingValue::Integer(32_768)))
        );
    }

    /// Stopped after half a second: the buffers have taken what was free, and no more was read.
    #[test]
    fn a_load_that_was_stopped_at_once_shows_what_the_database_took() {
        let stopped = |changes: &[(FactId, f64)]| {
            let early = [
                (FactId::pressure_group_memory_full_fraction, 0.1),
                (FactId::group_swap_used_max_bytes, 76e6),
                (FactId::database_resident_max_bytes, 196e6),
                (FactId::database_key_buffer_bytes, 134e6),
                (FactId::database_connected_max, 18.0),
                (FactId::group_held_before_bytes, 150e6),
                (FactId::group_rest_grown_bytes, 165e6),
                (FactId::users, 45.0),
                (FactId::pool_children_max, 65.0),
            ];
            let values = with_changes(&with_changes(&SORTING, &early), changes);
            let mut facts = facts(&values, &[]);
            facts.harm_guard_trip =
                Some(crate::facts::testing::with_harm_guard_trip("pressure.group_memory_full_us"));
            check(&facts)
        };
        let remedy = stopped(&[]).unwrap().remedies.remove(0);
        // Half of (360 - 150) MB for 45 connections, less the megabyte of their other buffers.
        assert_eq!(remedy.to, Some(SettingValue::Integer(1_048_576)));
        for change in [
            (FactId::group_rest_grown_bytes, 40e6),
            (FactId::database_resident_max_bytes, 60e6),
            (FactId::database_sort_buffer_bytes, 262_144.0),
        ] {
            let changes = [change, (FactId::database_join_buffer_bytes, 262_144.0)];
            assert!(stopped(&changes[..if change.1 == 262_144.0 { 2 } else { 1 }]).is_none(), "{change:?}");
        }
    }

    #[test]
    fn whoever_else_holds_the_memory_is_to_blame() {
        let unseen = f64::NAN;
        for changes in [
            vec![(FactId::worker_memory_sum_bytes, 1200e6)],
            // A large cache is no connection's.
            vec![(FactId::database_buffer_pool_bytes, 800e6)],
            vec![
                (FactId::database_sort_buffer_bytes, 2_097_152.0),
                (FactId::database_join_buffer_bytes, 262_144.0),
            ],
            vec![(FactId::database_connected_max, 5.0)],
            vec![(FactId::database_sort_buffer_bytes, unseen)],
            vec![(FactId::swapped_in_pages_per_s, 0.0)],
            vec![(FactId::pressure_group_memory_full_fraction, 0.0)],
        ] {
            assert!(with(&changes).is_none(), "{changes:?}");
        }
    }
}

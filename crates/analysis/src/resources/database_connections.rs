//! Connections that a database needs when more workers stand before it: each worker that has one at a time wants one.

use crate::facts::{FactId, Facts};
use crate::resources::setting_source;
use webdyno_model::change::SettingChange;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The connection over which it is read.
const OWN: f64 = 1.0;

/// Workers that have fewer connections than this each share them: their number does not grow with the workers.
const EACH_MIN: f64 = 0.1;

/// Room above what is needed, and for other programs, as `db-connections-exhausted` has it.
const HEADROOM: f64 = 1.1;
const OTHERS: f64 = 10.0;

/// The share of the available memory that the buffers of more connections may take.
const MEMORY_FRACTION_MAX: f64 = 0.5;

/// What must be raised along so that `to` workers find connections, where `from` are busy now; nothing where the database
/// allows as many, or where it is not known.
pub(crate) fn needed_with_workers(facts: &Facts, (from, to): (f64, f64)) -> Option<SettingChange> {
    let limit = facts.value(FactId::db_connections_limit).or(facts.value(FactId::ahead_database_limit));
    let limit = limit.or_else(|| setting_source::of(facts, "mariadb", "max_connections")?.number())?;
    let connected = facts.value(FactId::ahead_database_connected_mean)? - OWN;
    let each = (connected / from.max(1.0)).min(1.0);
    if each < EACH_MIN || each * to + OWN <= limit {
        return None;
    }
    let wanted = (HEADROOM * each * to + OTHERS).ceil();
    let memory = facts.value(FactId::db_connection_memory_bytes).filter(|bytes| *bytes > 0.0);
    let fits = memory.zip(facts.value(FactId::memory_available_min_bytes));
    let fits = fits.map(|(each, available)| (limit + MEMORY_FRACTION_MAX * available / each).floor());
    let wanted = fits.map_or(wanted, |fits| wanted.min(fits));
    (wanted > limit).then(|| SettingChange {
        setting: SettingId::of_service("mariadb", "max_connections"),
        to: SettingValue::Integer(wanted as i64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    #[test]
    fn a_database_gets_what_more_workers_need() {
        let base = [(FactId::ahead_database_limit, 20.0), (FactId::ahead_database_connected_mean, 13.0)];
        let needed = |changes: &[(FactId, f64)], from: f64, to: f64| {
            let facts = facts(&with_changes(&base, changes), &[]);
            needed_with_workers(&facts, (from, to)).map(|change| change.to.to_string())
        };
        assert_eq!(needed(&[], 12.0, 108.0).as_deref(), Some("129"));
        for (changes, from, to) in [
            (vec![], 12.0, 18.0),
            (vec![(FactId::ahead_database_limit, 200.0)], 12.0, 108.0),
            (vec![(FactId::ahead_database_connected_mean, 1.5)], 12.0, 108.0),
            (vec![(FactId::ahead_database_connected_mean, f64::NAN)], 12.0, 108.0),
            (vec![(FactId::ahead_database_limit, f64::NAN)], 12.0, 108.0),
        ] {
            assert_eq!(needed(&changes, from, to), None, "{changes:?} {to}");
        }
        // No more than memory holds.
        let memory = [(FactId::db_connection_memory_bytes, 1e8), (FactId::memory_available_min_bytes, 1e9)];
        assert_eq!(needed(&memory, 12.0, 108.0).as_deref(), Some("25"));
    }
}

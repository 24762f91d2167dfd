//! Connections that a database needs when more workers stand before it: one for each worker of a site that uses it, as
//! `db-connections-exhausted` counts them. Workers that are held by something else now may all want theirs at once later, and
//! a limit that is not reached costs nothing. Their buffers and the workers share the memory: both together must fit.

use crate::facts::{FactId, Facts};
use crate::resources::{memory_pressure, setting_source};
use webdyno_model::change::SettingChange;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The connection over which it is read.
const OWN: f64 = 1.0;

/// Connections that are open on average, or that are opened in a second, where a site uses its database at all.
const IN_USE_MIN: f64 = 0.02;

/// Room above what is needed, and for other programs, as `db-connections-exhausted` has it.
const HEADROOM: f64 = 1.1;
const OTHERS: f64 = 10.0;

/// The share of the available memory that the buffers of more connections may take.
const MEMORY_FRACTION_MAX: f64 = 0.5;

/// What must be raised along so that `to` workers find connections; nothing where the database allows as many, is not used, or
/// is not known.
pub(crate) fn needed_with_workers(facts: &Facts, to: f64) -> Option<SettingChange> {
    let limit = limit_in_use(facts).filter(|limit| to + OWN > *limit)?;
    let wanted = (HEADROOM * to + OTHERS).ceil();
    let fits = connection_bytes(facts).zip(memory_pressure::room_bytes(facts, MEMORY_FRACTION_MAX));
    let fits = fits.map(|(each, room)| (limit + room / each).floor());
    let wanted = fits.map_or(wanted, |fits| wanted.min(fits));
    (wanted > limit).then(|| SettingChange {
        setting: SettingId::of_service("mariadb", "max_connections"),
        to: SettingValue::Integer(wanted as i64),
    })
}

/// How many workers so much memory holds, in whole processes of so many workers that take `each`, with the connections that go
/// along with them.
pub(crate) fn workers_that_fit_with(facts: &Facts, usable: f64, (each, workers): (f64, f64)) -> f64 {
    let alone = (usable / each).floor() * workers;
    let database = limit_in_use(facts).filter(|limit| alone + OWN > *limit).zip(connection_bytes(facts));
    let Some((limit, connection)) = database else { return alone };
    // With one for the rounding of what is wanted.
    let already = connection * (limit - OTHERS - 1.0);
    let with = ((usable + already) / (each + HEADROOM * workers * connection)).floor() * workers;
    let without = ((limit - OWN) / workers).floor() * workers;
    with.max(without).clamp(0.0, alone)
}

/// Workers of Apache that memory holds with the connections that go along. `None` when it cannot be told.
pub(crate) fn apache_workers_that_fit(facts: &Facts) -> Option<f64> {
    let (usable, each) = memory_pressure::worker_room(facts)?;
    Some(workers_that_fit_with(facts, usable, (each, facts.threads_per_process())))
}

/// How many connections a database allows that the site uses.
fn limit_in_use(facts: &Facts) -> Option<f64> {
    let limit = facts.value(FactId::db_connections_limit).or(facts.value(FactId::ahead_database_limit));
    let limit = limit.or_else(|| setting_source::of(facts, "mariadb", "max_connections")?.number())?;
    let connected = facts.value(FactId::ahead_database_connected_mean).map(|connected| connected - OWN);
    let opened = facts.value(FactId::ahead_database_attempts_per_s);
    let is_used = [connected, opened].into_iter().flatten().any(|count| count >= IN_USE_MIN);
    is_used.then_some(limit)
}

/// What one connection may take.
fn connection_bytes(facts: &Facts) -> Option<f64> {
    facts.value(FactId::db_connection_memory_bytes).filter(|bytes| *bytes > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    #[test]
    fn a_database_gets_what_more_workers_need() {
        let base = [(FactId::ahead_database_limit, 20.0), (FactId::ahead_database_connected_mean, 13.0)];
        let needed = |changes: &[(FactId, f64)], to: f64| {
            let facts = facts(&with_changes(&base, changes), &[]);
            needed_with_workers(&facts, to).map(|change| change.to.to_string())
        };
        assert_eq!(needed(&[], 108.0).as_deref(), Some("129"));
        for (changes, to) in [
            (vec![], 18.0),
            (vec![(FactId::ahead_database_limit, 200.0)], 108.0),
            (vec![(FactId::ahead_database_connected_mean, 1.0)], 108.0),
            (vec![(FactId::ahead_database_connected_mean, f64::NAN)], 108.0),
            (vec![(FactId::ahead_database_limit, f64::NAN)], 108.0),
        ] {
            assert_eq!(needed(&changes, to), None, "{changes:?} {to}");
        }
        // No more than memory holds.
        let memory = [(FactId::db_connection_memory_bytes, 1e8), (FactId::memory_available_min_bytes, 1e9)];
        assert_eq!(needed(&memory, 108.0).as_deref(), Some("25"));
    }

    #[test]
    fn workers_and_their_connections_share_the_memory() {
        let base = [
            (FactId::ahead_database_limit, 20.0),
            (FactId::ahead_database_connected_mean, 13.0),
            (FactId::db_connection_memory_bytes, 3e6),
        ];
        for (changes, usable, (each, workers), expected) in [
            // 20 MB and 1.1 times 3 MB each, less the nine connections that are there already.
            (vec![], 1000e6, (20e6, 1.0), 44.0),
            (vec![], 1000e6, (20e6, 5.0), 140.0),
            // So few find a connection as it is.
            (vec![], 300e6, (20e6, 1.0), 15.0),
            (vec![(FactId::db_connection_memory_bytes, 3e8)], 1000e6, (20e6, 1.0), 19.0),
            // A database that is not used, or whose connections cost nothing that is known.
            (vec![(FactId::ahead_database_connected_mean, 1.0)], 1000e6, (20e6, 1.0), 50.0),
            (vec![(FactId::db_connection_memory_bytes, f64::NAN)], 1000e6, (20e6, 1.0), 50.0),
        ] {
            let facts = facts(&with_changes(&base, &changes), &[]);
            assert_eq!(
                workers_that_fit_with(&facts, usable, (each, workers)),
                expected,
                "{changes:?} {usable}"
            );
        }
    }
}

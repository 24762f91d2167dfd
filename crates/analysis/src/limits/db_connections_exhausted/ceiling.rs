//! Connections of the database, by Little's law.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::ceiling::{Resource, ResourceCeiling, ResourceUsage};
use crate::resources::utilisation::{beyond_in_flight, combined_error, rate};

/// Connections that are opened for fewer responses than this are kept by the workers: then their number grows with the
/// workers, not with the rate.
const OPENED_PER_ANSWER_MIN: f64 = 0.2;
/// The connection over which it is read: it is one of those that there may be.
const OWN: f64 = 1.0;

pub(crate) fn ceiling(facts: &Facts) -> Option<ResourceCeiling> {
    let max = facts.value(FactId::ahead_database_limit);
    let now = facts.value(FactId::ahead_database_connected_mean);
    let used =
        now.map(|now| now - OWN - connections_beyond_requests(facts, now - OWN)).filter(|used| *used > 0.0);
    let binds_at_rate = used
        .zip(max)
        .filter(|_| are_opened_for_answers(facts))
        .and_then(|(used, max)| Some(rate(facts)? * (max - OWN) / used));
    let error = combined_error(&[
        facts.value(FactId::rate_ci95_fraction),
        facts.value(FactId::ahead_database_connected_ci95_fraction),
    ]);
    ResourceUsage { now, max, binds_at_rate, error, idle: OWN }.ceiling(
        Resource::DatabaseConnections,
        "database connections",
        "mariadb",
        Some(LimitId::DbConnectionsExhausted),
    )
}

/// What samples show beyond the requests in flight, each of which may open several.
fn connections_beyond_requests(facts: &Facts, connected: f64) -> f64 {
    let opened = facts.value(FactId::ahead_database_attempts_per_s).zip(facts.ended_per_s());
    let each = opened.map_or(1.0, |(opened, ended)| (opened / ended).max(1.0));
    beyond_in_flight(facts, connected / each) * each
}

fn are_opened_for_answers(facts: &Facts) -> bool {
    let opened = facts.value(FactId::ahead_database_attempts_per_s).zip(rate(facts));
    opened.is_some_and(|(opened, rate)| opened >= OPENED_PER_ANSWER_MIN * rate)
}

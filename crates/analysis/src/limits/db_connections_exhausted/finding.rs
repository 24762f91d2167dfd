//! When `db-connections-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::setting_source;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Below one refusal in ten seconds, or in a hundred requests, the loss is negligible.
const REFUSED_PER_S_MIN: f64 = 0.1;
const FAILED_FRACTION_MIN: f64 = 0.01;
/// Samples of a second hardly meet the moment at which the last connection is used.
const AT_LIMIT_FRACTION: f64 = 0.9;

/// Fires when the database refuses connections, and successful responses are missing.
pub fn check(facts: &Facts) -> Option<Finding> {
    let proof = proof(facts)?;
    let failed = facts.value(FactId::failed_fraction).or_else(|| failed_by_log(facts));
    if failed.is_some_and(|failed| failed < FAILED_FRACTION_MIN) {
        return finding_without_errors(facts, &proof);
    }
    let limit = limit(facts);
    let allowed = usage_text(facts, limit);
    let lost = failed.map_or(String::new(), |failed| {
        format!(
            " {:.0}% of requests end in errors, which are fast: count only successful responses.",
            failed * 100.0
        )
    });
    Some(Finding {
        id: LimitId::DbConnectionsExhausted.into(),
        summary: format!("Database connections exhausted{allowed}: {}.{lost}", proof.words),
        confidence: proof.confidence,
        explains_fraction: failed.map(|failed| significant(failed.min(1.0), 3)),
        facts: facts.cite(&CITED),
        remedies: super::remedy::remedies(facts, limit),
    })
}

/// ` (20 of 20)`.
fn usage_text(facts: &Facts, limit: Option<f64>) -> String {
    let Some(limit) = limit else { return String::new() };
    let used = facts.value(FactId::db_connections_max).filter(|used| *used >= AT_LIMIT_FRACTION * limit);
    let used = used.map_or("limit".into(), |used| format!("{} of", format_number(used.min(limit))));
    format!(" ({used} {})", format_number(limit))
}

/// How many connections are allowed: as the database tells while it is watched, or told when it was discovered.
fn limit(facts: &Facts) -> Option<f64> {
    limit_of_user(facts).or_else(|| limit_of_all(facts))
}

fn limit_of_all(facts: &Facts) -> Option<f64> {
    let known = || setting_source::of(facts, "mariadb", "max_connections")?.number();
    facts.value(FactId::db_connections_limit).or_else(known)
}

fn limit_of_user(facts: &Facts) -> Option<f64> {
    super::remedy::limit_of_user(facts, limit_of_all(facts))
}

const CITED: [FactId; 16] = fact_ids! {
    db_clients_max, db_connections_failed_per_s, db_connections_refused, db_own_connections_refused, db_connections_limit,
    db_connections_used_max, db_connections_max, db_connections_per_s, db_refusals_logged,
    db_refusals_logged_per_s, failed_fraction, server_error_fraction, server_errors_answered_per_s,
    answers_logged_per_s, rate, ended_per_s,
};

/// No answer is an error by its status, and yet the database refuses connections, for a good part of the requests: pages
/// that catch the error say "come again" with status 200.
fn finding_without_errors(facts: &Facts, proof: &ConnectionProof) -> Option<Finding> {
    let refused = pages_without_database(facts)?;
    let limit = limit(facts);
    let allowed = usage_text(facts, limit);
    Some(Finding {
        id: LimitId::DbConnectionsExhausted.into(),
        summary: format!(
            "Database connections exhausted{allowed}: {}. No response has an error status, so broken pages may count as successful: look at one, and make the load expect the text of a correct page (`--expect`).",
            proof.words
        ),
        confidence: proof.confidence.min(CONFIDENCE_BEHIND_GOOD_ANSWERS),
        explains_fraction: refused.map(|share| significant(share, 3)),
        facts: facts.cite(&CITED),
        remedies: super::remedy::remedies(facts, limit),
    })
}

/// Pages may try again, or not need the database: that they are bad is likely, not seen.
const CONFIDENCE_BEHIND_GOOD_ANSWERS: f64 = 0.8;

/// The share of the requests that lack their connection to the database, if they do; `Some(None)` where it refuses the connection
/// that would count: the one that it keeps for administrators is used only among many of others that are refused.
fn pages_without_database(facts: &Facts) -> Option<Option<f64>> {
    if let Some(per_s) = refused_per_s(facts) {
        let share = (per_s / facts.ended_per_s()?).min(1.0);
        return (share >= FAILED_FRACTION_MIN).then_some(Some(share));
    }
    let (own, window_s) = (
        facts.value(FactId::db_own_connections_refused)?,
        facts.window_s(FactId::db_own_connections_refused)?,
    );
    (facts.value(FactId::db_connections_limit).is_none() && own >= OWN_REFUSED_PER_S_MIN * window_s.max(2.0))
        .then_some(None)
}

/// This program asks once a second: it was turned away most times.
const OWN_REFUSED_PER_S_MIN: f64 = 0.6;

/// Whether most of what the server sends are pages that lack the database.
pub(crate) fn affects_most_pages(facts: &Facts) -> bool {
    proof(facts).is_some()
        && pages_without_database(facts).is_some_and(|share| share.is_none_or(|share| share >= 0.5))
}

/// Whether most of the requests that fail do for want of a connection to the database, and not of something in front of it.
pub(crate) fn makes_most_errors(facts: &Facts) -> bool {
    let good =
        facts.value(FactId::rate).zip(facts.value(FactId::failed_fraction).filter(|failed| *failed < 1.0));
    let failed_per_s = good.map(|(rate, failed)| rate * failed / (1.0 - failed));
    refused_per_s(facts).zip(failed_per_s).is_some_and(|(refused, failed)| refused >= 0.5 * failed)
}

/// Without load of our own the log of requests tells how many of them were errors of the server.
fn failed_by_log(facts: &Facts) -> Option<f64> {
    let (errors, all) =
        (facts.value(FactId::server_errors_answered_per_s)?, facts.value(FactId::answers_logged_per_s)?);
    (all > 0.0).then(|| errors / all)
}

struct ConnectionProof {
    words: String,
    confidence: f64,
}

fn proof(facts: &Facts) -> Option<ConnectionProof> {
    let inside = refused_per_s(facts);
    let logged = facts.value(FactId::db_refusals_logged_per_s).filter(|rate| *rate >= REFUSED_PER_S_MIN);
    let own = facts.value(FactId::db_own_connections_refused).is_some_and(|refused| refused >= 1.0);
    let words = match (inside, logged) {
        (Some(rate), _) => format!("{} connection attempts fail per second", format_number(rate)),
        (None, Some(rate)) => format!("logged {} times per second", format_number(rate)),
        (None, None) if own => "webdyno's own connection was refused, too".to_owned(),
        (None, None) => return proof_in_sockets(facts),
    };
    let confidence = match (inside, logged.is_some() || own) {
        (Some(_), true) => 0.95,
        (Some(_), false) => 0.8,
        (None, _) if logged.is_some() && own => 0.9,
        (None, _) => 0.8,
    };
    Some(ConnectionProof { words, confidence })
}

/// Who is not let in sees that as many clients are connected as are allowed, and that good answers are missing: those that are
/// refused are connected, too, until they are told.
fn proof_in_sockets(facts: &Facts) -> Option<ConnectionProof> {
    let is_let_in = facts.value(FactId::db_connections_used_max).is_some();
    let (clients, limit) = facts.value(FactId::db_clients_max).zip(limit(facts))?;
    let errors = facts.value(FactId::server_error_fraction).or_else(|| failed_by_log(facts))?;
    let is_full = !is_let_in && clients >= limit && errors >= SERVER_ERRORS_MIN;
    is_full.then(|| ConnectionProof {
        words: format!(
            "{} clients are connected to its sockets, and it allows {}",
            format_number(clients),
            format_number(limit)
        ),
        confidence: CONFIDENCE_BY_SOCKETS,
    })
}

/// Fewer errors of the server may have any cause; and the cause of so many is not seen.
const SERVER_ERRORS_MIN: f64 = 0.1;
const CONFIDENCE_BY_SOCKETS: f64 = 0.7;

/// Connections of administrators beside those of the one user of a site.
const OF_ADMINISTRATORS: f64 = 5.0;

/// Whether more are connected than one user may be: then several users are, and how many one of them has is not told.
fn are_of_several_users(facts: &Facts) -> bool {
    let connected = facts.value(FactId::db_connections_max);
    limit_of_user(facts)
        .zip(connected)
        .is_some_and(|(limit, connected)| connected > limit + OF_ADMINISTRATORS)
}

/// How many connections fail per second, while as many are connected as are allowed. Others fail for a wrong password.
fn refused_per_s(facts: &Facts) -> Option<f64> {
    let rate = facts.value(FactId::db_connections_failed_per_s).filter(|rate| *rate >= REFUSED_PER_S_MIN)?;
    let limit = limit(facts).filter(|_| !are_of_several_users(facts))?;
    let is_at = |name: FactId| facts.value(name).is_some_and(|count| count >= AT_LIMIT_FRACTION * limit);
    let refused = facts.value(FactId::db_connections_refused).is_some_and(|refused| refused >= 1.0);
    let used = facts.value(FactId::db_connections_used_max).is_some_and(|count| count >= limit);
    (used && (refused || is_at(FactId::db_connections_max))).then_some(rate)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    pub(crate) const REFUSED: &[(FactId, f64)] = &[
        (FactId::db_connections_failed_per_s, 128.0),
        (FactId::db_connections_refused, 9.0),
        (FactId::db_connections_limit, 12.0),
        (FactId::db_connections_used_max, 13.0),
        (FactId::db_connections_max, 12.0),
        (FactId::db_refusals_logged_per_s, 128.0),
        (FactId::failed_fraction, 0.64),
        (FactId::rate, 71.0),
        (FactId::ended_per_s, 199.0),
    ];

    pub(crate) fn merged(changes: &[(FactId, f64)]) -> Vec<(FactId, f64)> {
        with_changes(REFUSED, changes)
    }

    #[test]
    fn refusals_are_proven_from_inside_and_from_outside() {
        let nan = f64::NAN;
        for (changes, sure) in [
            (vec![], Some(0.95)),
            (vec![(FactId::db_refusals_logged_per_s, nan)], Some(0.8)),
            (vec![(FactId::db_connections_failed_per_s, nan)], Some(0.8)),
            (
                vec![(FactId::db_connections_failed_per_s, nan), (FactId::db_own_connections_refused, 2.0)],
                Some(0.9),
            ),
            (vec![(FactId::db_connections_failed_per_s, 0.0), (FactId::db_refusals_logged_per_s, 0.0)], None),
            // A wrong password is no limit.
            (vec![(FactId::db_connections_used_max, 5.0), (FactId::db_refusals_logged_per_s, 0.0)], None),
            // Pages that say so with status 200; or hardly any was refused, in spite of what a log says.
            (vec![(FactId::failed_fraction, 0.0)], Some(0.8)),
            (vec![(FactId::failed_fraction, 0.0), (FactId::db_connections_failed_per_s, 1.0)], None),
            (vec![(FactId::failed_fraction, nan)], Some(0.95)),
        ] {
            let found = check(&facts(&merged(&changes), &[])).map(|finding| finding.confidence);
            assert_eq!(found, sure, "{changes:?}");
        }
    }

    #[test]
    fn who_is_not_let_in_sees_full_sockets_and_errors() {
        for (clients, errors, used, confidence) in [
            (12.0, 0.5, f64::NAN, Some(0.7)),
            (11.0, 0.5, f64::NAN, None),
            (12.0, 0.02, f64::NAN, None),
            (12.0, 0.5, 5.0, None),
        ] {
            let observed = [
                (FactId::db_clients_max, clients),
                (FactId::server_error_fraction, errors),
                (FactId::failed_fraction, errors),
                (FactId::db_connections_limit, 12.0),
                (FactId::db_connections_used_max, used),
            ];
            let known: Vec<_> = observed.into_iter().filter(|(_, value)| value.is_finite()).collect();
            let found = check(&facts(&known, &[])).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{clients} {errors} {used}");
        }
    }

    #[test]
    fn where_it_lets_nobody_in_pages_of_status_200_are_no_proof_that_all_is_well() {
        for (own, limit, found) in [(5.0, f64::NAN, false), (9.0, f64::NAN, true), (9.0, 20.0, false)] {
            let observed = [
                (FactId::db_own_connections_refused, own),
                (FactId::db_connections_limit, limit),
                (FactId::failed_fraction, 0.0),
                (FactId::rate, 22_000.0),
            ];
            let known: Vec<_> = observed.into_iter().filter(|(_, value)| value.is_finite()).collect();
            assert_eq!(check(&facts(&known, &[])).is_some(), found, "{own} {limit}");
        }
    }

    #[test]
    fn without_load_the_logs_tell_what_is_lost() {
        let log = [
            (FactId::failed_fraction, f64::NAN),
            (FactId::server_errors_answered_per_s, 60.0),
            (FactId::answers_logged_per_s, 80.0),
        ];
        let finding = check(&facts(&merged(&log), &[])).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.75));
    }
}

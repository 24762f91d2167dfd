//! `db-connections-exhausted`: the database refuses connections, as it has as many as it allows.
//!
//! Each process of the application wants a connection of its own. Where more of them work at once than `max_connections`
//! allows, the database turns the others away, and their pages are errors. Those come fast: who counts answers sees more
//! of them than ever; who counts good ones sees that they are missing.
//!
//! ## How it is recognised
//! From inside: connections fail (`Connection_errors_max_connections`, `Aborted_connects`) while as many are connected as are
//! allowed. From outside: the log of the site has `Too many connections`, or the database refuses this program's own
//! connection as too many. And good answers are missing.
//!
//! ## What to do
//! `max_connections` to the number of the application's workers, a tenth more, and ten for other programs; no more than half
//! of the available memory holds, at what one connection may take for its buffers. It takes effect at once. Where
//! connections are held because statements take long or wait for each other, that is what to remedy.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Max_used_connections'`, `'Connection_errors_max_connections'` and `'Aborted_connects'`;
//! `grep -c 'Too many connections' error.log`.

use super::say;
use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

mod remedy;

/// Stable id.
pub const ID: &str = "db-connections-exhausted";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &["backend-refused"];

/// Below one refusal in ten seconds, or in a hundred requests, nobody misses much.
const REFUSED_PER_S_MIN: f64 = 0.1;
const FAILED_FRACTION_MIN: f64 = 0.01;
/// Readings of a second hardly meet the moment at which the last connection is taken.
const AT_LIMIT_FRACTION: f64 = 0.9;

/// Fires when the database turns connections away, and good answers are missing.
pub fn check(facts: &Facts) -> Option<Finding> {
    let proof = proof(facts)?;
    let failed = facts.value("failed_fraction").or_else(|| failed_by_log(facts));
    if failed.is_some_and(|failed| failed < FAILED_FRACTION_MIN) {
        return None;
    }
    let limit = facts.value("db_connections_limit");
    let allowed = limit.map_or(String::new(), |limit| format!(": it allows {}", say(limit)));
    let lost = failed.map_or(String::new(), |failed| {
        format!(
            " {:.0}% of the requests end in errors, which are fast: count the good answers only.",
            failed * 100.0
        )
    });
    Some(Finding {
        id: ID.into(),
        summary: format!("The database refuses connections{allowed}, and {}.{lost}", proof.words),
        confidence: proof.confidence,
        explains_fraction: failed.map(|failed| significant(failed.min(1.0), 3)),
        facts: facts.cite(&[
            "db_connections_failed_per_s",
            "db_connections_refused",
            "db_own_connections_refused",
            "db_connections_limit",
            "db_connections_used_max",
            "db_connections_max",
            "db_connections_per_s",
            "db_refusals_logged",
            "db_refusals_logged_per_s",
            "failed_fraction",
            "server_error_fraction",
            "server_errors_answered_per_s",
            "answers_logged_per_s",
            "rate",
            "ended_per_s",
        ]),
        remedies: remedy::remedies(facts, limit),
    })
}

/// Without load of our own the log of requests tells how many of them were errors of the server.
fn failed_by_log(facts: &Facts) -> Option<f64> {
    let (errors, all) = (facts.value("server_errors_answered_per_s")?, facts.value("answers_logged_per_s")?);
    (all > 0.0).then(|| errors / all)
}

struct Proof {
    words: String,
    confidence: f64,
}

fn proof(facts: &Facts) -> Option<Proof> {
    let inside = inside(facts);
    let logged = facts.value("db_refusals_logged_per_s").filter(|rate| *rate >= REFUSED_PER_S_MIN);
    let own = facts.value("db_own_connections_refused").is_some_and(|refused| refused >= 1.0);
    let words = match (inside, logged) {
        (Some(rate), _) => format!("{} a second fail", say(rate)),
        (None, Some(rate)) => format!("the log says so {} times a second", say(rate)),
        (None, None) if own => "it refused this program's own, too".to_owned(),
        (None, None) => return None,
    };
    let confidence = match (inside, logged.is_some() || own) {
        (Some(_), true) => 0.95,
        (Some(_), false) => 0.8,
        (None, _) if logged.is_some() && own => 0.9,
        (None, _) => 0.8,
    };
    Some(Proof { words, confidence })
}

/// How many connections fail per second, while as many are connected as are allowed. Others fail for a wrong password.
fn inside(facts: &Facts) -> Option<f64> {
    let rate = facts.value("db_connections_failed_per_s").filter(|rate| *rate >= REFUSED_PER_S_MIN)?;
    let limit = facts.value("db_connections_limit")?;
    let is_at = |name: &str| facts.value(name).is_some_and(|count| count >= AT_LIMIT_FRACTION * limit);
    let refused = facts.value("db_connections_refused").is_some_and(|refused| refused >= 1.0);
    let used = facts.value("db_connections_used_max").is_some_and(|count| count >= limit);
    (used && (refused || is_at("db_connections_max"))).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    pub(super) const REFUSED: &[(&str, f64)] = &[
        ("db_connections_failed_per_s", 128.0),
        ("db_connections_refused", 9.0),
        ("db_connections_limit", 12.0),
        ("db_connections_used_max", 13.0),
        ("db_connections_max", 12.0),
        ("db_refusals_logged_per_s", 128.0),
        ("failed_fraction", 0.64),
        ("rate", 71.0),
        ("ended_per_s", 199.0),
    ];

    pub(super) fn merged<'a>(changes: &[(&'a str, f64)]) -> Vec<(&'a str, f64)> {
        let kept = REFUSED.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        kept.chain(changes).filter(|(_, value)| value.is_finite()).copied().collect()
    }

    #[test]
    fn refusals_are_proven_from_inside_and_from_outside() {
        let nan = f64::NAN;
        for (changes, sure) in [
            (vec![], Some(0.95)),
            (vec![("db_refusals_logged_per_s", nan)], Some(0.8)),
            (vec![("db_connections_failed_per_s", nan)], Some(0.8)),
            (vec![("db_connections_failed_per_s", nan), ("db_own_connections_refused", 2.0)], Some(0.9)),
            (vec![("db_connections_failed_per_s", 0.0), ("db_refusals_logged_per_s", 0.0)], None),
            // A wrong password is no limit.
            (vec![("db_connections_used_max", 5.0), ("db_refusals_logged_per_s", 0.0)], None),
            (vec![("failed_fraction", 0.001)], None),
            (vec![("failed_fraction", nan)], Some(0.95)),
        ] {
            let found = check(&facts(&merged(&changes), &[])).map(|finding| finding.confidence);
            assert_eq!(found, sure, "{changes:?}");
        }
    }

    #[test]
    fn without_load_the_logs_tell_what_is_lost() {
        let log = [
            ("failed_fraction", f64::NAN),
            ("server_errors_answered_per_s", 60.0),
            ("answers_logged_per_s", 80.0),
        ];
        let finding = check(&facts(&merged(&log), &[])).unwrap();
        assert_eq!(finding.explains_fraction, Some(0.75));
    }
}

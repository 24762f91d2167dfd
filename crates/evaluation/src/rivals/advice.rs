//! What an adviser wants changed, and whether that is what limits: one table for all scenarios, by the ids of findings.

use serde::{Deserialize, Serialize};
use webdyno_lab::scenario::ExpectedRemedy;

/// Which way a setting is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To a larger value.
    Raise,
    /// To a smaller one.
    Lower,
    /// To a value of its own.
    Set,
    /// It is pointed at, and nothing is said of a change.
    Look,
}

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The setting, by the name that findings use.
    pub setting: String,
    /// Which way.
    pub way: Direction,
    /// The value that is asked for, where it is one.
    pub to: Option<f64>,
    /// The same in the adviser's words, or ours.
    pub text: String,
}

impl Advice {
    /// Without a value.
    pub fn new(setting: &str, way: Direction, text: impl Into<String>) -> Self {
        Self { setting: setting.into(), way, to: None, text: text.into() }
    }

    /// Whether it asks for a change.
    pub fn is_change(&self) -> bool {
        self.way != Direction::Look
    }
}

/// Advice that names what limits, by the id of the finding that is the answer: service and setting as remedies name
/// them, and the way it must go. `index` and `memory` stand for advice without a setting: to look for an index, and to
/// use less memory. Answers that are not here ask for something that neither adviser speaks of.
const NAMES: [(&str, &str, &str, Direction); 15] = [
    ("apache-workers-exhausted", "apache", "MaxRequestWorkers", Direction::Raise),
    ("proxy-loopback", "apache", "MaxRequestWorkers", Direction::Raise),
    ("apache-scoreboard-full", "apache", "ServerLimit", Direction::Raise),
    ("apache-setting-clamped", "apache", "ServerLimit", Direction::Raise),
    ("memory-exhausted", "apache", "MaxRequestWorkers", Direction::Lower),
    ("db-connections-exhausted", "mariadb", "max_connections", Direction::Raise),
    ("db-thread-churn", "mariadb", "thread_cache_size", Direction::Raise),
    ("db-cache-too-small", "mariadb", "innodb_buffer_pool_size", Direction::Raise),
    ("db-connection-memory", "mariadb", "sort_buffer_size", Direction::Lower),
    ("db-connection-memory", "mariadb", "join_buffer_size", Direction::Lower),
    ("db-connection-memory", "mariadb", "read_buffer_size", Direction::Lower),
    ("db-connection-memory", "mariadb", "read_rnd_buffer_size", Direction::Lower),
    ("db-connection-memory", "mariadb", "max_connections", Direction::Lower),
    ("db-connection-memory", "mariadb", "memory", Direction::Lower),
    ("db-slow-queries", "mariadb", "index", Direction::Look),
];

/// Advice that makes it worse: more workers or connections where what they all wait for is the limit, and more memory
/// for each where memory is.
const HARMS: [(&str, &str, Direction); 19] = [
    ("memory-exhausted", "MaxRequestWorkers", Direction::Raise),
    ("worker-memory-growth", "MaxRequestWorkers", Direction::Raise),
    ("working-set-exceeds-memory", "MaxRequestWorkers", Direction::Raise),
    ("db-connections-exhausted", "MaxRequestWorkers", Direction::Raise),
    ("db-connections-exhausted", "max_connections", Direction::Lower),
    ("db-lock-contention", "MaxRequestWorkers", Direction::Raise),
    ("db-lock-contention", "max_connections", Direction::Raise),
    ("db-slow-queries", "MaxRequestWorkers", Direction::Raise),
    ("db-slow-queries", "max_connections", Direction::Raise),
    ("db-slow-queries", "join_buffer_size", Direction::Raise),
    ("db-cache-too-small", "MaxRequestWorkers", Direction::Raise),
    ("db-cache-too-small", "innodb_buffer_pool_size", Direction::Lower),
    ("db-thread-churn", "thread_cache_size", Direction::Lower),
    ("db-connection-memory", "MaxRequestWorkers", Direction::Raise),
    ("db-connection-memory", "max_connections", Direction::Raise),
    ("db-connection-memory", "sort_buffer_size", Direction::Raise),
    ("db-connection-memory", "join_buffer_size", Direction::Raise),
    ("db-connection-memory", "read_rnd_buffer_size", Direction::Raise),
    ("db-connection-memory", "innodb_buffer_pool_size", Direction::Raise),
];

/// Whether any advice on a service's settings names what limits, where the finding `answer` is right.
pub fn is_within_reach(answer: &str, remedy: Option<&ExpectedRemedy>, service: &str) -> bool {
    let is_asked_for = remedy.is_none_or(|remedy| remedy.service == service);
    is_asked_for && NAMES.iter().any(|(id, of, ..)| *id == answer && *of == service)
}

/// Answers that leave nothing to change on the server.
pub const NOTHING_TO_CHANGE: [&str; 2] = ["healthy", "generator-saturated"];

/// What advice is worth where the answer is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AdviceVerdict {
    /// Whether something of it names what limits.
    pub names: bool,
    /// Whether the value that it names is one that mends it; `None` where it gives none, or none is known.
    pub fits: Option<bool>,
    /// What of it makes the fault worse.
    pub harms: Vec<String>,
    /// What it wants changed where nothing has to be.
    pub needless: Vec<String>,
}

impl AdviceVerdict {
    /// Of advice, where the finding `answer` is right, and `remedy` mends it.
    pub fn of(answer: &str, remedy: Option<&ExpectedRemedy>, advice: &[Advice]) -> Self {
        let names = |one: &&Advice| {
            NAMES.iter().any(|(id, service, setting, way)| {
                let is_asked_for = remedy.is_none_or(|remedy| remedy.service == *service);
                // Who says only that a limit was reached has named it, too.
                let is_way = one.way == *way || one.way == Direction::Look && *way == Direction::Raise;
                *id == answer && is_asked_for && one.setting == *setting && is_way
            })
        };
        let harms = |one: &&Advice| {
            HARMS.iter().any(|(id, setting, way)| *id == answer && one.setting == *setting && one.way == *way)
        };
        let texts = |those: Vec<&Advice>| those.into_iter().map(|one| one.text.clone()).collect();
        let fits = |one: &Advice| {
            let remedy = remedy.filter(|remedy| remedy.setting == one.setting)?;
            let to = one.to?;
            Some(
                remedy.at_least.is_none_or(|least| to >= least)
                    && remedy.at_most.is_none_or(|most| to <= most),
            )
        };
        let is_needless = NOTHING_TO_CHANGE.contains(&answer);
        Self {
            names: advice.iter().any(|one| names(&one)),
            fits: advice.iter().filter(names).find_map(fits),
            harms: texts(advice.iter().filter(harms).collect()),
            needless: texts(advice.iter().filter(|one| is_needless && one.is_change()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_lab::scenario::FINDINGS;

    fn remedy(service: &str, setting: &str) -> ExpectedRemedy {
        ExpectedRemedy {
            service: service.into(),
            setting: setting.into(),
            at_least: Some(10.0),
            at_most: Some(90.0),
            is: None,
        }
    }

    #[test]
    fn the_tables_speak_of_findings_that_there_are() {
        let ids = NAMES.iter().map(|row| row.0).chain(HARMS.iter().map(|row| row.0)).chain(NOTHING_TO_CHANGE);
        for id in ids {
            assert!(FINDINGS.contains(&id), "{id}");
        }
        for (id, setting, way) in HARMS {
            let named = NAMES.iter().any(|row| (row.0, row.2, row.3) == (id, setting, way));
            assert!(!named, "{setting} cannot name and harm {id}");
        }
    }

    #[test]
    fn advice_names_the_limit_when_setting_service_and_way_are_right() {
        let workers = |way| Advice::new("MaxRequestWorkers", way, "x");
        let apache = remedy("apache", "MaxRequestWorkers");
        let fpm = remedy("php_fpm", "pm.max_children");
        for (answer, remedy, advice, names, harms) in [
            ("apache-workers-exhausted", Some(&apache), workers(Direction::Raise), true, false),
            ("apache-workers-exhausted", Some(&apache), workers(Direction::Look), true, false),
            ("apache-workers-exhausted", Some(&apache), workers(Direction::Lower), false, false),
            ("memory-exhausted", None, workers(Direction::Lower), true, false),
            ("memory-exhausted", Some(&fpm), workers(Direction::Lower), false, false),
            ("memory-exhausted", None, workers(Direction::Look), false, false),
            ("memory-exhausted", Some(&apache), workers(Direction::Raise), false, true),
            ("db-connections-exhausted", None, workers(Direction::Raise), false, true),
            ("db-slow-queries", None, Advice::new("index", Direction::Look, "x"), true, false),
            ("cpu-saturated", None, workers(Direction::Raise), false, false),
        ] {
            let verdict = AdviceVerdict::of(answer, remedy, std::slice::from_ref(&advice));
            assert_eq!((verdict.names, !verdict.harms.is_empty()), (names, harms), "{answer}: {advice:?}");
            assert!(verdict.needless.is_empty());
        }
    }

    #[test]
    fn changes_of_a_healthy_server_are_needless_and_values_are_compared() {
        let raise =
            |to| Advice { to: Some(to), ..Advice::new("MaxRequestWorkers", Direction::Raise, "more") };
        let look = Advice::new("MaxRequestWorkers", Direction::Look, "reached");
        let healthy = AdviceVerdict::of("healthy", None, &[look.clone(), raise(9.0)]);
        assert_eq!((healthy.names, healthy.needless), (false, vec!["more".to_owned()]));
        let apache = remedy("apache", "MaxRequestWorkers");
        let fits =
            |advice: &[Advice]| AdviceVerdict::of("apache-workers-exhausted", Some(&apache), advice).fits;
        assert_eq!(fits(&[look.clone(), raise(80.0)]), Some(true));
        assert_eq!(fits(&[raise(3000.0)]), Some(false));
        assert_eq!(fits(&[look]), None);
    }
}

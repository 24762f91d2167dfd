//! `db-lock-contention`: statements wait for rows that other transactions hold.
//!
//! A row that was changed is locked until its transaction ends. Where all requests change the same row, a counter or a
//! sum, and do something slow before they commit, they go one after the other, however many workers, processors and
//! connections there are. More connections make the line longer.
//!
//! ## How it is recognised
//! InnoDB counts how long statements waited for rows (`Innodb_row_lock_time`), and how many wait now: by Little's law
//! seconds waited per second are the number that waits. It is a good part of all that is under way, while the processors
//! are not what these statements wait for.
//!
//! ## What to do
//! The remedy is in the program: change the contended row last, commit at once, do nothing slow in between (no calls of
//! other servers), find the row by an index (else all rows that are looked at are locked), or split it into several.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock%'` twice under load; `SELECT * FROM information_schema.INNODB_TRX`;
//! `SHOW ENGINE INNODB STATUS` shows who waits for what.

use super::say;
use crate::facts::Facts;
use crate::manual::manual;
use crate::work;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Stable id.
pub const ID: &str = "db-lock-contention";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[
    "php-fpm-workers-exhausted",
    "apache-workers-exhausted",
    "db-connections-exhausted",
    "accept-queue-overflow",
];

/// One that waits now and then is how transactions work.
const WAITING_MIN: f64 = 1.0;
/// What part of the requests under way must wait for rows to be what limits.
const SHARE_MIN: f64 = 0.25;

/// Fires when a good part of what is under way waits for rows.
pub fn check(facts: &Facts) -> Option<Finding> {
    let waiting = work::row_lock_waiting(facts).filter(|waiting| *waiting >= WAITING_MIN)?;
    let share = (waiting / work::at_once(facts).or(work::statements_running(facts))?).min(1.0);
    if share < SHARE_MIN || work::waits_for_processors(facts) {
        return None;
    }
    let both = facts.value("db_row_lock_waiting_mean").zip(facts.value("db_row_lock_time_fraction"));
    let agree = both.is_some_and(|(seen, counted)| seen.min(counted) >= 0.5 * seen.max(counted));
    let holder = facts.value("db_row_lock_waits_per_s").filter(|rate| *rate > 0.0);
    let each = holder.map_or(String::new(), |rate| format!(", {} each", super::say_us(waiting / rate * 1e6)));
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "Requests wait in the database for rows that others hold: {} statements at a time{each}. They go one after the other, whatever the machine; more connections would make it worse.",
            say(waiting)
        ),
        confidence: if agree { 0.95 } else { 0.8 },
        explains_fraction: Some(significant(share, 3)),
        facts: facts.cite(&[
            "db_row_lock_waiting_mean",
            "db_row_lock_time_fraction",
            "db_row_lock_waits_per_s",
            "db_threads_running_mean",
            "db_cpu_cores",
            "cpu_busy_fraction",
            "in_flight_mean",
            "response_time_mean_us",
            "rate",
        ]),
        remedies: vec![manual(
            "mariadb",
            "transactions",
            "a change of the program",
            "change the row that all want last, commit at once, and wait for nothing in between; find it by an index",
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    fn with(seen: f64, counted: f64, in_flight: f64, busy: f64) -> Option<Finding> {
        let values = [
            ("db_row_lock_waiting_mean", seen),
            ("db_row_lock_time_fraction", counted),
            ("db_row_lock_waits_per_s", 32.0),
            ("in_flight_mean", in_flight),
            ("cpu_busy_fraction", busy),
        ];
        let known: Vec<_> = values.into_iter().filter(|(_, value)| value.is_finite()).collect();
        check(&facts(&known, &[]))
    }

    #[test]
    fn a_line_in_front_of_a_row_is_the_limit() {
        let finding = with(22.7, 22.4, 23.5, 0.05).unwrap();
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.966)));
        assert!(finding.summary.contains("709 ms each"), "{}", finding.summary);
        assert_eq!(with(22.7, f64::NAN, 23.5, 0.05).unwrap().confidence, 0.8);
    }

    #[test]
    fn waits_that_cost_nobody_much_are_not() {
        for (seen, counted, in_flight, busy) in [
            (0.0, 0.4, 4.0, 0.1),
            (2.0, 2.0, 40.0, 0.1),
            (22.0, 22.0, 24.0, 0.99),
            (f64::NAN, f64::NAN, 9.0, 0.1),
        ] {
            assert!(with(seen, counted, in_flight, busy).is_none(), "{seen} {counted} of {in_flight}");
        }
    }
}

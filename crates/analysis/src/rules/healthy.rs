//! `healthy`: no limit was reached; the server did all that was asked of it.
//!
//! ## How it is recognised
//! The goal, where there is one, is met; nearly all answers were good; no connection waited to be accepted, or took a
//! second to establish (then its first packet was lost); the processors had room, or others filled them and the service
//! did not wait for one; memory and disks were not short, workers were free, and answers took hardly longer than the
//! quickest of their kind and than the first ones of the load, or by less than a few milliseconds: nothing queued. Where
//! requests arrive at a rate of their own (`-r`), at least 95% of it was answered. The readings went on to the end, and
//! so did the load: it did no harm.
//!
//! ## What to do
//! Nothing. The finding says which limit is nearest, and at which rate it is expected. To find where the limit lies, load
//! it more: more connections (`-c`) or a higher rate (`-r`).
//!
//! ## By hand
//! `vmstat 1`, `ss -ltn`, `curl -s http://localhost/server-status?auto` under load: idle processors, empty queues,
//! free workers.

use super::say;
use crate::breakdown::{keeps_up, noticed_queue};
use crate::ceilings::ceilings;
use crate::facts::Facts;
use crate::processors;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Stable id.
pub const ID: &str = "healthy";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

const FAILED_FRACTION_MAX: f64 = 0.001;
const CPU_FRACTION_MAX: f64 = 0.95;
/// Fuller processors are others', if the service's group waits for one in less of the time than this.
const CPU_WAIT_FRACTION_MAX: f64 = 0.5;
/// In more of the time nothing runs because all wait for a disk.
const IO_FULL_FRACTION_MAX: f64 = 0.5;
/// Below this share nobody notices that memory is short ([`super::memory_exhausted`]).
const MEMORY_FULL_FRACTION_MAX: f64 = 0.02;
const FULL_FRACTION_MAX: f64 = 0.2;
/// With a shorter queue than this nobody waits when all workers are busy.
const QUEUE_NOBODY_MAX: f64 = 0.5;
/// A packet that opens a connection is sent again after one second: a connection that took nearly as long was lost at first.
pub(super) const CONNECT_US_MAX: f64 = 900_000.0;
/// Answers that take this many times as long as the quickest tenth of their kind waited for something.
const INFLATION_MAX: f64 = 2.0;
/// Unless it is by less than this on average: a file that takes 60 us takes three times as long when the scheduler is
/// late once, and nobody notices.
const EXCESS_US_MAX: f64 = 5_000.0;

/// Fires when everything that can be seen has room. It needs at least the processors and the queue to be seen.
pub fn check(facts: &Facts) -> Option<Finding> {
    let busy = facts.value("usable_busy_fraction").or(facts.value("cpu_busy_fraction"))?;
    let goal_missed = facts
        .goal
        .zip(facts.value("rate"))
        .is_some_and(|(goal, rate)| matches!(goal, webdyno_model::tune::Goal::Rate(_)) && !goal.met_by(rate));
    if !has_room(facts, busy) || !answers_well(facts) || !seen_well(facts) || goal_missed {
        return None;
    }
    facts.value("accept_queue_mean")?;
    let workers_seen = facts.value("scoreboard_full_fraction").is_some();
    let workers = match below(facts, "scoreboard_full_fraction", FULL_FRACTION_MAX) {
        true if workers_seen => ", workers were free",
        true => "",
        false => ", the workers were just enough",
    };
    let others =
        if busy >= CPU_FRACTION_MAX { ", with others' work for which the service did not wait" } else { "" };
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "No limit was reached: the processors were {:.0}% busy{others}, hardly a connection waited to be accepted{workers}. The server did all that was asked of it.{}",
            busy * 100.0,
            room_left(facts)
        ),
        confidence: match (workers_seen, facts.loaded) {
            (true, true) => 0.9,
            // How long clients wait on the way, and what they asked for in vain, only they see.
            (true, false) => 0.7,
            (false, _) => 0.6,
        },
        explains_fraction: None,
        facts: facts.cite(&[
            "rate",
            "failed_fraction",
            "usable_busy_fraction",
            "cpu_busy_fraction",
            "pressure_group_cpu_some_fraction",
            "accept_queue_mean",
            "workers_idle_mean",
            "workers_startable_mean",
            "connect_time_max_us",
            "response_time_mean_us",
            "response_time_inflation",
            "offered_rate",
        ]),
        remedies: vec![],
    })
}

fn below(facts: &Facts, name: &str, max: f64) -> bool {
    facts.value(name).is_none_or(|value| value <= max)
}

/// Whether nothing of the machine and of the service is full.
fn has_room(facts: &Facts, busy: f64) -> bool {
    // Of a service whose group cannot be seen, that may have fewer processors than there are, the machine's waiting may be its.
    let waits = facts.value("pressure_group_cpu_some_fraction");
    let somebody_waits = waits.or(facts.value("pressure_cpu_some_fraction"));
    (busy < CPU_FRACTION_MAX || waits.is_some_and(|wait| wait < CPU_WAIT_FRACTION_MAX))
        && somebody_waits.is_none_or(|wait| wait < CPU_WAIT_FRACTION_MAX)
        && !processors::are_short(facts)
        && noticed_queue(facts).is_none()
        && below(facts, "pressure_memory_full_fraction", MEMORY_FULL_FRACTION_MAX)
        && below(facts, "pressure_io_full_fraction", IO_FULL_FRACTION_MAX)
        && super::memory_exhausted::check(facts).is_none()
        && (below(facts, "scoreboard_full_fraction", FULL_FRACTION_MAX) || nobody_waits(facts))
}

/// Whether all workers are busy and just enough: as many clients as workers, and none of them queues.
fn nobody_waits(facts: &Facts) -> bool {
    facts.value("accept_queue_mean").is_some_and(|queue| queue < QUEUE_NOBODY_MAX)
        && facts.value("status_unanswered_fraction").is_some_and(|unanswered| unanswered == 0.0)
}

/// Whether clients got what they asked for without having waited.
fn answers_well(facts: &Facts) -> bool {
    let first = facts.value("response_time_first_us").zip(facts.value("response_time_mean_us"));
    let queued =
        first.is_some_and(|(first, usual)| usual > INFLATION_MAX * first && usual - first > EXCESS_US_MAX);
    below(facts, "failed_fraction", FAILED_FRACTION_MAX)
        && below(facts, "connect_time_max_us", CONNECT_US_MAX)
        && below(facts, "connect_timeouts", 0.0)
        && (below(facts, "response_time_inflation", INFLATION_MAX)
            || facts.value("response_time_excess_us").is_some_and(|excess| excess < EXCESS_US_MAX))
        && !queued
        && keeps_up(facts) != Some(false)
}

/// Whether what was seen can be believed to its end.
fn seen_well(facts: &Facts) -> bool {
    facts.generator_fault.is_none()
        && facts.kernel_limit_total.is_none()
        && facts.brake.is_none()
        && !facts.readings_stopped
}

/// The nearest ceiling, in words: how much more there may be.
fn room_left(facts: &Facts) -> String {
    let all = ceilings(facts);
    let known = all.iter().filter_map(|ceiling| Some((ceiling.limit.as_str(), ceiling.binds_at_rate?)));
    let nearest = known.min_by(|a, b| a.1.total_cmp(&b.1)).zip(facts.ended_per_s());
    match nearest.filter(|((_, binds), rate)| binds > rate) {
        Some(((limit, binds), rate)) => format!(
            " The nearest limit is that of the {limit}, at about {} requests/s, {} times today's.",
            say(binds),
            say(significant(binds / rate, 2))
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use webdyno_model::tune::Goal;

    const HEALTHY: [(&str, f64); 11] = [
        ("cpu_busy_fraction", 0.4),
        ("accept_queue_mean", 0.0),
        ("scoreboard_full_fraction", 0.0),
        ("failed_fraction", 0.0),
        ("rate", 500.0),
        ("response_time_inflation", 1.1),
        ("connect_time_max_us", 3_000.0),
        ("connect_timeouts", 0.0),
        ("pressure_io_full_fraction", 0.01),
        ("response_time_first_us", 90_000.0),
        ("response_time_mean_us", 100_000.0),
    ];

    #[test]
    fn room_everywhere_is_healthy() {
        assert_eq!(check(&facts(&HEALTHY, &[])).unwrap().confidence, 0.9);
    }

    #[test]
    fn any_limit_or_a_missed_goal_is_not() {
        for (changed, to) in [
            ("cpu_busy_fraction", 0.97),
            ("accept_queue_mean", 5.0),
            ("failed_fraction", 0.01),
            ("response_time_inflation", 4.0),
            ("rate", 400.0),
            ("connect_time_max_us", 1_030_000.0),
            ("connect_timeouts", 2.0),
            ("pressure_io_full_fraction", 0.94),
            ("response_time_first_us", 20_000.0),
        ] {
            let values = HEALTHY.map(|(name, value)| (name, if name == changed { to } else { value }));
            let offered = [&values[..], &[("offered_rate", 500.0)][..]].concat();
            assert!(check(&facts(&offered, &[])).is_none(), "{changed}");
        }
        let mut stopped = facts(&HEALTHY, &[]);
        stopped.brake = Some(crate::facts::testing::brake("x"));
        assert!(check(&stopped).is_none());
        let mut unseen = facts(&HEALTHY, &[]);
        unseen.readings_stopped = true;
        assert!(check(&unseen).is_none());
        for (goal, healthy) in [(Goal::Rate(400.0), true), (Goal::Rate(600.0), false), (Goal::Max, true)] {
            let mut facts = facts(&HEALTHY, &[]);
            facts.goal = Some(goal);
            assert_eq!(check(&facts).is_some(), healthy, "{goal}");
        }
    }

    #[test]
    fn processors_that_others_fill_leave_room_where_the_service_does_not_wait() {
        let unseen = [("cpu_busy_fraction", 0.5), ("pressure_cpu_some_fraction", 0.99)];
        assert!(check(&facts(&[&HEALTHY[1..], &unseen].concat(), &[])).is_none(), "on one core of two");
        for (wait, healthy) in [(0.04, true), (0.9, false), (f64::NAN, false)] {
            let values =
                HEALTHY.map(|(name, value)| (name, if name == "cpu_busy_fraction" { 1.0 } else { value }));
            let wait = [("pressure_group_cpu_some_fraction", wait)];
            let wait: Vec<_> = wait.into_iter().filter(|(_, value)| value.is_finite()).collect();
            assert_eq!(check(&facts(&[&values[..], &wait].concat(), &[])).is_some(), healthy, "{wait:?}");
        }
    }

    #[test]
    fn the_nearest_limit_is_told() {
        let room = [("workers_limit", 150.0), ("worker_time_mean_us", 100_000.0), ("cores", 2.0)];
        let finding = check(&facts(&[&HEALTHY[..], &room].concat(), &[])).unwrap();
        // 2 cores at 40% for 500 a second; 150 workers of 100 ms each are farther away.
        let nearest =
            "The nearest limit is that of the processor cores, at about 1250 requests/s, 2.5 times today's.";
        assert!(finding.summary.ends_with(nearest), "{}", finding.summary);
    }

    #[test]
    fn a_multiple_of_next_to_nothing_is_no_queueing() {
        for (excess_us, healthy) in [(120.0, true), (400_000.0, false)] {
            let values = HEALTHY
                .map(|(name, value)| (name, if name == "response_time_inflation" { 3.0 } else { value }));
            let values = [&values[..], &[("response_time_excess_us", excess_us)][..]].concat();
            assert_eq!(check(&facts(&values, &[])).is_some(), healthy, "{excess_us}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_healthy() {
        assert!(check(&facts(&[("rate", 500.0)], &[])).is_none());
        assert!(check(&facts(&HEALTHY[..1], &[])).is_none());
    }
}

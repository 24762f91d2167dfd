//! `healthy`: no limit was reached; the server did all that was asked of it.
//!
//! ## How it is recognised
//! The goal, where there is one, is met; nearly all answers were good; no connection waited to be accepted, the
//! processors had room, memory was not short, workers were free, and answers took hardly longer than the quickest of
//! their kind, or by less than a few milliseconds: nothing queued. Where requests arrive at a rate of their own (`-r`),
//! at least 95% of it was answered. The readings went on to the end, and so did the load: it did no harm.
//!
//! ## What to do
//! Nothing. To find where the limit lies, load it more: more connections (`-c`) or a higher rate (`-r`).
//!
//! ## By hand
//! `vmstat 1`, `ss -ltn`, `curl -s http://localhost/server-status?auto` under load: idle processors, empty queues,
//! free workers.

use crate::facts::Facts;
use webdyno_model::diagnosis::Finding;

/// Stable id.
pub const ID: &str = "healthy";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

const FAILED_FRACTION_MAX: f64 = 0.001;
const CPU_FRACTION_MAX: f64 = 0.95;
const FULL_FRACTION_MAX: f64 = 0.2;
/// Answers that take this many times as long as the quickest tenth of their kind waited for something.
const INFLATION_MAX: f64 = 2.0;
/// Unless it is by less than this on average: a file that takes 60 us takes three times as long when the scheduler is
/// late once, and nobody notices.
const EXCESS_US_MAX: f64 = 5_000.0;
/// In open arrival, the share of the offered rate that must be answered.
const OFFERED_FRACTION_MIN: f64 = 0.95;

/// Fires when everything that can be seen has room. It needs at least the processors and the queue to be seen.
pub fn check(facts: &Facts) -> Option<Finding> {
    let busy = facts.value("cpu_busy_fraction")?;
    let below = |name: &str, max: f64| facts.value(name).is_none_or(|value| value <= max);
    let room = busy < CPU_FRACTION_MAX
        && below("failed_fraction", FAILED_FRACTION_MAX)
        && crate::breakdown::noticed_queue(facts).is_none()
        && below("pressure_memory_full_fraction", 0.01)
        && super::memory_exhausted::check(facts).is_none()
        && below("scoreboard_full_fraction", FULL_FRACTION_MAX)
        && (below("response_time_inflation", INFLATION_MAX)
            || facts.value("response_time_excess_us").is_some_and(|excess| excess < EXCESS_US_MAX))
        && facts.generator_fault.is_none()
        && facts.kernel_limit_total.is_none()
        && facts.brake.is_none()
        && keeps_up(facts)
        && !facts.readings_stopped;
    let goal_missed = facts
        .goal
        .zip(facts.value("rate"))
        .is_some_and(|(goal, rate)| matches!(goal, webdyno_model::tune::Goal::Rate(_)) && !goal.met_by(rate));
    if !room || goal_missed || facts.value("accept_queue_mean").is_none() {
        return None;
    }
    let workers_seen = facts.value("scoreboard_full_fraction").is_some();
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "No limit was reached: the processors were {:.0}% busy, hardly a connection waited to be accepted{}. The server did all that was asked of it.",
            busy * 100.0,
            if workers_seen { ", workers were free" } else { "" }
        ),
        confidence: if workers_seen { 0.9 } else { 0.6 },
        explains_fraction: None,
        facts: facts.cite(&[
            "rate",
            "failed_fraction",
            "cpu_busy_fraction",
            "accept_queue_mean",
            "workers_idle_mean",
            "workers_startable_mean",
            "response_time_mean_us",
            "response_time_inflation",
            "offered_rate",
        ]),
        remedies: vec![],
    })
}

/// Whether as much was answered as was asked for; always so in closed arrival, where answers set the pace.
fn keeps_up(facts: &Facts) -> bool {
    let rates = facts.value("rate").zip(facts.value("offered_rate"));
    rates.is_none_or(|(rate, offered)| rate >= OFFERED_FRACTION_MIN * offered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use webdyno_model::tune::Goal;

    const HEALTHY: [(&str, f64); 6] = [
        ("cpu_busy_fraction", 0.4),
        ("accept_queue_mean", 0.0),
        ("scoreboard_full_fraction", 0.0),
        ("failed_fraction", 0.0),
        ("rate", 500.0),
        ("response_time_inflation", 1.1),
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

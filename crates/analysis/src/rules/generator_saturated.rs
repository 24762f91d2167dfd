//! `generator-saturated`: the load generator was the bottleneck, not the server.
//!
//! ## How it is recognised
//! The busiest engine thread used more than 70% of a core, or its own delay was more than a tenth of the response time
//! (medians, and more than 100 us; 90th percentiles or the usual second, and more than 250 us: a machine with other work
//! lets a program that wakes up wait for as long now and then), or half of the answers lay unread for a tenth of the time
//! since they were asked for, or more than one request in 1000 found no local port or descriptor on the generator's
//! machine, or Little's law does not hold between the requests in flight and rate times response time: over the whole
//! load the integral of requests in flight is the sum of their times, and differs from it by more than 1% only if
//! requests were lost sight of or counted twice. The same is said when the server has more than twice as many requests at
//! once as the generator has in flight, although nobody else uses it and no request was given up.
//!
//! A generator that is only late sends less than it should: where a link is full, or the server fills the processors, in spite
//! of that, they are the limit, and only the times of the run are wrong.
//!
//! Or requests arrive at a rate of their own (`-r`) and wait in the generator, because all its connections (`-c`) are in
//! use, less than 95% of the rate is answered, and the server could do more: it has idle workers, no queue, and
//! processors to spare; no connection was lost or took a second to establish, nothing failed, and answers take hardly
//! longer than in the first second, before the connections were in use. The figures are those of so many connections and
//! stay valid; only the rate that was asked for was never offered. A slow server makes requests wait in the generator
//! too: without the view of idle workers and an empty queue nothing is said.
//!
//! ## What to do
//! Discard the run. Use more engine threads (`-t`), another machine for the generator, or a lower rate; without ports or
//! descriptors keep connections (no `--no-keepalive`), or raise the limit that the run names. On one
//! machine generator and server take the cores from each other: the server looks slower than it is. Where all
//! connections were in use, allow more of them (`-c`).
//!
//! ## By hand
//! `top -H` on the generator's machine while the load runs: a thread near 100% is a generator that measures itself.

use super::network_saturated;
use crate::breakdown::{keeps_up, noticed_queue};
use crate::facts::Facts;
use crate::processors;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};

/// Stable id.
pub const ID: &str = "generator-saturated";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

/// Above this share of busy processors the server may have no room, idle workers or not,
const CPU_FRACTION_MAX: f64 = 0.90;
/// unless its group hardly ever waits for one: others fill them, with what is left over.
const CPU_WAIT_FRACTION_MAX: f64 = 0.3;
/// More failures than this, or periods in which a quota stops the server, are a reason of their own why connections stay in
/// use.
const FAILED_FRACTION_MAX: f64 = 0.001;
const THROTTLED_FRACTION_MAX: f64 = 0.1;
/// Where the server takes longer than this multiple of what it took before all connections were in use, it is what slows down.
const SLOWER_RATIO_MAX: f64 = 1.5;
const SLOWER_SPARE_US: f64 = 1000.0;
/// The scoreboard may be full in this share of its readings: workers are free most of the time.
const FULL_FRACTION_MAX: f64 = 0.2;

/// Fires when the run's own verdict says that its figures cannot be believed, or when too few connections kept the load
/// from a server that had room.
pub fn check(facts: &Facts) -> Option<Finding> {
    if let Some(why) = facts.generator_fault.as_ref().filter(|_| !is_full_in_spite_of_it(facts)) {
        let summary =
            format!("The load generator limits, so these figures say nothing about the server: {why}.");
        let advice = "more threads (-t), another machine for the generator, or a lower load";
        return Some(finding(facts, summary, 0.95, ("threads or hosts", advice)));
    }
    let cap = too_few_connections(facts)?;
    let summary = format!(
        "The load generator limits: all {} connections of the generator were in use, while the server had idle workers and no queue: raise -c.",
        super::say(cap)
    );
    Some(finding(
        facts,
        summary,
        0.9,
        ("connections", "more connections (-c) than are in use at the rate asked for"),
    ))
}

/// A generator that is late sends too little. A link that is full all the same, or processors that the server fills, and not
/// the generator beside it, are the limit all the same.
fn is_full_in_spite_of_it(facts: &Facts) -> bool {
    let link = || network_saturated::fullest(facts).is_some_and(|full| full.is_waited_for);
    let generator = facts.value("client_cpu_cores").unwrap_or(0.0);
    let processors =
        || processors::are_short(facts) && processors::own_cores(facts).is_some_and(|own| own >= generator);
    facts.generator_is_late && (link() || processors())
}

/// The number of connections, when they and not the server kept the offered rate from being reached.
fn too_few_connections(facts: &Facts) -> Option<f64> {
    let cap = facts.value("connections_cap")?;
    let missed = keeps_up(facts) == Some(false);
    let waits_here = facts.value("waiting_in_generator_mean")? > 0.0;
    let at_least = |name: &str, min: f64| facts.value(name).is_some_and(|value| value >= min);
    let idle = at_least("workers_idle_mean", 1.0) || at_least("workers_startable_mean", 1.0);
    let at_most = |name: &str, max: f64| facts.value(name).is_some_and(|value| value <= max);
    let processors = at_most("cpu_busy_fraction", CPU_FRACTION_MAX)
        || at_most("pressure_group_cpu_some_fraction", CPU_WAIT_FRACTION_MAX);
    let room = processors
        && at_most("scoreboard_full_fraction", FULL_FRACTION_MAX)
        && facts.value("accept_queue_mean").is_some()
        && noticed_queue(facts).is_none()
        && !super::memory_exhausted::is_proven(facts);
    (missed && waits_here && idle && room && is_quick(facts)).then_some(cap)
}

/// Whether connections are in use for no longer than the server needs: it neither loses nor delays them.
fn is_quick(facts: &Facts) -> bool {
    let is_over = |name: &str, max: f64| facts.value(name).is_some_and(|value| value > max);
    let times = facts.value("service_time_mean_us").zip(facts.value("service_time_first_us"));
    let slower = times.is_some_and(|(usual, first)| usual > SLOWER_RATIO_MAX * first + SLOWER_SPARE_US);
    !(slower
        || is_over("failed_fraction", FAILED_FRACTION_MAX)
        || is_over("connect_timeouts", 0.0)
        || is_over("connect_time_max_us", super::healthy::CONNECT_US_MAX)
        || is_over("throttled_fraction", THROTTLED_FRACTION_MAX))
}

fn finding(facts: &Facts, summary: String, confidence: f64, (setting, why): (&str, &str)) -> Finding {
    Finding {
        id: ID.into(),
        summary,
        confidence,
        explains_fraction: None,
        facts: facts.cite(&[
            "client_cpu_fraction_max_thread",
            "client_delay_mean_us",
            "client_delay_p90_us",
            "response_time_mean_us",
            "rate",
            "offered_rate",
            "connections_cap",
            "waiting_in_generator_mean",
            "workers_idle_mean",
            "accept_queue_mean",
        ]),
        remedies: vec![Remedy {
            service: "generator".into(),
            setting: setting.into(),
            from: None,
            to: None,
            class: ApplyClass::Manual,
            risk: "none for the server".into(),
            why: why.into(),
            predicted: None,
            together_with: vec![],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, facts_of_several};

    #[test]
    fn fires_only_on_a_fault() {
        let mut facts = facts(&[("client_cpu_fraction_max_thread", 0.9)], &[]);
        assert!(check(&facts).is_none());
        facts.generator_fault = Some("the busiest engine thread used 90% of a core".into());
        let finding = check(&facts).unwrap();
        assert!(finding.summary.contains("90% of a core"));
        assert!(finding.remedies[0].wishes().is_empty());
    }

    #[test]
    fn what_is_full_in_spite_of_a_late_generator_limits() {
        let processors = |own: f64, wait: f64| {
            let values = [
                ("cores", 2.0),
                ("cpu_busy_fraction", 0.98),
                ("pressure_group_cpu_some_fraction", wait),
                ("service_cpu_cores", own),
                ("client_cpu_cores", 0.6),
            ];
            facts(&values, &[])
        };
        let link = |share: f64| {
            let several = [("nic_sent_fraction", "eth0", share)];
            facts_of_several(&[("response_time_inflation", 4.0)], &several)
        };
        for (mut facts, fires, what) in [
            (processors(1.3, 0.9), false, "the server fills the processors"),
            (processors(0.5, 0.9), true, "the generator fills them"),
            (processors(1.3, 0.1), true, "nobody waits for them"),
            (link(0.97), false, "the link is full"),
            (link(0.6), true, "the link has room"),
        ] {
            facts.generator_fault = Some("half of the answers lay unread".into());
            facts.generator_is_late = true;
            assert_eq!(check(&facts).is_some(), fires, "{what}");
            facts.generator_is_late = false;
            assert!(check(&facts).is_some(), "{what}: it was at its own limit");
        }
    }

    #[test]
    fn too_few_connections_are_named_only_when_the_server_has_room() {
        let own_cap = [
            ("offered_rate", 1000.0),
            ("connections_cap", 50.0),
            ("waiting_in_generator_mean", 900.0),
            ("in_flight_mean", 50.0),
            ("rate", 250.0),
            ("workers_idle_mean", 90.0),
            ("scoreboard_full_fraction", 0.0),
            ("accept_queue_mean", 0.0),
            ("cpu_busy_fraction", 0.2),
            ("connect_time_max_us", 400.0),
            ("failed_fraction", 0.0),
            ("service_time_first_us", 195_000.0),
            ("service_time_mean_us", 200_000.0),
        ];
        let with = |changed: &str, to: f64| {
            let values = own_cap.map(|(name, value)| (name, if name == changed { to } else { value }));
            let all = crate::diagnosis::findings(&facts(&values, &[]));
            (all[0].id == ID, all[0].summary.contains("all 50 connections of the generator were in use"))
        };
        assert_eq!(with("rate", 250.0), (true, true));
        for (changed, to) in [
            ("rate", 990.0),
            ("waiting_in_generator_mean", 0.0),
            ("workers_idle_mean", 0.0),
            ("scoreboard_full_fraction", 1.0),
            ("accept_queue_mean", 30.0),
            ("cpu_busy_fraction", 0.99),
            ("connect_time_max_us", 3_040_000.0),
            ("failed_fraction", 0.02),
            ("service_time_first_us", 20_000.0),
        ] {
            assert_eq!(with(changed, to), (false, false), "{changed}");
        }
    }
}

//! `cpu-saturated`: all processors are busy with work, and nothing else limits.
//!
//! This is the hardware's limit, and ends tuning: the machine gives what it can. What remains is to make each
//! request cheaper, or to use more or faster cores.
//!
//! ## How it is recognised
//! The processors were at least 95% busy over the whole window, and processes waited for a core (pressure stall
//! information, or a run queue longer than the cores). The finding says who used them: the service, the generator on
//! the same machine, or other processes.
//!
//! ## What to do
//! Look at what the CPU time is spent on before buying: an opcode cache that is off, a scan in the database and
//! `.htaccess` lookups also look like this. Then size: capacity grows with cores. Where the generator runs on the
//! same machine, measure from another one.
//!
//! ## By hand
//! `vmstat 1` (us + sy near 100, r above the number of cores), `top`, `cat /proc/pressure/cpu`.

use super::say;
use crate::facts::Facts;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};

/// Stable id.
pub const ID: &str = "cpu-saturated";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[];

/// The share of busy processor time above which there is no room.
const BUSY_FRACTION_MIN: f64 = 0.95;
/// Stolen time is somebody else's work: with more of it the machine is not what it claims to be.
const STEAL_FRACTION_MAX: f64 = 0.10;

/// Fires when all cores are busy and somebody waits for one.
pub fn check(facts: &Facts) -> Option<Finding> {
    let busy = facts.value("cpu_busy_fraction").filter(|busy| *busy >= BUSY_FRACTION_MIN)?;
    if facts.value("cpu_steal_fraction").is_some_and(|steal| steal > STEAL_FRACTION_MAX) {
        return None;
    }
    let cores = facts.value("cores")?;
    let waits = facts.value("pressure_cpu_some_fraction").map(|some| some >= 0.10);
    let queued = facts.value("run_queue_mean").map(|queue| queue > cores);
    if waits.or(queued) == Some(false) {
        return None;
    }
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "The processors are the limit: {:.0}% of {} core{} busy, {}.",
            busy * 100.0,
            say(cores),
            if cores == 1.0 { "" } else { "s" },
            users(facts)
        ),
        confidence: if waits.is_some() { 0.9 } else { 0.7 },
        explains_fraction: None,
        facts: facts.cite(&[
            "cpu_busy_fraction",
            "cores",
            "run_queue_mean",
            "pressure_cpu_some_fraction",
            "service_cpu_cores",
            "client_cpu_cores",
            "foreign_cpu_cores",
            "cpu_steal_fraction",
            "rate",
        ]),
        remedies: vec![Remedy {
            service: "hardware".into(),
            setting: "cores".into(),
            from: None,
            to: None,
            class: ApplyClass::Manual,
            risk: "none".into(),
            why: advice(facts),
            predicted: None,
            together_with: vec![],
        }],
    })
}

fn users(facts: &Facts) -> String {
    let named = [
        ("service_cpu_cores", "the service"),
        ("client_cpu_cores", "the load generator"),
        ("foreign_cpu_cores", "other processes"),
    ];
    let shares = named.iter().filter_map(|(fact, name)| {
        facts.value(fact).filter(|cores| *cores >= 0.05).map(|cores| format!("{name} {}", say(cores)))
    });
    let shares: Vec<_> = shares.collect();
    if shares.is_empty() {
        "by processes that could not be told apart".into()
    } else {
        format!("in cores: {}", shares.join(", "))
    }
}

fn advice(facts: &Facts) -> String {
    let share =
        |name: &str| facts.value(name).zip(facts.value("cores")).map_or(0.0, |(part, cores)| part / cores);
    if share("foreign_cpu_cores") > 0.3 {
        "other processes use much of the machine: move them first".into()
    } else if share("client_cpu_cores") > 0.2 {
        "the generator shares the machine: measure from another one before buying; then less work per request, or more cores".into()
    } else {
        "less work per request, or more or faster cores".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    fn check_with(changes: &[(&str, f64)]) -> Option<Finding> {
        let base = [
            ("cpu_busy_fraction", 0.99),
            ("cores", 2.0),
            ("pressure_cpu_some_fraction", 0.6),
            ("service_cpu_cores", 1.4),
            ("client_cpu_cores", 0.5),
        ];
        let mut values: Vec<_> = base
            .iter()
            .filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name))
            .copied()
            .collect();
        values.extend(changes.iter().filter(|(_, value)| value.is_finite()));
        check(&facts(&values, &[]))
    }

    #[test]
    fn it_says_who_uses_the_cores() {
        let finding = check_with(&[]).unwrap();
        assert!(finding.summary.contains("the service 1.4, the load generator 0.5"), "{}", finding.summary);
        assert!(finding.remedies[0].why.contains("generator shares the machine"));
        assert!(
            check_with(&[("foreign_cpu_cores", 0.9)]).unwrap().remedies[0].why.contains("other processes")
        );
    }

    #[test]
    fn busy_alone_is_not_enough() {
        for (name, value) in [
            ("cpu_busy_fraction", 0.9),
            ("pressure_cpu_some_fraction", 0.01),
            ("cpu_steal_fraction", 0.3),
            ("cpu_busy_fraction", f64::NAN),
        ] {
            assert!(check_with(&[(name, value)]).is_none(), "{name} = {value}");
        }
        assert_eq!(check_with(&[("pressure_cpu_some_fraction", f64::NAN)]).unwrap().confidence, 0.7);
    }
}

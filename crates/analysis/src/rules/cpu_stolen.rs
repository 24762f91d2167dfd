//! `cpu-stolen`: the host of the virtual machine gives its processors to others.
//!
//! A virtual machine has its processors only as far as the host lets it. What it wanted and did not get is counted as steal
//! time. It belongs to other guests of that host, or is kept back by a limit of the provider (burst credits that are used up).
//!
//! ## How it is recognised
//! At least a tenth of the machine's processor time was stolen, and the rest left nothing idle to speak of (processors at
//! least 85% busy, stolen time included): the machine wanted more than it got. It needs /proc/stat, nothing else. Where memory
//! seems to be short as well it is only half sure: the host reads and writes what is swapped.
//!
//! ## What to do
//! Discard the run: it says how busy the neighbours were. Ask the provider, choose dedicated processors or a larger share, or
//! measure at another time. No setting of the server gives that time back.
//!
//! ## By hand
//! `vmstat 1` (column `st`), `top` (`st`), `mpstat -P ALL 1`.

use super::{memory_exhausted, say};
use crate::facts::Facts;
use crate::processors;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;

/// Stable id.
pub const ID: &str = "cpu-stolen";
/// What it brings about, and what is therefore not the cause where this one is found.
pub const BRINGS_ABOUT: &[&str] = &[
    "cpu-saturated",
    "foreign-load",
    "apache-workers-exhausted",
    "php-fpm-workers-exhausted",
    "accept-queue-overflow",
];

/// Less than this is what sharing a host costs.
const STEAL_FRACTION_MIN: f64 = 0.10;
/// Processors with more idle time than this leaves would have done the work a moment later.
const BUSY_FRACTION_MIN: f64 = 0.85;

/// What is believed of it where memory seems to be short.
const CONFIDENCE_SWAPPING: f64 = 0.5;

/// Fires when the host takes what the machine wanted.
pub fn check(facts: &Facts) -> Option<Finding> {
    let steal = facts.value("cpu_steal_fraction").filter(|steal| *steal >= STEAL_FRACTION_MIN)?;
    let busy = facts.value("cpu_busy_fraction").filter(|busy| *busy >= BUSY_FRACTION_MIN)?;
    // What swaps keeps the host busy for it, too: that is counted as stolen.
    let is_swapping = memory_exhausted::evidence(facts).is_some();
    let cores = facts.value("cores").map_or(String::new(), |cores| format!(" of {} cores", say(cores)));
    Some(Finding {
        id: ID.into(),
        summary: format!(
            "The host of this virtual machine takes {:.0}% of the processor time{cores} for others, and nothing is left idle ({:.0}% busy or stolen): these figures say how busy the neighbours were. What the machine got: {}.",
            steal * 100.0,
            busy * 100.0,
            processors::users(facts)
        ),
        confidence: if is_swapping { CONFIDENCE_SWAPPING } else { 0.9 },
        explains_fraction: Some(significant((steal / busy).min(1.0), 3)),
        facts: facts.cite(&[
            "cpu_steal_fraction",
            "cpu_busy_fraction",
            "cores",
            "service_cpu_cores",
            "run_queue_mean",
            "pressure_group_cpu_some_fraction",
            "pressure_cpu_some_fraction",
            "rate",
        ]),
        remedies: vec![Remedy {
            service: "hardware".into(),
            setting: "host".into(),
            from: None,
            to: None,
            class: ApplyClass::Manual,
            risk: "none for the site".into(),
            why: "discard the run; dedicated processors, a larger share, or another host".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn stolen_time_counts_where_nothing_is_idle() {
        for (steal, busy, fires) in
            [(0.5, 1.0, true), (0.12, 0.9, true), (0.05, 1.0, false), (0.3, 0.5, false)]
        {
            let seen = [("cpu_steal_fraction", steal), ("cpu_busy_fraction", busy), ("cores", 2.0)];
            assert_eq!(check(&facts(&seen, &[])).is_some(), fires, "{steal} of {busy}");
        }
    }

    #[test]
    fn a_machine_that_swaps_has_its_host_work_for_it() {
        let stolen = [("cpu_steal_fraction", 0.2), ("cpu_busy_fraction", 1.0)];
        let sure =
            |others: &[(&str, f64)]| check(&facts(&[&stolen, others].concat(), &[])).unwrap().confidence;
        assert_eq!(sure(&[]), 0.9);
        let swaps = [("pressure_memory_full_fraction", 0.4), ("swapped_in_pages_per_s", 5000.0)];
        assert_eq!(sure(&swaps), 0.5);
    }
}

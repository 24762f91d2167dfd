//! When `cpu-stolen` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::{memory_evidence, processors};
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Less than this is what sharing a host costs.
const STEAL_FRACTION_MIN: f64 = 0.10;
/// CPUs with more idle time than this leaves would have done the work a moment later.
const BUSY_FRACTION_MIN: f64 = 0.85;

/// By chance tasks wait in this share of the time on CPUs that are busy, and not full.
const WAIT_FRACTION_MIN: f64 = 0.5;
/// With a quota that stops the service in more of its periods the waiting is for that.
const THROTTLED_FRACTION_MAX: f64 = 0.1;

/// Up to this part of the busy time the host's is the smaller one, if the service itself has at least this share of the
/// CPUs.
const SMALLER_PART_MAX: f64 = 0.25;
const OWN_FRACTION_MIN: f64 = 0.5;

/// What is believed of it where memory seems to be short.
const CONFIDENCE_SWAPPING: f64 = 0.5;

/// Fires when the host takes what the machine wanted.
pub fn check(facts: &Facts) -> Option<Finding> {
    let steal = facts.value(FactId::cpu_steal_fraction).filter(|steal| *steal >= STEAL_FRACTION_MIN)?;
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let waits = group_waits(facts);
    if (busy < BUSY_FRACTION_MIN && waits.is_none()) || is_smaller_part(facts) {
        return None;
    }
    let left = waits.filter(|_| busy < BUSY_FRACTION_MIN).map_or_else(
        || format!("no CPU is idle ({:.0}% busy or stolen)", busy * 100.0),
        |waits| format!("tasks of the service waited for CPU {:.0}% of the time (PSI)", waits * 100.0),
    );
    // What swaps keeps the host busy for it, too: that is counted as stolen.
    let is_swapping = memory_evidence::evidence(facts).is_some();
    let cores = facts
        .value(FactId::cores)
        .map_or(String::new(), |cores| format!(" of {} cores", format_number(cores)));
    Some(Finding {
        id: LimitId::CpuStolen.into(),
        summary: format!(
            "The hypervisor stole {:.0}% of the CPU time{cores}, and {left}. These figures depend on how busy the neighbours were. CPU use {}.",
            steal * 100.0,
            processors::users(facts)
        ),
        confidence: if is_swapping { CONFIDENCE_SWAPPING } else { 0.9 },
        explains_fraction: Some(significant((steal / busy).min(1.0), 3)),
        facts: facts.cite(&fact_ids! {
            cpu_steal_fraction, usable_busy_fraction, cpu_busy_fraction, throttled_fraction, cores,
            service_cpu_cores, run_queue_mean, pressure_group_cpu_some_fraction, pressure_cpu_some_fraction,
            rate,
        }),
        remedies: vec![manual(
            SettingId::hardware("host"),
            "none for the site",
            "discard the run; use dedicated CPUs, a larger share, or another host",
        )],
    })
}

/// Whether what the host took is the smaller part of what the CPUs did, and the service fills them with the rest: then it
/// would fill them as well if it had that, too. What it fills them with is the limit.
pub(crate) fn is_smaller_part(facts: &Facts) -> bool {
    let busy = facts.value(FactId::cpu_busy_fraction).filter(|busy| *busy > 0.0);
    let part = facts.value(FactId::cpu_steal_fraction).zip(busy).map(|(steal, busy)| steal / busy);
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    let own = processors::own_cores(facts).zip(usable).map(|(own, usable)| own / usable);
    part.is_some_and(|part| part <= SMALLER_PART_MAX)
        && own.is_some_and(|own| own >= OWN_FRACTION_MIN)
        && processors::are_short(facts)
}

/// The share of the time in which the service waits for a core, if that is much and no quota makes it wait.
fn group_waits(facts: &Facts) -> Option<f64> {
    let throttled =
        facts.value(FactId::throttled_fraction).is_some_and(|share| share > THROTTLED_FRACTION_MAX);
    let waits = facts.value(FactId::pressure_group_cpu_some_fraction).filter(|_| !throttled);
    waits.filter(|waits| *waits >= WAIT_FRACTION_MIN)
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
            let observed = [
                (FactId::cpu_steal_fraction, steal),
                (FactId::cpu_busy_fraction, busy),
                (FactId::cores, 2.0),
            ];
            assert_eq!(check(&facts(&observed, &[])).is_some(), fires, "{steal} of {busy}");
        }
    }

    #[test]
    fn a_service_that_waits_has_nothing_left_idle() {
        let stolen =
            [(FactId::cpu_steal_fraction, 0.12), (FactId::cpu_busy_fraction, 0.6), (FactId::cores, 2.0)];
        for (others, says) in [
            (&[][..], None),
            (&[(FactId::usable_busy_fraction, 0.99)], Some("no CPU is idle (99% busy or stolen)")),
            (
                &[(FactId::pressure_group_cpu_some_fraction, 0.8)],
                Some("tasks of the service waited for CPU 80% of the time (PSI)"),
            ),
            (&[(FactId::pressure_group_cpu_some_fraction, 0.3)], None),
            (&[(FactId::pressure_group_cpu_some_fraction, 0.8), (FactId::throttled_fraction, 0.9)], None),
        ] {
            let found = check(&facts(&[&stolen, others].concat(), &[]));
            let output = found.map(|finding| finding.summary);
            assert_eq!(output.is_some(), says.is_some(), "{others:?}: {output:?}");
            assert!(says.is_none_or(|says| output.unwrap().contains(says)), "{others:?}");
        }
    }

    #[test]
    fn what_the_service_fills_with_the_rest_limits() {
        let of = |steal: f64, own: f64| {
            let values = [
                (FactId::cpu_steal_fraction, steal),
                (FactId::cpu_busy_fraction, 1.0),
                (FactId::cores, 2.0),
                (FactId::service_cpu_cores, own),
                (FactId::pressure_group_cpu_some_fraction, 0.9),
            ];
            let found = crate::diagnosis::ranking::findings(&facts(&values, &[]));
            (found[0].id.clone(), found[0].summary.contains("The host stole 15%"))
        };
        assert_eq!(of(0.15, 1.5), ("cpu-saturated".into(), true));
        assert_eq!(of(0.15, 0.5), ("cpu-stolen".into(), false), "others have the rest");
        assert_eq!(of(0.4, 1.1), ("cpu-stolen".into(), false), "it is no small part");
    }

    #[test]
    fn a_machine_that_swaps_has_its_host_work_for_it() {
        let stolen = [(FactId::cpu_steal_fraction, 0.2), (FactId::cpu_busy_fraction, 1.0)];
        let sure =
            |others: &[(FactId, f64)]| check(&facts(&[&stolen, others].concat(), &[])).unwrap().confidence;
        assert_eq!(sure(&[]), 0.9);
        let swaps = [(FactId::pressure_memory_full_fraction, 0.4), (FactId::swapped_in_pages_per_s, 5000.0)];
        assert_eq!(sure(&swaps), 0.5);
    }
}

//! A program behind the service that may use only some of the cores (sched_setaffinity(2), cpuset(7)), and keeps these busy while
//! others idle.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::resources::{concurrency, memory_evidence};
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Of the cores that it may use.
const USED_FRACTION_MIN: f64 = 0.9;
/// Tasks wait for a core in so much of the time, by the group's pressure or the machine's.
const WAITS_FRACTION_MIN: f64 = 0.5;
const IN_FLIGHT_MIN: f64 = 2.0;
const CONFIDENCE: f64 = 0.85;
/// Nobody knows whether anything waits for a core.
const CONFIDENCE_UNSEEN: f64 = 0.6;

/// Fires when a backend uses all of the cores that it may use, and these are not all.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let cores = facts.value(FactId::cores)?;
    let waits = facts
        .value(FactId::pressure_group_cpu_some_fraction)
        .or(facts.value(FactId::pressure_cpu_some_fraction));
    let at_once = concurrency::requests_in_flight(facts);
    if waits.is_some_and(|waits| waits < WAITS_FRACTION_MIN)
        || at_once.is_some_and(|at_once| at_once < IN_FLIGHT_MIN)
        || memory_evidence::is_proven(facts)
    {
        return None;
    }
    let (name, allowed, used) = facts
        .each(FactId::backend_cpus_allowed)
        .filter(|(_, allowed)| (1.0..cores).contains(allowed))
        .filter_map(|(name, allowed)| Some((name, allowed, facts.value_of(FactId::backend_cpu_cores, name)?)))
        .find(|(_, allowed, used)| *used >= USED_FRACTION_MIN * allowed)?;
    let program = backends::program_of(facts.topology.as_ref(), name);
    let mut cited = facts.cite_of(&fact_ids! { backend_cpus_allowed, backend_cpu_cores }, name);
    cited.extend(facts.cite(&fact_ids! {
        cores, cpu_busy_fraction, pressure_group_cpu_some_fraction, pressure_cpu_some_fraction, rate, response_time_mean_us,
    }));
    Some(Finding {
        id: LimitId::CpuSaturated.into(),
        summary: format!(
            "CPU saturated: {} may run on {} of the {} cores (CPU affinity or cpuset), and keeps {:.0}% of that busy.",
            backends::display_name(program),
            format_number(allowed),
            format_number(cores),
            (100.0 * used / allowed).min(100.0),
        ),
        confidence: if waits.is_some() { CONFIDENCE } else { CONFIDENCE_UNSEEN },
        explains_fraction: None,
        facts: cited,
        remedies: vec![Remedy {
            setting: SettingId::external(program, "CPU affinity"),
            from: Some(SettingValue::Integer(allowed as i64)),
            to: Some(SettingValue::Integer(cores as i64)),
            class: ApplyClass::Manual,
            risk: "what else runs on the other cores gets less of them".into(),
            why: "let it run on all cores: CPUAffinity= or AllowedCPUs= of its unit, taskset in its start script, the cpuset of its container"
                .into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts_of_several, with_changes};

    #[test]
    fn a_backend_on_one_of_two_cores_is_short_of_them() {
        let with = |allowed: f64, used: f64, waits: f64| {
            let several = [
                (FactId::backend_cpus_allowed, "mariadb", allowed),
                (FactId::backend_cpu_cores, "mariadb", used),
            ];
            let base = [
                (FactId::cores, 2.0),
                (FactId::cpu_busy_fraction, 0.56),
                (FactId::in_flight_mean, 12.0),
                (FactId::pressure_group_cpu_some_fraction, waits),
            ];
            super::super::finding::check(&facts_of_several(&with_changes(&base, &[]), &several))
        };
        let found = with(1.0, 0.99, 0.9).unwrap();
        assert_eq!(
            (found.confidence, found.remedies[0].to.clone()),
            (CONFIDENCE, Some(SettingValue::Integer(2)))
        );
        assert!(found.summary.contains("MariaDB may run on 1 of the 2 cores"), "{}", found.summary);
        // A kernel without PSI, as that of Red Hat 8 is by itself.
        assert_eq!(with(1.0, 0.99, f64::NAN).map(|found| found.confidence), Some(CONFIDENCE_UNSEEN));
        assert!(
            with(2.0, 1.0, 0.9).is_none() && with(1.0, 0.6, 0.9).is_none() && with(1.0, 0.99, 0.1).is_none()
        );
    }
}

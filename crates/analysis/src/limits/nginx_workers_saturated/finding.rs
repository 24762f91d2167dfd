//! When `nginx-workers-saturated` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A thread that never waits is seen a little below a whole processor.
const SATURATED_FRACTION: f64 = 0.9;

/// Processors that must be idle for more workers to have something to run on, with what a load generator on the same machine
/// uses: clients elsewhere leave that free. Some must be idle all the same.
const IDLE_CORES_MIN: f64 = 0.4;
const IDLE_BESIDE_GENERATOR_MIN: f64 = 0.2;

const SETTING: &str = "worker_processes";

/// Fires when the workers are saturated, and processors are idle.
pub fn check(facts: &Facts) -> Option<Finding> {
    if !facts.is_service("nginx") {
        return None;
    }
    // `auto` is no number: there are as many as processors then.
    let workers = facts.setting(SETTING).filter(|workers| *workers >= 1.0)?;
    let machine = facts.value(FactId::cores)?;
    let cores = facts.value(FactId::service_cores_limit).map_or(machine, |limit| limit.min(machine)).floor();
    let used = facts.value(FactId::service_cpu_cores)?;
    let idle = machine * (1.0 - facts.value(FactId::cpu_busy_fraction)?);
    let has_room = idle >= IDLE_BESIDE_GENERATOR_MIN && idle + generator_cores(facts) >= IDLE_CORES_MIN;
    if workers >= cores || used < SATURATED_FRACTION * workers || !has_room {
        return None;
    }
    let plural = if workers == 1.0 { "worker saturates its core" } else { "workers saturate their cores" };
    Some(Finding {
        id: LimitId::NginxWorkersSaturated.into(),
        summary: format!(
            "{} nginx {plural} ({} cores used, at most one per worker), while {} of the {} cores are idle.",
            format_number(workers),
            format_number(significant(used, 3)),
            format_number(significant(idle, 2)),
            format_number(machine)
        ),
        confidence: 0.9,
        explains_fraction: Some(significant((used / workers).min(0.95), 3)),
        facts: facts.cite(&fact_ids! {
            service_cpu_cores, cores, service_cores_limit, cpu_busy_fraction, cpu_per_request_us,
            response_time_mean_us, rate,
        }),
        remedies: vec![Remedy {
            setting: SettingId::of_service("nginx", SETTING),
            from: Some(SettingValue::Integer(workers as i64)),
            to: Some(SettingValue::Integer(cores as i64)),
            class: ApplyClass::Reload,
            risk: "each worker has its own worker_connections, so more connections reach the backends".into(),
            why: "one worker for each core that nginx may use".into(),
            predicted: None,
            together_with: vec![],
        }],
    })
}

/// What the load generator uses of this machine's processors.
fn generator_cores(facts: &Facts) -> f64 {
    facts.value(FactId::client_cpu_cores).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const SATURATED: [(FactId, f64); 3] =
        [(FactId::cores, 4.0), (FactId::service_cpu_cores, 0.97), (FactId::cpu_busy_fraction, 0.3)];

    fn with(changes: &[(FactId, f64)], workers: i64) -> Option<Finding> {
        let values = with_changes(&SATURATED, changes);
        let mut facts = facts(&values, &[("worker_processes", workers)]);
        facts.service.as_mut().unwrap().service = "nginx".into();
        check(&facts)
    }

    #[test]
    fn saturated_workers_beside_idle_processors_are_proof() {
        let finding = with(&[], 1).unwrap();
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(4)));
        assert!(finding.summary.contains("2.8 of the 4 cores are idle"), "{}", finding.summary);
        let quota = with(&[(FactId::service_cores_limit, 2.5)], 1).unwrap();
        assert_eq!(quota.remedies[0].to, Some(SettingValue::Integer(2)));
        let beside = [(FactId::cpu_busy_fraction, 0.93), (FactId::client_cpu_cores, 0.3)];
        assert!(with(&beside, 1).is_some(), "the generator uses what is left");
        for (changes, workers) in [
            (vec![], 2),
            (vec![(FactId::cpu_busy_fraction, 0.93)], 1),
            (vec![(FactId::service_cpu_cores, 0.6)], 1),
            (vec![(FactId::cpu_busy_fraction, 0.95)], 1),
            (vec![(FactId::cores, 1.0)], 1),
            (vec![(FactId::service_cores_limit, 1.0)], 1),
            (vec![(FactId::service_cpu_cores, f64::NAN)], 1),
        ] {
            assert!(with(&changes, workers).is_none(), "{changes:?} {workers}");
        }
    }
}

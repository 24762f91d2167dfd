//! A program behind the service whose own control group, its container or unit, used up its CPU quota.
//!
//! Facts: `nr_periods` and `nr_throttled` of its group (cgroup-v2.rst); its processes wait for the next period, and the queue in front
//! of it looks like one of too few workers.

use super::quota::{by_who_set_it, rounded};
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::settings::backends;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// In fewer periods, or with more of the quota left, it is a burst now and then.
const PERIODS_FRACTION_MIN: f64 = 0.3;
const USED_FRACTION_MIN: f64 = 0.8;
const CONFIDENCE: f64 = 0.9;

struct Throttled<'a> {
    name: &'a str,
    quota: f64,
    /// The share of the periods in which it was stopped.
    periods_fraction: f64,
    used: f64,
    /// Cores that it may use: those of the service are not its.
    usable: f64,
}

/// Fires when the quota of a backend is used up, and stops it time and again.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let cores = facts.value(FactId::cores).unwrap_or(f64::INFINITY);
    let throttled = |(name, quota)| {
        let periods = facts.value_of(FactId::backend_cpu_periods, name).filter(|count| *count > 0.0)?;
        let periods_fraction = facts.value_of(FactId::backend_throttled_periods, name)? / periods;
        let used = facts.value_of(FactId::backend_cpu_cores, name)?;
        let allowed = facts.value_of(FactId::backend_cpus_allowed, name).filter(|allowed| *allowed >= 1.0);
        let usable = allowed.map_or(cores, |allowed| allowed.min(cores));
        Some(Throttled { name, quota, periods_fraction, used, usable })
    };
    let found = facts.each(FactId::backend_quota_cores).filter_map(throttled);
    let is_used_up = |one: &Throttled<'_>| {
        one.quota < one.usable
            && one.periods_fraction >= PERIODS_FRACTION_MIN
            && one.used >= USED_FRACTION_MIN * one.quota
    };
    let most = found.filter(is_used_up).max_by(|a, b| a.periods_fraction.total_cmp(&b.periods_fraction))?;
    Some(finding(facts, &most))
}

fn finding(facts: &Facts, of: &Throttled<'_>) -> Finding {
    let program = backends::program_of(facts.topology.as_ref(), of.name);
    let busy = facts.value(FactId::cpu_busy_fraction);
    let idle = busy.map_or(String::new(), |busy| format!(" The machine's CPU is {:.0}% busy.", busy * 100.0));
    let mut cited = facts.cite_of(
        &fact_ids! {
            backend_throttled_periods, backend_cpu_periods, backend_quota_cores, backend_cpu_cores, backend_cpus_allowed,
        },
        of.name,
    );
    cited.extend(facts.cite(&fact_ids! { cpu_busy_fraction, cores, rate, response_time_mean_us }));
    let to = rounded(2.0 * of.quota, of.usable);
    Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "{} is throttled in {}% of periods, as the quota of {} core{} of its control group is used up ({} used). Requests wait for the next period.{idle}",
            backends::display_name(program),
            significant(of.periods_fraction.min(1.0) * 100.0, 2),
            format_number(of.quota),
            if of.quota == 1.0 { "" } else { "s" },
            format_number(of.used),
        ),
        confidence: CONFIDENCE,
        explains_fraction: Some(significant(of.periods_fraction.min(1.0), 3)),
        facts: cited,
        remedies: vec![Remedy {
            setting: SettingId::external(program, "CPU quota"),
            from: Some(SettingValue::parse(&format_number(of.quota))),
            to: Some(SettingValue::parse(&format!("{to}"))),
            class: ApplyClass::Manual,
            risk: "other programs on the machine get less CPU when it is busy".into(),
            why: format!("twice the quota that is used up; measure again; {}", by_who_set_it(to)),
            predicted: None,
            together_with: vec![],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts_of_several;

    // A pool in front of such a container is full, and more workers would not help.
    #[test]
    fn a_backend_that_used_up_its_own_quota_is_throttled() {
        let with = |quota: f64, throttled: f64, used: f64| {
            let several = [
                (FactId::backend_quota_cores, "php_fpm", quota),
                (FactId::backend_cpu_periods, "php_fpm", 60.0),
                (FactId::backend_throttled_periods, "php_fpm", throttled),
                (FactId::backend_cpu_cores, "php_fpm", used),
            ];
            let base =
                [(FactId::cores, 2.0), (FactId::cpu_busy_fraction, 0.3), (FactId::in_flight_mean, 12.0)];
            super::super::finding::check(&facts_of_several(&base, &several))
        };
        let found = with(0.4, 57.0, 0.39).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.95)));
        assert!(
            found.summary.starts_with("PHP-FPM is throttled in 95% of periods, as the quota of 0.4 cores"),
            "{}",
            found.summary
        );
        assert!(found.remedies[0].why.contains("CPUQuota=80%"), "{}", found.remedies[0].why);
        for (quota, throttled, used, what) in [
            (2.0, 57.0, 1.9, "a quota of all cores"),
            (0.4, 6.0, 0.39, "in bursts"),
            (0.4, 57.0, 0.1, "hardly used"),
        ] {
            assert!(with(quota, throttled, used).is_none(), "{what}");
        }
    }

    // The service in front has one core, the container behind it others.
    #[test]
    fn the_cores_of_the_service_bound_no_backend() {
        let to = |allowed: f64| {
            let several = [
                (FactId::backend_quota_cores, "php_fpm", 1.5),
                (FactId::backend_cpu_periods, "php_fpm", 60.0),
                (FactId::backend_throttled_periods, "php_fpm", 57.0),
                (FactId::backend_cpu_cores, "php_fpm", 1.45),
                (FactId::backend_cpus_allowed, "php_fpm", allowed),
            ];
            let base = [(FactId::cores, 4.0), (FactId::usable_cores, 1.0)];
            let found = check(&facts_of_several(&base, &several))?;
            found.remedies[0].to.as_ref().and_then(SettingValue::number)
        };
        assert_eq!([4.0, 2.0, 1.0].map(to), [Some(3.0), Some(2.0), None]);
    }
}

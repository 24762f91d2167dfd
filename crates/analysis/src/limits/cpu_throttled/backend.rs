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
/// Programs of one group are read one after the other: a period may end in between.
const PERIODS_APART_MAX: f64 = 1.0;
/// All programs of a group use no more than its quota; readings of them vary.
const USED_FRACTION_MAX: f64 = 1.25;

/// A control group with a quota.
struct Throttled<'a> {
    /// Its programs as facts name them, and the cores that each uses.
    programs: Vec<(&'a str, f64)>,
    quota: f64,
    /// Periods since there is the group, and those of the window in which it was stopped.
    periods_total: Option<f64>,
    throttled_periods: f64,
    /// The share of the periods in which it was stopped.
    periods_fraction: f64,
    /// Cores that it may use: those of the service are not its.
    usable: f64,
}

impl<'a> Throttled<'a> {
    fn of(facts: &Facts, name: &'a str, quota: f64) -> Option<Self> {
        let periods = facts.value_of(FactId::backend_cpu_periods, name).filter(|count| *count > 0.0)?;
        let throttled_periods = facts.value_of(FactId::backend_throttled_periods, name)?;
        let used = facts.value_of(FactId::backend_cpu_cores, name)?;
        let cores = facts.value(FactId::cores).unwrap_or(f64::INFINITY);
        let allowed = facts.value_of(FactId::backend_cpus_allowed, name).filter(|allowed| *allowed >= 1.0);
        Some(Self {
            programs: vec![(name, used)],
            quota,
            periods_total: facts.value_of(FactId::backend_cpu_periods_total, name),
            throttled_periods,
            periods_fraction: throttled_periods / periods,
            usable: allowed.map_or(cores, |allowed| allowed.min(cores)),
        })
    }

    /// Whether both are the same group: two hardly count the same since they were begun, and each uses a quota of its own.
    fn is_group_of(&self, other: &Self) -> bool {
        let is_near = |a: f64, b: f64| (a - b).abs() <= PERIODS_APART_MAX;
        self.quota.total_cmp(&other.quota).is_eq()
            && self.used() + other.used() <= USED_FRACTION_MAX * self.quota
            && is_near(self.throttled_periods, other.throttled_periods)
            && self.periods_total.zip(other.periods_total).is_some_and(|(a, b)| is_near(a, b))
    }

    fn used(&self) -> f64 {
        self.programs.iter().map(|(_, used)| used).sum()
    }
}

/// The control groups of the backends, each of them once, with all of its programs: those that use most of it first.
fn groups(facts: &Facts) -> Vec<Throttled<'_>> {
    let mut groups: Vec<Throttled<'_>> = vec![];
    let all = facts.each(FactId::backend_quota_cores);
    for one in all.filter_map(|(name, quota)| Throttled::of(facts, name, quota)) {
        match groups.iter_mut().find(|group| group.is_group_of(&one)) {
            Some(group) => {
                group.usable = group.usable.max(one.usable);
                group.programs.extend(one.programs);
                group.programs.sort_by(|a, b| b.1.total_cmp(&a.1));
            }
            None => groups.push(one),
        }
    }
    groups
}

/// Fires when the quota of a backend is used up, and stops it time and again.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let is_used_up = |one: &Throttled<'_>| {
        one.quota < one.usable
            && one.periods_fraction >= PERIODS_FRACTION_MIN
            && one.used() >= USED_FRACTION_MIN * one.quota
    };
    let found = groups(facts).into_iter().filter(is_used_up);
    let most = found.max_by(|a, b| a.periods_fraction.total_cmp(&b.periods_fraction))?;
    Some(finding(facts, &most))
}

fn finding(facts: &Facts, of: &Throttled<'_>) -> Finding {
    let programs = of.programs.iter().map(|(name, _)| backends::program_of(facts.topology.as_ref(), name));
    let programs: Vec<&str> = programs.collect();
    let mut shown: Vec<&str> = vec![];
    for name in programs.iter().map(|program| backends::display_name(program)) {
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    let is_one = shown.len() == 1;
    let busy = facts.value(FactId::cpu_busy_fraction);
    let idle = busy.map_or(String::new(), |busy| format!(" The machine's CPU is {:.0}% busy.", busy * 100.0));
    let cited = of.programs.iter().flat_map(|(name, _)| {
        facts.cite_of(
            &fact_ids! {
                backend_throttled_periods, backend_cpu_periods, backend_quota_cores, backend_cpu_cores, backend_cpus_allowed,
            },
            name,
        )
    });
    let mut cited: Vec<_> = cited.collect();
    cited.extend(facts.cite(&fact_ids! { cpu_busy_fraction, cores, rate, response_time_mean_us }));
    let to = rounded(2.0 * of.quota, of.usable);
    Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "{} {} throttled in {}% of periods, as the quota of {} core{} of {} control group is used up ({} used). Requests wait for the next period.{idle}",
            shown.join(" and "),
            if is_one { "is" } else { "are" },
            significant(of.periods_fraction.min(1.0) * 100.0, 2),
            format_number(of.quota),
            if of.quota == 1.0 { "" } else { "s" },
            if is_one { "its" } else { "their" },
            format_number(of.used()),
        ),
        confidence: CONFIDENCE,
        explains_fraction: Some(significant(of.periods_fraction.min(1.0), 3)),
        facts: cited,
        remedies: vec![Remedy {
            setting: SettingId::external(programs[0], "CPU quota"),
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
    use webdyno_model::service::ServiceSnapshot;
    use webdyno_model::topology::Topology;

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

    // A container of all that is behind nginx: neither of the two uses up what both may have.
    #[test]
    fn programs_of_one_control_group_use_its_quota_together() {
        let with = |total: f64, used: f64| {
            let of = |name, total, throttled, used| {
                [
                    (FactId::backend_quota_cores, name, 1.0),
                    (FactId::backend_cpu_periods, name, 60.0),
                    (FactId::backend_cpu_periods_total, name, total),
                    (FactId::backend_throttled_periods, name, throttled),
                    (FactId::backend_cpu_cores, name, used),
                ]
            };
            let several = [of("mariadb", 4711.0, 57.0, 0.4), of("php_fpm", total, 56.0, used)].concat();
            check(&facts_of_several(&[(FactId::cores, 4.0)], &several))
        };
        let found = with(4711.0, 0.58).unwrap();
        let begins = "PHP-FPM and MariaDB are throttled in 95% of periods, as the quota of 1 core of their control group is used up (0.98 used).";
        assert!(found.summary.starts_with(begins), "{}", found.summary);
        assert_eq!(
            (found.remedies.len(), found.remedies[0].setting.full_name().as_str()),
            (1, "php_fpm CPU quota")
        );
        assert!(with(4000.0, 0.58).is_none(), "two groups, each with a half of its quota left");
        for (total, what) in [(4000.0, "two groups"), (4711.0, "more than one quota allows")] {
            let alone = with(total, 0.95).unwrap();
            assert!(alone.summary.starts_with("PHP-FPM is throttled in 93%"), "{what}: {}", alone.summary);
        }
    }

    #[test]
    fn each_program_of_a_group_is_named_once() {
        let of = |name, used| {
            [
                (FactId::backend_quota_cores, name, 1.0),
                (FactId::backend_cpu_periods, name, 60.0),
                (FactId::backend_cpu_periods_total, name, 4711.0),
                (FactId::backend_throttled_periods, name, 57.0),
                (FactId::backend_cpu_cores, name, used),
            ]
        };
        let several = [of("php_fpm", 0.5), of("mariadb", 0.3), of("php_fpm_2", 0.2)].concat();
        let mut facts = facts_of_several(&[(FactId::cores, 4.0)], &several);
        let backend = |service: &str, pid| ServiceSnapshot {
            service: service.into(),
            pid,
            ..ServiceSnapshot::default()
        };
        let backends = vec![backend("php_fpm", 7), backend("php_fpm", 8), backend("mariadb", 9)];
        facts.topology = Some(Topology { backends, ..Topology::default() });
        let found = check(&facts).unwrap();
        assert!(found.summary.starts_with("PHP-FPM and MariaDB are throttled"), "{}", found.summary);
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

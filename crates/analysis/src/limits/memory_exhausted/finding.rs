//! When `memory-exhausted` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::limits::worker_memory_growth;
use crate::resources::memory_pressure::MemoryHolder;
use crate::resources::{memory_evidence, memory_pressure, php_fpm, setting_source};
use crate::wording::{format_bytes, format_number};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Fires on thrashing, or when processes were killed.
pub fn check(facts: &Facts) -> Option<Finding> {
    // Fewer workers that grow for ever would only grow larger each.
    if worker_memory_growth::finding::is_proven(facts) {
        return None;
    }
    let evidence = memory_evidence::evidence(facts)?;
    let full = memory_pressure::stalled_fraction(facts);
    let stalled =
        full.filter(|full| *full >= memory_evidence::FULL_FRACTION_MIN).map_or(String::new(), |full| {
            format!("; all tasks stalled on memory {:.0}% of the time (PSI)", full * 100.0)
        });
    let holder = memory_pressure::largest_holder(facts);
    let who = holder.as_ref().map_or(String::new(), |holder| format!(" Largest holder: {}.", name(holder)));
    // That memory is short is proven all the same. Whether it is workers that are too many, or grow, or a database's
    // connections, nobody can tell who does not see which processes hold it.
    let is_elsewhere = matches!(holder, None | Some(MemoryHolder::Database));
    Some(Finding {
        id: LimitId::MemoryExhausted.into(),
        summary: format!("Memory exhausted: {}{stalled}.{who}", evidence.words),
        confidence: if is_elsewhere {
            evidence.confidence.min(memory_evidence::CONFIDENCE_OTHER_PROCESSES)
        } else {
            evidence.confidence
        },
        explains_fraction: memory_evidence::lost_fraction(facts),
        facts: facts.cite(CITED),
        remedies: remedies(facts, holder.as_ref()),
    })
}

const CITED: &[FactId] = &fact_ids! {
    brake_reading, brake_limit, pressure_group_memory_full_fraction, pressure_memory_full_fraction,
    swapped_in_pages_per_s, swapped_out_pages_per_s, group_anonymous_refaults_per_s,
    group_file_refaults_per_s, refaults_per_s, group_limit_hits_per_s, group_swap_limit_hits_per_s,
    group_oom_kills, oom_kills, pool_children_killed, service_processes_fell_max, group_memory_used_max_bytes,
    group_swap_used_max_bytes, memory_limit_bytes, memory_used_in_limit_max_bytes, memory_available_min_bytes,
    worker_memory_sum_bytes, worker_swap_sum_bytes, worker_private_mean_bytes, pool_memory_mean_bytes,
    pool_swap_mean_bytes, pool_children_max, database_resident_max_bytes, service_processes_mean,
    failed_fraction, rate,
};

fn name(holder: &MemoryHolder) -> String {
    match holder {
        MemoryHolder::Workers => "the workers".into(),
        MemoryHolder::Pool(pool) => format!("the children of PHP-FPM pool {pool}"),
        MemoryHolder::Database => "the database".into(),
    }
}

/// Children that are killed are the largest ones: those that are left to be read are this much smaller.
const KILLED_LARGER: f64 = 1.25;

/// How many children of a pool of PHP-FPM fit, and why.
fn children_that_fit(facts: &Facts, pool: &str) -> Option<(f64, String)> {
    let value = |name: FactId| facts.value_of(name, pool);
    let mean = value(FactId::pool_memory_mean_bytes).filter(|bytes| *bytes > 0.0)?;
    let swapped = value(FactId::pool_swap_mean_bytes).unwrap_or(0.0);
    let children = value(FactId::pool_children_mean)?;
    let by_size = |usable: f64, each: f64| {
        let fits = (usable / each).floor();
        let why = format!(
            "a child of pool {pool} takes {} of memory, so {} fit beside other programs and a reserve of 10%",
            format_bytes(each),
            format_number(fits)
        );
        (fits, why)
    };
    if memory_evidence::oom_kills(facts).is_none() {
        let each = mean + swapped;
        return Some(by_size(memory_pressure::usable_bytes(facts, mean * children)?, each));
    }
    // Who is ended before it has what it needs is never seen as large as it would be.
    let largest = value(FactId::pool_child_largest_bytes)
        .or(value(FactId::pool_memory_max_bytes).map(|max| KILLED_LARGER * max));
    let holders = memory_pressure::memory_holders(facts).into_iter();
    let others: f64 = holders
        .filter(|(holder, _)| *holder != MemoryHolder::Pool(pool.to_owned()))
        .map(|(_, bytes)| bytes)
        .sum();
    let usable = (1.0 - memory_pressure::RESERVE_FRACTION) * memory_pressure::limit_bytes(facts)? - others;
    // Half of those that were too many is a bound where sizes mislead; a request has one child, however many are idle beside.
    let busy = facts.value(FactId::in_flight_mean).map_or(children, |requests| requests.min(children));
    let half = (busy / 2.0).floor().max(1.0);
    let by_size = by_size(usable, largest.unwrap_or(mean));
    let by_kills = (half, half_of_killed_reason("children", half));
    (usable > 0.0).then_some(if half < by_size.0 { by_kills } else { by_size })
}

fn half_of_killed_reason(whom: &str, half: f64) -> String {
    format!(
        "the kernel killed {whom} before they had the memory that they need: {}, half of those that worked then",
        format_number(half)
    )
}

fn remedies(facts: &Facts, holder: Option<&MemoryHolder>) -> Vec<Remedy> {
    let fewer = match holder {
        Some(MemoryHolder::Pool(pool)) => fewer_children(facts, pool),
        Some(MemoryHolder::Database) => Some(manual(
            SettingId::of_service("mariadb", "memory"),
            "smaller caches cause more disk reads; with fewer connections the others wait",
            "smaller caches (innodb_buffer_pool_size, key_buffer_size), smaller buffers for each connection (sort_buffer_size, join_buffer_size), or fewer connections (max_connections); or more memory",
        )),
        Some(MemoryHolder::Workers) => fewer_workers(facts, half_of_killed(facts)),
        None => fewer_workers(facts, None),
    };
    fewer.into_iter().chain(more_of_the_machine(facts)).collect()
}

/// Steps in which memory is granted.
const STEP_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// More than the group may have, for whoever set its limit: what its programs hold, swapped out or not, beside the reserve.
/// systemd.resource-control(5), docker-container-update(1), cgroup-v2.rst.
fn more_of_the_machine(facts: &Facts) -> Option<Remedy> {
    let limit =
        memory_pressure::limit_bytes(facts).filter(|_| memory_pressure::is_limited(facts) == Some(true))?;
    let held: f64 = memory_pressure::memory_holders(facts).into_iter().map(|(_, bytes)| bytes).sum();
    let needed = held / (1.0 - memory_pressure::RESERVE_FRACTION);
    let to = (needed / STEP_BYTES).ceil() * STEP_BYTES;
    let most = facts.value(FactId::memory_total_bytes).unwrap_or(0.0);
    (to > limit && to < most).then(|| Remedy {
        from: Some(SettingValue::Integer(limit as i64)),
        to: Some(SettingValue::Integer(to as i64)),
        ..manual(
            SettingId::hardware("memory"),
            "other programs on the machine have less",
            format!(
                "its programs hold {}, its control group allows {}; raise that where it is set: `systemctl set-property UNIT \
                 MemoryMax={to:.0}`, `docker update --memory {to:.0} --memory-swap {to:.0} CONTAINER`, or `{to:.0}` in memory.max \
                 of the control group",
                format_bytes(held),
                format_bytes(limit)
            ),
        )
    })
}

fn fewer_workers(facts: &Facts, by_kills: Option<f64>) -> Option<Remedy> {
    let now = facts.value(FactId::workers_limit).or_else(|| facts.setting("MaxRequestWorkers"))?;
    let fits = [memory_pressure::workers_that_fit(facts), by_kills].into_iter().flatten().reduce(f64::min)?;
    if !facts.is_service("apache") || fits >= now || fits < 1.0 {
        return None;
    }
    let why = if by_kills == Some(fits) {
        half_of_killed_reason("workers", fits)
    } else {
        format!(
            "a {} costs {} of its own, so {} workers fit, with a reserve of 10%",
            if facts.threads_per_process() > 1.0 { "process of workers" } else { "worker" },
            facts.value(FactId::worker_private_mean_bytes).map_or("an unknown amount".into(), format_bytes),
            format_number(fits)
        )
    };
    Some(Remedy {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(fits as i64)),
        class: ApplyClass::Reload,
        risk: "fewer concurrent requests: the others wait in the accept queue".into(),
        why,
        predicted: None,
        together_with: vec![],
    })
}

/// Half of those that worked when the kernel killed some of them, which is a bound where sizes mislead: who is ended before it has what it
/// needs is never seen as large as it would be. Of threads it is not known how many a killed process had at work.
fn half_of_killed(facts: &Facts) -> Option<f64> {
    memory_evidence::oom_kills(facts).filter(|_| facts.threads_per_process() <= 1.0)?;
    let all = facts.value(FactId::service_processes_mean);
    let busy = [facts.value(FactId::workers_busy_mean), facts.value(FactId::in_flight_mean), all];
    let busy = busy.into_iter().flatten().reduce(f64::min)?;
    Some((busy / 2.0).floor().max(1.0))
}

fn fewer_children(facts: &Facts, pool: &str) -> Option<Remedy> {
    let limit = setting_source::pool_setting_source(facts, pool, "pm.max_children");
    let now = limit
        .as_ref()
        .and_then(setting_source::SettingSource::number)
        .or(facts.value_of(FactId::pool_children_max, pool))?;
    let (fits, why) = children_that_fit(facts, pool).filter(|(fits, _)| *fits >= 1.0 && *fits < now)?;
    let reload = php_fpm::reload_risk(facts, Some(pool));
    let mut remedy = Remedy {
        setting: php_fpm::setting_of(Some(pool), "pm.max_children"),
        from: Some(SettingValue::Integer(now as i64)),
        to: Some(SettingValue::Integer(fits as i64)),
        class: ApplyClass::Reload,
        risk: format!("fewer concurrent scripts: the others wait in the pool's queue; {reload}"),
        why,
        predicted: None,
        together_with: php_fpm::spare_to_lower(facts, pool, fits),
    };
    if let Some(source) = limit {
        setting_source::add_source(&mut remedy, &source);
    }
    Some(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes};
    use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};

    const THRASHING: [(FactId, f64); 9] = [
        (FactId::pressure_memory_full_fraction, 0.4),
        (FactId::swapped_in_pages_per_s, 5000.0),
        (FactId::swapped_out_pages_per_s, 4000.0),
        (FactId::memory_limit_bytes, 1000e6),
        (FactId::memory_available_min_bytes, 50e6),
        (FactId::worker_memory_sum_bytes, 850e6),
        (FactId::worker_swap_sum_bytes, 400e6),
        (FactId::worker_private_mean_bytes, 2e6),
        (FactId::service_processes_mean, 400.0),
    ];

    #[test]
    fn the_value_is_what_fits() {
        let finding = check(&facts(&THRASHING, &[("MaxRequestWorkers", 400)])).unwrap();
        // (50 + 850 + 400 - 400 swapped - 100 reserve) MB / (2 + 400/400) MB
        assert_eq!(finding.remedies[0].to, Some(SettingValue::Integer(266)));
        assert_eq!(finding.explains_fraction, Some(0.4));
    }

    #[test]
    fn where_workers_are_killed_half_of_those_that_worked_is_a_bound() {
        let killed = |changes: &[(FactId, f64)]| {
            let values = with_changes(&THRASHING, &[&[(FactId::group_oom_kills, 3.0)], changes].concat());
            check(&facts(&values, &[("MaxRequestWorkers", 400)])).unwrap().remedies[0].to.clone()
        };
        assert_eq!(killed(&[]), Some(SettingValue::Integer(200)), "of 400 processes");
        assert_eq!(killed(&[(FactId::in_flight_mean, 13.0)]), Some(SettingValue::Integer(6)));
        assert_eq!(killed(&[(FactId::in_flight_mean, 1.2)]), Some(SettingValue::Integer(1)));
        let settings = [("MaxRequestWorkers", 8_000), ("ThreadsPerChild", 25)];
        let mut event = facts(&with_changes(&THRASHING, &[(FactId::group_oom_kills, 3.0)]), &settings);
        event.service.as_mut().unwrap().mode = Some("event".into());
        assert_eq!(check(&event).unwrap().remedies[0].to, Some(SettingValue::Integer(6650)), "by size alone");
        // Their size is the tighter bound: 50 MB are left of 1000.
        assert_eq!(
            killed(&[(FactId::worker_private_mean_bytes, 9e6), (FactId::in_flight_mean, 390.0)]),
            Some(SettingValue::Integer(80))
        );
    }

    #[test]
    fn who_limited_the_group_is_told_what_it_needs() {
        let group = with_changes(
            &THRASHING,
            &[(FactId::memory_total_bytes, 16e9), (FactId::memory_used_in_limit_max_bytes, 990e6)],
        );
        let finding = check(&facts(&group, &[("MaxRequestWorkers", 400)])).unwrap();
        let remedy = &finding.remedies[1];
        // (850 + 400 swapped) MB and a tenth, in whole steps.
        assert_eq!(
            (remedy.setting.full_name().as_str(), &remedy.to),
            ("hardware memory", &Some(SettingValue::Integer(83 * (16 << 20))))
        );
        assert!(remedy.why.contains("MemoryMax=1392508928`"), "{}", remedy.why);
        assert!(remedy.setting_changes().is_empty());
        // The whole of a machine is nobody's to raise.
        assert_eq!(check(&facts(&THRASHING, &[("MaxRequestWorkers", 400)])).unwrap().remedies.len(), 1);
    }

    #[test]
    fn threads_share_the_memory_of_their_process() {
        let settings = [("MaxRequestWorkers", 8_000), ("ThreadsPerChild", 25)];
        let mut event = facts(&THRASHING, &settings);
        event.service.as_mut().unwrap().mode = Some("event".into());
        // 266 whole processes, as above, of 25 threads each.
        assert_eq!(memory_pressure::workers_that_fit(&event), Some(6650.0));
        assert_eq!(check(&event).unwrap().remedies[0].to, Some(SettingValue::Integer(6650)));
    }

    #[test]
    fn kills_count_without_pressure_information() {
        // (the group's counter, the machine's, how many processes fell, confidence)
        for (group, machine, fell, confidence) in [
            (Some(2.0), 2.0, 0.0, Some(0.9)),
            (Some(0.0), 2.0, 5.0, None),
            (None, 2.0, 0.0, Some(0.5)),
            (None, 2.0, 1.0, Some(0.9)),
            (None, 0.0, 9.0, None),
        ] {
            let mut values = vec![(FactId::oom_kills, machine), (FactId::service_processes_fell_max, fell)];
            values.extend([(FactId::memory_limit_bytes, 200e6), (FactId::worker_memory_sum_bytes, 150e6)]);
            values.extend(group.map(|kills| (FactId::group_oom_kills, kills)));
            let finding = check(&facts(&values, &[]));
            let observed = finding.as_ref().map(|finding| finding.confidence);
            assert_eq!(observed, confidence, "{group:?} {machine} {fell}");
            assert!(finding.is_none_or(|finding| {
                finding.summary.contains("killed 2 processes")
                    && finding.summary.contains("another service") == (confidence == Some(0.5))
                    && finding.remedies.is_empty()
            }));
        }
    }

    #[test]
    fn of_children_that_are_killed_half_of_those_at_work_is_a_bound() {
        for (in_flight, largest, to, why) in [
            (11.0, 5e6, 5, "half of those that worked"),
            (60.0, 5e6, 9, "half of those that worked"),
            (60.0, 30e6, 6, "takes 30 MB of memory, so 6 fit"),
        ] {
            let mut killed = facts(
                &[
                    (FactId::group_oom_kills, 2.0),
                    (FactId::memory_limit_bytes, 200e6),
                    (FactId::in_flight_mean, in_flight),
                ],
                &[],
            );
            let pool = [
                (FactId::pool_memory_mean_bytes, 4e6),
                (FactId::pool_child_largest_bytes, largest),
                (FactId::pool_children_mean, 18.0),
                (FactId::pool_children_max, 18.0),
            ];
            of_pool(&mut killed, "www", &pool);
            let remedy = &check(&killed).unwrap().remedies[0];
            assert_eq!(remedy.to, Some(SettingValue::Integer(to)), "{remedy:?}");
            assert!(remedy.why.contains(why), "{}", remedy.why);
        }
    }

    #[test]
    fn who_holds_it_must_be_seen() {
        for (changes, confidence) in [
            (vec![], 0.9),
            (vec![(FactId::database_resident_max_bytes, 2000e6)], 0.5),
            (vec![(FactId::worker_memory_sum_bytes, 100e6), (FactId::worker_swap_sum_bytes, 50e6)], 0.5),
        ] {
            let facts = facts(&with_changes(&THRASHING, &changes), &[]);
            assert_eq!(check(&facts).unwrap().confidence, confidence, "{changes:?}");
            assert!(memory_evidence::is_proven(&facts), "memory is short all the same");
        }
    }

    #[test]
    fn what_stopped_the_load_is_proof() {
        let mut stopped = facts(&[(FactId::brake_reading, 2.0), (FactId::brake_limit, 1.0)], &[]);
        stopped.harm_guard_trip =
            Some(crate::facts::testing::with_harm_guard_trip("memory.group_oom_kills_count"));
        let finding = check(&stopped).unwrap();
        let reported = "because the kernel killed 2 processes for want of memory";
        assert!(finding.summary.contains(reported), "{}", finding.summary);
        let cited: Vec<_> = finding.facts.into_iter().map(|fact| fact.name).collect();
        assert_eq!(cited, [FactId::brake_reading, FactId::brake_limit]);
        assert!(memory_evidence::is_proven(&stopped));
        for cause in [HarmCause::OthersFail, HarmCause::Unreachable] {
            stopped.harm_guard_trip = stopped.harm_guard_trip.map(|trip| HarmGuardTrip { cause, ..trip });
            assert!(check(&stopped).is_none(), "{cause:?}");
        }
    }

    #[test]
    fn without_swap_pages_of_files_tell() {
        // (stalled, refaults, what cannot be dropped of the limit, confidence)
        for (full, refaults, held, confidence) in [
            (0.3, 5000.0, Some(0.95), Some(0.9)),
            (0.3, 5000.0, None, Some(0.5)),
            // Files that are served fill it: they can be dropped.
            (0.3, 5000.0, Some(0.5), None),
            (0.03, 5000.0, Some(0.95), None),
            (0.3, 20.0, Some(0.95), None),
        ] {
            let mut values = vec![
                (FactId::pressure_memory_full_fraction, full),
                (FactId::refaults_per_s, refaults),
                (FactId::swapped_in_pages_per_s, 0.0),
                (FactId::worker_memory_sum_bytes, 150e6),
                (FactId::memory_limit_bytes, 200e6),
                (FactId::memory_total_bytes, 16e9),
            ];
            values.extend(held.map(|share| (FactId::memory_used_in_limit_max_bytes, share * 200e6)));
            let found = check(&facts(&values, &[])).map(|finding| finding.confidence);
            assert_eq!(found, confidence, "{full} {refaults} {held:?}");
        }
    }

    #[test]
    fn swap_that_lies_still_is_no_limit() {
        for changed in [FactId::pressure_memory_full_fraction, FactId::swapped_in_pages_per_s] {
            let quiet = THRASHING.map(|(name, value)| (name, if name == changed { 0.0 } else { value }));
            assert!(check(&facts(&quiet, &[])).is_none(), "{changed}");
        }
    }
}

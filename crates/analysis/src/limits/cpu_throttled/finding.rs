//! When `cpu-throttled` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::common::alone_words;
use crate::limits::cpu_throttled::backend;
use crate::limits::cpu_throttled::quota::{by_who_set_it, rounded};
use crate::limits::healthy::response_time::slower_than_alone;
use crate::limits::manual_remedy::manual;
use crate::resources::processors;
use crate::resources::slow_responses::{self, SlowPlace, SlowResponses};
use crate::resources::time_breakdown::keeps_up;
use crate::wording::{format_number, format_time};
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// In fewer periods it is a burst now and then.
const PERIODS_FRACTION_MIN: f64 = 0.1;
/// unless responses that are slow in the server, now and then, need a cause: each of the periods makes all of its requests late, by
/// some periods of a tenth of a second.
const PERIODS_FRACTION_SLOW_MIN: f64 = 0.005;
const PERIODS_PER_SLOW_MIN: f64 = 0.5;
const SLOW_US_MAX: f64 = 500_000.0;
const CONFIDENCE_SLOW: f64 = 0.8;
/// Less time lost than this is less than what scheduling costs anyway.
const LOST_FRACTION_MIN: f64 = 0.02;
/// Requests do not come evenly: room above the mean.
const ROOM: f64 = 1.3;
/// Of what holds it back only the effect is seen.
const CONFIDENCE_HIDDEN: f64 = 0.75;
/// In so much of the time all tasks of a group with a quota wait for a processor, and this part of the machine's processors is idle.
const STALLED_FRACTION_MIN: f64 = 0.3;
const BUSY_FRACTION_MAX: f64 = 0.8;
const CONFIDENCE_STALLED: f64 = 0.85;
/// A quota of less leaves little to an agent that shares it.
const QUOTA_SILENT_MAX: f64 = 0.5;
const CONFIDENCE_SILENT: f64 = 0.6;
const CONFIDENCE_SILENT_WATCHED: f64 = 0.5;
/// A group that uses this share of its quota on average is stopped by it as soon as it wants more.
const USED_UP_FRACTION_MIN: f64 = 0.85;
/// One that uses less, and is stopped in fewer periods than this, is stopped in bursts, maybe by what else runs in the group, such as the
/// agent; and what costs less of the time than that is not why everything else waits.
const PERIODS_FRACTION_BURSTS: f64 = 0.9;
const EXPLAINED_PART_MAX: f64 = 0.2;
const CONFIDENCE_PART: f64 = 0.55;

/// Fires when the quota stops the service time and again, or something that cannot be read holds it back beside idle cores.
pub fn check(facts: &Facts) -> Option<Finding> {
    by_quota(facts)
        .or_else(|| backend::check(facts))
        .or_else(|| by_stalls(facts))
        .or_else(|| by_silence(facts))
        .or_else(|| hidden(facts))
}

/// Where the periods were not counted twice in the window, as the agent is stopped with the service: all tasks of the group stand
/// still together, and beside them processors are idle.
fn by_stalls(facts: &Facts) -> Option<Finding> {
    let quota =
        facts.value(FactId::cpu_quota_cores).filter(|_| facts.value(FactId::throttled_fraction).is_none())?;
    let stalled = facts
        .value(FactId::pressure_group_cpu_full_fraction)
        .filter(|stalled| *stalled >= STALLED_FRACTION_MIN)?;
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    (quota < usable && busy <= BUSY_FRACTION_MAX && is_used_up(facts) != Some(false)).then_some(())?;
    Some(Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "All tasks of the service's control group waited for CPU {:.0}% of the time (PSI), while the cores that it may use are {:.0}% busy: its quota of {} core{} is used up. How often that throttled it was read too seldom to tell.",
            stalled.min(1.0) * 100.0,
            busy * 100.0,
            format_number(quota),
            if quota == 1.0 { "" } else { "s" }
        ),
        confidence: CONFIDENCE_STALLED,
        explains_fraction: Some(explained_share(facts, stalled.min(1.0))),
        facts: cited_facts(facts, false),
        remedies: remedy(facts, Some(quota)).into_iter().collect(),
    })
}

/// Where the agent, which runs in the same group, hardly got to a processor itself: it read no processor time twice, and requests take much
/// longer than alone, or fewer are answered than asked for. Of others' requests nobody knows that.
fn by_silence(facts: &Facts) -> Option<Finding> {
    let quota = facts.value(FactId::cpu_quota_cores).filter(|quota| *quota <= QUOTA_SILENT_MAX)?;
    let slower = slower_than_alone(facts).filter(|_| facts.loaded);
    if facts.loaded && slower.is_none() && keeps_up(facts) != Some(false) {
        return None;
    }
    let counted = fact_ids! { cpu_busy_fraction, throttled_fraction, group_cpu_cores };
    if counted.iter().any(|name| facts.value(*name).is_some()) {
        return None;
    }
    Some(Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "The service's control group may use {} of a core, and under this load the agent got too little of it to read how busy it is.{}",
            format_number(quota),
            alone_words(slower)
        ),
        confidence: if slower.is_some() { CONFIDENCE_SILENT } else { CONFIDENCE_SILENT_WATCHED },
        explains_fraction: slower.map(|(alone_us, usual_us)| significant(1.0 - alone_us / usual_us, 3)),
        facts: facts.cite(&fact_ids! {
            cpu_quota_cores, response_time_alone_us, response_time_mean_us, rate, offered_rate,
        }),
        remedies: remedy(facts, Some(quota)).into_iter().collect(),
    })
}

/// Where control groups cannot be read: the service is ready to run and does not, and cores are idle.
fn hidden(facts: &Facts) -> Option<Finding> {
    let (ready, idle) = processors::held_back(facts)?;
    let used = facts.value(FactId::service_cpu_cores)?;
    Some(Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "{} tasks of the service are ready to run and it uses {} cores, while {} cores are idle: a CPU quota or a choice of cores holds it back, which cannot be read from here.",
            format_number(significant(ready, 2)),
            format_number(significant(used, 2)),
            format_number(significant(idle, 2))
        ),
        confidence: CONFIDENCE_HIDDEN,
        explains_fraction: None,
        facts: facts.cite(&fact_ids! {
            service_running_mean, service_cpu_cores, cores, cpu_busy_fraction, pressure_cpu_some_fraction, rate,
            offered_rate, response_time_mean_us,
        }),
        remedies: vec![manual(
            SettingId::hardware("cpus"),
            "other programs on the machine get less CPU when it is busy",
            "raise the quota or the cores where they were set (`systemctl show -p CPUQuotaPerSecUSec UNIT`, `docker inspect`, cpu.max of the control group)",
        )],
    })
}

fn by_quota(facts: &Facts) -> Option<Finding> {
    let periods = facts.value(FactId::throttled_fraction)?;
    let lost = facts.value(FactId::pressure_group_cpu_full_fraction).or(facts.value(FactId::throttled_cores));
    let is_usual = periods >= PERIODS_FRACTION_MIN && lost.is_none_or(|lost| lost >= LOST_FRACTION_MIN);
    let slow = if is_usual { None } else { Some(slow_by_periods(facts, periods)?) };
    let quota = facts.value(FactId::cpu_quota_cores);
    // Who may use all of the cores is stopped for a moment when they are full: more of a quota gives nothing.
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    if quota.zip(usable).is_some_and(|(quota, usable)| quota >= usable) {
        return None;
    }
    let of = quota.map_or("its CPU quota".to_owned(), |quota| {
        format!("its quota of {} core{}", format_number(quota), if quota == 1.0 { "" } else { "s" })
    });
    let used = facts.value(FactId::group_cpu_cores).or(processors::own_cores(facts));
    let used = used.map_or(String::new(), |used| format!(" ({} used)", format_number(used)));
    let idle = facts
        .value(FactId::cpu_busy_fraction)
        .filter(|busy| *busy < 0.8)
        .map_or(String::new(), |busy| format!(" The machine's CPU is {:.0}% busy.", busy * 100.0));
    let late = slow.map_or(String::new(), |slow| format!(" {}", slow_responses::text(facts, &slow)));
    let explains = slow.map_or_else(
        || explained_share(facts, periods),
        |slow| significant(slow.time_fraction.clamp(0.0, 1.0), 3),
    );
    let is_in_bursts = is_used_up(facts) == Some(false) && periods < PERIODS_FRACTION_BURSTS;
    Some(Finding {
        id: LimitId::CpuThrottled.into(),
        summary: format!(
            "The service is throttled in {}% of periods, as {of} is used up{used}. Requests wait for the next period.{idle}{late}",
            significant(periods * 100.0, 2)
        ),
        confidence: match slow {
            Some(_) => CONFIDENCE_SLOW,
            None if explains < EXPLAINED_PART_MAX || is_in_bursts => CONFIDENCE_PART,
            None if lost.is_some() => 0.95,
            None => 0.8,
        },
        explains_fraction: Some(explains),
        facts: cited_facts(facts, slow.is_some()),
        remedies: remedy(facts, quota).into_iter().collect(),
    })
}

fn cited_facts(facts: &Facts, slow: bool) -> Vec<webdyno_model::fact::Fact> {
    let mut all = facts.cite(&fact_ids! {
        throttled_fraction, throttled_periods, cpu_periods, throttled_cores, cpu_quota_cores, group_cpu_cores,
        pressure_group_cpu_full_fraction, service_cpu_cores, cpu_busy_fraction, rate, offered_rate,
        response_time_mean_us,
    });
    if slow {
        all.extend(facts.cite(&slow_responses::FACTS));
    }
    all
}

/// The slow responses that these periods explain: there are enough of them, and they are late by no more than some periods.
fn slow_by_periods(facts: &Facts, periods: f64) -> Option<SlowResponses> {
    let slow = slow_responses::noticed(facts).filter(|slow| slow.place == Some(SlowPlace::Server))?;
    let is_enough = periods >= PERIODS_FRACTION_SLOW_MIN.max(PERIODS_PER_SLOW_MIN * slow.fraction);
    (is_enough && slow.mean_us <= SLOW_US_MAX).then_some(slow)
}

/// What is asked for and not given, or the time that is no work, whichever is more; where neither is known the share of
/// periods that ended early.
fn explained_share(facts: &Facts, periods: f64) -> f64 {
    let rates =
        facts.value(FactId::rate).zip(facts.value(FactId::offered_rate).filter(|offered| *offered > 0.0));
    // What a quota refuses that is not used up is refused in the periods that end early.
    let by_quota = if is_used_up(facts) == Some(false) { periods } else { 1.0 };
    let refused = rates.map(|(rate, offered)| (1.0 - rate / offered) * by_quota);
    let work_us =
        processors::own_cores(facts).zip(facts.ended_per_s()).map(|(cores, rate)| cores / rate * 1e6);
    let response_us = facts.value(FactId::response_time_mean_us).filter(|us| *us > 0.0);
    let waited = work_us.zip(response_us).map(|(work, response)| (1.0 - work / response) * periods);
    let share = refused.into_iter().chain(waited).reduce(f64::max).unwrap_or(periods);
    significant(share.clamp(0.0, 1.0), 3)
}

/// Whether the group uses all of its quota; `None` where that is not known.
fn is_used_up(facts: &Facts) -> Option<bool> {
    let (used, quota) = facts.value(FactId::group_cpu_cores).zip(facts.value(FactId::cpu_quota_cores))?;
    Some(used >= USED_UP_FRACTION_MIN * quota)
}

fn remedy(facts: &Facts, quota: Option<f64>) -> Option<Remedy> {
    let quota = quota?;
    let used = facts.value(FactId::group_cpu_cores).or(processors::own_cores(facts));
    let per_request = used.zip(facts.ended_per_s()).map(|(used, rate)| used / rate);
    let offered = facts.value(FactId::offered_rate);
    let needed = offered.zip(per_request).map(|(offered, per_request)| offered * per_request * ROOM);
    let most = facts.value(FactId::usable_cores).or(facts.value(FactId::cores)).unwrap_or(f64::INFINITY);
    let to = rounded(needed.unwrap_or(0.0).max(2.0 * quota), most);
    let why = match needed.filter(|needed| *needed >= 2.0 * quota) {
        Some(_) => format!(
            "a request costs {} of CPU time, at {} req/s, plus {:.0}% as requests do not arrive evenly",
            format_time(per_request.unwrap_or(0.0) * 1e6),
            format_number(offered.unwrap_or(0.0)),
            (ROOM - 1.0) * 100.0
        ),
        None => "twice the quota that is used up; measure again".into(),
    };
    Some(Remedy {
        setting: SettingId::hardware("cpus"),
        from: Some(SettingValue::parse(&format_number(quota))),
        to: Some(SettingValue::parse(&format!("{to}"))),
        class: ApplyClass::Manual,
        risk: "other programs on the machine get less CPU when it is busy".into(),
        why: format!("{why}; {}", by_who_set_it(to)),
        predicted: predicted(facts, to / quota),
        together_with: vec![],
    })
}

/// The rate grows with the quota, up to what is asked for.
fn predicted(facts: &Facts, times: f64) -> Option<Predicted> {
    let rate = facts.value(FactId::rate).filter(|rate| *rate > 0.0 && times > 1.0)?;
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY).max(rate);
    let at = |share: f64| significant((rate * (1.0 + share * (times - 1.0))).min(most), 3);
    Some(Predicted { rate: at(0.9), ci95: [at(0.6), at(1.0)] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const STOPPED: [(FactId, f64); 7] = [
        (FactId::throttled_fraction, 0.98),
        (FactId::throttled_cores, 1.9),
        (FactId::cpu_quota_cores, 0.1),
        (FactId::group_cpu_cores, 0.1),
        (FactId::rate, 14.0),
        (FactId::offered_rate, 30.0),
        (FactId::usable_cores, 2.0),
    ];

    fn with(changed: FactId, to: f64) -> Option<Finding> {
        let values = STOPPED.map(|(name, value)| (name, if name == changed { to } else { value }));
        check(&facts(&values, &[]))
    }

    #[test]
    fn the_quota_follows_from_what_a_request_costs() {
        let finding = with(FactId::rate, 14.0).unwrap();
        assert!(finding.summary.contains("its quota of 0.1 cores is used up"), "{}", finding.summary);
        assert_eq!((finding.confidence, finding.explains_fraction), (0.95, Some(0.533)));
        // 30 x 7.14 ms x 1.3.
        let remedy = &finding.remedies[0];
        assert_eq!(remedy.to.as_ref().and_then(SettingValue::number), Some(0.28));
        assert_eq!(remedy.predicted.as_ref().unwrap().ci95, [29.1, 30.0]);
        for part in ["CPUQuota=28%", "--cpus 0.28 ", "`28000 100000`"] {
            assert!(remedy.why.contains(part), "{}", remedy.why);
        }
        assert!(with(FactId::cpu_quota_cores, 2.0).is_none(), "a quota of all cores");
        // Never more than there are, and twice as much where the wanted rate is unknown.
        for (changed, to, cpus) in [(FactId::usable_cores, 0.2, 0.2), (FactId::offered_rate, 15.0, 0.2)] {
            let remedy = with(changed, to).unwrap().remedies.remove(0);
            assert_eq!(remedy.to.as_ref().and_then(SettingValue::number), Some(cpus), "{changed}");
        }
    }

    #[test]
    fn an_agent_that_gets_no_processor_either_tells_of_the_quota() {
        let base = [
            (FactId::cpu_quota_cores, 0.14),
            (FactId::response_time_alone_us, 594_000.0),
            (FactId::response_time_mean_us, 4_770_000.0),
        ];
        let with = |changes: &[(FactId, f64)]| {
            check(&facts(&with_changes(&base, changes), &[])).map(|found| found.confidence)
        };
        assert_eq!(with(&[]), Some(CONFIDENCE_SILENT));
        let mut watched = facts(&base[..1], &[]);
        watched.loaded = false;
        assert_eq!(check(&watched).map(|found| found.confidence), Some(CONFIDENCE_SILENT_WATCHED));
        for change in [
            (FactId::cpu_quota_cores, 0.8),
            (FactId::cpu_busy_fraction, 0.2),
            (FactId::response_time_mean_us, 700_000.0),
        ] {
            assert_eq!(with(&[change]), None, "{change:?}");
        }
    }

    #[test]
    fn a_quota_that_cannot_be_read_shows_in_tasks_that_are_ready_beside_idle_cores() {
        let base = [
            (FactId::service_running_mean, 6.0),
            (FactId::service_cpu_cores, 0.4),
            (FactId::cores, 2.0),
            (FactId::cpu_busy_fraction, 0.3),
            (FactId::pressure_cpu_some_fraction, 0.9),
        ];
        let with = |changes: &[(FactId, f64)]| {
            check(&facts(&crate::facts::testing::with_changes(&base, changes), &[]))
        };
        let found = with(&[]).unwrap();
        assert_eq!(found.confidence, CONFIDENCE_HIDDEN);
        assert!(
            found
                .summary
                .starts_with("6 tasks of the service are ready to run and it uses 0.4 cores, while 1.4")
        );
        for (name, value) in [
            (FactId::service_running_mean, 1.0),
            (FactId::cpu_busy_fraction, 0.95),
            (FactId::group_cpu_cores, 0.4),
            (FactId::pressure_cpu_some_fraction, 0.1),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{name} = {value}");
        }
        let bound = [(FactId::usable_cores, 1.0), (FactId::usable_busy_fraction, 1.0)];
        assert!(with(&bound).is_none(), "it fills the one core that it is bound to");
    }

    #[test]
    fn where_the_agent_is_stopped_with_the_service_the_groups_stalls_tell() {
        let seldom = [
            (FactId::cpu_quota_cores, 0.04),
            (FactId::pressure_group_cpu_full_fraction, 0.95),
            (FactId::usable_cores, 2.0),
            (FactId::usable_busy_fraction, 0.05),
            (FactId::rate, 28.0),
        ];
        let with = |changes: &[(FactId, f64)]| check(&facts(&with_changes(&seldom, changes), &[]));
        let found = with(&[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_STALLED, Some(0.95)));
        assert!(found.summary.contains("its quota of 0.04 cores is used up"), "{}", found.summary);
        assert_eq!(found.remedies[0].to.as_ref().and_then(SettingValue::number), Some(0.08));
        for (what, name, value) in [
            ("others fill the machine", FactId::usable_busy_fraction, 0.97),
            ("it is hardly stopped", FactId::pressure_group_cpu_full_fraction, 0.1),
            ("no quota", FactId::cpu_quota_cores, f64::NAN),
            ("a quota of the whole machine", FactId::cpu_quota_cores, 2.0),
            ("it is not used up", FactId::group_cpu_cores, 0.01),
            ("the periods say that it is not stopped", FactId::throttled_fraction, 0.0),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{what}");
        }
    }

    // A pool that is full for something else is not full because of some periods that end early.
    #[test]
    fn a_quota_that_costs_little_of_the_time_is_nobodys_cause() {
        let some = [
            (FactId::throttled_fraction, 0.15),
            (FactId::throttled_cores, 0.03),
            (FactId::cpu_quota_cores, 0.5),
            (FactId::group_cpu_cores, 0.2),
        ];
        let with = |changes: &[(FactId, f64)]| {
            let found = check(&facts(&with_changes(&with_changes(&STOPPED, &some), changes), &[])).unwrap();
            (found.confidence, found.explains_fraction)
        };
        // Of 53% that are not answered, in 15% of the periods.
        assert_eq!(with(&[]), (CONFIDENCE_PART, Some(0.08)));
        assert_eq!(with(&[(FactId::group_cpu_cores, 0.5)]), (0.95, Some(0.533)));
        let bursts = [(FactId::throttled_fraction, 0.4), (FactId::rate, 1.0)];
        assert_eq!(with(&bursts), (CONFIDENCE_PART, Some(0.387)), "more than half of the quota is left over");
    }

    #[test]
    fn a_few_periods_are_the_cause_of_a_few_slow_responses() {
        let few = [(FactId::throttled_fraction, 0.04), (FactId::throttled_cores, 0.01)];
        let late = [(FactId::slow_time_mean_us, 120_000.0)];
        let base =
            with_changes(&[&STOPPED[..], &slow_responses::tests::SLOW].concat(), &[&few[..], &late].concat());
        let with = |changes: &[(FactId, f64)]| check(&facts(&with_changes(&base, changes), &[]));
        let found = with(&[]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_SLOW, Some(0.7)));
        assert!(found.summary.contains("2% of the responses are slow (120 ms"), "{}", found.summary);
        for (name, value) in [
            (FactId::slow_fraction, 0.09),
            (FactId::slow_time_mean_us, 1_010_000.0),
            (FactId::slow_in_server_fraction, 0.1),
        ] {
            assert!(with(&[(name, value)]).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn a_quota_that_is_not_used_up_is_a_part_of_the_answer() {
        for (periods, used, confidence) in
            [(0.74, 0.08, CONFIDENCE_PART), (0.74, 0.1, 0.95), (0.98, 0.08, 0.95)]
        {
            let seen = [(FactId::throttled_fraction, periods), (FactId::group_cpu_cores, used)];
            let found = check(&facts(&with_changes(&STOPPED, &seen), &[])).unwrap();
            assert_eq!(found.confidence, confidence, "{periods} {used}");
        }
    }

    #[test]
    fn a_burst_now_and_then_is_no_limit() {
        for (changed, to) in [(FactId::throttled_fraction, 0.05), (FactId::throttled_cores, 0.01)] {
            assert!(with(changed, to).is_none(), "{changed}");
        }
    }
}

//! When `foreign-load` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use crate::resources::processors;
use crate::resources::processors::OtherProcesses;
use crate::resources::slow_responses::{self, SlowPlace};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// CPU time of no visible process may be many things: only where it is half of the CPUs it is worth a word.
const UNSEEN_FRACTION_MIN: f64 = 0.5;
const CONFIDENCE_UNSEEN: f64 = 0.5;

/// In so much of the seconds in which slow responses come somebody waits for a core, and so much more than else.
const BURST_WAIT_FRACTION_MIN: f64 = 0.5;
const BURST_WAIT_TIMES_MIN: f64 = 2.0;
const CONFIDENCE_BURSTS: f64 = 0.7;
/// So much of what bursts take on the whole must be that of programs that have nothing to do with the service.
const BURST_OF_OTHERS_MIN: f64 = 0.5;

/// Fires when others have a good part of the CPUs, and the service waits for them: all the time, or in the seconds in which responses are
/// slow.
pub fn check(facts: &Facts) -> Option<Finding> {
    all_the_time(facts).or_else(|| in_bursts(facts))
}

fn in_bursts(facts: &Facts) -> Option<Finding> {
    let slow = slow_responses::noticed(facts).filter(|slow| slow.place == Some(SlowPlace::Server))?;
    let (cores, else_cores) = slow_responses::foreign_burst(facts)?;
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores))?;
    let wait = facts
        .value(FactId::slow_seconds_cpu_wait_fraction)
        .zip(facts.value(FactId::other_seconds_cpu_wait_fraction));
    let waits =
        wait.is_some_and(|(slow, others)| slow >= BURST_WAIT_FRACTION_MIN.max(BURST_WAIT_TIMES_MIN * others));
    if cores < processors::OTHERS_FRACTION_MIN * usable || !waits {
        return None;
    }
    // Programs behind the service count as others from second to second, and not on the whole.
    let of_bursts = (cores - else_cores) * facts.value(FactId::slow_seconds_fraction).unwrap_or(0.0);
    let others = processors::other_processes(facts);
    if others.as_ref().is_some_and(|others| others.cores < BURST_OF_OTHERS_MIN * of_bursts) {
        return None;
    }
    let others = others.unwrap_or_default();
    let mut cited = cited_facts(facts, &others);
    cited.extend(facts.cite(&slow_responses::FACTS));
    Some(Finding {
        id: LimitId::ForeignLoad.into(),
        summary: format!(
            "Other programs use the CPU at times: {} of {} cores in the seconds in which responses are slow, {} else. {}",
            format_number(significant(cores, 2)),
            format_number(usable),
            format_number(significant(else_cores, 2)),
            slow_responses::text(facts, &slow)
        ),
        confidence: CONFIDENCE_BURSTS,
        explains_fraction: Some(significant(slow.time_fraction.clamp(0.0, 1.0), 3)),
        facts: cited,
        remedies: vec![Remedy { predicted: None, ..remedy(facts, &others) }],
    })
}

fn all_the_time(facts: &Facts) -> Option<Finding> {
    let shortage = processors::cpu_shortage(facts)?;
    let others = processors::other_processes(facts)?;
    let share = others.cores / shortage.usable;
    if share < processors::OTHERS_FRACTION_MIN {
        return None;
    }
    let observed = others.named_cores >= processors::NAMED_FRACTION_MIN * others.cores;
    if !observed && share < UNSEEN_FRACTION_MIN {
        return None;
    }
    let own = processors::own_cores(facts)
        .map_or(String::new(), |own| format!(" The service and its backends use {}", format_number(own)));
    let wait = shortage.wait.filter(|_| !own.is_empty()).map_or(".".to_owned(), |wait| {
        format!("; tasks waited for CPU {:.0}% of the time (PSI).", wait * 100.0)
    });
    Some(Finding {
        id: LimitId::ForeignLoad.into(),
        summary: format!(
            "Other programs use the CPU: {} uses {} of {} core{}.{own}{}",
            owner_text(&others),
            format_number(others.cores),
            format_number(shortage.usable),
            if shortage.usable == 1.0 { "" } else { "s" },
            if own.is_empty() { "" } else { &wait },
        ),
        confidence: match observed && !processors::may_be_own(facts, &others) {
            _ if processors::unseen_database(facts).is_some() => {
                shortage.confidence.min(processors::CONFIDENCE_BEHIND_DATABASE)
            }
            true => shortage.confidence,
            false => shortage.confidence.min(CONFIDENCE_UNSEEN),
        },
        // They take this share of the time that requests are at the processors, and no more of what else requests wait for.
        explains_fraction: Some(significant(
            share.min(1.0) * processors::share_at_processors(facts).unwrap_or(1.0),
            3,
        )),
        facts: cited_facts(facts, &others),
        remedies: vec![remedy(facts, &others)],
    })
}

fn owner_text(others: &OtherProcesses) -> String {
    let names: Vec<&str> = others.programs.iter().take(3).map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { "an invisible process".into() } else { names.join(", ") }
}

fn cited_facts(facts: &Facts, others: &OtherProcesses) -> Vec<webdyno_model::fact::Fact> {
    let mut all = facts.cite(&processors::FACTS);
    all.retain(|fact| fact.name != FactId::foreign_program_cpu_cores);
    for (name, _) in others.programs.iter().take(3) {
        all.extend(facts.cite_of(&[FactId::foreign_program_cpu_cores], name));
    }
    all.extend(facts.cite(&[FactId::rate, FactId::response_time_mean_us]));
    all
}

fn remedy(facts: &Facts, others: &OtherProcesses) -> Remedy {
    // With all the CPUs the service does as much more as it gets more of them.
    let own = processors::own_cores(facts).filter(|own| *own > 0.0);
    let rate = facts.value(FactId::rate).filter(|rate| *rate > 0.0).zip(own);
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY);
    let predicted = rate.map(|(rate, own)| {
        let at = |share: f64| significant((rate * (1.0 + share * others.cores / own)).min(most.max(rate)), 3);
        Predicted { rate: at(0.9), ci95: [at(0.5), at(1.05)] }
    });
    let why = format!(
        "move {} to another machine or another time, or lower its priority (renice -n 19, a low cpu.weight)",
        owner_text(others)
    );
    Remedy {
        predicted,
        ..manual(SettingId::hardware("other programs"), "these programs run slower, or elsewhere", why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    const BACKUP: [(FactId, f64); 7] = [
        (FactId::usable_busy_fraction, 1.0),
        (FactId::usable_cores, 1.0),
        (FactId::cores, 2.0),
        (FactId::pressure_group_cpu_some_fraction, 1.0),
        (FactId::service_cpu_cores, 0.3),
        (FactId::foreign_cpu_cores, 1.5),
        (FactId::rate, 60.0),
    ];

    fn with(named: f64, changed: FactId, to: f64) -> Vec<Finding> {
        let values = BACKUP.map(|(name, value)| (name, if name == changed { to } else { value }));
        let mut facts = facts(&values, &[]);
        of_pool(&mut facts, "gzip", &[(FactId::foreign_program_cpu_cores, named)]);
        crate::diagnosis::ranking::findings(&facts)
    }

    #[test]
    fn who_takes_the_processors_is_named_before_that_they_are_full() {
        let all = with(0.66, FactId::rate, 60.0);
        let ids: Vec<&str> = all.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["foreign-load", "cpu-saturated"]);
        assert!(all[0].summary.contains("gzip uses 0.7 of 1 core."), "{}", all[0].summary);
        assert_eq!((all[0].confidence, all[0].explains_fraction), (0.9, Some(0.7)));
        // 60 x (1 + 0.9 x 0.7 / 0.3).
        assert_eq!(all[0].remedies[0].predicted.as_ref().map(|one| one.rate), Some(186.0));
    }

    #[test]
    fn who_takes_the_processors_at_times_makes_responses_slow_at_times() {
        let burst = [
            (FactId::usable_cores, 2.0),
            (FactId::usable_busy_fraction, 0.5),
            (FactId::slow_seconds_fraction, 0.3),
            (FactId::slow_seconds_foreign_cores, 1.8),
            (FactId::other_seconds_foreign_cores, 0.1),
            (FactId::slow_seconds_cpu_wait_fraction, 0.9),
            (FactId::other_seconds_cpu_wait_fraction, 0.1),
        ];
        let base = [&slow_responses::tests::SLOW[..], &burst].concat();
        let with = |name: FactId, value: f64| {
            check(&facts(&crate::facts::testing::with_changes(&base, &[(name, value)]), &[]))
        };
        let found = with(FactId::slow_seconds_fraction, 0.3).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_BURSTS, Some(0.7)));
        assert!(
            found.summary.starts_with("Other programs use the CPU at times: 1.8 of 2 cores"),
            "{}",
            found.summary
        );
        for (name, value) in [
            (FactId::other_seconds_foreign_cores, 1.7),
            (FactId::slow_seconds_cpu_wait_fraction, 0.3),
            (FactId::other_seconds_cpu_wait_fraction, 0.8),
            (FactId::slow_in_server_fraction, 0.2),
            // It is the service's own: on the whole others take nothing.
            (FactId::foreign_cpu_cores, 0.05),
        ] {
            assert!(with(name, value).is_none(), "{name} = {value}");
        }
    }

    #[test]
    fn php_and_databases_may_be_the_service_s_own_where_that_is_not_seen() {
        let missing = webdyno_model::sample::MissingSignal {
            signal: "topology".into(),
            why: "permission denied".into(),
            how_to_enable: "run webdyno as root".into(),
        };
        for (program, confidence) in [("php-fpm8.2", CONFIDENCE_UNSEEN), ("rsync", 0.9)] {
            let mut facts = facts(&BACKUP, &[]);
            of_pool(&mut facts, program, &[(FactId::foreign_program_cpu_cores, 0.66)]);
            facts.topology = Some(webdyno_model::topology::Topology {
                missing: vec![missing.clone()],
                ..Default::default()
            });
            assert_eq!(check(&facts).unwrap().confidence, confidence, "{program}");
        }
    }

    #[test]
    fn it_explains_what_requests_are_at_the_processors_for() {
        // 0.3 cores for 60 a second are 5 ms each, stretched to 20 by four tasks for the one core.
        for (response_us, explains) in [(20_000.0, 0.7), (80_000.0, 0.175)] {
            let more = [(FactId::run_queue_mean, 4.0), (FactId::response_time_mean_us, response_us)];
            let mut facts = facts(&[&BACKUP[..], &more].concat(), &[]);
            of_pool(&mut facts, "gzip", &[(FactId::foreign_program_cpu_cores, 0.66)]);
            assert_eq!(check(&facts).unwrap().explains_fraction, Some(explains), "{response_us}");
        }
    }

    #[test]
    fn who_cannot_be_seen_is_suspected_and_who_takes_what_is_left_over_is_not() {
        let all = with(0.0, FactId::rate, 60.0);
        let half_sure = all[..2].iter().all(|finding| finding.confidence == CONFIDENCE_UNSEEN);
        let ids = [all[0].id.as_str(), all[1].id.as_str()];
        assert_eq!((ids, half_sure), (["foreign-load", "cpu-saturated"], true));
        assert_ne!(with(0.66, FactId::pressure_group_cpu_some_fraction, 0.05)[0].id, "foreign-load");
        assert_eq!(with(0.66, FactId::service_cpu_cores, 0.95)[0].id, "cpu-saturated");
    }
}

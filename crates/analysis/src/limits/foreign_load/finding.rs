//! When `foreign-load` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts};
use crate::limits::LimitId;
use crate::resources::processors;
use crate::resources::processors::OtherProcesses;
use crate::wording::format_number;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::setting::SettingId;

/// Others with less than this share of the CPUs are not why the service lacks them.
const FOREIGN_FRACTION_MIN: f64 = 0.2;
/// So much of what others take must have a name.
const NAMED_SHARE_MIN: f64 = 0.5;
/// CPU time of no visible process may be many things: only where it is half of the CPUs it is worth a word.
const UNSEEN_FRACTION_MIN: f64 = 0.5;
const CONFIDENCE_UNSEEN: f64 = 0.5;

/// Fires when others have a good part of the CPUs, and the service waits for them.
pub fn check(facts: &Facts) -> Option<Finding> {
    let shortage = processors::cpu_shortage(facts)?;
    let others = processors::other_processes(facts)?;
    let share = others.cores / shortage.usable;
    if share < FOREIGN_FRACTION_MIN {
        return None;
    }
    let observed = others.named_cores >= NAMED_SHARE_MIN * others.cores;
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
        confidence: if observed { shortage.confidence } else { shortage.confidence.min(CONFIDENCE_UNSEEN) },
        explains_fraction: Some(significant(share.min(1.0), 3)),
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
    Remedy {
        setting: SettingId::hardware("other programs"),
        from: None,
        to: None,
        class: ApplyClass::Manual,
        risk: "these programs run slower, or elsewhere".into(),
        why: format!(
            "move {} to another machine or another time, or lower its priority (renice -n 19, a low cpu.weight)",
            owner_text(others)
        ),
        predicted,
        together_with: vec![],
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
    fn who_cannot_be_seen_is_suspected_and_who_takes_what_is_left_over_is_not() {
        let all = with(0.0, FactId::rate, 60.0);
        assert_eq!((all[0].id.as_str(), all[1].confidence), ("cpu-saturated", CONFIDENCE_UNSEEN));
        assert_ne!(with(0.66, FactId::pressure_group_cpu_some_fraction, 0.05)[0].id, "foreign-load");
        assert_eq!(with(0.66, FactId::service_cpu_cores, 0.95)[0].id, "cpu-saturated");
    }
}

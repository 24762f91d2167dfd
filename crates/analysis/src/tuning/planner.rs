//! The planner: which remedy of a diagnosis is tried next.

use crate::diagnosis::ranking::CAUSE_CONFIDENCE_MIN;
use crate::limits::{self, Limit};
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Diagnosis, Finding, Remedy};

/// What the operator allows, and what the load does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuningPolicy {
    /// Whether a restart, with its outage, is acceptable.
    pub allow_restart: bool,
    /// Whether only the first finding may be acted on: the load does harm, and nothing else takes that away.
    pub first_only: bool,
}

/// A remedy that was chosen before.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedRemedy {
    /// What it changes.
    pub changes: Vec<SettingChange>,
    /// Whether it was in force and measured; else nobody could carry it out, or was not allowed to.
    pub was_measured: bool,
    /// Whether it was better, and stayed.
    pub was_kept: bool,
}

/// A value that is this multiple of one that did not help is not worth another round. One that is smaller may be, where the load
/// did harm.
const NEAR: std::ops::Range<f64> = 0.9..2.0;

impl TriedRemedy {
    /// Whether these changes were tried: the same ones, or, where what was measured did not help, others of the same settings that are
    /// [`NEAR`]: each load proposes another value by some percent.
    fn covers(&self, changes: &[SettingChange]) -> bool {
        let is_near = |own: &SettingChange, other: &SettingChange| {
            let values = own.to.number().zip(other.to.number()).filter(|(own, _)| *own > 0.0);
            own.setting == other.setting && values.is_some_and(|(own, other)| NEAR.contains(&(other / own)))
        };
        let are_near = self.changes.len() == changes.len()
            && self.changes.iter().zip(changes).all(|(own, other)| own == other || is_near(own, other));
        self.changes == changes || (self.was_measured && !self.was_kept && are_near)
    }
}

/// A remedy to try, with the finding that led to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemedyChoice {
    /// Why.
    pub finding: Finding,
    /// What.
    pub remedy: Remedy,
    /// Findings before it that cannot be lifted from here, the first one first.
    pub left: Vec<Finding>,
}

/// The next remedy to be prepared: the best one of the first finding that was not tried yet, be it that it did not help or
/// that its target cannot make it. Where nobody but a person can lift the first finding, the next one counts that is a limit of
/// its own: proven, a fault, and not brought about by one that stays. Where a remedy of the first finding was measured and did
/// not help, the others wait for a person as well: what was thought to limit is in doubt. One that needs a restart which is not
/// allowed comes last: whether its target can make it is to be known all the same, as permission helps only then. `None` when none is
/// left.
pub fn choose_remedy(
    diagnosis: &Diagnosis,
    tried: &[TriedRemedy],
    policy: TuningPolicy,
) -> Option<RemedyChoice> {
    let mut left: Vec<Finding> = vec![];
    for (place, finding) in diagnosis.findings.iter().enumerate() {
        let is_first = place == 0;
        if !is_first && !is_limit_of_its_own(finding, &left) {
            continue;
        }
        if let Some(remedy) = best_remedy(finding, tried, policy) {
            return Some(RemedyChoice { finding: finding.clone(), remedy, left });
        }
        if is_first && (policy.first_only || ends_tuning(finding) || was_measured(finding, tried)) {
            break;
        }
        left.push(finding.clone());
    }
    None
}

fn best_remedy(finding: &Finding, tried: &[TriedRemedy], policy: TuningPolicy) -> Option<Remedy> {
    let is_fresh = |remedy: &&Remedy| {
        let changes = remedy.setting_changes();
        !changes.is_empty() && !tried.iter().any(|tried| tried.covers(&changes))
    };
    let fresh: Vec<&Remedy> = finding.remedies.iter().filter(is_fresh).collect();
    let is_allowed = |remedy: &&&Remedy| policy.allow_restart || remedy.class != ApplyClass::Restart;
    let remedy = fresh.iter().find(is_allowed).or(fresh.first());
    remedy.map(|remedy| Remedy::clone(remedy))
}

fn was_measured(finding: &Finding, tried: &[TriedRemedy]) -> bool {
    let is_measured =
        |changes: &[SettingChange]| tried.iter().any(|tried| tried.was_measured && tried.covers(changes));
    finding.remedies.iter().any(|remedy| is_measured(&remedy.setting_changes()))
}

fn ends_tuning(finding: &Finding) -> bool {
    limits::by_id(&finding.id).is_some_and(|limit| limit.ends_tuning || limit.invalidates_run)
}

/// Whether lifting it can help although those before it stay.
fn is_limit_of_its_own(finding: &Finding, left: &[Finding]) -> bool {
    let Some(limit) = limits::by_id(&finding.id) else { return false };
    let causes = |limit: &Limit| limit.causes.iter().any(|id| finding.id == *id);
    let is_caused = left.iter().filter_map(|cause| limits::by_id(&cause.id)).any(causes);
    finding.confidence >= CAUSE_CONFIDENCE_MIN && limit.is_fault && !limit.invalidates_run && !is_caused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnose;
    use crate::measurement::Measurement;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    fn remedy(setting: &str, class: ApplyClass) -> Remedy {
        Remedy {
            setting: SettingId::of_service("apache", setting),
            from: None,
            to: Some(SettingValue::Integer(1)),
            class,
            risk: String::new(),
            why: String::new(),
            predicted: None,
            together_with: vec![],
        }
    }

    /// Findings by id, confidence and remedies.
    fn diagnosis(findings: Vec<(&str, f64, Vec<Remedy>)>) -> Diagnosis {
        let mut diagnosis = diagnose(&Measurement::default()).unwrap();
        let known = diagnosis.findings.remove(0);
        let finding = |(id, confidence, remedies): (&str, f64, Vec<Remedy>)| Finding {
            id: id.into(),
            confidence,
            remedies,
            ..known.clone()
        };
        diagnosis.findings = findings.into_iter().map(finding).collect();
        diagnosis
    }

    fn tried(remedy: &Remedy, was_measured: bool) -> TriedRemedy {
        TriedRemedy { changes: remedy.setting_changes(), was_measured, was_kept: false }
    }

    const POLICY: TuningPolicy = TuningPolicy { allow_restart: true, first_only: false };

    #[test]
    fn the_first_untried_and_allowed_remedy_is_chosen() {
        use ApplyClass::{Manual, Reload, Restart};
        let (manual, restart, reload) = (remedy("M", Manual), remedy("S", Restart), remedy("G", Reload));
        let all = diagnosis(vec![("unknown", 0.9, vec![manual.clone(), restart.clone(), reload.clone()])]);
        let pick = |tried: &[TriedRemedy], allow_restart| {
            choose_remedy(&all, tried, TuningPolicy { allow_restart, ..POLICY })
                .map(|choice| choice.remedy.setting.name)
        };
        assert_eq!(pick(&[], true), Some("S".into()));
        assert_eq!(pick(&[], false), Some("G".into()));
        assert_eq!(pick(&[tried(&reload, true)], false), Some("S".into()));
        let both = [tried(&reload, true), tried(&restart, true)];
        assert_eq!(pick(&both, true), None);
        let by_hand = diagnosis(vec![("unknown", 0.9, vec![manual.clone()])]);
        assert_eq!(choose_remedy(&by_hand, &[], POLICY), None);
        // Of the kernel's settings the machine says whether it can be set: it is a candidate whatever the rule calls it.
        let sysctl = Remedy { setting: SettingId::sysctl("net.x"), ..manual };
        let queue = diagnosis(vec![("unknown", 0.9, vec![sysctl.clone(), restart])]);
        let pick = |tried: &[TriedRemedy]| {
            let choice = choose_remedy(&queue, tried, TuningPolicy { allow_restart: false, ..POLICY });
            choice.map(|choice| choice.remedy.setting.full_name())
        };
        assert_eq!(pick(&[]), Some("sysctl net.x".into()));
        assert_eq!(pick(&[tried(&sysctl, true)]), Some("apache S".into()));
    }

    #[test]
    fn behind_what_only_a_person_can_lift_the_next_limit_of_its_own_is_chosen() {
        let by_hand = || vec![remedy("index", ApplyClass::Manual)];
        let fix = || vec![remedy("O", ApplyClass::Reload)];
        let slow = "db-slow-queries";
        for (first, second, chosen) in [
            ((slow, 0.9, by_hand()), ("opcache-off", 0.8, fix()), true),
            ((slow, 0.9, vec![]), ("opcache-off", 0.8, fix()), true),
            // Not proven.
            ((slow, 0.9, by_hand()), ("opcache-off", 0.5, fix()), false),
            // Brought about by the first one.
            ((slow, 0.9, by_hand()), ("apache-workers-exhausted", 0.9, fix()), false),
            // The machine gives what it can, or nothing can be believed.
            (("cpu-saturated", 0.9, by_hand()), ("opcache-off", 0.9, fix()), false),
            (("network-saturated", 0.9, by_hand()), ("opcache-off", 0.9, fix()), false),
            (("generator-saturated", 0.9, by_hand()), ("opcache-off", 0.9, fix()), false),
            ((slow, 0.9, by_hand()), ("generator-saturated", 0.9, fix()), false),
        ] {
            let all = diagnosis(vec![first.clone(), second.clone()]);
            let choice = choose_remedy(&all, &[], POLICY);
            let ids = |choice: &RemedyChoice| {
                let left: Vec<_> = choice.left.iter().map(|finding| finding.id.clone()).collect();
                (choice.finding.id.clone(), left)
            };
            let expected = chosen.then(|| (second.0.to_owned(), vec![first.0.to_owned()]));
            assert_eq!(choice.as_ref().map(ids), expected, "{first:?} {second:?}");
            let stopped = TuningPolicy { first_only: true, ..POLICY };
            assert_eq!(choose_remedy(&all, &[], stopped), None);
        }
    }

    #[test]
    fn a_value_that_did_not_help_is_not_tried_again_by_some_percent() {
        let with = |to: i64| Remedy {
            to: Some(SettingValue::Integer(to)),
            ..remedy("net.netfilter.nf_conntrack_max", ApplyClass::Live)
        };
        for (measured, kept, next, is_tried_again) in [
            (true, false, 151_000, false),
            (true, false, 131_000, false),
            (true, false, 290_000, true),
            (true, false, 130_000, true),
            // What helped may do so once more, and what was never in force says nothing.
            (true, true, 151_000, true),
            (false, false, 151_000, true),
            (true, true, 145_000, false),
        ] {
            let tried = TriedRemedy {
                changes: with(145_000).setting_changes(),
                was_measured: measured,
                was_kept: kept,
            };
            let full = diagnosis(vec![("conntrack-full", 0.95, vec![with(next)])]);
            assert_eq!(
                choose_remedy(&full, &[tried], POLICY).is_some(),
                is_tried_again,
                "{next} {measured} {kept}"
            );
        }
    }

    #[test]
    fn a_first_limit_that_was_lifted_to_no_avail_leaves_the_others_alone() {
        let (first, second) = (remedy("A", ApplyClass::Reload), remedy("B", ApplyClass::Reload));
        let (third, all) = (remedy("C", ApplyClass::Reload), |of: Vec<Remedy>| {
            diagnosis(vec![
                ("hostname-lookups", 0.9, vec![of[0].clone()]),
                ("opcache-off", 0.9, vec![of[1].clone()]),
                ("log-verbosity", 0.9, vec![of[2].clone()]),
            ])
        });
        let all = all(vec![first.clone(), second.clone(), third]);
        let pick = |tried: &[TriedRemedy]| {
            choose_remedy(&all, tried, POLICY).map(|choice| choice.remedy.setting.name)
        };
        assert_eq!(pick(&[tried(&first, true)]), None);
        // Nor where the next load proposes another value by some percent.
        let of_value =
            |to: i64| Remedy { to: Some(SettingValue::Integer(to)), ..remedy("A", ApplyClass::Reload) };
        let again = diagnosis(vec![
            ("hostname-lookups", 0.9, vec![of_value(151)]),
            ("opcache-off", 0.9, vec![second.clone()]),
        ]);
        assert_eq!(choose_remedy(&again, &[tried(&of_value(145), true)], POLICY), None);
        // What could not be made says nothing of the limit.
        assert_eq!(pick(&[tried(&first, false)]), Some("B".into()));
        assert_eq!(pick(&[tried(&first, false), tried(&second, true)]), Some("C".into()));
    }
}

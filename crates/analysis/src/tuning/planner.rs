//! The planner: which remedy of a diagnosis is tried next.

use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Diagnosis, Finding, Remedy};

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuningPolicy {
    /// Whether a restart, with its outage, is acceptable.
    pub allow_restart: bool,
}

/// A remedy to try, with the finding that led to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemedyChoice {
    /// Why.
    pub finding: Finding,
    /// What.
    pub remedy: Remedy,
}

/// Why there is nothing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRemedy {
    /// The first finding has no remedy that a program can carry out.
    NoRemedy,
    /// Its remedies were tried already, or their targets cannot make them.
    AllTried,
}

/// The next remedy to be prepared: the best one of the first finding that was not tried yet, be it that it did not help or
/// that its target cannot make it. Only the first finding counts: lifting a limit that does not bind proves nothing. One that
/// needs a restart which is not allowed comes last: whether its target can make it is to be known all the same, as permission
/// helps only then.
pub fn choose_remedy(
    diagnosis: &Diagnosis,
    tried: &[Vec<SettingChange>],
    policy: TuningPolicy,
) -> Result<RemedyChoice, NoRemedy> {
    let Some(finding) = diagnosis.findings.first() else {
        return Err(NoRemedy::NoRemedy);
    };
    let possible: Vec<&Remedy> =
        finding.remedies.iter().filter(|remedy| !remedy.setting_changes().is_empty()).collect();
    if possible.is_empty() {
        return Err(NoRemedy::NoRemedy);
    }
    let fresh: Vec<&Remedy> =
        possible.into_iter().filter(|remedy| !tried.contains(&remedy.setting_changes())).collect();
    if fresh.is_empty() {
        return Err(NoRemedy::AllTried);
    }
    let is_allowed = |remedy: &&&Remedy| policy.allow_restart || remedy.class != ApplyClass::Restart;
    let remedy = fresh.iter().find(is_allowed).unwrap_or(&fresh[0]);
    Ok(RemedyChoice { finding: finding.clone(), remedy: Remedy::clone(remedy) })
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

    fn diagnosis(remedies: Vec<Remedy>) -> Diagnosis {
        let mut diagnosis = diagnose(&Measurement::default()).unwrap();
        diagnosis.findings[0].remedies = remedies;
        diagnosis
    }

    #[test]
    fn the_first_untried_and_allowed_remedy_is_chosen() {
        use ApplyClass::{Manual, Reload, Restart};
        let all = diagnosis(vec![remedy("M", Manual), remedy("S", Restart), remedy("G", Reload)]);
        let pick = |tried: &[Vec<SettingChange>], allow_restart| {
            choose_remedy(&all, tried, TuningPolicy { allow_restart })
                .map(|choice| choice.remedy.setting.name)
        };
        assert_eq!(pick(&[], true), Ok("S".into()));
        assert_eq!(pick(&[], false), Ok("G".into()));
        assert_eq!(pick(&[remedy("G", Reload).setting_changes()], false), Ok("S".into()));
        assert_eq!(
            pick(&[remedy("G", Reload).setting_changes(), remedy("S", Restart).setting_changes()], true),
            Err(NoRemedy::AllTried)
        );
        assert_eq!(
            choose_remedy(&diagnosis(vec![remedy("M", Manual)]), &[], TuningPolicy { allow_restart: true }),
            Err(NoRemedy::NoRemedy)
        );
        // Of the kernel's settings the machine says whether it can be set: it is a candidate whatever the rule calls it.
        let sysctl = Remedy { setting: SettingId::sysctl("net.x"), ..remedy("M", Manual) };
        let queue = diagnosis(vec![sysctl.clone(), remedy("S", Restart)]);
        let pick = |tried: &[Vec<SettingChange>]| {
            let choice = choose_remedy(&queue, tried, TuningPolicy { allow_restart: false });
            choice.map(|choice| choice.remedy.setting.full_name())
        };
        assert_eq!(pick(&[]), Ok("sysctl net.x".into()));
        assert_eq!(pick(&[sysctl.setting_changes()]), Ok("apache S".into()));
    }
}

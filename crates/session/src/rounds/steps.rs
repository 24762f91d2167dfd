//! The steps of a remedy that names settings of several targets: what belongs together, and the whole of it to be shown.

use crate::tuning_target::TuningTarget;
use std::collections::BTreeSet;
use webdyno_model::change::{RenderedPlan, SettingChange};
use webdyno_model::diagnosis::Remedy;
use webdyno_model::setting::Target;
use webdyno_model::tune::Round;

/// The changes of each target by themselves, and whether they are the remedy's own: what others need comes first. A backlog goes
/// with what the kernel grants.
pub(super) fn groups(changes: &[SettingChange]) -> Vec<(Vec<SettingChange>, bool)> {
    let Some(own) = changes.first().map(|change| &change.setting.target) else { return vec![] };
    let belongs = |change: &&SettingChange| {
        let target = &change.setting.target;
        target == own || (*own == Target::Sysctl && matches!(target, Target::ProcessLimit(_)))
    };
    let mut others: Vec<(Vec<SettingChange>, bool)> = vec![];
    for change in changes.iter().filter(|change| !belongs(change)) {
        match others.iter_mut().find(|(group, _)| group[0].setting.target == change.setting.target) {
            Some((group, _)) => group.push(change.clone()),
            None => others.push((vec![change.clone()], false)),
        }
    }
    others.push((changes.iter().filter(belongs).cloned().collect(), true));
    others
}

/// Why a remedy changes a setting of another program, in a sentence; empty where it does not.
pub(super) fn goes_along_text(remedy: &Remedy) -> String {
    let others = remedy.together_with.iter().filter(|change| {
        matches!(change.setting.target, Target::Service(_)) && change.setting.target != remedy.setting.target
    });
    let others: Vec<String> =
        others.map(|change| format!("{} {}", change.setting.full_name(), change.to)).collect();
    match others.is_empty() {
        true => String::new(),
        false => format!(" {} goes along, as what stands there would limit next.", others.join(", ")),
    }
}

/// Keeps the plans of a round for people who want them as files, those of each host by themselves.
pub(super) fn export(target: &mut dyn TuningTarget, steps: &[RenderedPlan], round: &Round) {
    for plan in of_hosts(steps) {
        let round = Round { changes: plan.changes.clone(), diff: plan.diff.clone(), ..round.clone() };
        target.export(&plan, &round);
    }
}

/// The plans of each host as one, the one under load first.
fn of_hosts(steps: &[RenderedPlan]) -> Vec<RenderedPlan> {
    let hosts: BTreeSet<Option<&str>> = steps.iter().map(RenderedPlan::server).collect();
    hosts.into_iter().map(|host| merged(steps.iter().filter(|step| step.server() == host))).collect()
}

/// Several plans as one, to be shown.
pub(super) fn merged<'a>(steps: impl DoubleEndedIterator<Item = &'a RenderedPlan>) -> RenderedPlan {
    let mut whole = RenderedPlan::live(vec![], String::new());
    for step in steps.rev() {
        whole.changes.extend(step.changes.iter().cloned());
        whole.files.extend(step.files.iter().cloned());
        if let Some(role) = step.server() {
            whole.diff.push_str(&format!("# on the host {role}\n"));
        }
        whole.diff.push_str(&step.diff);
        whole.managed.extend(step.managed.iter().cloned());
        whole.to_decide.extend(step.to_decide.iter().cloned());
        whole.class = whole.class.max(step.class);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::change::ApplyClass;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    #[test]
    fn what_others_need_is_changed_first_and_by_itself() {
        let change = |setting| SettingChange { setting, to: SettingValue::Integer(9) };
        let of = |service: &str, name: &str| change(SettingId::of_service(service, name));
        let shown = |changes: &[SettingChange]| -> Vec<String> {
            let text = |(group, is_own): (Vec<SettingChange>, bool)| {
                let names: Vec<_> = group.iter().map(|change| change.setting.full_name()).collect();
                format!("{}{}", if is_own { "own: " } else { "" }, names.join(" + "))
            };
            groups(changes).into_iter().map(text).collect()
        };
        let workers = [
            of("apache", "MaxRequestWorkers"),
            of("apache", "ServerLimit"),
            of("mariadb", "max_connections"),
        ];
        assert_eq!(
            shown(&workers),
            ["mariadb max_connections", "own: apache MaxRequestWorkers + apache ServerLimit"]
        );
        let queue = [change(SettingId::sysctl("net.core.somaxconn")), of("apache", "backlog")];
        assert_eq!(shown(&queue), ["own: sysctl net.core.somaxconn + apache backlog"]);
        assert_eq!(shown(&[]), Vec::<String>::new());
        let remedy = Remedy {
            setting: SettingId::of_service("apache", "MaxRequestWorkers"),
            from: None,
            to: None,
            class: ApplyClass::Reload,
            risk: String::new(),
            why: String::new(),
            predicted: None,
            together_with: workers[1..].to_vec(),
        };
        assert_eq!(
            goes_along_text(&remedy),
            " mariadb max_connections 9 goes along, as what stands there would limit next."
        );
        assert_eq!(goes_along_text(&Remedy { together_with: workers[1..2].to_vec(), ..remedy }), "");
    }
}

//! Undoing while others use a service: without dropping their connections.
//!
//! Files and values go back, and the service takes them by a graceful reload. A restart would drop every connection, so
//! what only a restart brings back stays in the running program until somebody restarts it, and is told. With Apache that
//! works: it tests and reloads a ServerLimit that is lower than the running one (2.4.71, prefork AH00179, event AH00501: a
//! warning that it keeps the limit of its start), MaxRequestWorkers is the original one again, and requests under way
//! are finished.
//!
//! Where putting a value back would itself drop connections (a limit that is below what is in use), the service says
//! so, and all of that service is left as it is: the journal stays open, and a rollback can do it later.

use crate::change::action::Activate;
use crate::os::process::ProcessName;
use crate::services::{SettingRevert, Tunable};
use std::collections::BTreeMap;
use webdyno_model::UserError;
use webdyno_model::change::{ApplyClass, Change};
use webdyno_model::service::Control;

/// The activations of a service that are to be undone, in order.
type Activations = [(u64, Activate)];

/// Whether others used the service when it was changed.
pub fn is_live(activations: &Activations) -> bool {
    activations.iter().any(|(_, activate)| activate.live_traffic)
}

/// How a change is undone: no restart.
pub fn class(planned: ApplyClass) -> ApplyClass {
    if planned == ApplyClass::Restart { ApplyClass::Reload } else { planned }
}

/// Each setting once, from the value that it was given last to the one before the first change.
fn settings(activations: &Activations) -> BTreeMap<&str, (&Change, &Change)> {
    let mut all: BTreeMap<&str, (&Change, &Change)> = BTreeMap::new();
    for change in activations.iter().flat_map(|(_, activate)| &activate.changes) {
        all.entry(&change.setting.name).and_modify(|(_, last)| *last = change).or_insert((change, change));
    }
    all
}

/// Why a service must not be reverted now; `None` when it can be.
pub fn refusal(
    service: &dyn Tunable,
    control: &Control,
    port: u16,
    activations: &Activations,
) -> Option<UserError> {
    settings(activations).into_iter().find_map(|(setting, (first, last))| {
        let undoing = SettingRevert { setting, now: &last.to, back: first.from.as_ref() };
        let why = service.undo_drops(control, port, &undoing)?;
        let back = undoing.back.map_or_else(|| "what it was".to_owned(), ToString::to_string);
        let message =
            format!("{setting} of {} stays {} for now: with {back} {why}", service.name(), undoing.now);
        Some(UserError::cannot_run(message).hint("run `webdyno rollback` when less of it is in use"))
    })
}

/// What stays in the running program until its next restart, one line each: settings that only a restart brings back,
/// if there was one since they were changed.
pub fn left(service: &dyn Tunable, running: &Control, activations: &Activations) -> Vec<String> {
    let restarted: Vec<(u64, Activate)> = activations
        .iter()
        .filter(|(_, activate)| ProcessName::from(&activate.served.control) != ProcessName::from(running))
        .cloned()
        .collect();
    let settings = settings(&restarted).into_iter();
    let kept = settings.filter(|(setting, (_, last))| {
        last.class == ApplyClass::Restart && service.keeps_until_restart(setting)
    });
    let service = service.name();
    kept.map(|(setting, (first, last))| {
        let back = first.from.as_ref().map_or_else(|| "as before".to_owned(), |from| format!("{from} again"));
        format!(
            "{setting} {} stays in the running {service} until its next restart, which would drop the \
                 connections of others; on disk it is {back}",
            last.to
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::action::Served;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    fn control(pid: u32) -> Control {
        Control { pid, start_ticks: 1, executable: "/x".into(), directory: "/".into(), ..Control::default() }
    }

    fn activation(n: u64, pid_before: u32, changes: &[(&str, i64, i64, ApplyClass)]) -> (u64, Activate) {
        let change = |(setting, from, to, class): &(&str, i64, i64, ApplyClass)| Change {
            setting: SettingId::of_service("apache", *setting),
            from: Some(SettingValue::Integer(*from)),
            to: SettingValue::Integer(*to),
            file: "x.conf".into(),
            class: *class,
            server: None,
        };
        let served = Served { service: "apache".into(), port: 80, control: control(pid_before) };
        let changes: Vec<Change> = changes.iter().map(change).collect();
        let class = changes.iter().map(|change| change.class).max().unwrap_or(ApplyClass::Reload);
        (n, Activate { served, class, running: BTreeMap::new(), changes, live_traffic: false })
    }

    use ApplyClass::{Reload, Restart};

    #[test]
    fn only_what_a_restart_put_in_force_stays() {
        let first = activation(
            1,
            10,
            &[("ServerLimit", 256, 585, Restart), ("MaxRequestWorkers", 150, 585, Restart)],
        );
        let second = activation(2, 11, &[("ServerLimit", 585, 800, Restart)]);
        for (activations, running, expected) in [
            (vec![first.clone()], 11, vec!["ServerLimit 585 stays", "on disk it is 256 again"]),
            // It was killed before it came to the restart.
            (vec![first.clone()], 10, vec![]),
            (
                vec![first.clone(), second.clone()],
                12,
                vec!["ServerLimit 800 stays", "on disk it is 256 again"],
            ),
            (vec![first, second], 11, vec!["ServerLimit 585 stays", "on disk it is 256 again"]),
            (vec![activation(1, 10, &[("KeepAlive", 0, 1, Reload)])], 11, vec![]),
        ] {
            let left = left(&crate::services::apache::Apache, &control(running), &activations);
            assert_eq!(left.len(), usize::from(!expected.is_empty()), "{left:?}");
            assert!(expected.iter().all(|part| left[0].contains(part)), "{left:?}");
        }
    }

    #[test]
    fn a_restart_is_never_the_way_back() {
        for (planned, expected) in [(Restart, Reload), (Reload, Reload), (ApplyClass::Live, ApplyClass::Live)]
        {
            assert_eq!(class(planned), expected);
        }
    }

    #[test]
    fn journals_of_before_are_read() {
        let old = r#"{"served":{"service":"apache","port":80,"control":{"pid":1,"start_ticks":1,"executable":"/x",
            "arguments":[],"environment":{},"directory":"/","pid_file":null,"unit":null,"supervised":false}},
            "class":"restart","running":{}}"#;
        let activate: Activate = serde_json::from_str(old).unwrap();
        assert!(activate.changes.is_empty() && !activate.live_traffic);
        // What is as before is not written: older versions read it.
        assert!(!serde_json::to_string(&activate).unwrap().contains("live_traffic"));
    }
}

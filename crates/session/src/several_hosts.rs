//! Changes of several hosts in one session: which host a change is for, and the order in which they are taken back and kept.
//!
//! Each host has an agent, a journal and a guardian of its own, which knows nothing of the others. A session's mark names the
//! state of all of them. What was applied is taken back from the last step to the first, whatever host each was on. The one
//! under load is kept last: what it admits now needs the room that the others gave it. When a host cannot keep, all of them
//! put back what they have, kept or not, and that one first: where it is gone, it may have kept, and those that did stay so.
//! When everything is killed in between, they have more room than they need, and the guardian of the one under load gives it its
//! original back.

use std::collections::BTreeSet;
use webdyno_host::services::{mariadb, php_fpm, sysctl};
use webdyno_model::change::SettingChange;
use webdyno_model::setting::Target;
use webdyno_model::{Result, UserError};

/// The roles of hosts that can make a change instead of the one under load: that of the service that it is for, or the machine.
pub(crate) fn roles_for(changes: &[SettingChange]) -> &'static [&'static str] {
    match changes.first().map(|change| &change.setting.target) {
        // What belongs to the namespace of the server is set nowhere else.
        Some(Target::Sysctl) if changes.iter().all(|change| sysctl::is_of_machine(&change.setting)) => {
            &["host"]
        }
        Some(Target::Service(name) | Target::ProcessLimit(name)) if name == mariadb::NAME => &["db"],
        Some(Target::Service(name) | Target::ProcessLimit(name)) if is_of_php(name) => &["php"],
        _ => &[],
    }
}

/// Whether something runs PHP behind another server.
fn is_of_php(name: &str) -> bool {
    name == php_fpm::NAME || name == "php" || name == "apache"
}

/// A step that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppliedStep {
    mark: u64,
    host: usize,
    /// What the host's agent calls the state before it.
    mark_there: u64,
}

/// What is in force on which host. Host 0 is the one under load.
#[derive(Debug, Default)]
pub(crate) struct HostMarks {
    steps: Vec<AppliedStep>,
    /// Hosts that were asked to change something, whatever came of it.
    asked: BTreeSet<usize>,
    /// Hosts that keep what they have.
    kept: BTreeSet<usize>,
    /// Whether hosts were asked to keep what they have.
    is_keeping: bool,
    /// The first of the steps that are not in force any more although nobody asked for it: a host's agent was killed.
    lost_from: Option<u64>,
    last_mark: u64,
}

impl HostMarks {
    /// A host is about to be asked for a change.
    pub(crate) fn record_request(&mut self, host: usize) {
        self.asked.insert(host);
    }

    /// Whether what a host has changed can be put back without its agent: not once it may have kept it, nor where others hold
    /// the lock of its journals.
    pub(crate) fn can_lose(&self, host: usize) -> bool {
        !self.is_keeping && (!self.asked.contains(&host) || self.asked.len() == 1)
    }

    /// All of a host was put back, as its agent was killed. What was in force with it goes back as well, when somebody asks.
    pub(crate) fn lose(&mut self, host: usize) {
        let first = self.steps.iter().find(|step| step.host == host).map(|step| step.mark);
        self.lost_from = [self.lost_from, first].into_iter().flatten().min();
        self.steps.retain(|step| step.host != host);
        self.asked.remove(&host);
    }

    /// An error where a step that the session relies on was put back.
    pub(crate) fn require_whole(&self) -> Result<()> {
        self.lost_from.map_or(Ok(()), |_| Err(lost_error()))
    }

    /// A change is in force. Gives the session's mark of the state before it.
    pub(crate) fn applied(&mut self, host: usize, mark_there: u64) -> u64 {
        self.last_mark = mark_there.max(self.last_mark + 1);
        self.steps.push(AppliedStep { mark: self.last_mark, host, mark_there });
        self.last_mark
    }

    /// Takes all hosts back to the state of a mark; `revert` does it on one of them. Each is tried, also where another one
    /// fails; then the error says it of all.
    pub(crate) fn revert(
        &mut self,
        mark: u64,
        mut revert: impl FnMut(usize, u64) -> Result<()>,
    ) -> Result<()> {
        let mut calls = self.to_revert(mark);
        if !self.kept.is_empty() {
            calls.sort_by_key(|(host, _)| *host);
        }
        let (mut outcome, mut is_front_open) = (Ok(()), false);
        for (host, mark_there) in calls {
            if is_front_open && self.kept.contains(&host) {
                continue;
            }
            let reverted = revert(host, mark_there);
            is_front_open |= host == 0 && reverted.is_err();
            if reverted.is_ok() {
                self.kept.remove(&host);
                self.steps.retain(|step| step.host != host || step.mark_there < mark_there);
            }
            outcome = both(outcome, reverted);
        }
        if self.lost_from.is_some_and(|first| mark <= first) {
            self.lost_from = None;
        }
        both(outcome, self.require_whole())
    }

    /// Has all hosts keep what is in force; `keep` has one of them do it. On an error [`HostMarks::revert`] has to follow.
    pub(crate) fn keep(&mut self, mut keep: impl FnMut(usize) -> Result<()>) -> Result<()> {
        self.require_whole()?;
        self.is_keeping = true;
        for host in self.asked.iter().rev() {
            keep(*host)?;
            self.kept.insert(*host);
        }
        Ok(())
    }

    /// The hosts that have to go back for the state of a mark, in their order, each with the mark that it knows; 0 is
    /// everything, also what came to no mark.
    fn to_revert(&self, mark: u64) -> Vec<(usize, u64)> {
        let mut calls: Vec<(usize, u64)> = vec![];
        for step in self.steps.iter().rev().take_while(|step| step.mark >= mark) {
            match calls.last_mut() {
                Some((host, to)) if *host == step.host => *to = step.mark_there,
                _ => calls.push((step.host, step.mark_there)),
            }
        }
        for host in self.asked.iter().filter(|_| mark == 0) {
            match calls.iter_mut().rev().find(|(known, _)| known == host) {
                Some((_, to)) => *to = 0,
                None => calls.push((*host, 0)),
            }
        }
        calls
    }
}

fn lost_error() -> UserError {
    UserError::cannot_run("the agent at the server was killed, and what it had changed was put back").hint(
        "tune again with fewer connections (-c) or a lower rate (-r), so that the server keeps memory for it",
    )
}

/// Two outcomes, where the first error says what the other one was as well.
pub(crate) fn both(first: Result<()>, other: Result<()>) -> Result<()> {
    match (first, other) {
        (Err(first), Err(other)) => {
            let hints = [first.hint.clone(), Some(other.message), other.hint];
            let hint = hints.into_iter().flatten().collect::<Vec<_>>().join("\n");
            Err(UserError::hint(first, hint))
        }
        (first, other) => first.and(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::SettingValue;
    use webdyno_model::setting::SettingId;

    #[test]
    fn a_change_goes_to_the_host_whose_it_is_and_nowhere_else() {
        let roles = |settings: &[SettingId]| {
            let change = |setting: &SettingId| SettingChange {
                setting: setting.clone(),
                to: SettingValue::Integer(1),
            };
            roles_for(&settings.iter().map(change).collect::<Vec<_>>())
        };
        let sysctl = SettingId::sysctl;
        assert_eq!(roles(&[sysctl("net.netfilter.nf_conntrack_max")]), ["host"]);
        assert_eq!(roles(&[sysctl("fs.file-max"), sysctl("net.core.netdev_max_backlog")]), ["host"]);
        // One of the server's own namespace would be set in another one there.
        for own in ["net.ipv4.tcp_max_syn_backlog", "net.core.somaxconn", "kernel.pid_max"] {
            assert!(roles(&[sysctl(own)]).is_empty(), "{own}");
            assert!(roles(&[sysctl("fs.file-max"), sysctl(own)]).is_empty(), "{own}");
        }
        assert_eq!(roles(&[SettingId::of_service("mariadb", "max_connections")]), ["db"]);
        assert_eq!(roles(&[SettingId::of_service("php_fpm", "pm.max_children")]), ["php"]);
        assert!(roles(&[SettingId::of_service("nginx", "worker_connections")]).is_empty());
        assert!(roles(&[]).is_empty());
    }

    #[test]
    fn steps_are_taken_back_from_the_last_whatever_host_they_are_on() {
        let mut marks = HostMarks::default();
        [0, 1, 2].into_iter().for_each(|host| marks.record_request(host));
        // Each agent counts for itself.
        let given = [(1, 1), (0, 1), (0, 4), (1, 3), (0, 9)].map(|(host, there)| marks.applied(host, there));
        assert_eq!(given, [1, 2, 4, 5, 9]);
        assert_eq!(marks.to_revert(9), [(0, 9)]);
        assert_eq!(marks.to_revert(4), [(0, 9), (1, 3), (0, 4)]);
        assert_eq!(marks.to_revert(2), [(0, 9), (1, 3), (0, 1)]);
        // Host 2 was asked, and its change came to no mark.
        assert_eq!(marks.to_revert(0), [(0, 9), (1, 3), (0, 0), (1, 0), (2, 0)]);
        let mut failing = |host: usize, _: u64| match host {
            1 => Err(UserError::cannot_run("it is gone").hint("look there")),
            _ => Ok(()),
        };
        let error = marks.revert(4, &mut failing).unwrap_err();
        assert_eq!(error.message, "it is gone");
        // What could not be taken back stays to be taken back, what was is not any more.
        assert_eq!(marks.to_revert(1), [(1, 3), (0, 1), (1, 1)]);
        let error = marks.revert(0, failing).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("look there\nit is gone\nlook there"));
        assert_eq!(marks.applied(0, 12), 12);
    }

    #[test]
    fn what_was_lost_with_an_agent_is_not_taken_for_being_in_force() {
        let begun = || {
            let mut marks = HostMarks::default();
            marks.record_request(0);
            (marks.applied(0, 1), marks.applied(0, 5));
            assert!(marks.can_lose(0) && marks.can_lose(1));
            marks.lose(0);
            marks
        };
        let nothing = |_: usize, _: u64| panic!("nothing is left to be taken back");
        // The last change was to go, and the one before was to stay.
        let mut marks = begun();
        assert!(marks.require_whole().is_err() && marks.keep(|_| Ok(())).is_err());
        assert!(marks.revert(5, nothing).is_err() && marks.revert(5, nothing).is_err());
        marks.revert(0, nothing).unwrap();
        marks.require_whole().unwrap();
        // Both of them were to go.
        let mut marks = begun();
        marks.revert(1, nothing).unwrap();
        marks.require_whole().unwrap();
        marks.record_request(0);
        assert_eq!(marks.applied(0, 1), 6);
        marks.keep(|_| Ok(())).unwrap();
        assert!(!marks.can_lose(0), "it may have kept");
    }

    #[test]
    fn the_host_under_load_keeps_last_and_goes_back_first() {
        let mut marks = HostMarks::default();
        [0, 1].into_iter().for_each(|host| marks.record_request(host));
        let given = [(1, 1), (0, 1), (1, 4)].map(|(host, there)| marks.applied(host, there));
        assert_eq!(given, [1, 2, 4]);
        let gone = || Err(UserError::cannot_run("the agent is gone"));
        let mut kept = vec![];
        let keep = |host: usize| if host == 0 { gone() } else { Ok(()) };
        marks
            .keep(|host| {
                kept.push(host);
                keep(host)
            })
            .unwrap_err();
        assert_eq!(kept, [1, 0]);
        // It may have kept, or not: the room that it would need then stays.
        let mut asked = vec![];
        marks
            .revert(0, |host, to| {
                asked.push((host, to));
                keep(host)
            })
            .unwrap_err();
        assert_eq!(asked, [(0, 0)]);
        // It answers that it did not.
        asked.clear();
        marks
            .revert(0, |host, to| {
                asked.push((host, to));
                Ok(())
            })
            .unwrap();
        assert_eq!(asked, [(0, 0), (1, 4), (1, 0)]);
    }
}

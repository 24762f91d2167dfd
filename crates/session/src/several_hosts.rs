//! Changes of several hosts in one session: which host a change is for, and the order in which they are taken back and kept.
//!
//! Each host has an agent, a journal and a guardian of its own, which knows nothing of the others. A session's mark names the
//! state of all of them. What was applied is taken back from the last step to the first, whatever host each was on. The one
//! under load is kept last: what it admits now needs the room that the others gave it. When a host cannot keep, all of them
//! put back what they have, kept or not; when everything is killed in between, those that kept have more room than they need,
//! and the guardian of the one under load gives it its original back.

use std::collections::BTreeSet;
use webdyno_host::services::{mariadb, php_fpm, sysctl};
use webdyno_model::change::SettingChange;
use webdyno_model::setting::Target;

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
    last_mark: u64,
}

impl HostMarks {
    /// A host is about to be asked for a change.
    pub(crate) fn asked(&mut self, host: usize) {
        self.asked.insert(host);
    }

    /// A change is in force. Gives the session's mark of the state before it.
    pub(crate) fn applied(&mut self, host: usize, mark_there: u64) -> u64 {
        self.last_mark = mark_there.max(self.last_mark + 1);
        self.steps.push(AppliedStep { mark: self.last_mark, host, mark_there });
        self.last_mark
    }

    /// The hosts that have to go back for the state of a mark, in their order, each with the mark that it knows; 0 is
    /// everything, also what came to no mark.
    pub(crate) fn to_revert(&self, mark: u64) -> Vec<(usize, u64)> {
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

    /// A host went back to a mark of its own.
    pub(crate) fn reverted(&mut self, host: usize, mark_there: u64) {
        self.steps.retain(|step| step.host != host || step.mark_there < mark_there);
    }

    /// The hosts that keep what is in force, in their order.
    pub(crate) fn to_keep(&self) -> Vec<usize> {
        self.asked.iter().rev().copied().collect()
    }
}

//! What a journal says, as pure data: records, and what they add up to.

use crate::change::action::{Action, BootHook, Launched, Served};
use crate::change::seams::processes::System;
use crate::change::seams::session_location::SessionLocation;
use crate::change::tuned_machine::TunedMachine;
use crate::os::process::ProcessName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use webdyno_model::service::Control;

/// Who wrote a journal, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// From time and pid; also the file's name.
    pub id: String,
    /// Rises from journal to journal, also when the clock is set back.
    pub order: u64,
    /// Microseconds since 1970.
    pub started_at_us: u64,
    /// The boot in which the processes below ran; `None` when unknown.
    pub boot_id: Option<String>,
    /// The machine: a state directory may be shared by several. `None` when unknown, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// The process that gave the orders: the tool itself on the same machine, else what carries its connection.
    pub tool: Option<ProcessName>,
    /// The agent, which is the guardian.
    pub agent: ProcessName,
    /// What it is about: `webdyno tune`.
    pub what: String,
    /// Where it was at work; `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<SessionLocation>,
}

/// Who closed a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// The tool, at its regular end.
    Tool,
    /// The agent, because the tool was gone; it had reverted everything.
    Guardian,
    /// `webdyno rollback`.
    Rollback,
}

/// One line's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Record {
    /// The first one.
    Header(Header),
    /// This will be done next.
    Intent {
        /// From 1, rising.
        n: u64,
        /// What.
        action: Action,
    },
    /// It was done.
    Completed {
        /// Of the intent.
        n: u64,
        /// How the service is controlled after an activation.
        control: Option<Control>,
    },
    /// The launched program's process is known.
    Launched {
        /// Of the intent.
        n: u64,
        /// The process.
        #[serde(flatten)]
        launched: Launched,
    },
    /// It is undone, or needs no undo any more.
    Undone {
        /// Of the intent.
        n: u64,
        /// How the service is controlled after activating the original.
        control: Option<Control>,
    },
    /// Somebody else changed the file: it is left alone, and its original is kept apart.
    Conflict {
        /// Of the intent.
        n: u64,
        /// The saved copy; `None` when there was no file before.
        saved: Option<String>,
        /// What became of the file, in words; `None` in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        what: Option<String>,
    },
    /// The actions up to this one were verified and stay.
    Kept {
        /// The last one of them.
        through: u64,
        /// What they were verified on; `None` where nobody said, and in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made_for: Option<TunedMachine>,
    },
    /// What was kept is rolled back after all. From here on it waits for that, whoever begins or ends it.
    Unkept,
    /// The end.
    Closed {
        /// By whom.
        by: ClosedBy,
    },
    /// The user was told that the guardian reverted everything.
    Told,
}

/// An action and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From 1, rising.
    pub n: u64,
    /// What.
    pub action: Action,
    /// Whether it is known to have been done. When not, it may have been.
    pub completed: bool,
    /// The process, of a launch.
    pub launched: Option<Launched>,
    /// Nothing is left to undo.
    pub undone: bool,
}

/// What all records of a journal add up to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// `None` when the session ended before its first record was whole: it did nothing.
    pub header: Option<Header>,
    /// In order.
    pub entries: Vec<Entry>,
    /// Actions up to this one are kept; 0 for none.
    pub kept_through: u64,
    /// Actions up to this one were verified once, also when they are rolled back after all; 0 for none.
    pub verified_through: u64,
    /// The machine on which they were kept.
    pub made_for: Option<TunedMachine>,
    /// Who closed it last.
    pub closed: Option<ClosedBy>,
    /// Whether the user heard of the guardian's work.
    pub reported: bool,
    /// How each service is controlled by the latest record, by name and port.
    pub controls: BTreeMap<(String, u16), Control>,
    /// Files left to the operator.
    pub conflicts: Vec<Conflict>,
}

/// A file that was left to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The write that cannot be undone.
    pub n: u64,
    /// The saved copy of the original; `None` when there was no file before.
    pub saved: Option<String>,
    /// What became of the file, in words; `None` in older journals.
    pub what: Option<String>,
}

impl History {
    /// Takes in one more record. The error names a record that does not fit to those before it.
    pub fn absorb(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Header(header) if self.header.is_none() => self.header = Some(header),
            _ if self.header.is_none() => return Err("a record before the header".into()),
            Record::Header(_) => return Err("a second header".into()),
            Record::Intent { n, action } => self.begin(n, action)?,
            Record::Completed { n, control } => {
                self.entry(n)?.completed = true;
                self.controlled(n, control);
            }
            Record::Launched { n, launched } => self.entry(n)?.launched = Some(launched),
            Record::Undone { n, control } => {
                self.entry(n)?.undone = true;
                self.controlled(n, control);
            }
            Record::Conflict { n, saved, what } => {
                self.entry(n)?.undone = true;
                self.conflicts.push(Conflict { n, saved, what });
            }
            Record::Kept { through, made_for } => {
                self.made_for = made_for.or(self.made_for.take());
                self.kept_through = self.kept_through.max(through);
                self.verified_through = self.verified_through.max(through);
            }
            Record::Unkept => (self.kept_through, self.closed) = (0, None),
            Record::Closed { by } => self.closed = Some(by),
            Record::Told => self.reported = true,
        }
        Ok(())
    }

    fn begin(&mut self, n: u64, action: Action) -> Result<(), String> {
        if n != self.last_n() + 1 {
            return Err(format!("intent {n} after {}", self.last_n()));
        }
        if let Some(served) = served(&action) {
            self.controls.insert((served.service.clone(), served.port), served.control.clone());
        }
        self.closed = None;
        self.entries.push(Entry { n, action, completed: false, launched: None, undone: false });
        Ok(())
    }

    fn controlled(&mut self, n: u64, control: Option<Control>) {
        let key = self.entries.iter().find(|entry| entry.n == n).and_then(|entry| served(&entry.action));
        if let (Some(served), Some(control)) = (key, control) {
            let key = (served.service.clone(), served.port);
            self.controls.insert(key, control);
        }
    }

    fn entry(&mut self, n: u64) -> Result<&mut Entry, String> {
        self.entries.iter_mut().find(|entry| entry.n == n).ok_or_else(|| format!("no intent {n}"))
    }

    /// Whether an activation may have ended its service: it is not known to have come to its end, or nobody has verified
    /// it since. A service that was seen at work with it was stopped by somebody else.
    pub fn may_have_ended_its_service(&self, n: u64) -> bool {
        let is_done = |entry: &Entry| entry.n == n && entry.completed && n <= self.verified_through;
        !self.entries.iter().any(is_done)
    }

    /// The number of the last action; 0 when there is none.
    pub fn last_n(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.n)
    }

    /// The actions from `n` on that are not undone, in order.
    pub fn outstanding(&self, from_n: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.n >= from_n && !entry.undone)
    }

    /// Whether something is in force that was never verified, or runs or is installed that must not outlive the session.
    pub fn has_unkept(&self) -> bool {
        let is_passing = |action: &Action| matches!(action, Action::Launch(_) | Action::BootHook(_));
        self.outstanding(1).any(|entry| entry.n > self.kept_through || is_passing(&entry.action))
    }

    /// Whether a boot would leave something in force that was never verified. Programs that this session launched, and
    /// their files, are gone after a boot.
    pub fn needs_boot_hook(&self) -> bool {
        let lasts = |entry: &Entry| match &entry.action {
            // Only the file that keeps it lasts.
            Action::WriteValue(_) => false,
            action => served(action).is_some_and(|to| !self.is_launched_here(to.port)),
        };
        self.outstanding(self.kept_through + 1).any(lasts)
    }

    /// The hook that is installed, or may be in part.
    pub fn boot_hooks(&self) -> impl Iterator<Item = (u64, &BootHook)> {
        self.outstanding(1).filter_map(|entry| match &entry.action {
            Action::BootHook(hook) => Some((entry.n, hook)),
            _ => None,
        })
    }

    /// Whether nothing can be undone any more.
    pub fn is_settled(&self) -> bool {
        self.outstanding(1).next().is_none()
    }

    /// Whether it did something and was not closed: temporary files or a hook at boot may lie about even when all that
    /// was changed is undone or kept.
    pub fn is_open(&self) -> bool {
        self.closed.is_none() && !self.entries.is_empty()
    }

    /// Whether this port is served by a program that this session launched and that was not stopped yet.
    pub fn is_launched_here(&self, port: u16) -> bool {
        self.outstanding(1)
            .any(|entry| matches!(&entry.action, Action::Launch(launch) if launch.port == port))
    }

    /// Whether it is of another machine, with which this one shares its state directory: its files and processes are not
    /// here, and what there is of them is not for us to judge.
    pub fn is_of_other_machine(&self, system: &dyn System) -> bool {
        let then = self.header.as_ref().and_then(|header| header.machine_id.as_ref());
        then.is_some_and(|then| system.machine_id().is_some_and(|now| now != *then))
    }

    /// Whether the guardian is still there.
    pub fn guardian_is_alive(&self, system: &dyn System) -> bool {
        let alive = |header: &Header| same_boot(header, system) && system.is_running(header.agent);
        self.header.as_ref().is_some_and(alive)
    }

    /// Whether the tool is still there.
    pub fn tool_is_alive(&self, system: &dyn System) -> bool {
        let running = |tool: ProcessName| system.is_running(tool);
        let alive = |header: &Header| same_boot(header, system) && header.tool.is_some_and(running);
        self.header.as_ref().is_some_and(alive)
    }

    /// The command that undoes it, as it can be typed where the session was begun.
    pub fn command(&self) -> String {
        let location = self.header.as_ref().and_then(|header| header.location.as_ref());
        location.map_or_else(|| "run `webdyno rollback`".to_owned(), SessionLocation::command)
    }

    /// Whether its process ids mean nothing here: it was at work in another pid namespace.
    pub fn has_other_pids(&self, system: &dyn System) -> bool {
        self.header.as_ref().is_some_and(|header| has_other_pids(header, system))
    }

    /// Whether the machine has not been booted since; a container may have been.
    pub fn is_same_boot_of_machine(&self, system: &dyn System) -> bool {
        self.header.as_ref().is_some_and(|header| same_boot_id(header, system))
    }

    /// Whether neither the machine nor our container has been booted since: process ids mean the same. Unknown counts as
    /// the same: then start times decide.
    pub fn is_same_boot(&self, system: &dyn System) -> bool {
        self.header.as_ref().is_some_and(|header| same_boot(header, system))
    }
}

fn same_boot(header: &Header, system: &dyn System) -> bool {
    same_boot_id(header, system) && !has_other_pids(header, system)
}

fn has_other_pids(header: &Header, system: &dyn System) -> bool {
    header.location.as_ref().is_some_and(|location| !system.has_pids_of(location))
}

fn same_boot_id(header: &Header, system: &dyn System) -> bool {
    match (&header.boot_id, system.boot_id()) {
        (Some(then), Some(now)) => *then == now,
        _ => true,
    }
}

/// The service that an action is about.
pub fn served(action: &Action) -> Option<&Served> {
    match action {
        Action::WriteFile(write) => Some(&write.served),
        Action::WriteValue(write) => Some(&write.served),
        Action::Activate(activate) => Some(&activate.served),
        Action::Launch(_) | Action::BootHook(_) => None,
    }
}

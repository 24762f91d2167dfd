//! Reading where this process is, what else there is on the machine, and where journals belong.

use crate::change::action::Action;
use crate::change::journal::history::{Entry, Header, History, served};
use crate::change::location::location_match::{LocationMatch, MachineView, location_match};
use crate::change::seams::Tools;
use crate::change::seams::session_location::directories;
use crate::os::process::ProcessName;
use crate::os::process_location::{file_id, namespace};
use crate::os::procfs;
use crate::visibility::foreign_namespace::is_where;
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::UserError;
use webdyno_model::service::{Control, FileId};

/// This machine, as far as it may be seen.
struct Machine {
    old: Vec<u32>,
}

impl Machine {
    /// Seen for a session that began at this time, whose services have these processes.
    fn since(agent: ProcessName, services: &[ProcessName]) -> Self {
        let is_old = |pid: &u32| {
            let found = ProcessName::of(*pid);
            found.is_some_and(|found| found.start_ticks <= agent.start_ticks || services.contains(&found))
        };
        Self { old: procfs::pids().into_iter().filter(is_old).collect() }
    }
}

impl MachineView for Machine {
    fn old_processes(&self) -> &[u32] {
        &self.old
    }

    fn namespace(&self, pid: u32, name: &str) -> Option<FileId> {
        namespace(pid, name)
    }

    fn directories(&self, pid: u32) -> BTreeMap<String, FileId> {
        directories(Path::new(&format!("/proc/{pid}/root")))
    }

    fn file(&self, path: &str) -> Option<FileId> {
        file_id(path)
    }

    fn has_full_view(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// Where a journal belongs, seen from here. An error when that cannot be reached: nothing of it may be touched.
pub fn of_journal(history: &History, tools: &Tools) -> Result<LocationMatch, UserError> {
    // A simulated system is one place.
    let Some(now) = tools.system.location(tools.state.root(), None) else { return Ok(LocationMatch::Here) };
    let Some(header) = &history.header else { return Ok(LocationMatch::Here) };
    let same_boot = history.is_same_boot_of_machine(tools.system.as_ref());
    let Some(then) = &header.location else {
        return match same_boot {
            true => of_old_journal(history, tools).map(|()| LocationMatch::Here),
            false => Ok(LocationMatch::Here),
        };
    };
    let services: Vec<ProcessName> = history.controls.values().map(ProcessName::from).collect();
    let sight = Machine::since(header.agent, &services);
    match location_match(then, &now, same_boot, &folders(history), &sight) {
        LocationMatch::Unreachable(what) => Err(unreachable(header, what, &then.command())),
        LocationMatch::There(entrance) if tools.helper.is_none() => Err(unreachable(
            header,
            if entrance.process.is_some() {
                "its files are those of another root"
            } else {
                "its network is another namespace"
            },
            &then.command(),
        )),
        other => Ok(other),
    }
}

fn unreachable(header: &Header, what: &str, hint: &str) -> UserError {
    UserError::cannot_run(format!("the session {} cannot be undone from here: {what}", header.id)).hint(hint)
}

/// The folders that a session wrote to and that are not restored, as they were.
fn folders(history: &History) -> Vec<(String, FileId)> {
    let folder = |entry: &Entry| match &entry.action {
        Action::WriteFile(write) => {
            let path = Path::new(&write.path).parent()?;
            Some((path.display().to_string(), write.folder?))
        }
        _ => None,
    };
    history.outstanding(1).filter_map(folder).collect()
}

/// A journal that does not say where its session was, of before that was kept: it is taken to have been here only when its
/// services are.
fn of_old_journal(history: &History, tools: &Tools) -> Result<(), UserError> {
    let is_here = |control: &Control, name: &str, port: u16| {
        let process = ProcessName::from(control);
        let now = match process.is_alive() {
            true => Some(control.pid),
            // It was started anew: then it is what answers there.
            false => tools.programs.on_port(name, port, control).map(|now| now.pid),
        };
        now.is_some_and(|pid| is_where(pid, control))
    };
    let mut services = history.outstanding(1).filter_map(|entry| served(&entry.action));
    let elsewhere = services.find(|served| {
        let key = (served.service.clone(), served.port);
        let control = history.controls.get(&key).unwrap_or(&served.control);
        !history.is_launched_here(served.port) && !is_here(control, &served.service, served.port)
    });
    match (elsewhere, &history.header) {
        (Some(served), Some(header)) => Err(unreachable(
            header,
            &format!(
                "its journal does not say where its {} ran, and here none answers on port {}",
                served.service, served.port
            ),
            &format!("start {} where it ran, then run `webdyno rollback` there", served.service),
        )),
        _ => Ok(()),
    }
}

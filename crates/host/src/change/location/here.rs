//! Reading where this process is, what else there is on the machine, and where journals belong.

use super::standing::{Sight, Standing, standing};
use super::{Entrance, SessionLocation};
use crate::change::journal::action::Action;
use crate::change::journal::history::{Entry, Header, History, served};
use crate::change::seams::Tools;
use crate::os::control_group::unescape;
use crate::os::process::ProcessName;
use crate::os::process_location::{file_id, namespace, namespaces};
use crate::os::procfs;
use crate::visibility::foreign_namespace::is_where;
use crate::visibility::mount_namespace;
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::UserError;
use webdyno_model::service::{Control, FileId};

/// Process 1 of our pid namespace.
const FIRST: u32 = 1;

impl SessionLocation {
    /// Where this process is.
    pub fn of_this_process(state: &Path, server: Option<&str>) -> Self {
        let (own, first) = (namespaces(std::process::id()), namespaces(FIRST));
        let mounts = procfs::read_text("/proc/self/mountinfo").unwrap_or_default();
        let shared = own.iter().filter(|(name, id)| first.get(*name) == Some(id));
        let mut with_first_process: std::collections::BTreeSet<String> =
            shared.map(|(name, _)| name.clone()).collect();
        let root = file_id("/");
        if root.is_some() && root == file_id("/proc/1/root/") {
            with_first_process.insert("root".into());
        }
        // It may not be there yet.
        let device_of_state = state.ancestors().find_map(file_id).map(|found| found.device);
        let is_in_root = device_of_state.is_some() && device_of_state == root.map(|root| root.device);
        Self {
            directories: directories(Path::new("/")),
            first_process: procfs::stat(FIRST).ok().map(|stat| stat.start_ticks),
            with_first_process,
            network_file: own.get("net").and_then(|id| mounted(&mounts, "net", *id)),
            state: state.display().to_string(),
            root_of_journal: is_in_root.then(|| mounted_part(&mounts)).flatten(),
            server: server.map(str::to_owned),
            namespaces: own,
        }
    }
}

impl SessionLocation {
    /// Whether its process ids mean the same here: its pid namespace is ours, with the same process 1.
    pub fn has_our_pids(&self) -> bool {
        let first = || procfs::stat(FIRST).ok().map(|stat| stat.start_ticks);
        let own = namespace(std::process::id(), "pid");
        self.namespaces.get("pid").zip(own.as_ref()).is_none_or(|(then, now)| then == now)
            && self.first_process.is_none_or(|then| first() == Some(then))
    }
}

/// The directories that tell one root from another, below a root.
fn directories(root: &Path) -> BTreeMap<String, FileId> {
    let id = |path: &str| Some((path.to_owned(), file_id(mount_namespace::in_root(root, Path::new(path)))?));
    mount_namespace::TELLING.into_iter().filter_map(id).collect()
}

/// Where a namespace is mounted: lines of proc_pid_mountinfo(5) of the type nsfs, whose root is `net:[4026532281]`.
fn mounted(mounts: &str, name: &str, id: FileId) -> Option<String> {
    let root = format!("{name}:[{}]", id.inode);
    let path = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let is_it = fields.next() == Some(root.as_str()) && line.contains(" - nsfs ");
        fields.next().filter(|_| is_it).map(unescape)
    };
    // Each directory that is mounted in two places shows it twice: the usual name first.
    let mut all: Vec<String> = mounts.lines().filter_map(path).collect();
    all.sort_by_key(|path| (!path.starts_with("/run/netns/"), path.len()));
    all.into_iter().next()
}

/// Which part of its file system is mounted as `/`, by the last such line of proc_pid_mountinfo(5), which covers others.
fn mounted_part(mounts: &str) -> Option<String> {
    let part = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let root = fields.next()?;
        (fields.next() == Some("/")).then(|| unescape(root))
    };
    mounts.lines().filter_map(part).next_back()
}

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

impl Sight for Machine {
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

    fn sees_all(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// Where a journal belongs, seen from here. An error when that cannot be reached: nothing of it may be touched.
pub fn of_journal(history: &History, tools: &Tools) -> Result<Standing, UserError> {
    // A pretended world is one place.
    let Some(now) = tools.world.location(tools.state.root(), None) else { return Ok(Standing::Here) };
    let Some(header) = &history.header else { return Ok(Standing::Here) };
    let same_boot = history.is_same_boot_of_machine(tools.world.as_ref());
    let Some(then) = &header.location else {
        return match same_boot {
            true => of_old_journal(history, tools).map(|()| Standing::Here),
            false => Ok(Standing::Here),
        };
    };
    let services: Vec<ProcessName> = history.controls.values().map(ProcessName::from).collect();
    let sight = Machine::since(header.agent, &services);
    match standing(then, &now, same_boot, &folders(history), &sight) {
        Standing::Unreachable(what) => Err(unreachable(header, what, &then.command())),
        Standing::There(entrance) if tools.helper.is_none() => Err(unreachable(
            header,
            if entrance.process.is_some() {
                "its files are those of another root"
            } else {
                "its network is another namespace"
            },
            &then.command(),
        )),
        standing => Ok(standing),
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
            false => tools.programs.on_port(name, port).map(|now| now.pid),
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

impl Entrance {
    /// Whether its parts still are what they were when it was found.
    pub fn is_still_there(&self) -> bool {
        let process = self.process.is_none_or(|(pid, id)| namespace(pid, "pid") == Some(id));
        process && self.network.as_ref().is_none_or(|(path, id)| file_id(path) == Some(*id))
    }
}

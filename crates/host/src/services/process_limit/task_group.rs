//! How many processes and threads a running service's control group may have: read, and replaced while it runs. That of a unit
//! is kept by what is added to the unit, which systemd gives the group when it is reloaded.
//!
//! Facts: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/pids.rst (`pids.max`: a limit below what there is ends nobody,
//! and lets nobody be started); systemd.resource-control(5) for `TasksMax`.

use super::kept::{Keeper, keeper};
use super::{LimitDisplay, Obstacle, descendants, of_container, plan, wanted};
use crate::os::control_group::{self, Controller, Group};
use crate::os::procfs;
use crate::services::common::kept_values::check_name;
use crate::services::common::unit;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use webdyno_model::change::{RenderedPlan, SettingChange};
use webdyno_model::service::ServiceSnapshot;

/// The name of the holder in journals.
pub const NAME: &str = "task_group";

/// The setting, as systemd names it.
pub const SETTING: &str = "TasksMax";

/// Where the kernel shows it.
const FILE: &str = "pids.max";

/// What it shows where there is no limit.
const NO_LIMIT: &str = "max";

/// The control group of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGroup {
    /// Its directory.
    pub directory: PathBuf,
    /// What tells a person how the value is made to last; empty where a file keeps it.
    pub to_keep: String,
}

impl TaskGroup {
    /// Where the limit is.
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// The limit; `None` when the group is gone.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        check_name(name, SETTING, "nothing that a control group has")?;
        match procfs::read_text(self.file()) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the limit.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        check_name(name, SETTING, "nothing that a control group has")?;
        if value != NO_LIMIT && value.parse::<u64>().is_err() {
            return Err(io::Error::other(format!("`{value}` is no limit")));
        }
        // Never a new file, should the group be gone.
        std::fs::OpenOptions::new()
            .write(true)
            .open(self.file())
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
    }
}

/// The limit of a group; `None` where it has none.
fn limit_of(directory: &Path) -> Option<u64> {
    procfs::read_text(directory.join(FILE)).ok()?.trim().parse().ok()
}

/// The group that bounds a service: its own and nobody else's, and the first limit on its way up.
fn own_group(service: &ServiceSnapshot, wanted: u64) -> std::result::Result<(Group, u64), Obstacle> {
    let name = &service.service;
    let unseen = |_| (format!("the control group of {name} cannot be seen"), None);
    let groups = control_group::of(service.pid).map_err(unseen)?;
    let found = groups.of_controller(Controller::Pids);
    let group =
        found.cloned().ok_or_else(|| (format!("the control group of {name} cannot be seen"), None))?;
    let shown = |directory: &Path| directory.join(FILE).display().to_string();
    let by_hand =
        |directory: &Path| Some(format!("where that is meant: echo {wanted} > {}", shown(directory)));
    let limited = |directory: &&Path| limit_of(directory).is_some_and(|limit| limit < wanted);
    if let Some(above) = group.levels().filter(limited).find(|level| *level != group.directory) {
        let why = format!(
            "{} limits more than {name}: it is what the machine or the container grants",
            shown(above)
        );
        return Err((why, by_hand(above)));
    }
    let Some(now) = limit_of(&group.directory) else {
        return Err((format!("the control group of {name} has no limit of tasks"), None));
    };
    if group.is_root() {
        let why = format!(
            "{} is what this container may have: it is set where the container is started",
            shown(&group.directory)
        );
        return Err((why, Some(format!("for Docker: docker update --pids-limit {wanted} CONTAINER"))));
    }
    let family = [descendants(service.pid), vec![service.pid]].concat();
    let members = procfs::read_text(group.directory.join("cgroup.procs")).map_err(unseen)?;
    let is_other = |pid: &u32| !family.contains(pid) && Path::new(&format!("/proc/{pid}")).exists();
    if members.lines().filter_map(|line| line.parse().ok()).any(|pid| is_other(&pid)) {
        let why = format!("{} limits others beside {name}", shown(&group.directory));
        return Err((why, by_hand(&group.directory)));
    }
    Ok((group, now))
}

/// The plan of a change, with the group that it is for.
pub(super) fn planned(
    service: &ServiceSnapshot,
    change: &SettingChange,
) -> std::result::Result<(RenderedPlan, TaskGroup), Obstacle> {
    let name = &service.service;
    of_container(service).map_or(Ok(()), Err)?;
    let most = procfs::read_text("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let wanted = wanted(SETTING, &change.to, most.unwrap_or(u64::MAX))?;
    let (group, now) = own_group(service, wanted)?;
    if now >= wanted {
        return Err((format!("{name} may have {now} tasks already"), None));
    }
    let mut holder = TaskGroup { directory: group.directory, to_keep: String::new() };
    let path = holder.file();
    access(&path, Access::WRITE_OK).map_err(|error| {
        let why = format!("{} may not be written: {}", path.display(), io::Error::from(error));
        (why, Some(format!("as root of the machine: echo {wanted} > {}", path.display())))
    })?;
    let unit = unit::unit(service.pid);
    let keeper = match &unit {
        None => Keeper::Person("set it where that is made".into()),
        unit => keeper(service, unit.as_deref(), SETTING, &change.to.to_string(), 0),
    };
    if let Keeper::Person(by_hand) = &keeper {
        let group = holder.directory.display();
        holder.to_keep = format!(
            "{SETTING} {wanted} lasts until the control group {group} is made anew; to keep it: {by_hand}"
        );
    }
    let line = |value: u64| value.to_string();
    let shown = LimitDisplay { path, from: now, line: &line };
    let plan = plan(change, &shown, &keeper, |_, value| value.to_owned())?;
    Ok((plan, holder))
}

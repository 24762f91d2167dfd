//! The processors and the memory that a running service may use: read, and replaced while it runs. They are set for a while, to
//! see what a server does with less or more, and given back: nothing keeps them, and no remedy asks for them.
//!
//! Where a service is in a control group of its own, its values are those of the group. Where it shares its group with others,
//! processors are what its threads may use ([`processors`]), and memory is that of a group of ours, into which its processes are
//! moved ([`memory`]).
//!
//! Facts: systemd.resource-control(5) for `AllowedCPUs` and `MemoryMax`; cgroups(7).

pub mod memory;
pub mod processors;
#[cfg(test)]
mod tests;

use crate::os::control_group::{self, Controller, Group};
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::visibility::listeners::NO_PID;
use memory::MemoryLimit;
use processors::AllowedProcessors;
use std::io;
use std::path::Path;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, Change, Obstacle, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingInForce, SettingValue};

/// What a group without a limit has, in the word of version 2.
const NO_LIMIT: &str = "max";

/// What tells a person how a value is made to last.
pub const TO_KEEP: &str = "processors and memory of a service last until its control group or its process ends; to keep them: \
                           `systemctl set-property UNIT AllowedCPUs=0-1 MemoryMax=2G`, or what started the container";

/// Whether a setting is one of these, by its name.
pub fn has(name: &str) -> bool {
    [processors::SETTING, memory::SETTING].contains(&name)
}

/// What holds a value.
#[derive(Debug, Clone)]
pub enum Controlled {
    /// Processors.
    Processors(AllowedProcessors),
    /// Memory.
    Memory(MemoryLimit),
}

/// A value that is to be replaced.
struct Planned {
    holder: Controlled,
    /// Where it is shown.
    file: String,
    from: String,
    to: String,
    /// What a person should know of it.
    remark: Option<String>,
}

/// Renders changes of these settings of a service, with what holds them. Values that are in force already are left out.
/// Writes nothing.
pub fn prepare(
    service: &ServiceSnapshot,
    changes: &[SettingChange],
) -> Result<(Preparation, Vec<Controlled>)> {
    let (mut plan, mut holders) = (RenderedPlan::live(vec![], String::new()), vec![]);
    for change in changes {
        let planned = match planned(service, change) {
            Ok(planned) => planned,
            Err(obstacle) => return Ok((obstacle.into(), vec![])),
        };
        if planned.from != planned.to {
            add(&mut plan, change, &planned);
        }
        holders.push(planned.holder);
    }
    Ok((Preparation::Plan(Box::new(plan)), holders))
}

fn planned(service: &ServiceSnapshot, change: &SettingChange) -> std::result::Result<Planned, Obstacle> {
    match change.setting.name.as_str() {
        processors::SETTING => processors::planned(service, &change.to),
        memory::SETTING => memory::planned(service, &change.to),
        _ => {
            let why = format!("{} is changed by itself", change.setting.full_name());
            Err((why, None))
        }
    }
}

fn add(plan: &mut RenderedPlan, change: &SettingChange, planned: &Planned) {
    let Planned { file, from, to, remark, .. } = planned;
    let planned = change.planned(Some(SettingValue::Text(from.clone())), file, ApplyClass::Live);
    plan.changes.push(Change { to: SettingValue::Text(to.clone()), ..planned });
    plan.diff.push_str(&format!("--- {file}\n+++ {file}\n@@ -1 +1 @@\n-{from}\n+{to}\n"));
    plan.diff.extend(remark.iter().map(|remark| format!("# {remark}\n")));
}

/// Adds these settings to what is known of a service: as `running` how many processors and how much memory it may use now,
/// as `default` the most that it can be given. What cannot be seen is left out.
pub fn note(service: &mut ServiceSnapshot) {
    if service.pid == NO_PID {
        return;
    }
    let seen =
        [(processors::SETTING, processors::in_force(service)), (memory::SETTING, memory::in_force(service))];
    for (name, seen) in seen {
        let Some((now, most)) = seen else { continue };
        let (running, default) = (Some(now), Some(integer(most)));
        let in_force = SettingInForce { running, default, ..SettingInForce::default() };
        service.settings.insert(name.to_owned(), in_force);
    }
}

fn integer(value: u64) -> SettingValue {
    SettingValue::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// The group of a service in the hierarchy of a controller, and whether nobody else is in it.
fn group(service: &ServiceSnapshot, controller: Controller) -> std::result::Result<(Group, bool), Obstacle> {
    let unseen = || (format!("the control group of {} cannot be seen", service.service), None);
    let groups = control_group::of(service.pid).map_err(|_| unseen())?;
    let group = groups.of_controller(controller).cloned().ok_or_else(unseen)?;
    let family = procfs::tree_of(service.pid);
    let is_other = |pid: &u32| !family.contains(pid) && Path::new(&format!("/proc/{pid}")).exists();
    let is_own = !group.is_root() && !control_group::all_members(&group.directory).iter().any(is_other);
    Ok((group, is_own))
}

/// The main process of a service.
fn main_process(service: &ServiceSnapshot) -> std::result::Result<ProcessName, Obstacle> {
    let gone = || (format!("{} (process {}) has ended", service.service, service.pid), None);
    ProcessName::of(service.pid).ok_or_else(gone)
}

/// Why a file may not be written; `None` where it may.
fn not_writable(path: &Path) -> Option<Obstacle> {
    let error = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).err()?;
    let why = format!("{} may not be written: {}", path.display(), io::Error::from(error));
    Some((why, Some("run the agent as root of the machine (--sudo)".into())))
}

/// Replaces what an existing file of the kernel holds: never a new file, should the group be gone.
fn write_to(path: &Path, value: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, value.as_bytes())
}

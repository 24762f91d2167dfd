//! Who prepares a change, by its target: the service under load, the kernel that it runs on, or nobody.

use crate::change::seams::services::Programs;
use crate::discovery::unprivileged;
use crate::services::{self, UNKNOWN, sysctl};
use crate::visibility::{foreign_namespace, listeners};
use webdyno_model::change::{Preparation, SettingChange};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::setting::Target;
use webdyno_model::{Result, UserError};

/// Lets the target of these changes render them. `front` is the service under load, private when this session started it.
pub fn prepare(
    programs: &dyn Programs,
    (front, is_private): (&ServiceSnapshot, bool),
    changes: &[SettingChange],
) -> Result<Preparation> {
    if front.pid == listeners::NO_PID {
        return Err(unprivileged::refusal(front));
    }
    if let Some(error) = foreign_namespace::refusal(front) {
        return Err(error);
    }
    let Some(first) = changes.first() else { return Err(UserError::usage("no setting is to be changed")) };
    if let Some(other) = changes.iter().find(|other| other.setting.target != first.setting.target) {
        let why = format!(
            "{} and {} cannot be changed in one step",
            first.setting.full_name(),
            other.setting.full_name()
        );
        return Ok(Preparation::not_preparable(why));
    }
    match &first.setting.target {
        Target::Service(name) => of_service(programs, front, name, changes),
        Target::Sysctl if is_private => Ok(Preparation::not_preparable(
            "the server was started for this session, and the kernel's settings are not",
        )),
        Target::Sysctl => sysctl::prepare(changes),
        Target::ProcessLimit(of) => Ok(Preparation::not_preparable(format!(
            "{} of {of} is granted by what starts it, which webdyno does not change",
            first.setting.name
        ))),
        Target::Hardware | Target::Application | Target::Generator | Target::External(_) => Ok(
            Preparation::not_preparable(format!("webdyno does not change the {}", first.setting.full_name())),
        ),
    }
}

fn of_service(
    programs: &dyn Programs,
    front: &ServiceSnapshot,
    name: &str,
    changes: &[SettingChange],
) -> Result<Preparation> {
    if name != front.service {
        // A backend: its program is known, and none of these can be changed yet.
        return Ok(services::only_observed(name));
    }
    if name == UNKNOWN {
        let program = front.executable.as_deref().unwrap_or(name);
        let why = format!("webdyno cannot change the settings of {program} on port {}", front.port);
        return Ok(Preparation::not_preparable(why));
    }
    match programs.tunable(name) {
        Some(service) => service.prepare(front, changes),
        None => Ok(services::only_observed(name)),
    }
}

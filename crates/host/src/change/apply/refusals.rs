//! What is refused before anything is touched: files that something else manages, changes that take more than was allowed,
//! and services of which it is not known how they were started.

use crate::change::action::Served;
use webdyno_model::change::{ApplyClass, ManagedFile, RenderedPlan};
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};

/// Why nothing behind a server of our own is changed.
pub(super) const OF_OTHERS: &str = "what others use as well is not changed for a server of our own";

/// An error where a plan writes what something else manages, or takes more than the operator has allowed.
pub(super) fn check_class(plan: &RenderedPlan, allow_restart: bool) -> Result<()> {
    if let Some(ManagedFile { path, by, why }) = plan.managed.first() {
        return Err(UserError::cannot_run(format!("{path} is managed by {by}, and is not written: {why}"))
            .hint(format!(
                "make the change in {by}; `webdyno tune --export DIR` writes the files and the diff"
            )));
    }
    if let Some(why) = plan.to_decide.first() {
        return Err(UserError::cannot_run(format!("the change is for a person to decide: {why}"))
            .hint("`webdyno tune --export DIR` writes the files and the diff"));
    }
    let class = plan.changes.iter().map(|change| change.class).fold(plan.class, ApplyClass::max);
    let settings =
        || plan.changes.iter().map(|change| change.setting.name.as_str()).collect::<Vec<_>>().join(", ");
    match class {
        ApplyClass::Live | ApplyClass::Reload => Ok(()),
        ApplyClass::Restart if allow_restart => Ok(()),
        ApplyClass::Restart => Err(UserError::cannot_run(format!("changing {} needs a restart", settings()))
            .hint("allow the downtime with --allow-restart")),
        ApplyClass::Manual => {
            Err(UserError::cannot_run(format!("{} can only be changed by hand", settings()))
                .hint("see the plan for how"))
        }
    }
}

/// The service that a plan is for, and how it is controlled.
pub(super) fn served_by(plan: &RenderedPlan, snapshot: &ServiceSnapshot) -> Result<Served> {
    if let Some(other) = plan.changes.iter().find(|change| change.setting.target.name() != snapshot.service) {
        return Err(UserError::cannot_run(format!(
            "the plan changes {}, and port {} is served by {}",
            other.setting.target.name(),
            snapshot.port,
            snapshot.service
        )));
    }
    let control = snapshot.control.clone().ok_or_else(|| {
        UserError::cannot_run(format!("it is not known how {} was started", snapshot.service))
            .hint("run it as the user that started it, or with sudo")
    })?;
    Ok(Served { service: snapshot.service.clone(), port: snapshot.port, control })
}

//! Starts a service again after its main process ended: by its unit, by what looks after it, or by its command line in the
//! place where it ran. And finds the workers that outlived their main process, and the process that took its place.

use super::unit::unit_command;
use crate::os::process::ProcessName;
use crate::os::program::{self, Invocation};
use crate::os::{self, process_location, procfs, timeouts};
use crate::visibility::foreign_namespace;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// Starts it, with `launch` where nobody else does. Does not wait until it answers. An error when it still runs.
pub fn begin(control: &Control, launch: impl FnOnce() -> Result<()>) -> Result<()> {
    if ProcessName::from(control).is_alive() {
        let why = format!("process {} still runs, so it is not started again", control.pid);
        return Err(UserError::cannot_run(why));
    }
    match &control.unit {
        Some(unit) => unit_command(&["start", unit]),
        // What looks after it starts it again.
        None if control.supervised => Ok(()),
        None => launch(),
    }
}

/// Runs a command line where the service ran, with the limits that it had; `prepare` comes before, once that place is held.
pub fn launch(
    control: &Control,
    service: &str,
    invocation: &Invocation<'_>,
    prepare: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let place = process_location::hold(control).map_err(|error| {
        UserError::cannot_run(format!("{service} cannot be started where it ran: {error}"))
            .hint("start it there yourself, then run `webdyno rollback`")
    })?;
    prepare()?;
    let started = os::program::run_in(invocation, control.inherited.as_ref(), &place, timeouts::START)?;
    if started.success {
        return Ok(());
    }
    Err(UserError::cannot_run(format!("{service} does not start: {}", program::summary(&started.stderr)))
        .hint(format!("test its configuration by hand: {} -t", control.executable)))
}

/// What a service that did not come back is told as.
pub fn does_not_run(service: &str) -> UserError {
    let seconds = timeouts::START.as_secs();
    UserError::cannot_run(format!("{service} does not run {seconds} s after its start"))
        .hint("its error log says why")
}

/// The name of a process if it is a worker of a main process that is gone: the same program, in the group that its
/// parent led when it made itself a daemon, and the parent is another one now.
pub fn orphan(control: &Control, pid: u32) -> Option<ProcessName> {
    let stat = procfs::stat(pid).ok().filter(|stat| !stat.has_ended())?;
    let is_left = pid != control.pid && stat.group == control.pid && stat.start_ticks >= control.start_ticks;
    (is_left && runs(pid, &control.executable)).then_some(ProcessName { pid, start_ticks: stat.start_ticks })
}

/// Whether a process runs this file, replaced or not.
pub fn runs(pid: u32, executable: &str) -> bool {
    procfs::executable(pid).is_ok_and(|(path, _)| path == executable)
}

/// The main process that took the place of another one: the same program in the same place, and what `is_it` says.
pub fn find_again(before: &Control, is_it: impl Fn(u32) -> bool) -> Option<Control> {
    let is_same = |pid: &u32| {
        is_it(*pid) && runs(*pid, &before.executable) && foreign_namespace::is_where(*pid, before)
    };
    let pid = procfs::pids().into_iter().find(is_same)?;
    let stat = procfs::stat(pid).ok()?;
    Some(Control { pid, start_ticks: stat.start_ticks, ..before.clone() })
}

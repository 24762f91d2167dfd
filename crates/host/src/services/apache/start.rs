//! Starts an Apache again as it was started before, and finds its new main process.

use super::config::Evaluation;
use super::control::{Apache, Options, stderr_summary};
use super::environment;
use super::status::near;
use crate::os::process::{ProcessName, wait_polling};
use crate::os::process_location::{self, HeldLocation};
use crate::os::program::Invocation;
use crate::os::spawn::spawn_in;
use crate::os::{self, procfs, timeouts};
use crate::services::Activation;
use crate::services::common::probe::answers;
use crate::services::common::starting::{orphan, runs};
use crate::services::common::taking_effect::PAUSE;
use crate::services::common::unit::unit_command;
use crate::visibility::foreign_namespace;
use crate::visibility::listeners::listens;
use rustix::process::Signal;
use std::process::Stdio;
use webdyno_model::error::io_error;
use webdyno_model::service::{Control, Inherited};
use webdyno_model::{Result, UserError};

/// Starts a service whose main process is gone, and waits until it answers.
///
/// Workers that outlived a killed parent still hold the port: they are ended first. An error when the process lives
/// still, when the program refuses to start (with its own words), or when nothing answers in time.
pub fn start(control: &Control, port: u16) -> Result<Activation> {
    if ProcessName::from(control).is_alive() {
        return Err(UserError::cannot_run(format!(
            "process {} still runs, so it is not started again",
            control.pid
        )));
    }
    let place = place_of(control)?;
    let apache = Apache::of_control(control.clone())?;
    let mut launched = control.clone();
    if control.unit.is_none() {
        if let Some(variables) = environment::of_ended(control) {
            // It does not run: better that it is started without a helper than not at all.
            let _ = environment::hold(control, &variables);
            launched.environment = variables;
        }
        end_orphans(control)?;
    }
    launch(&launched, &place)?;
    let control = found(control, &apache.evaluation, port)?;
    Ok(Activation { control, outage_us: None, unsettled: None })
}

/// Holds what a service runs in, so that it can be started there again; an error when it cannot be, and must not be
/// stopped.
pub fn place_of(control: &Control) -> Result<HeldLocation> {
    if control.unit.is_some() {
        return Ok(HeldLocation::default());
    }
    process_location::hold(control).map_err(|error| {
        UserError::cannot_run(format!("apache cannot be started where it ran: {error}"))
            .hint("start it there yourself (its container, its supervisor), then run `webdyno rollback`")
    })
}

/// Ends the workers of a main process that is gone, and waits until nothing is in the way of a start.
fn end_orphans(control: &Control) -> Result<()> {
    let mut in_the_way = None;
    wait_polling(PAUSE * 5, timeouts::ORPHANS, || {
        let left: Vec<ProcessName> =
            procfs::pids().into_iter().filter_map(|pid| orphan(control, pid)).collect();
        in_the_way = left.first().map(|worker| worker.pid).or_else(|| zombie(control));
        for worker in left {
            // It may have ended by itself.
            let _ = worker.signal(Signal::TERM);
        }
        in_the_way.is_none()
    });
    let Some(first) = in_the_way else { return Ok(()) };
    let of = control.pid;
    Err(UserError::cannot_run(format!("process {first}, left by apache {of}, does not go away"))
        .hint(format!("look at it with: ps -fp {first}; apache does not start while its pid file names it")))
}

/// The old main process when it ended, nobody has waited for it yet, and its pid file still names it: Apache takes it
/// for a server that runs, and starts no other. Process 1 takes such processes away, in a while.
fn zombie(control: &Control) -> Option<u32> {
    (ProcessName::from(control).exists() && named(control) == Some(control.pid)).then_some(control.pid)
}

/// The process that the pid file names.
fn named(control: &Control) -> Option<u32> {
    std::fs::read_to_string(control.pid_file.as_ref()?).ok()?.trim().parse().ok()
}

/// Runs the command that starts the service. Does not wait until it answers.
pub fn launch(control: &Control, place: &HeldLocation) -> Result<()> {
    if let Some(unit) = &control.unit {
        return unit_command(&["start", unit]);
    }
    let invocation = Invocation::of(control, start_arguments(&control.arguments));
    let inherited = control.inherited.as_ref();
    if Options::parse(&control.arguments).foreground {
        return detached(&invocation, inherited, place);
    }
    let started = os::program::run_in(&invocation, inherited, place, timeouts::START)?;
    // Its exit code is 0 as well when it found another server and started none.
    if started.success && !started.stdout.contains("already running") {
        return Ok(());
    }
    Err(UserError::cannot_run(format!(
        "apache does not start: {}",
        stderr_summary(&format!("{}\n{}", started.stderr, started.stdout))
    ))
    .hint(format!("test its configuration by hand: {} -t", control.executable)))
}

/// The arguments of a start, without the program's name: whatever `-k` said last time, now it is a start.
fn start_arguments(arguments: &[String]) -> Vec<String> {
    let mut start = Vec::with_capacity(arguments.len());
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        if !argument.starts_with("-k") {
            start.push(argument.clone());
            continue;
        }
        if argument == "-k" {
            rest.next();
        }
        start.extend(["-k".to_owned(), "start".to_owned()]);
    }
    start
}

/// Starts a program that stays in the foreground, in a process group of its own so that our Ctrl-C is not its end.
fn detached(invocation: &Invocation<'_>, inherited: Option<&Inherited>, place: &HeldLocation) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = os::program::command(invocation);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    spawn_in(&mut command, inherited, place)
        .map_err(|error| io_error("start", invocation.executable, &error))?;
    Ok(())
}

/// Waits until the port answers and the main process is known; gives the control of what runs now.
pub fn found(old: &Control, evaluation: &Evaluation, port: u16) -> Result<Control> {
    let near = near(evaluation, port);
    let mut control = None;
    wait_polling(PAUSE, timeouts::START, || {
        control = main_process(old, port).filter(|_| answers(&near));
        control.is_some()
    });
    let control = control.ok_or_else(|| {
        UserError::cannot_run(format!(
            "apache was started and port {port} does not answer after {} s",
            timeouts::START.as_secs()
        ))
        .hint("its error log says why")
    })?;
    if control.unit.is_none() {
        environment::pass_on(old, &control);
    }
    Ok(control)
}

/// The process that took the place of an old one: by pid file, else by executable and arguments. It must listen on the
/// port where the old one did: a machine may have several of one command line, each in a container, in a network of its
/// own, or under an /etc of its own.
fn main_process(old: &Control, port: u16) -> Option<Control> {
    let candidates = named(old).into_iter().chain(procfs::pids());
    candidates
        .filter_map(|pid| successor(old, pid))
        .find(|found| listens(found.pid, port) && foreign_namespace::is_where(found.pid, old))
}

/// The control of a process if it is such a successor and not a child of one.
fn successor(old: &Control, pid: u32) -> Option<Control> {
    let stat = procfs::stat(pid).ok().filter(|stat| !stat.has_ended())?;
    // Also its workers that are still ending.
    let is_old = (pid, stat.start_ticks) == (old.pid, old.start_ticks) || orphan(old, pid).is_some();
    if is_old || !runs(pid, &old.executable) || runs(stat.ppid, &old.executable) {
        return None;
    }
    let arguments = procfs::arguments(pid).ok()?;
    let (now, before) = (Options::parse(&arguments), Options::parse(&old.arguments));
    (now == before).then(|| Control { pid, start_ticks: stat.start_ticks, arguments, ..old.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_start_however_the_server_was_started() {
        let line = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        for (before, expected) in [
            ("apache2 -k start", "-k start"),
            ("httpd -d /x -k graceful -f /y", "-d /x -k start -f /y"),
            ("httpd -krestart", "-k start"),
            ("httpd -f /y", "-f /y"),
            ("httpd", ""),
        ] {
            assert_eq!(start_arguments(&line(before)), line(expected), "{before}");
        }
    }

    #[test]
    fn a_process_that_lives_is_not_started_again() {
        let pid = std::process::id();
        let control = Control {
            pid,
            start_ticks: procfs::stat(pid).unwrap().start_ticks,
            executable: "/usr/sbin/apache2".into(),
            arguments: vec!["apache2".into()],
            directory: "/".into(),
            ..Control::default()
        };
        let error = start(&control, 80).unwrap_err();
        assert!(error.message.contains("still runs"), "{error}");
        assert_eq!(main_process(&control, 80), None);
    }
}

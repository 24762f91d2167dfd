//! The environment with which an Apache without a unit is started again: all that its main process had. It may hold secrets, so
//! that no journal has it: this process remembers it and, while nothing runs that has it, a helper holds it in memory, which lives on
//! should we be killed.
//!
//! Facts: proc_pid_environ(5); memfd_create(2) (such a file is in memory only, and goes with its last descriptor); proc_pid_fd(5).

use crate::os::process::ProcessName;
use crate::os::{procfs, spawn};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, WaitOptions, geteuid, waitpid};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

type Variables = BTreeMap<String, String>;

/// How long a helper waits for a rollback, where we were killed, in seconds.
const HELD_MAX_S: u32 = 3600;

/// What is remembered of main processes, by pid and start time.
static KNOWN: Mutex<BTreeMap<(u32, u64), Variables>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<(u32, u64), Variables>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers the environment of a main process, and gives it. An error when it cannot be read, or the process has ended.
pub fn remember(control: &Control) -> Result<Variables> {
    let found = procfs::environment(control.pid)?;
    // That of a process that has ended reads as empty.
    if !ProcessName::from(control).is_alive() {
        let why = format!("apache (process {}) does not run any more", control.pid);
        return Err(
            UserError::cannot_run(why).hint("run the command again: webdyno looks for the server anew")
        );
    }
    known().insert((control.pid, control.start_ticks), found.clone());
    Ok(found)
}

/// Has a helper hold the environment of a main process that is about to end, where the journal does not have all of it.
pub fn hold(control: &Control, variables: &Variables) -> Result<()> {
    if *variables == control.environment || helper(control).is_some() {
        return Ok(());
    }
    start_helper(control, variables).map_err(|error| {
        io_error("hold the environment of process", control.pid, &error).hint(
            "restart it yourself: without that its variables would be lost if webdyno were killed meanwhile",
        )
    })
}

fn start_helper(control: &Control, variables: &Variables) -> io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create(name(control), MemfdFlags::CLOEXEC)?);
    for (name, value) in variables {
        write!(file, "{name}={value}\0")?;
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("trap '' TERM HUP INT; exec sleep {HELD_MAX_S}")]);
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(file).stdout(Stdio::null()).stderr(Stdio::null());
    // Whoever ends us with our group shall not end it.
    command.process_group(0);
    spawn::spawn(&mut command, None).map(drop)
}

fn name(control: &Control) -> String {
    format!("webdyno-environment-{}-{}", control.pid, control.start_ticks)
}

/// The helper for a main process, with what it holds.
fn helper(control: &Control) -> Option<(ProcessName, File)> {
    let link = format!("/memfd:{} (deleted)", name(control));
    let of = |pid: u32| {
        let path = format!("/proc/{pid}/fd/0");
        let file = std::fs::read_link(&path).is_ok_and(|target| target == Path::new(&link));
        let file = file.then(|| File::open(&path).ok())??;
        // Anybody can make a file of that name, and would choose how we start a program.
        let is_ours = file.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw());
        Some((ProcessName::of(pid).filter(|_| is_ours)?, file))
    };
    procfs::pids().into_iter().find_map(of)
}

/// The environment of a main process that has ended; `None` where nobody knows it any more.
pub fn of_ended(control: &Control) -> Option<Variables> {
    if let Some(known) = known().get(&(control.pid, control.start_ticks)) {
        return Some(known.clone());
    }
    let mut bytes = vec![];
    helper(control)?.1.read_to_end(&mut bytes).ok()?;
    Some(procfs::parse_environment(&bytes))
}

/// Another main process has it now: it is remembered of that, and no helper is needed any more.
pub fn pass_on(before: &Control, now: &Control) {
    // Where it cannot be read what is known of before stays all that is known.
    let _ = remember(now);
    let Some((helper, _)) = helper(before) else { return };
    if helper.signal(Signal::KILL).is_ok_and(|is_sent| is_sent)
        && let Some(pid) = i32::try_from(helper.pid).ok().and_then(Pid::from_raw)
    {
        // It is our child, unless we come after one that was killed.
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::wait_until;
    use std::time::Duration;

    #[test]
    fn an_environment_outlives_who_knew_it() {
        let all: Variables = [("DB_PASSWORD", "s3cret\n=x"), ("LANG", "C"), ("PATH", "/bin:/usr/bin")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let mut server = Command::new("/bin/sleep").arg("60").env_clear().envs(&all).spawn().unwrap();
        let main = ProcessName::of(server.id()).unwrap();
        let control = Control {
            pid: main.pid,
            start_ticks: main.start_ticks,
            executable: "/bin/sleep".into(),
            environment: all.clone(),
            directory: "/".into(),
            ..Control::default()
        };
        // A moment after its start it has none yet.
        assert!(wait_until(Duration::from_secs(10), || procfs::environment(main.pid).unwrap() == all));
        assert_eq!(remember(&control).unwrap(), all);
        hold(&control, &all).unwrap();
        assert!(helper(&control).is_none(), "the journal has all of it");
        let control = Control { environment: Variables::new(), ..control };
        hold(&control, &all).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(remember(&control).is_err());
        assert_eq!(of_ended(&control), Some(all.clone()));
        // As after a kill.
        known().clear();
        assert_eq!(of_ended(&control), Some(all));
        let pid = helper(&control).unwrap().0.pid;
        pass_on(&control, &control);
        assert_eq!((of_ended(&control), procfs::stat(pid).is_ok()), (None, false));
    }
}

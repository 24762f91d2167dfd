//! Lets nginx test its configuration, read it again, and start again; and finds the process that took another's place.
//!
//! Facts: <https://nginx.org/en/docs/control.html>: with HUP the main process reads its configuration and starts new workers
//! with it; the old ones finish their requests. What it cannot use it leaves, with a line in its error log: then no new worker
//! comes. The title of the main process (ngx_setproctitle.c) holds its command line, without quotes.

use super::config;
use crate::os::process::{ProcessName, wait_polling};
use crate::os::program::{self, Invocation};
use crate::os::{procfs, spawn, timeouts};
use crate::services::Activation;
use crate::services::common::pending::Sources;
use crate::services::common::probe::{Probe, answers};
use crate::services::common::starting;
use crate::services::common::taking_effect::{MainProcess, PAUSE};
use crate::services::common::unit::{supervised, unit, unit_command};
use crate::visibility::listeners::listens;
use crate::visibility::process_view::Root;
use rustix::process::Signal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// As people write it.
const SERVICE: &str = "nginx";

/// How the main process calls itself, before its command line.
const MAIN: &str = "nginx: master process ";

/// How a worker calls itself, while it is not shutting down.
const WORKER: &str = "nginx: worker process";

/// The variables of its start that are kept: it hands on no others, but those that `env` names.
const VARIABLES: [&str; 3] = ["PATH", "LANG", "TZ"];

/// The options of a command line that decide what is read.
const OPTIONS: [&str; 4] = ["-c", "-p", "-e", "-g"];

/// How the nginx whose main process is `pid` is controlled; its main file is known.
pub fn control(pid: u32, main_file: &str) -> Result<Control> {
    let stat = procfs::stat(pid).map_err(|error| io_error("look at process", pid, &error))?;
    let (executable, _) = procfs::executable(pid)?;
    let title = procfs::arguments(pid)?.join(" ");
    let Some(line) = title.strip_prefix(MAIN) else {
        return Err(UserError::cannot_run(format!("process {pid} is no main process of nginx"))
            .hint("with `master_process off` nothing could read a configuration again"));
    };
    let mut environment = procfs::environment(pid).unwrap_or_default();
    environment.retain(|name, value| VARIABLES.contains(&name.as_str()) && !value.is_empty());
    let arguments = [vec![executable.clone()], options(line)].concat();
    let config = config::read(&Root::of(pid), main_file);
    let unit = unit(pid);
    Ok(Control {
        pid,
        start_ticks: stat.start_ticks,
        supervised: unit.is_none() && supervised(pid, stat.ppid, stays(&arguments, &config)),
        directory: procfs::directory(pid)?,
        pid_file: config.occurrences("pid").pop().map(|one| one.value),
        executable,
        arguments,
        environment,
        unit,
        inherited: spawn::inherited(pid),
    })
}

/// Whether it stays in the foreground.
fn stays(arguments: &[String], config: &config::Config) -> bool {
    let by_option = arguments.iter().any(|argument| {
        argument.split(';').any(|part| part.split_ascii_whitespace().collect::<Vec<_>>() == ["daemon", "off"])
    });
    by_option || config.occurrences("daemon").iter().any(|one| one.value == "off")
}

/// The options in a title, each with its value: that of `-g` goes up to the next option.
fn options(line: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    let mut is_value = false;
    for word in line.split_ascii_whitespace().skip(1) {
        if OPTIONS.contains(&word) {
            found.push(word.to_owned());
            is_value = false;
        } else if is_value {
            if let Some(last) = found.last_mut() {
                *last = format!("{last} {word}");
            }
        } else if found.len() % 2 == 1 {
            found.push(word.to_owned());
            is_value = true;
        }
    }
    // An option without a value is none.
    found.truncate(found.len() / 2 * 2);
    found
}

/// Lets it test its configuration (`-t`). The error carries its own words.
pub fn validate(control: &Control) -> Result<()> {
    let tested = program::run(&Invocation::with_options(control, &["-t", "-q"]), timeouts::QUERY)?;
    if tested.success {
        return Ok(());
    }
    let said = program::summary(&tested.stderr);
    Err(UserError::cannot_run(format!("nginx rejects its configuration: {said}"))
        .hint(format!("test it by hand: {} -t", control.executable)))
}

/// What it reads when it reloads.
pub fn sources(main_file: &str) -> Sources {
    config::read(&Root::ours(), main_file).sources()
}

/// The workers that take connections.
pub fn workers(main: ProcessName) -> Vec<ProcessName> {
    let is_worker = |child: &ProcessName| {
        let title = procfs::arguments(child.pid).ok().and_then(|all| all.into_iter().next());
        title.is_some_and(|title| title.trim_end() == WORKER)
    };
    main.children().into_iter().filter(is_worker).collect()
}

/// Lets the main process read its configuration again, and waits for workers that have it.
pub fn reload(control: &Control, port: u16) -> Result<Activation> {
    let main = MainProcess::of(SERVICE, control);
    let old = workers(main.name);
    let probe = Probe::start_gently(&near(port));
    match &control.unit {
        Some(unit) => unit_command(&["reload", unit])?,
        None => main.signal(Signal::HUP)?,
    }
    let has_new = || workers(main.name).iter().any(|worker| !old.contains(worker));
    let is_taken = wait_polling(PAUSE, timeouts::CHILDREN, || has_new() || !main.name.is_alive());
    main.alive()?;
    if !is_taken {
        return Err(UserError::cannot_run(format!(
            "nginx (process {}) did not start workers with the configuration",
            main.name.pid
        ))
        .hint("its error log says why; it goes on with the configuration of before"));
    }
    main.watch()?;
    Ok(Activation { control: control.clone(), outage_us: probe.outage_us(), unsettled: None })
}

fn near(port: u16) -> [SocketAddr; 2] {
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].map(|to| SocketAddr::new(to, port))
}

/// Starts it again after its main process ended, and waits until it answers.
pub fn start(control: &Control, port: u16) -> Result<Activation> {
    let own = Invocation::with_options(control, &[]);
    starting::begin(control, || starting::launch(control, SERVICE, &own, || end_orphans(control)))?;
    let mut found = None;
    wait_polling(PAUSE, timeouts::START, || {
        found = find_again(control, port);
        found.is_some() && (answers(&near(port)) || control.supervised)
    });
    let control = found.ok_or_else(|| starting::does_not_run(SERVICE))?;
    Ok(Activation { control, outage_us: None, unsettled: None })
}

/// Ends the workers of a main process that is gone, which still hold its port: they finish their requests first.
fn end_orphans(control: &Control) -> Result<()> {
    let mut left: Vec<ProcessName> = vec![];
    for signal in [Signal::QUIT, Signal::TERM] {
        let is_gone = wait_polling(PAUSE * 5, timeouts::ORPHANS / 2, || {
            left = procfs::pids().into_iter().filter_map(|pid| starting::orphan(control, pid)).collect();
            for worker in &left {
                // It may have ended by itself.
                let _ = worker.signal(signal);
            }
            left.is_empty()
        });
        if is_gone {
            return Ok(());
        }
    }
    let first = left.first().map_or(0, |worker| worker.pid);
    Err(UserError::cannot_run(format!("process {first}, left by nginx {}, does not go away", control.pid))
        .hint(format!("look at it with: ps -fp {first}; its port is taken until it ends")))
}

/// The main process that took the place of another one: the same program with the same options, on the same port.
pub fn find_again(before: &Control, port: u16) -> Option<Control> {
    starting::find_again(before, |pid| {
        let title = procfs::arguments(pid).map(|all| all.join(" ")).unwrap_or_default();
        title.strip_prefix(MAIN).is_some_and(|line| options(line) == before.arguments[1..])
            && listens(pid, port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_title_tells_its_command_line() {
        for (line, expected) in [
            (
                "/usr/sbin/nginx -g daemon on; master_process on;",
                &["-g", "daemon on; master_process on;"][..],
            ),
            (
                "nginx -c /x/n.conf -p /x -g daemon off;",
                &["-c", "/x/n.conf", "-p", "/x", "-g", "daemon off;"],
            ),
            ("nginx -g a; -e stderr", &["-g", "a;", "-e", "stderr"]),
            ("nginx", &[]),
            ("nginx -c", &[]),
        ] {
            assert_eq!(options(line), expected, "{line}");
        }
    }

    #[test]
    fn who_stays_in_the_foreground_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        for (option, text, expected) in [
            ("daemon  off;", "events {}", true),
            ("daemon on; master_process on;", "events {}", false),
            ("user x;", "daemon off; events {}", true),
        ] {
            std::fs::write(&path, text).unwrap();
            let config = config::read(&Root::ours(), &path.to_string_lossy());
            assert_eq!(
                stays(&["nginx".into(), "-g".into(), option.into()], &config),
                expected,
                "{option} {text}"
            );
        }
    }
}

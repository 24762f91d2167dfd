//! Lets PHP-FPM test its configuration, read it again, and start again; and finds the process that took another's place.
//!
//! Facts: sapi/fpm/fpm/fpm_process_ctl.c, fpm_signals.c and fpm_conf.c of PHP 8.2. USR2 makes the main process end its
//! children and execute itself anew, with the listening sockets that it has: who connects meanwhile waits in the sockets'
//! queues. (Its id stays only where it was started in the foreground.) It ends the children with QUIT, which lets the request under way finish, and after
//! `process_control_timeout`, which is 0 by default, with TERM, which does not. So the children are asked to finish before it
//! is told, while the main process is stopped and starts no others: then nobody's request is cut, whatever that setting is.
//! A child's own QUIT is what the main process would have sent.

use super::{MASTER, config, main_file, php, pool_of};
use crate::os::process::{ProcessName, wait_polling};
use crate::os::program::{self, Invocation};
use crate::os::{procfs, spawn, timeouts};
use crate::services::Activation;
use crate::services::common::pending::Sources;
use crate::services::common::starting;
use crate::services::common::taking_effect::{MainProcess, PAUSE};
use crate::services::common::unit::{supervised, unit};
use crate::visibility::process_view::Root;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use webdyno_model::error::io_error;
use webdyno_model::service::Control;
use webdyno_model::{Result, UserError};

/// As people write it.
const SERVICE: &str = "PHP-FPM";

/// The variables of its start that are kept. The title of the main process lies over most of them.
const VARIABLES: [&str; 3] = ["PATH", "LANG", "TZ"];

/// How the FPM whose main process is `pid` is controlled. Its command line is lost; what it reads is in its title.
pub fn control(pid: u32) -> Result<Control> {
    let stat = procfs::stat(pid).map_err(|error| io_error("look at process", pid, &error))?;
    let (executable, _) = procfs::executable(pid)?;
    let file = file_of(pid).ok_or_else(|| {
        UserError::cannot_run(format!("process {pid} does not say which configuration it read"))
    })?;
    let mut environment = procfs::environment(pid).unwrap_or_default();
    environment.retain(|name, value| VARIABLES.contains(&name.as_str()) && !value.is_empty());
    let config = config::read(&Root::of(pid), &file, &php::prefix(Some(&executable)));
    let unit = unit(pid);
    Ok(Control {
        pid,
        start_ticks: stat.start_ticks,
        supervised: unit.is_none() && supervised(pid, stat.ppid, stat.ppid != 1),
        directory: procfs::directory(pid)?,
        pid_file: config
            .global
            .value("pid")
            .map(|path| config::absolute(&php::prefix(Some(&executable)), path)),
        arguments: arguments(&executable, &file, &config),
        executable,
        environment,
        unit,
        inherited: spawn::inherited(pid),
    })
}

/// The configuration in the title of a main process.
fn file_of(pid: u32) -> Option<String> {
    main_file(procfs::arguments(pid).ok()?.first()?).map(str::to_owned)
}

/// A command line that reads the same configuration. Pools of root must be asked for.
fn arguments(executable: &str, file: &str, config: &config::Config) -> Vec<String> {
    let of_root =
        config.pools.iter().any(|pool| pool.value("user").is_some_and(|user| user == "root" || user == "0"));
    let allow = of_root.then(|| "--allow-to-run-as-root".to_owned());
    [executable, "--fpm-config", file].map(str::to_owned).into_iter().chain(allow).collect()
}

/// The configuration that it reads.
fn file(control: &Control) -> &str {
    control.arguments.get(2).map_or("", String::as_str)
}

/// Lets it test its configuration (`-t`). The error carries its own words.
pub fn validate(control: &Control) -> Result<()> {
    let tested = program::run(&Invocation::with_options(control, &["-t"]), timeouts::QUERY)?;
    if tested.success {
        return Ok(());
    }
    let said = program::summary(&tested.stderr);
    Err(UserError::cannot_run(format!("php-fpm rejects its configuration: {said}"))
        .hint(format!("test it by hand: {} -t", control.arguments.join(" "))))
}

/// What it reads when it reloads.
pub fn sources(control: &Control) -> Sources {
    let prefix = php::prefix(Some(&control.executable));
    let config = config::read(&Root::ours(), file(control), &prefix);
    let ini =
        php::query_ini_files(control.pid, Some(&(control.executable.clone(), false))).unwrap_or_default();
    let paths = |paths: Vec<String>| paths.into_iter().map(PathBuf::from);
    Sources {
        files: paths(config.files.into_iter().chain(ini.read).collect()).collect(),
        directories: paths(config.folders.into_iter().chain(ini.folder).collect()).collect(),
    }
}

/// Lets the requests under way finish, and the main process read its configuration again.
pub fn reload(control: &Control) -> Result<Activation> {
    let begun = (Instant::now(), SystemTime::now());
    let drained = drain(control)?;
    MainProcess::of(SERVICE, control).signal(Signal::USR2)?;
    drop(drained);
    reloaded(control, begun)
}

/// The same without waiting for the requests under way: it ends them, after `process_control_timeout`.
pub fn reload_at_once(control: &Control) -> Result<Activation> {
    let begun = (Instant::now(), SystemTime::now());
    MainProcess::of(SERVICE, control).signal(Signal::USR2)?;
    reloaded(control, begun)
}

/// Waits until it has children again after it was told to reload.
fn reloaded(control: &Control, (begun, begun_at): (Instant, SystemTime)) -> Result<Activation> {
    let main = ProcessName::from(control);
    let config = config::read(&Root::ours(), file(control), &php::prefix(Some(&control.executable)));
    let on_demand = config.pools.iter().all(|pool| pool.value("pm") == Some("ondemand"));
    // One that went to the background at its start does so again, and has another id then.
    let is_back = || {
        let Some(now) = find_again(control) else { return false };
        let children = ProcessName::from(&now).children();
        children.iter().any(|child| pool_of(child.pid).is_some())
            || (on_demand && has_written_pid(control, begun_at))
    };
    // Children of before are no sign: it is told to end them first.
    wait_polling(PAUSE, timeouts::WATCH, || find_again(control).is_none());
    let mut is_shown = wait_polling(PAUSE, timeouts::CHILDREN, is_back);
    if !is_shown && main.is_alive() {
        // It executes itself anew, and may have much to load before it says again what it is.
        is_shown = wait_polling(PAUSE, timeouts::START, is_back);
    }
    let outage_us = u64::try_from(begun.elapsed().as_micros()).ok().filter(|_| is_shown);
    // It may end while it sets up what it read.
    wait_polling(PAUSE, timeouts::WATCH, || find_again(control).is_none());
    let control = find_again(control).ok_or_else(|| {
        UserError::cannot_run(format!(
            "php-fpm (process {}) ended when it reloaded its configuration",
            main.pid
        ))
        .hint("its error log says why; webdyno rollback restores the configuration and starts it again")
    })?;
    Ok(Activation { control, outage_us, unsettled: None })
}

/// Whether it has children that began before a time: a reload ends all of them.
pub fn is_older(main: ProcessName, time: SystemTime) -> bool {
    let began = |child: &ProcessName| procfs::started_at(child.start_ticks);
    let is_before = |child: &ProcessName| began(child).is_some_and(|began| began + TICK < time);
    main.is_alive() && main.children().iter().any(is_before)
}

/// Whether the pid file, if there is one, was written since: the last thing that a start does.
fn has_written_pid(control: &Control, since: SystemTime) -> bool {
    let written = |path: &String| std::fs::metadata(path).ok()?.modified().ok();
    // Files are stamped in ticks of the kernel's clock.
    control.pid_file.as_ref().and_then(written).is_none_or(|at| at + TICK >= since)
}

/// How much older than its writing the time of a file may be.
const TICK: Duration = Duration::from_millis(10);

/// Stops the main process, and lets its children finish their requests and end. When one takes too long all goes on as
/// before, and that is an error. Who comes meanwhile waits until what is given is dropped: then the main process goes on.
pub fn drain(control: &Control) -> Result<Drained> {
    let main = MainProcess::of(SERVICE, control);
    let rescue = Rescue::start(main.name)?;
    main.signal(Signal::STOP)?;
    let drained = Drained { main: main.name, _rescue: rescue };
    let is_stopped = || procfs::stat(main.name.pid).is_ok_and(|stat| stat.state == 'T');
    if !wait_polling(PAUSE, timeouts::DRAIN, is_stopped) {
        // The kernel stops no process 1 of a container from inside of it.
        let why = format!("php-fpm (process {}) cannot be stopped for the moment of a reload", main.name.pid);
        return Err(
            UserError::cannot_run(why).hint("run the agent outside of its container, or reload it by hand")
        );
    }
    let children = main.name.children();
    for child in &children {
        // It may have ended by itself.
        let _ = child.signal(Signal::QUIT);
    }
    if wait_polling(PAUSE, timeouts::DRAIN, || !children.iter().any(|child| child.is_alive())) {
        return Ok(drained);
    }
    let left = children.iter().filter(|child| child.is_alive()).count();
    Err(UserError::cannot_run(format!(
        "{left} request(s) of php-fpm did not end within {} s, and its reload would cut them off",
        timeouts::DRAIN.as_secs()
    ))
    .hint("run it again at a quieter moment; its slow log says what takes so long"))
}

/// Lets a main process go on that a drain left stopped.
pub fn resume(control: &Control) {
    let name = ProcessName::from(control);
    if procfs::stat(name.pid).is_ok_and(|stat| stat.state == 'T') {
        // It may have ended by itself.
        let _ = name.signal(Signal::CONT);
    }
}

/// A main process that is stopped, with no children at work, and goes on when this is dropped.
pub struct Drained {
    main: ProcessName,
    _rescue: Rescue,
}

impl Drop for Drained {
    fn drop(&mut self) {
        let _ = self.main.signal(Signal::CONT);
    }
}

/// A process that lets a stopped one go on, should we be killed before we do: with nobody left who could.
struct Rescue(Child);

impl Rescue {
    fn start(main: ProcessName) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let seconds = 2 * timeouts::DRAIN.as_secs() + 1;
        let script = format!("trap '' TERM HUP INT; sleep {seconds}; kill -CONT {}", main.pid);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Whoever ends us with our group shall not end it.
        command.process_group(0);
        spawn::spawn(&mut command, None).map(Self).map_err(|error| io_error("start", "/bin/sh", &error))
    }
}

impl Drop for Rescue {
    fn drop(&mut self) {
        // The shell and its sleep are alone in their group.
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Starts it again after its main process ended.
pub fn start(control: &Control) -> Result<Activation> {
    let daemonized = Invocation::with_options(control, &["--daemonize"]);
    starting::begin(control, || starting::launch(control, "php-fpm", &daemonized, || Ok(())))?;
    let mut found = None;
    wait_polling(PAUSE, timeouts::START, || {
        found = find_again(control);
        found.is_some()
    });
    let control = found.ok_or_else(|| starting::does_not_run("php-fpm"))?;
    Ok(Activation { control, outage_us: None, unsettled: None })
}

/// The main process that took the place of another one: the same program with the same configuration, in the same place.
pub fn find_again(before: &Control) -> Option<Control> {
    starting::find_again(before, |pid| {
        let title = procfs::arguments(pid).ok().and_then(|all| all.into_iter().next()).unwrap_or_default();
        title.starts_with(MASTER) && main_file(&title) == Some(file(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_command_line_reads_the_same_configuration() {
        let of = |user: &str| {
            let values =
                vec![config::Placed { key: "user".into(), value: user.into(), file: String::new(), line: 1 }];
            let pools = vec![config::Section { name: "www".into(), values }];
            arguments(
                "/usr/sbin/php-fpm8.2",
                "/etc/fpm.conf",
                &config::Config { pools, ..config::Config::default() },
            )
        };
        assert_eq!(of("www-data"), ["/usr/sbin/php-fpm8.2", "--fpm-config", "/etc/fpm.conf"]);
        assert_eq!(of("root").last().unwrap(), "--allow-to-run-as-root");
    }

    #[test]
    fn a_stopped_process_goes_on() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let name = ProcessName::of(child.id()).unwrap();
        name.signal(Signal::STOP).unwrap();
        let state = |wanted: char| {
            wait_polling(PAUSE, timeouts::CHILDREN, || {
                procfs::stat(name.pid).is_ok_and(|stat| stat.state == wanted)
            })
        };
        assert!(state('T'));
        // Where it was not needed the rescuer is gone with it.
        let rescue = Rescue::start(name).unwrap();
        let pid = rescue.0.id();
        drop(Drained { main: name, _rescue: rescue });
        assert!(state('S'));
        assert!(procfs::stat(pid).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

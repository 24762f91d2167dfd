//! Starting a program that must not outlive the session, finding it again, and stopping it.
//!
//! A daemon leaves its first process, leads a session of its own and writes a pid file (daemon(7)). When the session is
//! killed before it read that file, the program is known by its pid file or by its exact arguments, and in both cases
//! by having started after the session did.
//!
//! These are the real processes behind the seam [`crate::change::seams::processes::System`].

use crate::change::action::{Launch, Launched};
use crate::change::seams::processes;
use crate::os::cancellation::Cancellation;
use crate::os::process::{self, ProcessName, wait_until};
use crate::os::spawn::spawn;
use crate::os::{procfs, timeouts};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// How much of a program's complaints is kept.
const STDERR_BYTES_MAX: usize = 4096;

/// How long a port may still be held that was found to be free a moment ago.
const PORT_WAIT: Duration = Duration::from_millis(300);

/// How often it is looked whether it answers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A program that was started here.
pub struct Running {
    /// The process that was started; the program may have left it.
    child: Child,
    stderr_text: Arc<Mutex<Vec<u8>>>,
    cancellation: Cancellation,
}

/// Refuses what cannot be launched, before anything is written or started.
pub fn check(launch: &Launch) -> Result<()> {
    let Some(program) = launch.command.first() else {
        return Err(UserError::cannot_run("a launch without a command"));
    };
    if !Path::new(program).is_absolute() || !Path::new(&launch.pid_file).is_absolute() {
        return Err(UserError::cannot_run(format!(
            "`{program}` with the pid file `{}`: not absolute paths",
            launch.pid_file
        )));
    }
    std::fs::metadata(program).map_err(|error| io_error("run", program, &error))?;
    if let Some(found) = pid_in(&launch.pid_file) {
        return Err(UserError::cannot_run(format!(
            "{} names process {}, which runs already",
            launch.pid_file, found.pid
        ))
        .hint("stop it, or take another directory"));
    }
    // Another thread that starts a program holds every socket of ours until that program runs, also one closed since.
    if !wait_until(PORT_WAIT, || !answers(launch.port)) {
        return Err(UserError::cannot_run(format!("port {} is taken by another program", launch.port))
            .hint(format!("`ss -ltnp 'sport = :{}'` shows by which one", launch.port)));
    }
    Ok(())
}

/// Starts the process. What it will become is found by [`processes::Running::wait_until_ready`].
pub fn start(launch: &Launch) -> Result<Running> {
    let (program, arguments) =
        launch.command.split_first().ok_or_else(|| UserError::cannot_run("no command"))?;
    let mut command = Command::new(program);
    // A group of its own: whatever ends our group does not end it half-way, and its group is known to be its own.
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(surroundings) = &launch.surroundings {
        command.env_clear().envs(&surroundings.environment);
        if Path::new(&surroundings.directory).is_dir() {
            command.current_dir(&surroundings.directory);
        }
        if let Some((uid, gid)) = surroundings.user {
            command.uid(uid).gid(gid);
        }
    }
    let inherited = launch.surroundings.as_ref().and_then(|surroundings| surroundings.inherited.as_ref());
    let mut child = spawn(&mut command, inherited).map_err(|error| io_error("run", program, &error))?;
    let stderr_text = Arc::new(Mutex::new(vec![]));
    if let Some(stderr) = child.stderr.take() {
        let stderr_text = Arc::clone(&stderr_text);
        std::thread::spawn(move || collect(stderr, &stderr_text));
    }
    Ok(Running { child, stderr_text, cancellation: Cancellation::default() })
}

fn wait_until_ready(
    launch: &Launch,
    running: &mut Running,
    found: &mut dyn FnMut(Launched) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let mut known: Option<Launched> = None;
    loop {
        let ended = running.child.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            return Err(running.failed(launch, status));
        }
        if known.is_none()
            && let Some(process) = pid_in(&launch.pid_file)
        {
            let launched = Launched { process, group: process.led_group() };
            found(launched)?;
            known = Some(launched);
        }
        if known.is_some_and(|launched| launched.process.is_alive()) && answers(launch.port) {
            return Ok(());
        }
        let is_gone = match known {
            Some(launched) => !launched.process.is_alive(),
            None => ended.is_some() && has_vanished(launch),
        };
        if is_gone || start.elapsed() > timeouts::LAUNCH {
            return Err(running.not_ready(launch, known.is_some()));
        }
        running.cancellation.check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a program that left its first process has ended before it wrote its pid. Told of programs with a directory
/// of their own, as their command is that of nobody else.
fn has_vanished(launch: &Launch) -> bool {
    let runs = |pid: u32| procfs::arguments(pid).is_ok_and(|arguments| arguments == launch.command);
    launch.folder.is_some() && !procfs::pids().into_iter().any(runs) && pid_in(&launch.pid_file).is_none()
}

/// Stops a launched program and everything that it started; one that has ended already is no error.
/// `Ok(false)` when there was nothing to stop.
pub fn stop(launch: &Launch, launched: Option<Launched>, agent: ProcessName) -> Result<bool> {
    let mut programs: Vec<Launched> = launched.into_iter().collect();
    // A restart gave it another pid since: what was launched is the program, not its first process.
    programs.extend(
        search(launch, agent).into_iter().filter(|found| Some(found.process) != launched.map(|l| l.process)),
    );
    let mut stopped = false;
    for program in &programs {
        stopped |= program.process.is_alive();
        process::stop(program.process, program.group, timeouts::STOP_PATIENCE)?;
    }
    Ok(stopped)
}

/// The processes that a launch has led to, as far as they can be recognised: by the command, or by the pid file.
fn search(launch: &Launch, agent: ProcessName) -> Vec<Launched> {
    let since_ticks = agent.start_ticks;
    let is_ours = |pid: u32| {
        let process = procfs::process(pid).ok()?;
        let name = ProcessName::of(pid)?;
        let same = process.argv == launch.command && name.start_ticks >= since_ticks;
        same.then_some((name, process.ppid))
    };
    let found: Vec<_> = procfs::pids().into_iter().filter_map(is_ours).collect();
    let is_main = |parent: u32| !found.iter().any(|(name, _)| name.pid == parent);
    let main = found.iter().filter(|(_, parent)| is_main(*parent)).map(|(name, _)| *name);
    let named =
        pid_in(&launch.pid_file).filter(|name| name.start_ticks >= since_ticks && runs(*name, launch));
    let mut main: Vec<_> = main.chain(named).collect();
    main.sort_by_key(|name| name.pid);
    main.dedup();
    main.into_iter().map(|process| Launched { process, group: process.led_group() }).collect()
}

/// Whether a process runs the executable of a launch.
fn runs(name: ProcessName, launch: &Launch) -> bool {
    let running = std::fs::read_link(format!("/proc/{}/exe", name.pid)).ok();
    let wanted = launch.command.first().and_then(|program| std::fs::canonicalize(program).ok());
    running.is_some() && running == wanted
}

/// The living process that a pid file names.
fn pid_in(pid_file: &str) -> Option<ProcessName> {
    ProcessName::of(procfs::read_text(pid_file).ok()?.trim().parse().ok()?)
}

/// Whether something on this machine accepts connections on the port.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Reads to the end, and keeps the beginning.
fn collect(mut stderr: ChildStderr, stderr_text: &Mutex<Vec<u8>>) {
    let mut buffer = [0_u8; 1024];
    while let Ok(count) = stderr.read(&mut buffer) {
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { return };
        let mut kept = stderr_text.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STDERR_BYTES_MAX.saturating_sub(kept.len());
        kept.extend(read.iter().take(room));
    }
}

impl Running {
    fn failed(&self, launch: &Launch, status: ExitStatus) -> UserError {
        // What it wrote last may still be on its way through the pipe.
        wait_until(Duration::from_millis(200), || self.stderr_so_far().is_some());
        self.with_stderr(format!("`{}` did not start: {status}", launch.command.join(" ")))
    }

    fn not_ready(&self, launch: &Launch, known: bool) -> UserError {
        let what = match known {
            true => format!("does not answer on port {}", launch.port),
            false => format!("did not write {}", launch.pid_file),
        };
        self.with_stderr(format!("`{}` {what}", launch.command.join(" ")))
    }

    fn with_stderr(&self, message: String) -> UserError {
        let error = UserError::cannot_run(message);
        match self.stderr_so_far() {
            Some(text) => error.hint(format!("it says: {text}")),
            None => error,
        }
    }

    fn stderr_so_far(&self) -> Option<String> {
        let kept = self.stderr_text.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

impl processes::Running for Running {
    fn cancel_with(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    fn wait_until_ready(
        &mut self,
        launch: &Launch,
        found: &mut dyn FnMut(Launched) -> Result<()>,
    ) -> Result<()> {
        wait_until_ready(launch, self, found)
    }

    fn stderr_text(&self) -> Option<String> {
        self.stderr_so_far()
    }

    fn end(&mut self) -> bool {
        let ended = || !matches!(self.child.try_wait(), Ok(None));
        if wait_until(Duration::from_millis(100), ended) {
            return false;
        }
        if let Some(name) = ProcessName::of(self.child.id()) {
            // It leads the group that it was started with, so nothing of others is in it.
            let _ = process::stop(name, name.led_group(), timeouts::STOP_PATIENCE);
        }
        let _ = self.child.try_wait();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::seams::processes::Running as _;
    use std::net::TcpListener;

    /// A program that writes its pid, and a port that answers (held by the test, as shells cannot listen).
    fn launch(folder: &Path, script: &str, port: u16) -> Launch {
        let pid_file = folder.join("pid").to_str().unwrap().to_owned();
        let script = script.replace("PID", &pid_file);
        Launch::new(vec!["/bin/sh".into(), "-c".into(), script], pid_file, port)
    }

    /// A session that began before everything that is launched here.
    fn session_agent() -> ProcessName {
        ProcessName::this().unwrap()
    }

    #[test]
    fn a_background_program_is_found_and_stopped_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let script = "setsid sh -c 'trap \"trap - TERM; kill 0\" TERM; sleep 61 & echo $$ >PID.new; mv PID.new PID; wait' &";
        let launch = launch(folder.path(), script, port.local_addr().unwrap().port());
        let mut running = start(&launch).unwrap();
        let mut found = None;
        wait_until_ready(&launch, &mut running, &mut |launched| {
            found = Some(launched);
            Ok(())
        })
        .unwrap();
        let found = found.unwrap();
        assert_eq!(found.group, Some(found.process.pid));
        assert!(stop(&launch, Some(found), session_agent()).unwrap());
        running.end();
        assert!(!found.process.is_alive());
        assert!(
            !stop(&launch, Some(found), session_agent()).unwrap(),
            "the second time there is nothing to stop"
        );
    }

    #[test]
    fn a_program_of_which_only_the_command_is_known_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let launch = launch(folder.path(), "while :; do sleep 0.1; done", 1);
        let mut running = start(&launch).unwrap();
        let name = ProcessName::of(running.child.id()).unwrap();
        assert!(wait_until(Duration::from_secs(5), || !search(&launch, session_agent()).is_empty()));
        let found: Vec<_> =
            search(&launch, session_agent()).into_iter().map(|launched| launched.process).collect();
        assert_eq!(found, [name]);
        let younger = ProcessName { start_ticks: u64::MAX, ..session_agent() };
        assert_eq!(search(&launch, younger), [], "what ran before the session is not its own");
        assert!(stop(&launch, None, session_agent()).unwrap());
        running.end();
        assert!(!name.is_alive());
    }

    #[test]
    fn what_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let launch = launch(folder.path(), "echo 'no such module' >&2; exit 3", 1);
        let mut running = start(&launch).unwrap();
        let error = wait_until_ready(&launch, &mut running, &mut |_| Ok(())).unwrap_err();
        assert!(error.message.contains("did not start: exit status: 3"), "{error}");
        assert_eq!(error.hint.as_deref(), Some("it says: no such module"));
    }
}

//! The guardian is hard to end, and nothing of that, nor of the shell that it was started from, goes to an Apache that it
//! starts again.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{Server, apache_is_installed};
use crate::skip::needs;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_host::agent::{AgentClient, BUILD, Options, ServerAddress, serve};
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::{StateDir, pending};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_host::os::timeouts;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// The environment variable that makes the test below an agent, on descriptors 3 and 4: its state directory.
const AGENT: &str = "WEBDYNO_TEST_HARDENED_AGENT";

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

/// How an operator's shell may be: all of it would be inherited. `@LOCK` is a lock file as of flock(1).
const SHELL: &str = "echo 300 >/proc/self/oom_score_adj; umask 077; ulimit -Sn 700; ulimit -Sc 0; trap '' QUIT USR2; \
                     exec 9>@LOCK; cd @FOLDER; @AGENT=@STATE exec nice -n 5 @PROGRAM --exact @TEST --nocapture \
                     3>&1 4<&0 >/dev/null # agent";

/// As a test: an Apache that was restarted and put back is as it was started before. With [`AGENT`]: the agent.
#[test]
fn an_apache_that_is_started_again_has_nothing_of_the_guardian() {
    if let Ok(state) = std::env::var(AGENT) {
        let (input, output) = (File::open("/dev/fd/4").unwrap(), File::create("/dev/fd/3").unwrap());
        let host = Arc::new(ThisMachine);
        let (state, build) = (StateDir::at(state), BUILD.to_owned());
        let options = Options {
            state,
            host,
            silence_max: timeouts::SILENCE,
            build,
            detach: true,
            settings_only: false,
        };
        std::process::exit(i32::from(serve(input, output, options).is_err()));
    }
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let folder = tempfile::tempdir().unwrap();
    let (before, open) = (processes(&server), files(&server));
    let client = client(folder.path());
    client.discover(server.port).unwrap();
    let wanted = |setting: &str| SettingChange {
        setting: SettingId::of_service("apache", setting),
        to: SettingValue::Integer(40),
    };
    let plan = client
        .prepare(&[wanted("MaxRequestWorkers"), wanted("ServerLimit")])
        .and_then(Preparation::into_plan)
        .unwrap();
    assert_eq!(plan.class, ApplyClass::Restart);
    let pid = server.pid();
    client.apply(&plan, &ApplyOptions { allow_restart: true, ..ApplyOptions::default() }).unwrap();
    assert_ne!(server.pid(), pid, "it was started again");
    assert_eq!((processes(&server), files(&server)), (before.clone(), open.clone()));

    let journal = pending(&StateDir::at(folder.path().join("state"))).unwrap().remove(0);
    let agent: u32 = journal.id.rsplit('-').next().unwrap().parse().unwrap();
    let score: i32 = read(agent, "oom_score_adj").trim().parse().unwrap();
    assert!(score <= 0, "the OOM score of the guardian is {score}");
    let root = std::fs::read_link("/proc/self/ns/user").unwrap().to_str() == Some("user:[4026531837]")
        && rustix::process::geteuid().is_root();
    let is_locked = line(agent, "VmLck") != "0 kB";
    assert!(!root || is_locked == (score < 0), "locked where it is spared: {is_locked}, {score}");
    assert_eq!(
        rustix::process::getsid(rustix::process::Pid::from_raw(agent as i32)).unwrap().as_raw_nonzero().get(),
        agent as i32
    );

    // A service that died is started from what the journal says, and not less.
    let main = ProcessName::of(server.pid().unwrap()).unwrap();
    webdyno_host::os::process::stop(main, main.led_group(), Duration::from_secs(5)).unwrap();
    assert!(client.close().unwrap().actions.iter().any(|line| line.starts_with("started apache again")));
    assert_eq!((processes(&server), files(&server)), (before, open));
    assert!(wait_until(Duration::from_secs(5), || ProcessName::of(agent).is_none()));
}

fn client(folder: &Path) -> AgentClient {
    let shown = |path: &Path| path.display().to_string();
    let command = SHELL
        .replace("@LOCK", &shown(&folder.join("lock")))
        .replace("@FOLDER", &shown(folder))
        .replace("@STATE", &shown(&folder.join("state")))
        .replace("@AGENT", AGENT)
        .replace("@PROGRAM", &shown(&std::env::current_exe().unwrap()))
        .replace("@TEST", "hardened::an_apache_that_is_started_again_has_nothing_of_the_guardian");
    let address = ServerAddress::parse(&format!("exec:{command}")).unwrap();
    AgentClient::spawn(&address, Path::new("/none")).unwrap()
}

fn read(pid: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
}

/// A value of `/proc/PID/status`.
fn line(pid: u32, name: &str) -> String {
    let status = read(pid, "status");
    let value =
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    value.trim().to_owned()
}

/// What the main process, and one worker, of an Apache have from whoever started it.
fn processes(server: &Server) -> [BTreeMap<&'static str, String>; 2] {
    let main = ProcessName::of(server.pid().unwrap()).unwrap();
    // A worker that polls has set itself up: before that it still is as the main process.
    let worker = || {
        main.children().into_iter().find(|child| files_of(child.pid).iter().any(|name| name.contains("poll")))
    };
    assert!(wait_until(Duration::from_secs(10), || worker().is_some()), "no workers");
    [main.pid, worker().unwrap().pid].map(facts)
}

fn facts(pid: u32) -> BTreeMap<&'static str, String> {
    let mut facts: BTreeMap<_, _> = ["Umask", "SigIgn", "SigBlk", "VmLck", "NoNewPrivs", "Groups", "Uid"]
        .into_iter()
        .map(|name| (name, line(pid, name)))
        .collect();
    let soft = |text: String| -> String {
        // Hard limits are never lowered.
        text.lines().map(|line| line.get(..47).unwrap_or_default().trim_end().to_owned() + "\n").collect()
    };
    facts.insert("oom_score_adj", read(pid, "oom_score_adj"));
    facts.insert("limits", soft(read(pid, "limits")));
    facts.insert("cwd", std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap().display().to_string());
    let stat = read(pid, "stat");
    facts.insert("nice", stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned());
    facts
}

/// The open files of the main process by their names, without those that have none.
fn files(server: &Server) -> BTreeSet<String> {
    files_of(server.pid().unwrap()).into_iter().filter(|name| name.starts_with('/')).collect()
}

fn files_of(pid: u32) -> BTreeSet<String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let name = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    open.filter_map(name).filter_map(|link| Some(link.to_str()?.to_owned())).collect()
}

/// The environment variable that makes the test below a tool: `PORT|FOLDER`.
const TOOL: &str = "WEBDYNO_TEST_TOOL";

/// As a test: whatever becomes of the tool, its guardian reverts everything in time. With [`TOOL`]: the tool, which
/// applies a change and then waits.
#[test]
fn a_tool_that_hangs_or_dies_is_reverted_within_30_s() {
    if let Ok(order) = std::env::var(TOOL) {
        let (port, folder) = order.split_once('|').unwrap();
        let client = client(Path::new(folder));
        client.discover(port.parse().unwrap()).unwrap();
        let setting = SettingId::of_service("apache", "MaxRequestWorkers");
        let wanted = SettingChange { setting, to: SettingValue::Integer(12) };
        client
            .apply(
                &client.prepare(&[wanted]).and_then(Preparation::into_plan).unwrap(),
                &ApplyOptions::default(),
            )
            .unwrap();
        std::fs::write(Path::new(folder).join("applied"), "").unwrap();
        std::thread::sleep(Duration::from_secs(120));
        std::process::exit(1);
    }
    needs!(apache_is_installed());
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| time_to_revert_after(Signal::STOP));
        let killed = scope.spawn(|| time_to_revert_after(Signal::KILL));
        let (stopped, killed) = (stopped.join().unwrap(), killed.join().unwrap());
        assert!(
            stopped >= timeouts::SILENCE - timeouts::HEARTBEAT_EVERY,
            "{stopped:?}: it was not silent for long"
        );
        assert!(stopped < Duration::from_secs(30), "{stopped:?}");
        // Its end is seen at once: what remains is the reload.
        assert!(killed < Duration::from_secs(10), "{killed:?}");
        eprintln!("reverted {stopped:?} after SIGSTOP, {killed:?} after SIGKILL");
    });
}

fn time_to_revert_after(signal: Signal) -> Duration {
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let folder = tempfile::tempdir().unwrap();
    let workers = || server.snapshot().number("MaxRequestWorkers");
    let original = tree_of_texts(&server);
    let mut tool = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hardened::a_tool_that_hangs_or_dies_is_reverted_within_30_s", "--nocapture"])
        .env(TOOL, format!("{}|{}", server.port, folder.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let applied = wait_until(Duration::from_secs(60), || folder.path().join("applied").exists());
    assert!(applied && workers() == Some(12.0) && tree_of_texts(&server) != original);
    ProcessName::of(tool.id()).unwrap().signal(signal).unwrap();
    let begun = Instant::now();
    let reverted = || tree_of_texts(&server) == original && workers() == Some(5.0);
    let in_time = wait_until(Duration::from_secs(40), reverted);
    let took = begun.elapsed();
    tool.kill().unwrap();
    tool.wait().unwrap();
    assert!(in_time, "not reverted {took:?} after {signal:?}");
    // A guardian that still watches the reload would take the end of the server for one of its own.
    let state = StateDir::at(folder.path().join("state"));
    assert!(wait_until(Duration::from_secs(30), || pending(&state).is_ok_and(|left| left.is_empty())));
    took
}

/// The configuration files by their paths.
fn tree_of_texts(server: &Server) -> BTreeMap<PathBuf, String> {
    let folders = ["", "conf-enabled", "mods-enabled", "sites-enabled"].map(|name| server.path(name));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap_or_default())).collect()
}

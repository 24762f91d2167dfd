//! Ctrl-C and SIGKILL at every stage: the original configuration to the byte, and nothing left running.

use crate::support::{Apache, Place, children, is_alive, run, shared_turn, signal, snapshot, wait_until};
use crate::transport::program;
use rustix::process::Signal;
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_host::change::{StateDir, pending};
use webdyno_model::change::{ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const LOAD: [&str; 6] = ["-c", "60", "--no-keepalive", "-d", "5s", "-q"];

/// How often a session is started that the machine may keep from its change.
const TRIES_MAX: usize = 3;

fn drop_in(root: &Path) -> std::path::PathBuf {
    root.join("conf-enabled/zzz-webdyno.conf")
}

/// A session whose change is on disk. When something else holds the cores, another limit may show, and nothing is
/// changed: then it is started anew, a few times.
fn tuning(place: &Place, apache: &Apache) -> Child {
    let tune = ["tune", &apache.url(), "--apply", "--out", "t"];
    let mut output = vec![];
    for _ in 0..TRIES_MAX {
        let mut tool = place.child(&[&tune, &LOAD[..]].concat());
        let is_applied = || drop_in(&apache.files.root).exists();
        let mut ended = None;
        wait_until(Duration::from_secs(60), || {
            ended = tool.try_wait().unwrap();
            is_applied() || ended.is_some()
        });
        if ended.is_none() {
            assert!(is_applied(), "neither a change nor an end within a minute");
            return tool;
        }
        output.push(format!("{ended:?}: {}", run(place.webdyno().args(["report", "t"])).stdout));
        std::fs::remove_dir_all(place.path("t")).unwrap();
    }
    panic!("no change was applied:\n{}", output.join("\n"));
}

#[test]
fn ctrl_c_reverts_and_says_so_with_its_exit_code() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let mut tool = tuning(&place, &apache);
    signal(tool.id(), Signal::INT);
    assert_eq!(tool.wait().unwrap().code(), Some(130));
    apache.assert_unchanged(&before);
    let record = std::fs::read_to_string(place.path("t/change-record.md")).unwrap();
    assert!(record.contains("Nothing was changed") && record.contains("reverted"), "{record}");
    // What was measured is kept.
    run(place.webdyno().args(["report", "t"])).with_code(0);
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

#[test]
fn when_the_tool_is_killed_its_guardian_reverts() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let mut tool = tuning(&place, &apache);
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    assert!(
        wait_until(Duration::from_secs(30), || !drop_in(&apache.files.root).exists()),
        "the guardian did nothing"
    );
    run(place.webdyno().arg("rollback")).with_code(0);
    apache.assert_unchanged(&before);
}

#[test]
fn when_tool_and_guardian_are_killed_the_next_command_puts_everything_back() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let mut tool = tuning(&place, &apache);
    for guardian in children(tool.id()) {
        signal(guardian, Signal::KILL);
    }
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    let next = run(place.webdyno().arg("explain")).with_code(0);
    assert!(
        next.stderr.contains("rollback is pending") && next.stderr.contains("webdyno rollback"),
        "{}",
        next.stderr
    );
    assert!(drop_in(&apache.files.root).exists(), "explain must not change anything");
    let next = run(place.webdyno().args(["run", &apache.url(), "-n", "1"])).with_code(0);
    assert!(next.stderr.contains("a session was interrupted: its changes are reverted"), "{}", next.stderr);
    assert!(next.stderr.contains("restored ") || next.stderr.contains("removed "), "{}", next.stderr);
    apache.assert_unchanged(&before);
    let none = run(place.webdyno().args(["rollback", "--interrupted"])).with_code(0);
    assert!(none.stdout.contains("no session was cut off"), "{}", none.stdout);
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

#[test]
fn when_only_the_guardian_is_killed_the_tool_puts_everything_back() {
    let _turn = shared_turn();
    let (place, apache, before) = Apache::placed();
    let mut tool = tuning(&place, &apache);
    for guardian in children(tool.id()) {
        signal(guardian, Signal::KILL);
    }
    let code = tool.wait().unwrap().code();
    assert_eq!(code, Some(1), "{}", run(place.webdyno().args(["report", "t", "-v"])).stdout);
    apache.assert_unchanged(&before);
    assert!(!run(place.webdyno().arg("explain")).stderr.contains("pending"));
}

/// SIGKILL of the quickstart's tool and guardian: rollback stops its Apache. Under the first load, which begins on any machine; that a
/// change follows within the quickstart's time is not sure on a busy one.
#[test]
fn a_killed_quickstart_leaves_nothing_behind_after_rollback() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let root = place.path("q/apache");
    let mut tool = place.child(&["quickstart", "-q", "--out", "q"]);
    let log = || std::fs::read_to_string(place.path("q/events.jsonl")).unwrap_or_default();
    let loads = || log().contains("\"kind\":\"load_start\"");
    assert!(wait_until(Duration::from_secs(60), loads), "no load has begun: {}", log());
    let before = snapshot(&root);
    let pid = std::fs::read_to_string(root.join("run/apache2.pid")).unwrap();
    let running = pid.trim().parse().unwrap();
    for guardian in children(tool.id()) {
        signal(guardian, Signal::KILL);
    }
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    assert_stopped_by_rollback(&place, running);
    assert_eq!(snapshot(&root), before);
}

fn assert_stopped_by_rollback(place: &Place, running: u32) {
    assert!(is_alive(running));
    let done = run(place.webdyno().arg("rollback")).with_code(0);
    assert!(!done.stdout.contains("Nothing to roll back"), "{}", done.stdout);
    assert!(wait_until(Duration::from_secs(10), || !is_alive(running)), "the private Apache still runs");
}

/// The same of a guardian whose change needed a restart: the Apache that must be stopped is another one than was launched.
#[test]
fn a_launched_apache_that_was_restarted_is_stopped_by_rollback() {
    let _turn = shared_turn();
    let place = Place::new();
    let (state, mut apache) = (place.path("state"), Apache::files(&place.path("q")));
    let agent = format!("exec:env WEBDYNO_STATE={} {} agent", state.display(), program().display());
    let start = Start::at(ServerAddress::parse(&agent).unwrap(), program());
    let client = AgentClient::start(&start).unwrap();
    // Somebody else may take the port.
    let mut is_launched = || {
        apache.files.take_free_port().unwrap();
        client.launch(&apache.files.command, &apache.files.pid_file, apache.files.port).is_ok()
    };
    assert!((0..5).any(|_| is_launched()), "the private Apache does not start");
    let (before, first) = (apache.configuration(), apache.pid());
    client.discover(apache.files.port).unwrap();
    let to_300 = |name: &str| SettingChange {
        setting: SettingId::of_service("apache", name),
        to: SettingValue::Integer(300),
    };
    let wanted = [to_300("MaxRequestWorkers"), to_300("ServerLimit")];
    let plan = client.prepare(&wanted).and_then(Preparation::into_plan).unwrap();
    client.apply(&plan, &ApplyOptions { allow_restart: true, ..ApplyOptions::default() }).unwrap();
    let running = apache.pid().unwrap();
    assert!(Some(running) != first && apache.configuration() != before);
    let journal = pending(&StateDir::at(&state)).unwrap().remove(0).id;
    let guardian = journal.rsplit('-').next().unwrap().parse().unwrap();
    signal(guardian, Signal::KILL);
    assert!(wait_until(Duration::from_secs(5), || !is_alive(guardian)));
    assert_stopped_by_rollback(&place, running);
    assert_eq!(apache.configuration(), before);
}

#[test]
fn ctrl_c_in_a_quickstart_stops_its_apache() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let pid_file = place.path("q/apache/run/apache2.pid");
    let mut tool = place.child(&["quickstart", "-q", "--out", "q"]);
    assert!(wait_until(Duration::from_secs(20), || pid_file.exists()), "the private Apache did not start");
    std::thread::sleep(Duration::from_secs(3));
    let running: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    signal(tool.id(), Signal::INT);
    assert_eq!(tool.wait().unwrap().code(), Some(130));
    assert!(!is_alive(running));
    assert!(run(place.webdyno().arg("rollback")).with_code(0).stdout.contains("Nothing to roll back"));
}

//! Ctrl-C and SIGKILL at every stage: the original configuration to the byte, and nothing left running.

use crate::support::{Apache, Place, children, is_alive, run, shared_turn, signal, snapshot, wait_until};
use rustix::process::Signal;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

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

/// SIGKILL of the quickstart's tool and guardian: rollback restores its files and stops its Apache.
#[test]
fn a_killed_quickstart_leaves_nothing_behind_after_rollback() {
    let _turn = shared_turn();
    let place = Place::shielded();
    let root = place.path("q/apache");
    let pid = || {
        std::fs::read_to_string(root.join("run/apache2.pid"))
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
    };
    let mut tool = place.child(&["quickstart", "-q", "--out", "q"]);
    assert!(wait_until(Duration::from_secs(20), || pid().is_some()), "the private Apache did not start");
    let before = snapshot(&root);
    let first = pid().unwrap();
    // After the restart that its first change needs: the Apache that must be stopped is another one than was launched.
    let restarted = || drop_in(&root).exists() && pid().is_some_and(|pid| pid != first);
    assert!(wait_until(Duration::from_secs(80), restarted), "no change was applied");
    let running = pid().unwrap();
    for guardian in children(tool.id()) {
        signal(guardian, Signal::KILL);
    }
    signal(tool.id(), Signal::KILL);
    tool.wait().unwrap();
    assert!(is_alive(running));
    let done = run(place.webdyno().arg("rollback")).with_code(0);
    assert!(!done.stdout.contains("Nothing to roll back"), "{}", done.stdout);
    assert_eq!(snapshot(&root), before);
    assert!(wait_until(Duration::from_secs(10), || !is_alive(running)), "the private Apache still runs");
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

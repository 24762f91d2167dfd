//! Programs of tests end with them, whole: no child of theirs stays, also when the test itself is killed.
//!
//! Facts: setpgid(2), kill(2) of process groups, pipe(7): whoever reads one is told when the last writer is gone.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use webdyno_host::os::process::wait_until;

/// Waits until the test has ended, however it did.
const WAIT: &str = "read -r _; ";
/// Ends a group. Its number is not given away as long as its leader was not waited for.
const END_GROUP: &str = "kill -s KILL -- \"-$1\"";
/// Ends the group of a daemon, if what its pid file names still is that daemon.
const END_DAEMON: &str =
    "read -r pid <\"$1\" && grep -qsF -- \"$2\" \"/proc/$pid/cmdline\" && kill -s KILL -- \"-$pid\"";

/// Who ends something when the test ends, or drops it.
pub struct Keeper(Child);

impl Keeper {
    /// For a daemon, which has a session of its own, and words of its command line that no other has.
    pub fn of_daemon(pid_file: &Path, word: &str) -> Self {
        Self::start(END_DAEMON, &[pid_file.as_os_str(), OsStr::new(word)])
    }

    fn start(end: &str, arguments: &[&OsStr]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{WAIT}{end}"), "keeper"]).args(arguments);
        // What a terminal sends to the test's group must not end it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program in a process group of its own. It ends with the test.
pub struct Program {
    leader: Child,
    keeper: Keeper,
}

impl Program {
    /// Starts one that says nothing.
    pub fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let leader = quiet.process_group(0).spawn().unwrap();
        let keeper = Keeper::start(END_GROUP, &[OsStr::new(&leader.id().to_string())]);
        Self { leader, keeper }
    }

    pub fn pid(&self) -> u32 {
        self.leader.id()
    }

    /// Ends all of it, by force, and waits for it.
    pub fn end(&mut self) {
        // In this order: the leader that is not waited for keeps its number.
        self.keeper.end();
        let _ = self.leader.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the test below the one that is killed.
const KILLED: &str = "WEBDYNO_TEST_KILLED";

/// How many processes of a group live; who has ended and was not waited for does not (proc_pid_stat(5)).
fn living(group: u32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let is_member = |stat: &String| {
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or(vec![], |(_, rest)| rest.split(' ').collect());
        fields.len() > 2 && fields[0] != "Z" && fields[2] == group.to_string()
    };
    stats.filter(is_member).count()
}

fn becomes(count: usize, group: u32) -> bool {
    wait_until(Duration::from_secs(20), || living(group) == count)
}

#[test]
fn children_of_programs_end_also_when_the_test_is_killed() {
    let start = || Program::start(Command::new("sh").args(["-c", "sleep 600 & sleep 601 & wait"]));
    if std::env::var_os(KILLED).is_some() {
        let program = start();
        println!("\n{KILLED}={}", program.pid());
        std::thread::sleep(Duration::from_secs(600));
    }
    let program = start();
    let leader = program.pid();
    assert!(becomes(3, leader), "a shell and two others");
    drop(program);
    // They were killed; nobody but the leader's parent can wait until they are gone.
    assert!(becomes(0, leader), "{} are left", living(leader));

    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "programs::children_of_programs_end_also_when_the_test_is_killed", "--nocapture"])
        .env(KILLED, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(killed.stdout.take().unwrap()).lines().map_while(Result::ok);
    let leader = said.find_map(|line| line.strip_prefix(KILLED)?.strip_prefix('=')?.parse().ok()).unwrap();
    assert!(becomes(3, leader));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(becomes(0, leader), "{} are left", living(leader));
}

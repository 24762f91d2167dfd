//! A server without memory, whose kernel ends the agent itself: all is as before, and the session ends as after any harm.

use crate::support::{Apache, children, run, shared_turn, signal, skip, wait_until};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// More than an agent of a debug build takes.
const LIMIT_BYTES: &str = "268435456";

/// A control group in which memory can run out.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let name = format!("webdyno-test-{}-oom", std::process::id());
        [("memory", "memory.limit_in_bytes"), ("", "memory.max")].iter().find_map(|(root, file)| {
            let folder = PathBuf::from("/sys/fs/cgroup").join(root).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            std::fs::write(group.0.join(file), LIMIT_BYTES).ok().map(|()| group)
        })
    }

    /// A shell line that goes on within it.
    fn enter(&self, line: &str) -> String {
        format!("echo $$ >{}/cgroup.procs && {line}", self.0.display())
    }

    fn processes(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Fills it, with the agents as those that the kernel ends first.
    fn exhaust(&self) -> Child {
        for pid in self.processes() {
            std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
        }
        let mut hog = Command::new("sh");
        hog.args(["-c", &self.enter("exec tail /dev/zero")]).stderr(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        wait_until(Duration::from_secs(5), || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn an_agent_that_the_kernel_ends_costs_the_session_its_change_and_nothing_else() {
    let _turn = shared_turn();
    let Some(group) = Group::new() else {
        return skip("no control group with a limit of memory can be made here");
    };
    let (place, apache, before) = Apache::placed();
    let program = assert_cmd::cargo::cargo_bin("webdyno");
    let agent = format!("WEBDYNO_STATE={} exec {} agent", place.path("there").display(), program.display());
    let server = format!("exec:sh -c '{}'", group.enter(&agent));
    let load = ["--apply", "-c", "60", "--no-keepalive", "-d", "4s", "--out", "t", "-q"];
    let url = apache.url();
    let mut tool = place.child(&[&["tune", url.as_str(), "--server", &server], &load[..]].concat());
    let loads = || {
        let text = std::fs::read_to_string(place.path("t/events.jsonl")).unwrap_or_default();
        text.matches("\"kind\":\"load_start\"").count()
    };
    if !wait_until(Duration::from_secs(60), || loads() == 2 || tool.try_wait().unwrap().is_some()) {
        panic!("no second load");
    }
    assert_ne!(apache.configuration(), before, "{}", run(place.webdyno().args(["report", "t", "-v"])).stdout);
    let first = group.processes();
    let mut hog = group.exhaust();
    hog.wait().unwrap();
    let ended = tool.wait().unwrap();
    assert!(first.iter().all(|pid| !group.processes().contains(pid)), "the agent was ended");
    assert!(matches!(ended.code(), Some(0 | 3)), "{ended}");
    apache.assert_unchanged(&before);
    assert!(children(tool.id()).is_empty());
    let report = run(place.webdyno().args(["report", "t", "--json", "-"])).with_code_in(&[0, 3]).json();
    let round = &report["rounds"][0];
    assert_eq!(
        (&round["brake"]["cause"], &report["state"]),
        (&"out_of_memory".into(), &"reverted".into()),
        "{report:#}"
    );
}

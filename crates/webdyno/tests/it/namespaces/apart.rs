//! A server whose processes are in a pid namespace and in control groups of their own: it is started again in these, or not
//! at all.

use super::{Files, change_and_kill, changed, is_root, listeners};
use crate::skip::needs;
use crate::support::{Apache, Place, children, ready, run, shared_turn, skip, wait_until};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;
use webdyno_host::change::{StateDir, pending};

/// The name of the control groups of the server below: no other run's, which may have been ended before it removed its own.
fn apart_name() -> String {
    format!("webdyno-test-apart-{}", std::process::id())
}

/// A server whose processes are in a pid namespace of their own, and in a control group, with the files and the network of
/// the machine.
struct Apart {
    place: Place,
    apache: Apache,
    unshare: Child,
    /// What it says there means nothing out here.
    pid_file: PathBuf,
    /// In each hierarchy where one can be made.
    groups: Vec<PathBuf>,
    before: Files,
}

impl Apart {
    fn start() -> Self {
        let place = Place::new();
        let mut apache = Apache::files(&place.path("server"));
        // What it says means another process out here, which must not be ended for it.
        let pid_file = std::mem::take(&mut apache.files.pid_file);
        let conf = fs::read_to_string(&apache.mpm_conf).unwrap();
        let bounded = "ServerLimit 20\n    MaxRequestWorkers 20";
        fs::write(&apache.mpm_conf, conf.replace("MaxRequestWorkers       150", bounded)).unwrap();
        let groups = ["", "unified/", "memory/"]
            .map(|at| PathBuf::from(format!("/sys/fs/cgroup/{at}{}", apart_name())));
        let is_made =
            |group: &PathBuf| group.with_file_name("cgroup.procs").exists() && fs::create_dir(group).is_ok();
        let groups: Vec<PathBuf> = groups.into_iter().filter(is_made).collect();
        let join = groups.iter().map(|group| format!("echo 0 >{}/cgroup.procs && ", group.display()));
        let (join, command) = (join.collect::<String>(), apache.files.command.join(" "));
        let script = format!("{join}{command} && echo ready; while read -r _; do :; done");
        let unshare =
            ready(Command::new("unshare").args(["--pid", "--fork", "--kill-child", "bash", "-c", &script]));
        let before = apache.configuration();
        let apart = Self { place, apache, unshare, pid_file, groups, before };
        assert!(wait_until(Duration::from_secs(10), || !apart.listeners().is_empty()));
        apart
    }

    fn listeners(&self) -> Vec<u32> {
        listeners("", self.apache.files.port)
    }

    fn words(&self) -> String {
        let program = assert_cmd::cargo::cargo_bin("webdyno");
        format!("exec:env WEBDYNO_STATE={} {} agent", self.place.path("state").display(), program.display())
    }

    fn check(&self, reported: &str) {
        assert!(wait_until(Duration::from_secs(10), || !self.listeners().is_empty()), "{reported}");
        let link = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let first = children(self.unshare.id())[0];
        for pid in self.listeners() {
            let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            assert_eq!(link(pid), link(first), "{pid}: {reported}");
            assert_eq!(
                group.matches(&apart_name()).count(),
                self.groups.len(),
                "{pid} is in {group}: {reported}"
            );
        }
        let here = fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(!here.contains(&apart_name()), "{here}");
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // One that was started on the machine: what it says is gone with the place, which is dropped before Apache is.
        if let Some(pid) = self.apache.pid() {
            crate::support::end(pid);
        }
        for group in &self.groups {
            wait_until(Duration::from_secs(5), || fs::remove_dir(group).is_ok());
        }
    }
}

/// A stop and a start leave a server with the processes and the group that it had; and where that is gone it is not
/// started anywhere else.
#[test]
fn a_server_is_started_again_among_its_own_processes_or_not_at_all() {
    let _turn = shared_turn();
    needs!(is_root(), "needs root and namespaces");
    let mut apart = Apart::start();
    if apart.groups.is_empty() {
        skip("no control group can be made here: that part is left out");
    }
    let state = apart.place.path("state");
    change_and_kill(&apart.words(), apart.apache.files.port, &state);
    apart.check("the change");
    crate::support::end(*apart.listeners().first().unwrap());
    let reported = run(apart.place.webdyno().arg("rollback")).with_code(0).stdout;
    apart.check(&reported);
    assert!(reported.contains("started apache again"), "{reported}");
    assert_eq!(changed(&apart.apache.configuration(), &apart.before), Vec::<PathBuf>::new(), "{reported}");

    change_and_kill(&apart.words(), apart.apache.files.port, &state);
    apart.unshare.kill().unwrap();
    assert!(wait_until(Duration::from_secs(5), || apart.listeners().is_empty()));
    let ended = run(apart.place.webdyno().arg("rollback")).with_code(1);
    assert!(ended.stderr.contains("cannot be started where it ran"), "{}", ended.stderr);
    assert_eq!(apart.listeners(), Vec::<u32>::new(), "{}", ended.stderr);
    assert_eq!(changed(&apart.apache.configuration(), &apart.before), Vec::<PathBuf>::new());
    // Its supervisor started it again by now.
    fs::remove_file(&apart.pid_file).unwrap();
    let status = Command::new(&apart.apache.files.command[0]).args(&apart.apache.files.command[1..]).status();
    assert!(status.unwrap().success());
    assert!(wait_until(Duration::from_secs(10), || !apart.listeners().is_empty()));
    // From here on it is one of the machine's own, and ends with it.
    apart.apache.files.pid_file = apart.pid_file.clone();
    let reported = run(apart.place.webdyno().arg("rollback")).with_code(0).stdout;
    assert_eq!(pending(&StateDir::at(&state)).unwrap(), [], "{reported}");
}

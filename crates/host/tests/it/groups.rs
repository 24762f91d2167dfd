//! Real control groups with real limits: what the collectors say of them, and that the commands beside it say the same.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harm_guard::turn;
use crate::skip::skip;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use webdyno_host::collectors::kernel::cgroup::Cgroup;
use webdyno_host::collectors::kernel::kernel_log::KernelMessages;
use webdyno_host::collectors::kernel::memory::Memory;
use webdyno_host::collectors::processes::process::Process;
use webdyno_host::collectors::{Collector, Reading, Target};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_model::service::ServiceSnapshot;

const PATIENCE: Duration = Duration::from_secs(30);

/// A controller, and files of a group with the values that are written there, in both versions.
pub struct Limit {
    controller: &'static str,
    v1: &'static [(&'static str, &'static str)],
    v2: &'static [(&'static str, &'static str)],
}

const CPU: Limit = Limit {
    controller: "cpu",
    v1: &[("cpu.cfs_period_us", "50000"), ("cpu.cfs_quota_us", "10000")],
    v2: &[("cpu.max", "10000 50000")],
};

pub const MEMORY: Limit = Limit {
    controller: "memory",
    v1: &[("memory.limit_in_bytes", "31457280")],
    v2: &[("memory.max", "31457280")],
};

pub const CPUSET: Limit = Limit {
    controller: "cpuset",
    v1: &[("cpuset.cpus", "0-1"), ("cpuset.mems", "0")],
    v2: &[("cpuset.cpus", "0-1")],
};

pub const TASKS: Limit = Limit { controller: "pids", v1: &[("pids.max", "3")], v2: &[("pids.max", "3")] };

/// A control group with a limit, and a group within it that has none of its own.
pub struct Group {
    pub folder: PathBuf,
}

impl Group {
    pub fn new(limit: &Limit) -> Option<Self> {
        let name = format!("webdyno-test-{}-{}", std::process::id(), limit.controller);
        let roots = [
            (Path::new("/sys/fs/cgroup").join(limit.controller), limit.v1),
            (PathBuf::from("/sys/fs/cgroup"), limit.v2),
        ];
        for (root, files) in roots {
            let folder = root.join(&name);
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self { folder };
            let written =
                files.iter().all(|(file, value)| std::fs::write(group.folder.join(file), value).is_ok());
            if written && std::fs::create_dir(group.inner()).is_ok() {
                return Some(group);
            }
        }
        skip(&format!("no control group with a limit of {} can be made here", limit.controller));
        None
    }

    fn inner(&self) -> PathBuf {
        self.folder.join("inner")
    }

    /// A shell in the inner group that does what it is told, line by line.
    fn shell(&self) -> Child {
        let procs = self.inner().join("cgroup.procs");
        let script = format!("echo $$ > {}; while read -r line; do eval \"$line\"; done", procs.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let inside =
            || std::fs::read_to_string(&procs).unwrap().lines().any(|pid| pid == child.id().to_string());
        assert!(wait_until(PATIENCE, inside));
        child
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A test that failed leaves what it started. Only an empty group can be removed.
        let left = std::fs::read_to_string(self.inner().join("cgroup.procs")).unwrap_or_default();
        for process in left.lines().filter_map(|pid| ProcessName::of(pid.parse().ok()?)) {
            let _ = process.signal(rustix::process::Signal::KILL);
        }
        for folder in [self.inner(), self.folder.clone()] {
            wait_until(Duration::from_secs(5), || !folder.exists() || std::fs::remove_dir(&folder).is_ok());
        }
    }
}

fn write_line(shell: &mut Child, line: &str) {
    writeln!(shell.stdin.as_mut().unwrap(), "{line}").unwrap();
}

fn end(mut shell: Child) {
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

fn of(pid: u32) -> Target {
    Target { service_pid: Some(pid), ..Target::default() }
}

/// What the command beside a metric shows for a process.
fn by_hand(collector: &impl Collector, name: &str, pid: u32) -> f64 {
    let metric = collector.metrics().into_iter().find(|metric| metric.name == name).unwrap();
    let command = metric.reproduce.replace("PID", &pid.to_string());
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    shown.trim().parse().unwrap_or_else(|_| panic_of(&command, &shown, &errors))
}

#[allow(clippy::panic)]
fn panic_of(command: &str, shown: &str, errors: &str) -> f64 {
    panic!("`{command}` shows `{shown}` {errors}")
}

/// Each value between two readings is what its command shows between them.
fn check_by_hand(collector: &mut impl Collector, names: &[&str], pid: u32) -> Reading {
    let before = collector.read(&of(pid));
    let shown: Vec<f64> = names.iter().map(|name| by_hand(collector, name, pid)).collect();
    let after = collector.read(&of(pid));
    for (name, shown) in names.iter().zip(shown) {
        let values = [&before, &after].map(|reading| reading.value(name).unwrap());
        let (least, most) = (values[0].min(values[1]), values[0].max(values[1]));
        let dust = 1e-5 * most.abs();
        assert!(shown >= least - dust && shown <= most + dust, "{name}: {shown} by hand, {values:?}");
    }
    after
}

/// Workers of a user of their own below a main process of root, as a web server has them.
#[test]
fn processes_of_a_service_and_their_commands_agree() {
    let user = "setpriv --reuid 65534 --clear-groups";
    let worker = format!("prlimit --nofile=64 --nproc=500 {user} sleep 60 &");
    let shell = Command::new("sh")
        .args([
            "-c",
            &format!(
                "{worker} {worker} {worker} read -r _; kill $(cat /proc/$$/task/$$/children) 2>/dev/null"
            ),
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id())).unwrap();
        let names =
            children.split_whitespace().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")));
        names.flatten().filter(|name| name == "sleep\n").count() == 3
    };
    let all_run = wait_until(PATIENCE, ready);
    let root = rustix::process::getuid().is_root();
    let mut collector = Process::default();
    // Limits and users are read in turn.
    for _ in 0..4 {
        collector.read(&of(shell.id()));
    }
    let mut names = vec![
        "process.count",
        "process.threads_count",
        "process.running_count",
        "process.disk_wait_count",
        "process.open_files_max_count",
        "process.open_files_limit_count",
        "process.cpu_s",
    ];
    if all_run && root {
        let of_workers = [
            "process.fullest_open_files_count",
            "process.fullest_open_files_limit_count",
            "process.user_tasks_count",
            "process.user_tasks_limit_count",
        ];
        names.extend(of_workers);
    } else {
        skip("needs root, to start processes of another user");
    }
    let reading = check_by_hand(&mut collector, &names, shell.id());
    end(shell);
    if all_run && root {
        let value = |name: &str| reading.value(&format!("process.{name}"));
        assert_eq!((value("count"), value("fullest_open_files_limit_count")), (Some(4.0), Some(64.0)));
        assert_eq!((value("user_tasks_count"), value("user_tasks_limit_count")), (Some(3.0), Some(500.0)));
    }
}

#[test]
fn a_group_with_a_quota_is_throttled() {
    let Some(group) = Group::new(&CPU) else { return };
    let mut shell = group.shell();
    let mut collector = Cgroup::default();
    let target = of(shell.id());
    let throttled = |reading: &Reading| reading.value("cgroup.throttled_periods_count").unwrap();
    let before = throttled(&collector.read(&target));
    write_line(&mut shell, "while :; do i=$((i+1)); done");
    let seen = wait_until(PATIENCE, || throttled(&collector.read(&target)) >= before + 2.0);
    let names = [
        "cgroup.quota_cores_count",
        "cgroup.cpus_count",
        "cgroup.periods_count",
        "cgroup.throttled_periods_count",
        "cgroup.throttled_s",
    ];
    let reading = check_by_hand(&mut collector, &names, shell.id());
    let behind = ServiceSnapshot { service: "php_fpm".into(), pid: shell.id(), ..ServiceSnapshot::default() };
    let front = Target { backends: [behind].into(), ..of(std::process::id()) };
    let of_backend = Cgroup::default().read(&front);
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert!(seen, "{reading:?}");
    assert_eq!(of_backend.value("cgroup.php_fpm.quota_cores_count"), Some(0.2), "{of_backend:?}");
    assert!(of_backend.value("cgroup.php_fpm.throttled_periods_count") >= Some(2.0), "{of_backend:?}");
    assert_eq!(reading.value("cgroup.quota_cores_count"), Some(0.2));
    assert_eq!(reading.value("cgroup.cores_count"), Some(0.2));
    assert!(reading.value("cgroup.throttled_s") > Some(0.0), "{reading:?}");
    assert!(reading.value("cgroup.periods_count") >= Some(throttled(&reading)));
}

#[test]
fn kills_and_hits_of_a_memory_limit_are_counted_by_the_group_and_in_the_log() {
    let _turn = turn();
    let Some(group) = Group::new(&MEMORY) else { return };
    let mut shell = group.shell();
    let (mut cgroup, mut log) = (Cgroup::default(), KernelMessages::default());
    let target = of(shell.id());
    let told_before = log.read(&target);
    let before = cgroup.read(&target);
    assert_eq!(before.value("cgroup.oom_kills_count"), Some(0.0), "{before:?}");
    write_line(&mut shell, "tail /dev/zero");
    let killed = wait_until(PATIENCE, || cgroup.read(&target).value("cgroup.oom_kills_count") >= Some(1.0));
    let names = ["cgroup.memory_limit_bytes", "cgroup.memory_limit_hits_count", "cgroup.oom_kills_count"];
    let reading = check_by_hand(&mut cgroup, &names, shell.id());
    let message = log.read(&target);
    let names = ["memory.limit_bytes", "memory.used_in_limit_bytes", "memory.group_oom_kills_count"];
    let memory = check_by_hand(&mut Memory::default(), &names, shell.id());
    assert_eq!(memory.value("memory.limit_bytes"), Some(31_457_280.0));
    end(shell);
    assert!(killed, "{reading:?}");
    assert_eq!(reading.value("cgroup.memory_limit_bytes"), Some(31_457_280.0));
    assert!(reading.value("cgroup.memory_limit_hits_count") >= Some(1.0), "{reading:?}");
    let Some(kills_before) = told_before.value("kernel_log.oom_kill.messages_count") else {
        return skip("the kernel log cannot be read here");
    };
    assert!(message.value("kernel_log.oom_kill.messages_count") > Some(kills_before), "{message:?}");
    let first = std::fs::read_link("/proc/self/ns/cgroup").unwrap().as_os_str() == "cgroup:[4026531835]";
    if first {
        assert!(message.value("kernel_log.oom_kill_in_group.messages_count") >= Some(1.0), "{message:?}");
    }
}

#[test]
fn tasks_that_a_group_may_not_have_are_counted() {
    let Some(group) = Group::new(&TASKS) else { return };
    let mut shell = group.shell();
    let mut collector = Cgroup::default();

    let alone = check_by_hand(&mut collector, &["cgroup.tasks_count"], shell.id());
    assert_eq!(alone.value("cgroup.tasks_count"), Some(1.0));
    // The shell ends when it cannot make a process: what it started lives on in its group for a moment.
    write_line(&mut shell, "sleep 2 & sleep 2 & sleep 2 & sleep 2 &");
    let folder = group.inner();
    let procs = || std::fs::read_to_string(folder.join("cgroup.procs")).unwrap();
    let refused = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("pids.events")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("max ")?.parse().ok()).unwrap_or(0u32)
    };
    let seen = wait_until(PATIENCE, || refused(&folder) + refused(&group.folder) > 0);
    assert!(seen, "{}", procs());
    let left = procs().lines().find_map(|pid| pid.parse().ok()).expect("nothing is left of the group");
    let names = ["cgroup.tasks_limit_count", "cgroup.tasks_refused_count"];
    let reading = check_by_hand(&mut collector, &names, left);
    assert_eq!(reading.value("cgroup.tasks_limit_count"), Some(3.0));
    assert!(reading.value("cgroup.tasks_refused_count") >= Some(1.0), "{reading:?}");
    shell.wait().unwrap();
}

//! Real processes beside those of the service.

use super::*;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A shell that works, under a name of its own.
struct Busy {
    child: Child,
    name: String,
    _folder: tempfile::TempDir,
}

impl Busy {
    fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let child = Command::new(&program).args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self { child, name: name.to_owned(), _folder: folder }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn target(service: &Busy) -> Target {
    Target { service_pid: Some(service.child.id()), ..Target::default() }
}

/// The agent's own processes are not foreign, but these are its children: they are told as if it were another.
fn roots(target: &Target) -> BTreeSet<u32> {
    let mut roots = OtherProcesses::known_roots(target);
    assert!(roots.remove(&std::process::id()));
    roots
}

fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    false
}

#[test]
fn who_else_works_is_named_and_the_service_is_not() {
    let (service, other) = (Busy::start("own-worker"), Busy::start("other-worker"));
    let target = target(&service);
    let roots = roots(&target);
    let mut foreign = OtherProcesses::default();
    // Other work goes on beside: who is chosen depends on it. Until the name is that of the program, and the time is enough to be told.
    let named = until(|| {
        let look = foreign.table.sample(&roots, target.service_pid);
        let used = look.names.get(&other.name).copied().unwrap_or_default();
        let enough = used.cpu_ns > 100_000_000;
        if enough {
            assert_eq!(used.processes_count, 1);
            assert!(!look.names.contains_key(&service.name), "{:?}", look.names);
            assert!(look.others.cpu_ns >= used.cpu_ns);
        }
        enough
    });
    assert!(named);
    // What it used stays when it has ended.
    let name = other.name.clone();
    drop(other);
    let after = foreign.table.sample(&roots, target.service_pid);
    let used = after.names[&name];
    assert!(used.processes_count == 0 && used.cpu_ns > 100_000_000, "{used:?}");
}

#[test]
fn names_are_few_and_stay() {
    let mut foreign = OtherProcesses::default();
    let used = |cpu_ns, memory_bytes| Used { cpu_ns, memory_bytes, ..Used::default() };
    let mut names: BTreeMap<String, Used> =
        (0..40).map(|n| (format!("p{n:02}"), used(n * 1_000_000_000, 0))).collect();
    names.insert("large".into(), used(0, 1 << 30));
    names.insert("idle".into(), used(1, 1 << 20));
    foreign.choose(&names);
    let first = foreign.shown.clone();
    assert_eq!(first.iter().map(String::as_str).collect::<Vec<_>>(), ["large", "p36", "p37", "p38", "p39"]);
    for round in 1..20 {
        for (n, used) in names.values_mut().enumerate() {
            used.cpu_ns += 1_000_000_000 * ((n as u64 + round * 7) % 40);
        }
        foreign.choose(&names);
    }
    assert_eq!(foreign.shown.len(), NAMES_MAX);
    // Whoever uses much now is told, however many were told before.
    names.insert("late".into(), used(100_000_000_000, 0));
    foreign.choose(&names);
    assert!(foreign.shown.len() == NAMES_MAX && foreign.shown.contains("late"), "{:?}", foreign.shown);
}

// A whole reading: what is in it is described, and nothing of this test is foreign to it.
#[test]
fn this_machine_is_read() {
    let busy = Busy::start("agents-child");
    let mut foreign = OtherProcesses::default();
    let first = foreign.read(&Target::default());
    let second = foreign.read(&Target::default());
    assert!(second.value("foreign.processes_count").is_some(), "{second:?}");
    assert!(second.value("foreign.cpu_s") >= first.value("foreign.cpu_s"));
    assert!(!foreign.shown.contains(&busy.name), "a child of the agent is the agent's");
}

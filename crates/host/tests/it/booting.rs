//! The hook at boot: it is there exactly as long as a boot has something to revert.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::change::{PROGRAM, victim};
use crate::fake::{FakeServer, FaultInjection, PORT, What};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::action::{Launch, Launched};
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::claim::Claimed;
use webdyno_host::change::seams::disk::{Disk, RealDisk};
use webdyno_host::change::seams::init_system::{Booting, Init};
use webdyno_host::change::seams::processes::{Running, System};
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::undo::rollback::{notice_with, rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, StateDir, Tools, pending};
use webdyno_host::os::process::ProcessName;
use webdyno_host::probes::site::Answer;
use webdyno_host::services::sysctl::space::NetSpace;
use webdyno_host::services::value_holder::ValueHolder;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, ApplyOptions, SiteProbe};

/// This machine, whose boot files are in a folder, which may have been booted since, and whose site always is well.
pub struct BootWorld {
    pub folder: PathBuf,
    pub boot_id: Option<String>,
    pub machine_id: Option<String>,
    pub fault: FaultInjection,
}

impl System for BootWorld {
    fn booting(&self, _: &StateDir) -> Option<Booting> {
        let root = self.folder.join("root");
        let init = if root.join(TABLE).exists() { Init::SysV(&["etc/rc2.d"]) } else { Init::Systemd };
        root.exists().then(|| Booting {
            init,
            root,
            program: "/usr/bin/webdyno".into(),
            copy_of: self.folder.join("uploaded").exists().then(|| self.folder.join("uploaded")),
        })
    }
    fn boot_id(&self) -> Option<String> {
        self.boot_id.clone().or_else(|| ThisMachine.boot_id())
    }
    fn machine_id(&self) -> Option<String> {
        self.machine_id.clone()
    }
    fn claim(&self, name: &str) -> std::io::Result<Claimed> {
        ThisMachine.claim(name)
    }
    fn this_process(&self) -> Result<ProcessName> {
        ThisMachine.this_process()
    }
    fn is_running(&self, process: ProcessName) -> bool {
        ThisMachine.is_running(process)
    }
    fn end_process(&self, process: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()> {
        ThisMachine.end_process(process, own_group, patience)
    }
    fn now_us(&self) -> i64 {
        ThisMachine.now_us()
    }
    fn monotonic(&self) -> Duration {
        ThisMachine.monotonic()
    }
    fn pause(&self, time: Duration) {
        ThisMachine.pause(time);
    }
    fn check_launch(&self, launch: &Launch) -> Result<()> {
        ThisMachine.check_launch(launch)
    }
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>> {
        ThisMachine.launch(launch)
    }
    fn stop_launched(&self, launch: &Launch, launched: Option<Launched>, agent: ProcessName) -> Result<bool> {
        ThisMachine.stop_launched(launch, launched, agent)
    }
    fn request_site(&self, _: SocketAddr, _: &SiteProbe, _: Duration) -> std::io::Result<Answer> {
        Ok(Answer { status: 200, length_bytes: 100, certificate: None })
    }
    fn sysctl_space(&self, name: &str) -> Option<NetSpace> {
        ThisMachine.sysctl_space(name)
    }
    // Pretended ones are files in a folder; without it they are the kernel's.
    fn read_value(&self, name: &str, holder: &ValueHolder) -> std::io::Result<Option<String>> {
        let pretended = self.folder.join("sysctls");
        match pretended.exists() {
            true => std::fs::read_to_string(pretended.join(name)).map(Some),
            false => ThisMachine.read_value(name, holder),
        }
    }
    fn write_value(&self, name: &str, holder: &ValueHolder, value: &str) -> std::io::Result<()> {
        let pretended = self.folder.join("sysctls");
        let write = || match pretended.exists() {
            true => std::fs::write(pretended.join(name), value),
            false => ThisMachine.write_value(name, holder, value),
        };
        self.fault.act(write, |_| write().unwrap())
    }
}

/// The table of a parallel boot: a machine that has it is booted by SysV scripts.
const TABLE: &str = "etc/init.d/.depend.start";

/// All files and directories below a folder.
pub fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            found.push(path.clone());
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// After another boot.
pub fn booted(server: &FakeServer, disk: Arc<dyn Disk>) -> Tools {
    let system = BootWorld {
        folder: server.folder.clone(),
        boot_id: Some("another".into()),
        machine_id: None,
        fault: FaultInjection::default(),
    };
    Tools { system: Arc::new(system), ..server.tools(disk) }
}

fn units(server: &FakeServer) -> Vec<String> {
    let files = tree(&server.folder.join("root")).into_iter().filter(|path| path.is_file());
    files.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

fn apply(changer: &mut Changer, server: &FakeServer, text: &str) -> u64 {
    let plan = server.plan(&[("a.conf", text), ("new.conf", text)], ApplyClass::Reload);
    changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap().mark
}

#[test]
fn the_hook_is_there_as_long_as_a_boot_has_something_to_put_back() {
    let (folder, server) = FakeServer::fresh();
    let root = tree(&folder.path().join("root"));
    let mut changer = server.changer();
    let mark = apply(&mut changer, &server, "Workers 20\n");
    let id = pending(&server.state()).unwrap().remove(0).id;
    let name = format!("webdyno-rollback-{}", id.to_ascii_lowercase().replace('.', "-"));
    assert_eq!(units(&server), [format!("{name}.conf"), format!("{name}.service")]);
    changer.revert(mark, false).unwrap();
    assert_eq!(tree(&folder.path().join("root")), root, "everything is reverted");
    apply(&mut changer, &server, "Workers 30\n");
    assert_eq!(units(&server).len(), 2);
    changer.keep().unwrap();
    assert_eq!(tree(&folder.path().join("root")), root, "what is kept stays at a boot");
    let mark = apply(&mut changer, &server, "Workers 40\n");
    let second = apply(&mut changer, &server, "Workers 50\n");
    assert_eq!((units(&server).len(), second > mark), (2, true));
    changer.revert(second, false).unwrap();
    assert_eq!(units(&server).len(), 2, "the first of the two is in force still");
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(tree(&folder.path().join("root")), root);
    assert!(server.running().contains("Workers 30"));
    rollback_with(&server.tools(Arc::new(RealDisk))).unwrap();
    assert_eq!(tree(&folder.path().join("root")), root);
}

/// A program that is gone at the boot leaves a copy, which is there exactly as long as the hook, whatever becomes of the
/// change.
#[test]
fn a_program_that_would_be_gone_leaves_a_copy() {
    let (folder, server) = FakeServer::fresh();
    std::fs::write(folder.path().join("uploaded"), "a program").unwrap();
    let state = server.state();
    let copies = || {
        let all = tree(state.root()).into_iter();
        let is_copy =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("webdyno-rollback-");
        all.filter(is_copy).collect::<Vec<_>>()
    };
    let mut changer = server.changer();
    let mark = apply(&mut changer, &server, "Workers 20\n");
    let [copy] = &copies()[..] else { panic!("{:?}", copies()) };
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "a program");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&copy.metadata().unwrap().permissions()) & 0o777,
        0o700
    );
    let units = tree(&folder.path().join("root")).into_iter().filter(|path| path.is_file());
    let texts: Vec<String> = units.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let run = format!("ExecStart=\"{}\" rollback --interrupted", copy.display());
    assert!(texts.iter().any(|text| text.contains(&run)), "{texts:?}");
    changer.revert(mark, false).unwrap();
    assert_eq!(copies(), Vec::<PathBuf>::new(), "undone");
    apply(&mut changer, &server, "Workers 30\n");
    assert_eq!(copies().len(), 1);
    changer.keep().unwrap();
    assert_eq!(copies(), Vec::<PathBuf>::new(), "kept");
    apply(&mut changer, &server, "Workers 40\n");
    drop(changer);
    std::fs::remove_file(folder.path().join("alive")).unwrap();
    let done = undo_interrupted_with(&booted(&server, Arc::new(RealDisk))).unwrap();
    assert!(done.problem.is_none() && copies().is_empty(), "{:?}", done.problem);
    // What cannot be copied is told, and nothing of it stays.
    std::fs::remove_file(folder.path().join("uploaded")).unwrap();
    std::fs::create_dir(folder.path().join("uploaded")).unwrap();
    std::fs::write(folder.path().join("alive"), "1").unwrap();
    let mut changer = server.changer();
    apply(&mut changer, &server, "Workers 50\n");
    let notes = changer.take_notes();
    assert!(notes.iter().any(|note| note.contains("webdyno rollback")) && copies().is_empty(), "{notes:?}");
}

/// What the unit runs when the machine boots: nothing of the service runs yet, and nobody's process is touched.
#[test]
fn a_boot_puts_back_what_was_never_kept_and_starts_nothing() {
    let (folder, server) = FakeServer::fresh();
    let root = tree(&folder.path().join("root"));
    let mut changer = server.changer();
    apply(&mut changer, &server, "Workers 20\n");
    changer.keep().unwrap();
    apply(&mut changer, &server, "Workers 30\n");
    let living = undo_interrupted_with(&server.tools(Arc::new(RealDisk))).unwrap();
    assert!(
        living.lines.is_empty() && living.problem.is_none(),
        "a session that is at work is left to itself"
    );
    drop(changer);
    std::fs::remove_file(folder.path().join("alive")).unwrap();
    let tools = booted(&server, Arc::new(RealDisk));
    let done = undo_interrupted_with(&tools).unwrap();
    assert!(done.problem.is_none() && !done.unfinished, "{:?}", done.problem);
    assert!(
        done.lines.iter().any(|line| line.ends_with("fake does not run, and was left so")),
        "{:?}",
        done.lines
    );
    assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 20\n");
    assert_eq!(tree(&folder.path().join("root")), root);
    let journal = pending(&server.state()).unwrap().remove(0);
    assert!(journal.kept, "it can still be rolled back");
    assert!(undo_interrupted_with(&tools).unwrap().lines.is_empty());
}

/// A killed guardian's lock outlives it by moments: in its last threads, and in a child that it was just starting.
#[test]
fn the_lock_of_the_dead_is_waited_for_and_that_of_the_living_is_not() {
    use rustix::fs::{FlockOperation, flock};
    let (folder, server) = FakeServer::fresh();
    let root = tree(&folder.path().join("root"));
    let mut changer = server.changer();
    apply(&mut changer, &server, "Workers 30\n");
    drop(changer);
    std::fs::remove_file(folder.path().join("alive")).unwrap();
    let tools = booted(&server, Arc::new(RealDisk));
    let path = tools.state.lock();
    let held = std::fs::File::open(&path).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let begun = std::time::Instant::now();
    // Its file names this process still.
    assert!(undo_interrupted_with(&tools).unwrap().lines.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(4), "who is at work is not waited for");
    let gone = format!(r#"{{"pid":{},"start_ticks":1,"what":"webdyno tune"}}"#, std::process::id());
    std::fs::write(&path, gone).unwrap();
    let last_thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    let done = undo_interrupted_with(&tools).unwrap();
    last_thread.join().unwrap();
    assert!(!done.lines.is_empty() && done.problem.is_none(), "{:?}", done.problem);
    assert_eq!(tree(&folder.path().join("root")), root);
}

/// Where no hook can be written the change is made all the same, and it is told what that means.
#[test]
fn a_hook_that_cannot_be_installed_is_told() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    // The first act behind the journal's first intent.
    let note = (1..60).find_map(|act| {
        let server = FakeServer { fault: FaultInjection::at(act, What::FailOnce), ..server.clone() };
        let mut changer = server.changer();
        let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
        let applied = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default());
        let notes = changer.take_notes();
        changer.end(ClosedBy::Tool).unwrap();
        assert_eq!(server.picture(), original, "act {act}");
        notes.into_iter().find(|note| applied.is_ok() && note.contains("if this machine goes down now"))
    });
    let note = note.unwrap();
    assert!(note.contains(".service: no space left on the disk: if this machine goes down now"), "{note}");
}

/// A program that a session launched is gone after a boot: there is nothing to revert.
#[test]
fn a_launched_program_needs_no_hook() {
    let (folder, server) = FakeServer::fresh();
    let mut changer = server.changer();
    let port = crate::ports::free_port();
    let pid_file = folder.path().join("pid").display().to_string();
    let program = std::env::current_exe().unwrap().display().to_string();
    let test = "change::a_launched_program_never_outlives_its_session";
    let order = format!("{PROGRAM}={port}|{pid_file}");
    let command = ["/usr/bin/env", &order, &program, "--exact", test].map(str::to_owned);
    changer.launch(&command, &pid_file, port).unwrap();
    let snapshot = webdyno_model::service::ServiceSnapshot { port, ..server.snapshot_now() };
    let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
    changer.apply(&plan, &snapshot, &ApplyOptions::default()).unwrap();
    assert_eq!(units(&server), Vec::<String>::new());
    apply(&mut changer, &server, "Workers 21\n");
    assert_eq!((units(&server).len(), PORT), (2, 8000));
    changer.end(ClosedBy::Tool).unwrap();
    assert_eq!(units(&server), Vec::<String>::new());
}

/// A state directory that several machines share: each puts back what is its own, and judges no other.
#[test]
fn what_another_machine_left_is_left_to_it() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    let on = |machine: &str| {
        let machine_id = Some(machine.to_owned());
        let system = BootWorld {
            folder: folder.path().to_owned(),
            boot_id: Some(machine.into()),
            machine_id,
            fault: FaultInjection::default(),
        };
        Tools { system: Arc::new(system), ..server.tools(Arc::new(RealDisk)) }
    };
    let owner = || Owner { tool: None, what: "webdyno tune".into() };
    let mut changer = Changer::with(on("one"), owner());
    apply(&mut changer, &server, "Workers 20\n");
    drop(changer);
    let changed = server.picture();
    assert!(undo_interrupted_with(&on("two")).unwrap().lines.is_empty());
    assert_eq!(rollback_with(&on("two")).unwrap(), Vec::<String>::new());
    assert_eq!((notice_with(&on("two")), server.picture()), (None, changed));
    let mut other = Changer::with(on("two"), owner());
    let plan = server.plan(&[("b.conf", "KeepAlive Off\n")], ApplyClass::Reload);
    other.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    other.end(ClosedBy::Tool).unwrap();
    rollback_with(&on("one")).unwrap();
    assert_eq!(server.picture(), original);
}

/// Reverting what was cut off is killed at any act, and completed by the next one; what was kept stays.
#[test]
fn a_kill_of_the_boot_is_completed_by_the_next_one() {
    let mut kills = 0;
    for act in 1.. {
        let (folder, server) = FakeServer::fresh();
        let mut changer = server.changer();
        apply(&mut changer, &server, "Workers 20\n");
        changer.keep().unwrap();
        let kept = server.picture();
        apply(&mut changer, &server, "Workers 30\n");
        drop(changer);
        let killed = victim(folder.path(), act, act % 2 == 0, false, "interrupted");
        let done = undo_interrupted_with(&booted(&server, Arc::new(RealDisk))).unwrap();
        assert!(done.problem.is_none() && !done.unfinished, "act {act}: {:?}", done.problem);
        assert_eq!(server.picture(), kept, "act {act}");
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 10, "only {kills} kills");
}

/// The same for a session on a machine that boots by a table: that is as before, to the byte, whatever was killed.
#[test]
fn a_kill_at_any_act_leaves_the_table_of_the_boot_as_it_was() {
    const NAMES: &str = "TARGETS = rsyslog fake cron\nINTERACTIVE =\nfake: rsyslog\n";
    let (mut kills, mut named) = (0, 0);
    for act in 1.. {
        let (folder, server) = FakeServer::fresh();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("etc/init.d")).unwrap();
        std::fs::create_dir_all(root.join("etc/rc2.d")).unwrap();
        std::fs::write(root.join(TABLE), NAMES).unwrap();
        let original = server.picture();
        let killed = victim(folder.path(), act, act % 2 == 0, false, "session");
        let table = std::fs::read_to_string(root.join(TABLE)).unwrap();
        if table != NAMES {
            let name = table.split_whitespace().nth(2).unwrap();
            let expected =
                format!("TARGETS = {name} rsyslog fake cron\nINTERACTIVE =\nfake: {name} rsyslog\n");
            assert_eq!(table, expected);
            assert!(
                root.join(format!("etc/rc2.d/S00{name}")).exists()
                    && root.join(format!("etc/init.d/{name}")).exists()
            );
            named += 1;
        }
        rollback_with(&server.tools(Arc::new(RealDisk))).unwrap();
        assert_eq!(server.picture(), original, "act {act}");
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 60 && named > 20, "{kills} kills, in {named} of them the table was changed");
}

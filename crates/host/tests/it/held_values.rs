//! Values that only running processes hold, some of them with a file that keeps them: the backlog of listening sockets, limits of
//! processes, the tasks, processors and memory of a control group. Whoever is killed at whatever act, they are as before, or as they were kept; a
//! rollback gives them back, and nothing of the file or its folder stays.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FakeServer, acts_apart, empty_folder, leave_out_between, victim_of, victim_order};
use crate::groups::{CPUSET, Group, MEMORY, TASKS};
use crate::skip::{needs, skip};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Changer, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_host::os::procfs;
use webdyno_host::services::listen_backlog::ListeningSockets;
use webdyno_host::services::value_holder::ValueHolder;
use webdyno_host::services::{listen_backlog, process_limit, resource_control};
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::setting::SettingId;

/// What a session is about: the setting, its original, the values that it sets one after the other, and what keeps them.
struct Held {
    setting: &'static str,
    original: i64,
    values: [i64; 3],
    /// How the last line of the file begins and ends that keeps it; `None` where no file does.
    kept_as: Option<[&'static str; 2]>,
}

const BACKLOG: Held =
    Held { setting: listen_backlog::SETTING, original: 7, values: [30, 60, 90], kept_as: None };
const FILES: Held = Held { setting: "LimitNOFILE", original: 100, values: [200, 250, 300], kept_as: None };
const KEPT_FILES: Held = Held { kept_as: Some(["LimitNOFILE=", ":400\n"]), ..FILES };
const PROCESSES: Held = Held { setting: "LimitNPROC", kept_as: Some(["LimitNPROC=", ":400\n"]), ..FILES };
const TASKS_MAX: Held = Held { setting: "TasksMax", kept_as: Some(["TasksMax=", "\n"]), ..FILES };
/// How many; the second value is the original.
const CPUS: Held = Held { setting: "AllowedCPUs", original: 2, values: [1, 2, 1], kept_as: None };
/// In bytes; -1 is no limit.
const MEMORY_MAX: Held =
    Held { setting: "MemoryMax", original: -1, values: [512 * MIB, 256 * MIB, 768 * MIB], kept_as: None };
const MIB: i64 = 1 << 20;

/// What is added to the unit of the service, in the folder of a test.
fn drop_in(folder: &Path) -> PathBuf {
    folder.join("etc/systemd/system/apache2.service.d/zzz-webdyno.conf")
}

impl Held {
    fn of(setting: &str, is_in_file: bool) -> Self {
        let all = [BACKLOG, FILES, KEPT_FILES, PROCESSES, TASKS_MAX, CPUS, MEMORY_MAX];
        let is_it = |held: &Held| held.setting == setting && held.kept_as.is_some() == is_in_file;
        all.into_iter().find(is_it).unwrap()
    }

    /// Whether the file that keeps it has a value, or is not there.
    fn is_kept_as(&self, folder: &Path, value: Option<i64>) -> bool {
        let Some([begin, end]) = self.kept_as else { return true };
        let path = drop_in(folder);
        match value {
            Some(value) => {
                fs::read_to_string(path).is_ok_and(|text| text.ends_with(&format!("{begin}{value}{end}")))
            }
            None => !path.parent().unwrap().exists(),
        }
    }

    fn apply(&self, changer: &mut Changer, server: &FakeServer, place: (u32, u16), to: i64) -> Result<u64> {
        let (pid, port) = place;
        let service = ServiceSnapshot { service: "apache".into(), pid, port, ..ServiceSnapshot::default() };
        let setting = SettingId::of_service("apache", self.setting);
        let change = SettingChange { setting, to: SettingValue::Integer(to) };
        let (mut plan, holder) = if self.setting == listen_backlog::SETTING {
            let (plan, sockets) = listen_backlog::prepare(&service, &change, None).unwrap();
            (plan, ValueHolder::Listener(sockets))
        } else if resource_control::has(self.setting) {
            let (preparation, mut holders) = resource_control::prepare(&service, &[change])?;
            (preparation.into_plan()?, holders.remove(0).into())
        } else {
            let (preparation, holder) = process_limit::prepare(&service, &[change])?;
            (preparation.into_plan()?, holder.unwrap().into())
        };
        if self.kept_as.is_some() {
            // As if a unit had started it.
            plan.changes[0].file = drop_in(&server.folder).display().to_string();
        }
        changer.remember(&plan);
        changer.remember_holder(holder);
        let options = ApplyOptions::default();
        changer.apply(&plan, &server.snapshot_now(), &options).map(|applied| applied.mark)
    }

    /// A session that sets, sets again, reverts that, keeps or not, sets a last time, and ends.
    fn session(&self, server: &FakeServer, place: (u32, u16), keep: bool) -> Result<()> {
        let mut changer = server.changer();
        self.apply(&mut changer, server, place, self.values[0])?;
        let second = self.apply(&mut changer, server, place, self.values[1])?;
        changer.revert(second, false)?;
        if keep {
            changer.keep()?;
        }
        self.apply(&mut changer, server, place, self.values[2])?;
        changer.end(ClosedBy::Tool)?;
        Ok(())
    }

    /// Kills a session at every act, and has the next command and a rollback come after it.
    fn kill_everywhere(&self, test: &str, place: (u32, u16), read: &dyn Fn() -> Vec<i64>) {
        let is_running = |value: i64| read().into_iter().all(|seen| seen == value);
        let mut kills = 0;
        for (within, keep) in [(false, true), (true, true), (true, false)] {
            for act in (1..).step_by(acts_apart()) {
                let folder = empty_folder();
                drop(FakeServer::set_up(folder.path()));
                fs::create_dir_all(folder.path().join("etc/systemd/system")).unwrap();
                let is = |value: i64, kept: bool| {
                    is_running(value) && self.is_kept_as(folder.path(), kept.then_some(value))
                };
                let context = format!("{} act {act} within {within} keep {keep}", self.setting);
                let order = format!(
                    "{}|{act}|{within}|{}|{}|{}|{keep}|{}",
                    folder.path().display(),
                    self.setting,
                    place.0,
                    place.1,
                    self.kept_as.is_some()
                );
                let killed = victim_of(&["env"], test, &order);
                let server = FakeServer::at(folder.path());
                let interrupted = undo_interrupted_with(&tools(&server)).unwrap();
                assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
                let is_kept = is(self.values[0], true);
                assert!((keep && is_kept) || is(self.original, false), "{context}: {:?}", read());
                rollback_with(&tools(&server)).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(is(self.original, false), "{context}: {:?} after the rollback", read());
                if !killed {
                    assert_eq!(is_kept, keep, "{context}");
                    break;
                }
                kills += 1;
            }
        }
        leave_out_between(kills);
        assert!(kills * acts_apart() > 40, "only {kills} kills");
    }
}

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

/// The process that is killed, where this is one.
fn end_as_victim() {
    let Some((server, _, order)) = victim_order() else { return };
    let place = (order[1].parse().unwrap(), order[2].parse().unwrap());
    Held::of(&order[0], order[4] == "true").session(&server, place, order[3] == "true").unwrap();
    std::process::exit(77);
}

#[test]
fn a_backlog_is_as_before_or_as_it_was_kept() {
    end_as_victim();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 7).unwrap();
    let port = listener.local_addr().unwrap().port();
    let process = ProcessName::of(std::process::id()).unwrap();
    let sockets = ListeningSockets { process, port, to_keep: None };
    let backlog = || vec![sockets.read(listen_backlog::SETTING).unwrap().unwrap().parse().unwrap()];
    let test = "held_values::a_backlog_is_as_before_or_as_it_was_kept";
    BACKLOG.kill_everywhere(test, (std::process::id(), port), &backlog);
}

/// A shell with a child; both end with the test.
struct Family(Child);

impl Family {
    /// With limits of open files and of processes, or as `script` has it.
    fn start(script: &str) -> Self {
        let script = format!("{script}; sleep 600 & wait");
        let family = Self(Command::new("/bin/sh").args(["-c", &script]).spawn().unwrap());
        let is_ready = || procfs::children_of(family.0.id()).len() == 1;
        assert!(wait_until(Duration::from_secs(10), is_ready));
        family
    }

    /// The soft limits of both; the hard one is never touched where there is room below it.
    fn limits(&self, line: &str) -> Vec<i64> {
        let pid = self.0.id();
        let limit = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let line = text.lines().find_map(|text| text.strip_prefix(line)).unwrap();
            let words: Vec<i64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if words[1] == 400 { words[0] } else { -1 }
        };
        procfs::children_of(pid).into_iter().chain([pid]).map(limit).collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for pid in procfs::children_of(self.0.id()) {
            let child = ProcessName::of(pid);
            child.map(|child| child.signal(rustix::process::Signal::KILL));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_limit_of_open_files_is_as_before_or_as_it_was_kept() {
    end_as_victim();
    let family = Family::start("ulimit -Sn 100; ulimit -Hn 400");
    let test = "held_values::a_limit_of_open_files_is_as_before_or_as_it_was_kept";
    let limits = || family.limits("Max open files");
    FILES.kill_everywhere(test, (family.0.id(), 80), &limits);
    KEPT_FILES.kill_everywhere(test, (family.0.id(), 80), &limits);
}

#[test]
fn a_limit_of_processes_is_as_before_or_as_it_was_kept() {
    end_as_victim();
    // What it has left cannot bind a shell that is root.
    needs!(
        rustix::process::geteuid().is_root(),
        "needs root, whose processes are not counted against their limit"
    );
    let family = Family::start(
        "ulimit -Sp 100 2>/dev/null || ulimit -Su 100; ulimit -Hp 400 2>/dev/null || ulimit -Hu 400",
    );
    let test = "held_values::a_limit_of_processes_is_as_before_or_as_it_was_kept";
    PROCESSES.kill_everywhere(test, (family.0.id(), 80), &|| family.limits("Max processes"));
}

#[test]
fn the_tasks_of_a_group_are_as_before_or_as_they_were_kept() {
    end_as_victim();
    let Some(group) = Group::new(&TASKS) else { return };
    let file = group.folder.join("pids.max");
    fs::write(&file, "100").unwrap();
    let family = Family::start(&format!("echo $$ >{}", group.folder.join("cgroup.procs").display()));
    let test = "held_values::the_tasks_of_a_group_are_as_before_or_as_they_were_kept";
    let limit = || vec![fs::read_to_string(&file).unwrap().trim().parse().unwrap()];
    TASKS_MAX.kill_everywhere(test, (family.0.id(), 80), &limit);
    drop(family);
}

/// How many processors each of a family may use.
fn processors_of(family: &Family) -> Vec<i64> {
    let count = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        match list {
            "0" => 1,
            "0-1" => 2,
            _ => -1,
        }
    };
    procfs::tree_of(family.0.id()).into_iter().map(count).collect()
}

/// Whether this machine is one that the test knows.
fn has_two_processors() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let is = online.trim() == "0-1";
    if !is {
        skip("needs a machine with two processors");
    }
    is
}

#[test]
fn the_processors_of_threads_are_as_before() {
    end_as_victim();
    needs!(has_two_processors());
    let family = Family::start("true");
    let test = "held_values::the_processors_of_threads_are_as_before";
    CPUS.kill_everywhere(test, (family.0.id(), 80), &|| processors_of(&family));
}

#[test]
fn the_processors_of_a_group_are_as_before() {
    end_as_victim();
    needs!(has_two_processors());
    let Some(group) = Group::new(&CPUSET) else { return };
    let family = Family::start(&format!("echo $$ >{}", group.folder.join("cgroup.procs").display()));
    let file = group.folder.join("cpuset.cpus");
    let test = "held_values::the_processors_of_a_group_are_as_before";
    let seen = || {
        let of_group = fs::read_to_string(&file).unwrap().trim() == "0-1";
        [processors_of(&family), vec![if of_group { 2 } else { 1 }]].concat()
    };
    CPUS.kill_everywhere(test, (family.0.id(), 80), &seen);
    drop(family);
}

/// Where a process is in the hierarchy that limits memory, with the limit there; -1 where there is none.
fn memory_of(pid: u32) -> (PathBuf, i64) {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |begin: &str| text.lines().find_map(|line| Some(line.split_once(begin)?.1.to_owned()));
    let (directory, file) = match of(":memory:/") {
        Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes"),
        None => (Path::new("/sys/fs/cgroup").join(of("0::/").unwrap()), "memory.max"),
    };
    let limit = fs::read_to_string(directory.join(file)).unwrap_or_default();
    let limit = limit.trim().parse().ok().filter(|bytes| *bytes < 1 << 60).unwrap_or(-1);
    (directory, limit)
}

#[test]
fn the_memory_of_a_group_is_as_before() {
    end_as_victim();
    let Some(group) = Group::new(&MEMORY) else { return };
    let family = Family::start(&format!("echo $$ >{}", group.folder.join("cgroup.procs").display()));
    let file = ["memory.limit_in_bytes", "memory.max"].map(|name| group.folder.join(name));
    let file = file.into_iter().find(|file| file.exists()).unwrap();
    fs::write(&file, if file.ends_with("memory.max") { "max" } else { "-1" }).unwrap();
    let test = "held_values::the_memory_of_a_group_is_as_before";
    MEMORY_MAX.kill_everywhere(test, (family.0.id(), 80), &|| vec![memory_of(family.0.id()).1]);
    drop(family);
}

#[test]
fn processes_that_share_their_group_are_moved_for_their_memory_and_come_back() {
    end_as_victim();
    needs!(rustix::process::geteuid().is_root(), "needs root, to make control groups");
    let family = Family::start("true");
    let (home, at_home) = memory_of(family.0.id());
    needs!(at_home == -1, "needs a control group without a limit");
    let seen = || {
        let all = procfs::tree_of(family.0.id());
        all.into_iter().map(memory_of).map(|(at, limit)| if at == home { -1 } else { limit }).collect()
    };
    let test = "held_values::processes_that_share_their_group_are_moved_for_their_memory_and_come_back";
    MEMORY_MAX.kill_everywhere(test, (family.0.id(), 80), &seen);
    let ours = format!("webdyno-{}-", family.0.id());
    let left = fs::read_dir(&home).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count();
    assert_eq!(left, 0, "a group of ours stayed in {}", home.display());
}

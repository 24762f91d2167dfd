//! SIGKILL of tool, guardian and both at every record of the journal of a real session on a real Apache: whatever is
//! killed wherever, the server has its original configuration in the end, and runs with it.
//!
//! Killed is as soon as a record is seen in the file; the process may have got further by then, so what counts as
//! hit is the last record that the dead left behind.

mod cases;

use crate::debian::{Debian, Layout, Tree, WORKERS, can_run};
use crate::extent::{leave_out, runs_all};
use crate::skip::needs;
use crate::support::{
    Place, allows, answers_within, children, is_alive, scoreboard, signal, turn, wait_until,
};
use cases::{Case, Hit, IN_FORCE, Script, Whom, in_force};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A second before it and two seconds of load are enough to see that no worker is free, and that they are again.
const TUNE: [&str; 12] = [
    "--apply",
    "--allow-restart",
    "--goal",
    "150 req/s",
    "-c",
    "30",
    "--no-keepalive",
    "-d",
    "2s",
    "--warmup",
    "0s",
    "-q",
];

/// Sessions at a time: they wait most of their time.
const AT_A_TIME: usize = 6;

/// A session that noise kept from its change is started again so often.
const TRIES_MAX: usize = 10;

/// How often what was not hit is tried again.
const AGAIN_MAX: usize = 2;

/// How often is looked at what tells nobody that it changes.
const POLL: Duration = Duration::from_micros(100);

/// The guardian reverts within this time of the death of its tool.
const REVERT_MAX: Duration = Duration::from_secs(30);

fn is_of_hook(line: &str) -> bool {
    line.contains("webdyno-rollback-")
}

#[test]
fn whatever_is_killed_the_server_ends_as_it_was() {
    let _turn = turn();
    needs!(can_run());
    let place = Place::new();
    let script = learn(&place);
    leave_out(
        script.all_cases().len() - script.cases().len(),
        "kills of a session at a record of its journal",
    );
    let mut hits = kill_all(&place, script.cases());
    // What was meant for a record may have hit the next one.
    for _ in 0..AGAIN_MAX {
        if runs_all() || script.check_spread(&hits).is_err() {
            hits.extend(kill_all(&place, script.missed(&hits)));
        }
    }
    print_hits(&hits);
    eprintln!("  nobody died there: {:?}", script.missed(&hits));
    script.check_spread(&hits).unwrap();
    let slowest = hits.iter().filter_map(|hit| hit.reverted_in).max().unwrap();
    assert!(slowest < REVERT_MAX, "a guardian took {slowest:?}");
}

/// The records of sessions that nobody kills.
fn learn(place: &Place) -> Script {
    let records = |layout, before| Bench { place, servers: BTreeMap::new() }.records(layout, before);
    let (keeping, putting_back) = std::thread::scope(|scope| {
        let keeping = scope.spawn(|| records(Layout::Restart, None));
        let putting_back = records(Layout::DropIn, Some(Signal::INT));
        (keeping.join().unwrap(), putting_back)
    });
    assert!(in_force(&keeping) == in_force(&putting_back), "{keeping:?}, {putting_back:?}");
    Script { keeping, putting_back }
}

/// Carries all kills out, several at a time.
fn kill_all(place: &Place, cases: VecDeque<Case>) -> Vec<Hit> {
    let (cases, hits) = (Mutex::new(cases), Mutex::new(vec![]));
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                let mut bench = Bench { place, servers: BTreeMap::new() };
                while let Some(case) = next() {
                    let hit = bench.kill(case);
                    hits.lock().unwrap_or_else(PoisonError::into_inner).push(hit);
                }
            });
        }
    });
    hits.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A worker's servers, one of each layout, which it kills sessions on, one after the other.
struct Bench<'a> {
    place: &'a Place,
    servers: BTreeMap<Layout, Debian>,
}

/// Names servers and sessions.
fn number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The killer goes before the processes it watches, where it may: what it starts must not, so it lasts no longer.
struct Urgent;

impl Urgent {
    fn now() -> Self {
        // Of this thread alone: setpriority(2), C library/kernel differences.
        let _ = setpriority_process(None, -20);
        Self
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        let _ = setpriority_process(None, 0);
    }
}

/// A session under way.
struct TuneProcess<'a> {
    server: &'a Debian,
    tool: Child,
    output: PathBuf,
    /// The server's /etc before it.
    original: Tree,
    /// The journals of sessions before it.
    earlier: BTreeSet<PathBuf>,
}

impl Bench<'_> {
    /// Starts sessions until one comes so far, kills, and checks what is left.
    fn kill(&mut self, case: Case) -> Hit {
        self.until_it_comes_so_far(case, |session| {
            let hit = session.kill(case)?;
            session.check(&hit);
            Some(hit)
        })
    }

    /// The records of a session that nobody kills.
    fn records(&mut self, layout: Layout, before: Option<Signal>) -> Vec<String> {
        let case = Case { before, ..Case::of(layout, Whom::Tool, 0) };
        self.until_it_comes_so_far(case, |session| {
            session.signal_before(case)?;
            session.wait_for_tool(case);
            let reported = record_names(&session.records());
            session.server.roll_back();
            let end = if before.is_some() { "undone activate" } else { "kept" };
            reported.iter().any(|record| record == end).then_some(reported)
        })
    }

    fn until_it_comes_so_far<T>(
        &mut self,
        case: Case,
        mut work: impl FnMut(&mut TuneProcess<'_>) -> Option<T>,
    ) -> T {
        let place = self.place;
        let start = || Debian::start(place, &format!("server-{}", number()), case.layout);
        let server = self.servers.entry(case.layout).or_insert_with(start);
        let mut printed = vec![];
        for _ in 0..TRIES_MAX {
            let mut session = TuneProcess::start(server, &place.path(&format!("session-{}", number())));
            if let Some(done) = work(&mut session) {
                return done;
            }
            printed.push(format!("{:?}\n{}", record_names(&session.records()), session.stderr_lines()));
            server.roll_back();
        }
        panic!("{case:?}: no session came so far:\n{}", printed.join("\n"));
    }
}

impl<'a> TuneProcess<'a> {
    fn start(server: &'a Debian, folder: &Path) -> Self {
        fs::create_dir(folder).unwrap();
        let (original, earlier) = (server.tree(), journals(server));
        let mut command = server.webdyno();
        command.arg("tune").arg(server.url()).args(TUNE).arg("--out").arg(folder.join("run"));
        let output = folder.join("output.txt");
        let file = File::create(&output).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self { server, tool: command.spawn().unwrap(), output, original, earlier }
    }

    /// Kills as soon as the journal is so long. `None` when the session ended before.
    fn kill(&mut self, case: Case) -> Option<Hit> {
        let urgent = Urgent::now();
        self.signal_before(case)?;
        self.wait_for(|records| records.len() >= case.records)?;
        if case.in_outage {
            self.wait_for_outage();
        }
        let guardian = self.guardian();
        if case.whom != Whom::Tool {
            // It may have ended by itself this very moment.
            let _ = kill_process(Pid::from_raw(guardian as i32)?, Signal::KILL);
        }
        if case.whom != Whom::Guardian {
            let _ = self.tool.kill();
        }
        drop(urgent);
        let record = record_names(&self.records()).pop()?;
        let apache_was_down = !self.server.pid().is_some_and(is_alive);
        let began = Instant::now();
        let patience = if case.whom == Whom::Tool { REVERT_MAX * 2 } else { Duration::from_secs(5) };
        assert!(wait_until(patience, || !is_alive(guardian)), "{case:?}: the guardian goes on and on");
        let reverted_in = (case.whom == Whom::Tool).then(|| began.elapsed());
        self.wait_for_tool(case);
        Some(Hit { case, record, apache_was_down, reverted_in })
    }

    fn signal_before(&mut self, case: Case) -> Option<()> {
        if let Some(first) = case.before {
            self.wait_for(|records| record_names(records).iter().any(|record| record == IN_FORCE))?;
            signal(self.tool.id(), first);
        }
        Some(())
    }

    /// Waits until its journal is so far; `None` when tool and guardian ended before.
    fn wait_for(&mut self, is_so_far: impl Fn(&[Value]) -> bool) -> Option<()> {
        let mut observed = None;
        let news = News::of(&self.server.state().join("journals"));
        loop {
            let tool_ended = self.tool.try_wait().unwrap().is_some();
            // Its bytes are read only when there are more of them: what takes long comes late.
            let journal = observed
                .as_ref()
                .map_or_else(|| self.journal(), |(path, _): &(PathBuf, u64)| Some(path.clone()));
            let length = journal.and_then(|path| Some((fs::metadata(&path).ok()?.len(), path)));
            let now = length.map(|(length, path)| (path, length));
            if now != observed || tool_ended {
                observed = now;
                let records = self.records();
                if is_so_far(&records) {
                    return Some(());
                }
                if tool_ended && (records.is_empty() || !is_alive(self.guardian())) {
                    return None;
                }
            }
            news.wait();
        }
    }

    /// Waits until Apache is stopped, or the next record says that it is over.
    fn wait_for_outage(&self) {
        let before = self.records().len();
        while self.server.pid().is_some_and(is_alive) && self.records().len() == before {
            std::thread::sleep(POLL);
        }
    }

    fn wait_for_tool(&mut self, case: Case) {
        let ended = wait_until(Duration::from_secs(60), || self.tool.try_wait().unwrap().is_some());
        if !ended {
            let _ = self.tool.kill();
        }
        assert!(ended, "{case:?}: the tool does not end");
    }

    /// Its journal, once it is there.
    fn journal(&self) -> Option<PathBuf> {
        journals(self.server).difference(&self.earlier).next().cloned()
    }

    /// The whole records of its journal.
    fn records(&self) -> Vec<Value> {
        let Some(path) = self.journal() else { return vec![] };
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone()).collect()
    }

    fn guardian(&self) -> u32 {
        self.records()[0]["agent"]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// What it said, and its Apache.
    fn stderr_lines(&self) -> String {
        fs::read_to_string(&self.output).unwrap() + &self.server.log()
    }

    /// After the guardian's work, or a boot's when it is dead, everything is as it was; what was kept is in force and
    /// whole until it is rolled back.
    fn check(&self, hit: &Hit) {
        let printed = || format!("{hit:?}\n{}", self.stderr_lines());
        assert!(!printed().contains("panicked"), "{}", printed());
        if hit.case.whom != Whom::Tool {
            self.server.typed("for hook in /etc/rc3.d/S00*; do [ ! -e $hook ] || $hook start; done");
        }
        let records = self.records();
        let changed = self.original.differences(&self.server.tree());
        let starts = changed.iter().any(|line| line.starts_with("rc3.d/S00webdyno-rollback-"));
        let left: Vec<_> =
            changed.into_iter().filter(|line| !(hit.halves_a_hook(starts) && is_of_hook(line))).collect();
        if records.iter().any(|record| record["kind"] == "kept") {
            let is_write = |record: &&Value| record["action"]["act"] == "write_file";
            let write = &records.iter().find(is_write).unwrap()["action"];
            assert_eq!(left.len(), 1, "{left:#?}\n{}", printed());
            let now = self.server.sha256(write["path"].as_str().unwrap());
            assert_eq!(now, write["after_sha256"], "{}", printed());
        } else {
            assert_eq!(left, Vec::<String>::new(), "{}", printed());
        }
        self.check_rolled_back(&printed);
    }

    fn check_rolled_back(&self, printed: &impl Fn() -> String) {
        let server = self.server;
        let undone = server.roll_back();
        let left = self.original.differences(&server.tree());
        assert_eq!(left, Vec::<String>::new(), "{undone}\n{}", printed());
        assert!(answers_within(server.port, Duration::from_secs(10)), "{}", printed());
        let as_before = || allows(&scoreboard(server.port), WORKERS) && workers_count(server) <= WORKERS;
        assert!(wait_until(Duration::from_secs(10), as_before), "{}\n{}", scoreboard(server.port), printed());
        assert!(server.roll_back().contains("Nothing to roll back"), "{}", printed());
        // Nothing is left but the lock and journals in which nothing is pending, and nobody but Apache.
        let is_known =
            |path: &PathBuf| path.ends_with("lock") || path.extension().is_some_and(|end| end == "jsonl");
        let unknown: Vec<_> = files(&server.state()).into_iter().filter(|path| !is_known(path)).collect();
        assert_eq!(unknown, Vec::<PathBuf>::new(), "{}", printed());
        let apache = || server.pid().map(|pid| [children(pid), vec![pid]].concat()).unwrap_or_default();
        let alone = || server.processes().iter().all(|pid| apache().contains(pid));
        assert!(wait_until(Duration::from_secs(10), alone), "{:?}\n{}", server.processes(), printed());
    }
}

/// Wakes who waits as soon as something is written in a folder (inotify(7)): many that look again and again starve what
/// they wait for.
struct News(Option<OwnedFd>);

impl News {
    /// Without the folder there is none yet.
    fn of(folder: &Path) -> Self {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let written = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVED_TO;
        Self(inotify::add_watch(&watch, folder, written).is_ok().then_some(watch))
    }

    /// Returns at the latest when it is time to see whether the writers are still there.
    fn wait(&self) {
        let Some(watch) = &self.0 else { return std::thread::sleep(POLL) };
        let patience = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // Interrupted, it is as good as woken. What was told is not asked for: the file is read.
        let _ = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&patience));
        let _ = rustix::io::read(watch, &mut [0; 4096]);
    }
}

fn journals(server: &Debian) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(server.state().join("journals"));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn workers_count(debian: &Debian) -> usize {
    debian.pid().map_or(0, |pid| children(pid).len())
}

/// Records as `intent write_file`, `kept`: the kind of each, and what it is about.
fn record_names(records: &[Value]) -> Vec<String> {
    let name = |record: &Value| {
        let kind = record["kind"].as_str().unwrap();
        let intent = |other: &&Value| other["kind"] == "intent" && other["n"] == record["n"];
        match records.iter().find(intent).filter(|_| record["n"].is_u64()) {
            Some(intent) => format!("{kind} {}", intent["action"]["act"].as_str().unwrap()),
            None => kind.to_owned(),
        }
    };
    records.iter().map(name).collect()
}

/// How many kills were made at which records.
fn print_hits(hits: &[Hit]) {
    let mut counts: BTreeMap<(&str, Whom), usize> = BTreeMap::new();
    for hit in hits {
        *counts.entry((&hit.record, hit.case.whom)).or_default() += 1;
    }
    eprintln!("{} kills, and the original configuration after each:", hits.len());
    for ((record, whom), count) in counts {
        eprintln!("  {record:<22} {count:>3} {whom:?}");
    }
    let down_count = hits.iter().filter(|hit| hit.apache_was_down).count();
    eprintln!("  {down_count} of them while Apache was stopped");
    let slowest = hits.iter().filter_map(|hit| hit.reverted_in).max();
    eprintln!("  the slowest guardian was done {slowest:?} after its tool");
}

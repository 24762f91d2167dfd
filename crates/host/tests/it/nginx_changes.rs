//! Changes of a real nginx: whoever is killed at whatever act, its files and the number of its workers are as before, or as they
//! were kept; no request fails meanwhile; and one whose main process died is started again.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FakeServer, acts_apart, empty_folder, leave_out_between, victim_of, victim_order};
use crate::ports::free_port;
use crate::skip::skip;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::undo::rollback::{rollback_with, undo_interrupted_with};
use webdyno_host::change::{Applied, Changer, Tools};
use webdyno_host::os::process::ProcessName;
use webdyno_host::services::listen_backlog::{self, ListeningSockets};
use webdyno_host::services::nginx::Nginx;
use webdyno_host::services::{Observe, Tunable};
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// What nginx asks for where nothing is written, and what is wanted: no more than kernels grant.
const BACKLOG: u64 = 511;
const WANTED_BACKLOG: u64 = 1000;

const PROGRAM: &str = "/usr/sbin/nginx";

/// In the background, so that it can be started again.
const CONFIG: &str = "worker_processes 1;\npid ROOT/nginx.pid;\nerror_log ROOT/error.log;\n\
    events {\n    worker_connections 64;\n}\nhttp {\n    access_log ROOT/access.log;\n    include ROOT/conf.d/*.conf;\n    include ROOT/sites/*;\n}\n";
/// Requests are passed on to another server of its own.
const UPSTREAM: &str = "upstream files {\n    server 127.0.0.1:BEHIND  max_conns=20 weight=20;\n}\n";
const SITE: &str = "server {\n    listen 127.0.0.1:PORT;\n    keepalive_timeout 0;\n    location / {\n        proxy_pass http://files;\n    }\n}\n\
    server {\n    listen 127.0.0.1:BEHIND;\n    root ROOT;\n}\n";

/// A private nginx. It ends with the test.
struct Server {
    root: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// `None` where nginx is not there, which it must be on CI.
    fn start() -> Option<Self> {
        let installed = Path::new(PROGRAM).exists();
        assert!(
            installed || std::env::var_os("CI").is_none(),
            "nginx is missing: apt-get install nginx-light"
        );
        if !installed {
            skip("nginx is missing; install nginx-light");
            return None;
        }
        let (root, port, behind) = (tempfile::tempdir().unwrap(), free_port(), free_port());
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let place = root.path().to_string_lossy().into_owned();
        let text = |text: &str| {
            let text = text.replace("ROOT", &place).replace("PORT", &port.to_string());
            text.replace("BEHIND", &behind.to_string())
        };
        std::fs::write(root.path().join("index.html"), "hello").unwrap();
        std::fs::write(root.path().join("nginx.conf"), text(CONFIG)).unwrap();
        std::fs::write(root.path().join("site"), text(SITE)).unwrap();
        for name in ["sites", "conf.d"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        std::fs::write(root.path().join("conf.d/files.conf"), text(UPSTREAM)).unwrap();
        std::os::unix::fs::symlink("../site", root.path().join("sites/site")).unwrap();
        let server = Self { root, port };
        assert!(Command::new(PROGRAM).arg("-c").arg(server.path("nginx.conf")).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !server.answers() || server.pid().is_none() {
            assert!(Instant::now() < deadline, "nginx does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.path("nginx.pid")).ok()?.trim().parse().ok()
    }

    /// Whether a request is answered well.
    fn answers(&self) -> bool {
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        asked().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"))
    }

    fn workers(&self) -> usize {
        let main = self.pid().and_then(ProcessName::of);
        let snapshot = main.and_then(|main| Nginx.snapshot(main.pid, self.port).ok());
        let shown = snapshot.and_then(|snapshot| Nginx.running_values(&snapshot).remove("worker_processes"));
        shown.map_or(0, |value| value.to_string().parse().unwrap())
    }

    /// The backlog of its listening socket, as the kernel has it.
    fn backlog(&self) -> u64 {
        let process = self.pid().and_then(ProcessName::of);
        let sockets = process.map(|process| ListeningSockets { process, port: self.port, to_keep: None });
        let shown = sockets.and_then(|sockets| sockets.read(listen_backlog::SETTING).ok()?);
        shown.map_or(0, |shown| shown.parse().unwrap())
    }

    fn files(&self) -> [Vec<u8>; 3] {
        ["nginx.conf", "site", "conf.d/files.conf"].map(|name| std::fs::read(self.path(name)).unwrap())
    }

    /// Its files, and how many workers it has once they are there.
    fn check(&self, files: &[Vec<u8>; 3], workers: usize, context: &str) {
        assert_eq!(&self.files(), files, "{context}");
        assert!(std::fs::symlink_metadata(self.path("sites/site")).unwrap().is_symlink(), "{context}");
        let deadline = Instant::now() + Duration::from_secs(10);
        let backlog = if workers == 1 { BACKLOG } else { WANTED_BACKLOG };
        while self.workers() != workers || !self.answers() || self.backlog() != backlog {
            let found = (self.workers(), self.backlog());
            assert!(Instant::now() < deadline, "{context}: {found:?}, not {workers} workers and {backlog}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its workers end with it.
        if let Some(main) = self.pid().and_then(ProcessName::of) {
            let _ = main.signal(Signal::TERM);
        }
    }
}

fn change(name: &str, to: i64) -> SettingChange {
    SettingChange { setting: SettingId::of_service("nginx", name), to: SettingValue::Integer(to) }
}

fn apply(changer: &mut Changer, pid: u32, port: u16) -> Result<Applied> {
    let snapshot = Nginx.snapshot(pid, port).unwrap();
    let buffer =
        SettingChange { to: SettingValue::Text("64k flush=1s".into()), ..change("access_log buffer", 0) };
    let wanted = [
        change("worker_processes", 2),
        change("worker_connections", 128),
        change("keepalive_timeout", 75),
        change("listen backlog", WANTED_BACKLOG as i64),
        change("keepalive", 16),
        change("server max_conns", 40),
        buffer,
    ];
    let Preparation::Plan(plan) = Nginx.prepare(&snapshot, &wanted).unwrap() else { panic!("no plan") };
    assert_eq!((plan.class, plan.files.len()), (ApplyClass::Reload, 3));
    changer.remember(&plan);
    // What an earlier session restored is newer than what runs, and its journal is elsewhere.
    changer.apply(&plan, &snapshot, &ApplyOptions { yes_reload: true, ..ApplyOptions::default() })
}

/// A session that makes a change, and keeps it or not.
fn session(fake: &FakeServer, pid: u32, port: u16, keep: bool) -> Result<()> {
    let mut changer = fake.changer();
    let applied = apply(&mut changer, pid, port)?;
    assert!(applied.outage_us.is_none_or(|us| us < 500_000), "{applied:?}");
    if keep {
        changer.keep()?;
    }
    changer.end(ClosedBy::Tool)?;
    Ok(())
}

fn tools(fake: &FakeServer) -> Tools {
    fake.tools(Arc::new(RealDisk))
}

/// Sessions that nobody kills, while somebody asks fifty times a second. Gives the files as they are when a change is kept.
fn changed_while_asked(server: &Server, original: &[Vec<u8>; 3]) -> [Vec<u8>; 3] {
    let pid = server.pid().unwrap();
    let mut changed = None;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut good, mut failed) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                *(if server.answers() { &mut good } else { &mut failed }) += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            (good, failed)
        });
        for keep in [false, true] {
            let folder = empty_folder();
            let fake = FakeServer::set_up(folder.path());
            session(&fake, pid, server.port, keep).unwrap();
            if keep {
                let kept = changed.insert(server.files());
                assert_ne!(kept[0], original[0]);
                server.check(kept, 2, "kept");
            }
            rollback_with(&tools(&fake)).unwrap();
            server.check(original, 1, &format!("keep {keep}"));
        }
        is_over.store(true, Ordering::Relaxed);
        let (good, failed) = client.join().unwrap();
        assert!(good > 20 && failed == 0, "{good} good, {failed} failed");
    });
    changed.unwrap()
}

/// The process that is killed, and sessions that nobody kills, while somebody asks fifty times a second.
#[test]
fn nginx_is_changed_kept_and_rolled_back() {
    if let Some((fake, _, order)) = victim_order() {
        let number = |at: usize| order[at].parse::<u32>().unwrap();
        session(&fake, number(0), u16::try_from(number(1)).unwrap(), order[2] == "true").unwrap();
        std::process::exit(77);
    }
    let Some(server) = Server::start() else { return };
    let (original, pid) = (server.files(), server.pid().unwrap());
    let changed = changed_while_asked(&server, &original);
    let mut kills = 0;
    for keep in [false, true] {
        for act in (1..).step_by(acts_apart()) {
            let folder = empty_folder();
            drop(FakeServer::set_up(folder.path()));
            let context = format!("act {act} keep {keep}");
            let place = folder.path().display();
            let order = format!("{place}|{act}|{}|{pid}|{}|{keep}", act % 2 == 0, server.port);
            let name = "nginx_changes::nginx_is_changed_kept_and_rolled_back";
            let killed = victim_of(&["env"], name, &order);
            let fake = FakeServer::at(folder.path());
            let interrupted = undo_interrupted_with(&tools(&fake)).unwrap();
            assert!(interrupted.problem.is_none(), "{context}: {interrupted:?}");
            match keep && server.files() != original {
                true => server.check(&changed, 2, &context),
                false => server.check(&original, 1, &context),
            }
            rollback_with(&tools(&fake)).unwrap_or_else(|error| panic!("{context}: {error}"));
            server.check(&original, 1, &context);
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    leave_out_between(kills);
    assert!(kills * acts_apart() > 20, "only {kills} kills");
}

/// Its main process is gone, its workers still have the port, and what was changed has to be undone.
#[test]
fn one_that_died_is_started_again_as_it_was() {
    let Some(server) = Server::start() else { return };
    let original = server.files();
    let folder = empty_folder();
    let fake = FakeServer::set_up(folder.path());
    let mut changer = fake.changer();
    apply(&mut changer, server.pid().unwrap(), server.port).unwrap();
    let before = ProcessName::of(server.pid().unwrap()).unwrap();
    before.signal(Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while before.is_alive() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let report = changer.end(ClosedBy::Tool);
    server.check(&original, 1, &format!("{report:?}"));
    assert_ne!(server.pid().unwrap(), before.pid);
}

#[test]
fn what_nginx_refuses_is_put_back_before_it_hears_of_it() {
    let Some(server) = Server::start() else { return };
    let original = server.files();
    let folder = empty_folder();
    let fake = FakeServer::set_up(folder.path());
    let pid = server.pid().unwrap();
    // A file that no reload has read yet, and that nginx cannot read.
    std::fs::write(server.path("sites/broken"), "server { listen 127.0.0.1:1; no_such_thing; }\n").unwrap();
    let error = apply(&mut fake.changer(), pid, server.port).unwrap_err();
    assert!(error.message.contains("not valid before the change already"), "{error}");
    assert!(error.message.contains("no_such_thing"), "{error}");
    server.check(&original, 1, "after the refusal");
    // Somebody's change that waits for a reload is not put in force unasked.
    std::fs::write(server.path("sites/broken"), "server { listen 127.0.0.1:0; }\n").unwrap();
    let snapshot = Nginx.snapshot(pid, server.port).unwrap();
    let control = snapshot.control.unwrap();
    let waiting = Nginx.pending_changes(&control, server.port, &[]).unwrap();
    assert!(waiting.iter().any(|change| change.path.ends_with("sites/broken")), "{waiting:?}");
    std::fs::remove_file(server.path("sites/broken")).unwrap();
}

//! A real MariaDB of our own: read from its files, asked, exhausted, locked out, stopped in the middle.
//!
//! Facts: mariadbd(8).

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::ports::free_port;
use crate::programs::Program;
use crate::tables;
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use webdyno_host::collectors::observer::Observer;
use webdyno_host::collectors::services::mariadb::Mariadb as Collected;
use webdyno_host::collectors::{Collector, Reading, Target};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::Observe;
use webdyno_host::services::mariadb::Mariadb;
use webdyno_model::service::{ServiceSnapshot, SettingValue};
use webdyno_model::topology::Access;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running database in a folder.
pub struct Database {
    pub folder: tempfile::TempDir,
    pub process: Program,
    port: u16,
}

impl Database {
    pub fn start(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        tables::lay(&data, tables::user());
        let (path, port) = (|name: &str| folder.path().join(name).display().to_string(), free_port());
        let file = format!(
            "[client]\npassword=planted-secret\n[mysqld]\ndatadir={}\nsocket={}\npid-file={}\nlog-error={}\nport={port}\n\
             bind-address=127.0.0.1\ninnodb-buffer-pool-size=16M\ninnodb-log-file-size=8M\nuser={}\n{options}",
            data.display(),
            path("db.sock"),
            path("pid"),
            path("error.log"),
            tables::user()
        );
        std::fs::write(folder.path().join("my.cnf"), file).unwrap();
        let process = Self::spawn(folder.path());
        let mut database = Self { folder, process, port };
        database.wait();
        database
    }

    pub fn spawn(folder: &Path) -> Program {
        let mut command = Command::new(tables::DATABASE);
        Program::start(command.arg(format!("--defaults-file={}", folder.join("my.cnf").display())))
    }

    pub fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.connect().is_none() {
            assert!(!self.log().contains("Aborting"), "{}", self.log());
            assert!(Instant::now() < deadline, "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    pub fn connect(&self) -> Option<Conn> {
        let options =
            OptsBuilder::new().socket(self.socket().to_str()).user(Some("root")).prefer_socket(false);
        Conn::new(options).ok()
    }

    pub fn snapshot(&self) -> ServiceSnapshot {
        Mariadb.backend(self.process.pid()).unwrap().unwrap()
    }

    fn target(&self, access: Access) -> Target {
        Target { backends: Arc::from([self.snapshot()]), access, ..Target::default() }
    }
}

impl Database {
    /// Starts one whose files and port are in a mount and network namespace of its own, with the port alone if it is to
    /// have no socket; with its process.
    fn start_apart(has_socket: bool) -> (Self, u32) {
        let mut database = Self::start("");
        database.process.end();
        // As Debian has it: a link to what other packages may replace.
        let etc = database.folder.path().join("etc");
        std::fs::create_dir_all(etc.join("mysql")).unwrap();
        for name in ["passwd", "group"] {
            std::fs::copy(format!("/etc/{name}"), etc.join(name)).unwrap();
        }
        let text = std::fs::read_to_string(database.folder.path().join("my.cnf")).unwrap();
        let socket = if has_socket { "" } else { "socket=\n" };
        std::fs::write(etc.join("real.cnf"), format!("{text}max-connections=33\n{socket}")).unwrap();
        std::os::unix::fs::symlink("/etc/real.cnf", etc.join("mysql/my.cnf")).unwrap();
        let script =
            format!("mount --bind {} /etc && ip link set lo up && exec /usr/sbin/mariadbd", etc.display());
        let apart = ["--mount", "--net", "--propagation", "private", "sh", "-c", &script];
        database.process = Program::start(Command::new("unshare").args(apart));
        let pid = database.process.pid();
        let listens = || Mariadb.backend(pid).unwrap().is_ok_and(|found| !found.listens.is_empty());
        let is_ready = || listens() && database.log_ends_with_ready(2);
        assert!(wait_until(PATIENCE, is_ready), "{}", database.log());
        (database, pid)
    }

    /// Whether it was said so often that connections are taken.
    fn log_ends_with_ready(&self, count: usize) -> bool {
        self.log().matches("ready for connections").count() >= count
    }
}

fn value(reading: &Reading, name: &str) -> f64 {
    reading.value(&format!("mariadb.{name}")).unwrap_or_else(|| panic!("no {name} in {reading:?}"))
}

/// One database for all of it: it takes seconds to set up.
#[test]
fn a_database_is_read_asked_exhausted_and_lost() {
    let mut database =
        Database::start("max-connections=10\nextra-max-connections=0\nperformance-schema=ON\n");
    let mut snapshot = database.snapshot();
    let socket = format!("unix:{}", database.socket().display());
    assert_eq!(snapshot.listens, [socket.clone(), format!("127.0.0.1:{}", database.port)]);
    assert_eq!(
        (snapshot.endpoints[0].address.as_str(), snapshot.role.as_deref()),
        (socket.as_str(), Some("db"))
    );
    let limit = &snapshot.settings["max_connections"];
    assert_eq!((&limit.configured, limit.line), (&Some(SettingValue::Integer(10)), Some(13)));
    assert_eq!(limit.file.as_deref(), database.folder.path().join("my.cnf").to_str());
    assert!(snapshot.logs[0].path.ends_with("error.log"));

    let mut conn = database.connect().unwrap();
    conn.query_drop("CREATE DATABASE shop; ").unwrap();
    conn.query_drop("CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR(80))").unwrap();
    for _ in 0..20 {
        conn.query_drop("SELECT * FROM shop.users WHERE mail = 'planted-secret'").unwrap();
    }
    Mariadb.with_access(&mut snapshot, &Access::default());
    assert_eq!(
        snapshot.settings["max_connections"].running,
        Some(SettingValue::Integer(10)),
        "{:?}",
        snapshot.missing
    );
    assert!(snapshot.version.as_ref().unwrap().contains("MariaDB") && snapshot.missing.is_empty());
    let scans = snapshot.statements.iter().find(|statement| statement.text.contains("`mail` = ?")).unwrap();
    assert_eq!(scans.executions_count, 20);
    assert!(!format!("{snapshot:?}").contains("planted-secret"));

    let mut collector = Collected::default();
    let target = database.target(Access::default());
    let first = collector.read(&target);
    assert_eq!(first.error, None);
    assert_eq!(value(&first, "connections_limit_count"), 10.0);
    assert!(value(&first, "threads_connected_count") >= 2.0 && value(&first, "resident_bytes") > 1e6);
    assert!(value(&first, &format!("{}.executions_count", scans.digest)) >= 20.0);
    let scans_before = value(&first, "select_scans_count");
    (0..5).for_each(|_| conn.query_drop("SELECT count(*) FROM shop.users WHERE mail = 'x'").unwrap());
    let second = collector.read(&target);
    // What the collector asks counts too.
    let scans_seen = value(&second, "select_scans_count") - scans_before;
    assert!((5.0..=12.0).contains(&scans_seen), "{scans_seen}");
    assert_eq!(second.value("mariadb.deadlocks_count"), None, "what never moved is not told again");

    exhausted(&database, &mut collector, &target);
    locked_out(&database);
    what_blocks_delays_no_other(&database);
    started_anew(&mut database, &mut collector, &target);
}

/// A database that is gone is not read, also when another one has its socket by then; that one is read once it is known.
fn started_anew(database: &mut Database, collector: &mut Collected, target: &Target) {
    database.process.end();
    let is_unknown = |reading: &Reading| {
        let message = reading.error.as_ref().is_some_and(|error| error.contains("is gone"));
        message && reading.value("mariadb.threads_running_count").is_none()
    };
    let dead = collector.read(target);
    assert!(is_unknown(&dead), "{dead:?}");
    database.process = Database::spawn(database.folder.path());
    database.wait();
    let before_it_is_known = collector.read(target);
    assert!(is_unknown(&before_it_is_known), "{before_it_is_known:?}");
    let anew = collector.read(&database.target(Access::default()));
    assert_eq!(anew.error, None);
    assert!(value(&anew, "questions_count") < 100.0, "its totals began anew: {anew:?}");
    assert!(anew.value("mariadb.deadlocks_count").is_some(), "all is told again after an error");
}

/// With mounts and a network of its own, and an `/etc` that means something else here.
#[test]
fn a_database_in_a_container_is_read_with_its_own_files() {
    if !rustix::process::geteuid().is_root() || !crate::mounts::can_mount() {
        return crate::skip::skip("needs root, and to mount something");
    }
    for socket in [true, false] {
        let (database, pid) = Database::start_apart(socket);
        let mut snapshot = Mariadb.backend(pid).unwrap().unwrap();
        let limit = &snapshot.settings["max_connections"];
        assert_eq!(limit.configured, Some(SettingValue::Integer(33)), "{:?}", snapshot.warnings);
        assert_eq!(limit.file.as_deref(), Some("/etc/mysql/my.cnf"));
        let address = &snapshot.endpoints[0].address;
        assert_eq!(address.starts_with("unix:"), socket, "{address}");
        Mariadb.with_access(&mut snapshot, &Access::default());
        let target = Target { backends: Arc::from([snapshot.clone()]), ..Target::default() };
        let reading = Collected::default().read(&target);
        if socket {
            assert_eq!(snapshot.settings["max_connections"].running, Some(SettingValue::Integer(33)));
            assert_eq!(value(&reading, "connections_limit_count"), 33.0);
        } else {
            // By its port root needs a password: the database itself says so, and not another one here.
            assert!(reading.missing[0].why.contains("Access denied"), "{reading:?}");
        }
        drop(database);
    }
}

/// The collector that is connected goes on; another one is told that there are too many.
fn exhausted(database: &Database, collector: &mut Collected, target: &Target) {
    let taken: Vec<Conn> = (0..12).map_while(|_| database.connect()).collect();
    let connected = collector.read(target);
    assert_eq!(connected.error, None);
    assert_eq!(
        value(&connected, "connections_used_max_count"),
        11.0,
        "max_connections and one for administrators"
    );
    // MariaDB counts a refusal after it has told the client.
    let is_counted = |reading: &Reading| {
        reading.value("mariadb.connections_refused_count").is_some_and(|refused| refused >= 1.0)
    };
    let mut is_counted_later = || wait_until(Duration::from_secs(10), || is_counted(&collector.read(target)));
    assert!(is_counted(&connected) || is_counted_later(), "{connected:?}");
    let late = Collected::default().read(target);
    assert!(late.error.as_ref().unwrap().contains("too many connections"), "{late:?}");
    assert_eq!(value(&late, "refused_count"), 1.0);
    assert!(late.value("mariadb.threads_connected_count").is_none(), "unknown is not zero");
    drop(taken);
}

/// A database that stands still and a status page that nobody answers take their collectors two seconds each time; all
/// others are read each second.
fn what_blocks_delays_no_other(database: &Database) {
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let apache = ServiceSnapshot { service: "apache".into(), ..ServiceSnapshot::default() };
    let target = Target {
        port: Some(page.local_addr().unwrap().port()),
        service_pid: Some(std::process::id()),
        status_url: Some(format!("http://{}/server-status", page.local_addr().unwrap())),
        service: Some(Arc::new(apache)),
        ..database.target(Access::default())
    };
    let (sink, samples) = channel();
    let observer = Observer::start(target, sink).unwrap();
    let next = || samples.recv_timeout(PATIENCE).unwrap().1;
    while next().source != "mariadb" {}
    let pid = Pid::from_raw(i32::try_from(database.process.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut blocked: BTreeMap<String, usize> = BTreeMap::new();
    let has =
        |blocked: &BTreeMap<String, usize>, name: &str| blocked.get(name).is_some_and(|count| *count >= 3);
    let deadline = Instant::now() + PATIENCE;
    while !(has(&blocked, "mariadb") && has(&blocked, "apache_status")) {
        assert!(Instant::now() < deadline, "only {blocked:?} of {counts:?}: {}", database.log());
        let sample = next();
        *counts.entry(sample.source.clone()).or_default() += 1;
        // What only a busy machine makes slow has no error.
        if sample.duration_us > 1_000_000 && sample.error.is_some() {
            *blocked.entry(sample.source).or_default() += 1;
        }
    }
    kill_process(pid, Signal::CONT).unwrap();
    drop(observer);
    assert_eq!(blocked.len(), 2, "{blocked:?}");
    let slowest = blocked.keys().map(|name| counts[name]).max().unwrap();
    for name in ["cpu", "sockets", "process", "memory", "disk", "nic", "workers", "php_fpm"] {
        assert!(counts[name] > slowest, "{name} waited for what is blocked: {counts:?}");
    }
}

/// An account that is not let in is missing with what helps, and is tried once.
fn locked_out(database: &Database) {
    let file = database.folder.path().join("wrong.cnf");
    std::fs::write(&file, "[client]\nuser=nobody-here\npassword=planted-secret\n").unwrap();
    let target = database.target(Access { db_option_file: Some(file.display().to_string()) });
    let mut collector = Collected::default();
    for _ in 0..3 {
        let reading = collector.read(&target);
        let missing = &reading.missing[0];
        assert!(missing.why.contains("Access denied") && missing.how_to_enable.contains("--db-option-file"));
        assert!(!format!("{reading:?}").contains("planted-secret") && reading.error.is_none());
    }
    let refusals = database.log().matches("nobody-here").count();
    assert!(refusals <= 1, "{refusals} refusals in the log");
    // An account of our own sees what it is granted.
    let mut conn = database.connect().unwrap();
    conn.query_drop("CREATE USER watch@localhost IDENTIFIED BY 'planted-secret'").unwrap();
    std::fs::write(&file, "[client]\nuser=watch\npassword=planted-secret\n").unwrap();
    let reading = Collected::default().read(&target);
    assert!(value(&reading, "threads_connected_count") >= 1.0);
    assert!(reading.missing.iter().any(|missing| missing.signal == "mariadb_statements"), "{reading:?}");
}

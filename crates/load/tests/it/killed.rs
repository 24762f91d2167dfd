//! A real server that is killed and started again, twice, under full load. apache2(8), kill(2).

use crate::hostile_matrix::sockets_to;
use crate::ports::free_port;
use crate::server::{Outcome, load_with, workload};
use crate::skip::{needs, skip};
use rustix::process::{Pid, Signal, kill_process_group};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use webdyno_load::{Control, EndReason};
use webdyno_model::workload::Arrival;

const EXECUTABLE: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
const KILLS: usize = 2;
/// Longest pause of a user without a connection, and what a busy machine adds.
const RECOVERY_S: f64 = 1.2;
/// The load begins a little after its clock here.
const START_S: f64 = 0.25;

/// Whether Apache is there; on CI it must be. A test that is skipped says so (scripts/test counts them).
fn apache_is_installed() -> bool {
    let installed = Path::new(EXECUTABLE).exists() && Path::new(MODULES).exists();
    assert!(
        installed || std::env::var_os("CI").is_none(),
        "{EXECUTABLE} is missing: apt-get install apache2-bin"
    );
    if !installed {
        skip(&format!("{EXECUTABLE} is missing; install apache2-bin"));
    }
    installed
}

/// An Apache of our own, in a directory and a process group of its own.
struct Apache {
    root: tempfile::TempDir,
    address: SocketAddr,
    child: Child,
}

impl Apache {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let path = root.path().display();
        let user = if rustix::process::geteuid().is_root() { "User www-data\nGroup www-data\n" } else { "" };
        let conf = format!(
            "ServerRoot {path}\nDefaultRuntimeDir {path}\nPidFile {path}/pid\nListen {address}\nServerName localhost\n\
             {user}ErrorLog {path}/error.log\nLoadModule mpm_event_module {MODULES}/mod_mpm_event.so\n\
             LoadModule authz_core_module {MODULES}/mod_authz_core.so\nDocumentRoot {path}/site\n\
             ServerLimit 1\nStartServers 1\nThreadsPerChild 32\nMaxRequestWorkers 32\nMaxKeepAliveRequests 100\n"
        );
        std::fs::write(root.path().join("conf"), conf).unwrap();
        std::fs::create_dir(root.path().join("site")).unwrap();
        std::fs::write(root.path().join("site/page"), "x".repeat(20_000)).unwrap();
        let child = spawn(root.path());
        let mut apache = Self { root, address, child };
        apache.wait();
        apache
    }

    /// Waits until it listens.
    fn wait(&mut self) {
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let log = || std::fs::read_to_string(self.root.path().join("error.log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(20), "Apache does not listen: {}", log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it with all its workers, as a crash does: nobody says goodbye.
    fn kill(&mut self) {
        // A group that is gone already is what is wanted.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().unwrap();
        // Its workers may be gone a little later.
        while TcpStream::connect(self.address).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn restart(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.root.path().join("pid"));
        self.child = spawn(self.root.path());
        self.wait();
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(root: &Path) -> Child {
    let mut command = Command::new(EXECUTABLE);
    command.args(["-D", "FOREGROUND", "-f"]).arg(root.join("conf")).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Loads it while it is killed and started again; returns the seconds of the load at which it was there again, and at
/// which that time ended.
fn load_and_kill(arrival: Arrival, keepalive: bool) -> (Outcome, Vec<(f64, f64)>, SocketAddr) {
    let mut apache = Apache::start();
    let address = apache.address;
    let mut load_of = workload(&format!("http://{address}/page"));
    (load_of.arrival, load_of.keepalive) = (arrival, keepalive);
    load_of.connections = 6;
    // Only if the server cannot be started again; else it is stopped from outside.
    load_of.stop.duration_us = Some(60_000_000);
    load_of.timeout_us = 5_000_000;
    let control = Control::new();
    let other = control.clone();
    let begun = Instant::now();
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(600));
        let up = (0..KILLS).map(|_| {
            apache.restart();
            let from_s = begun.elapsed().as_secs_f64();
            // Until an interval after the recovery has ended; intervals begin with each second of the load.
            let until_s = (from_s + RECOVERY_S).ceil() + 1.0 + START_S;
            thread::sleep(Duration::from_secs_f64(until_s - from_s));
            (from_s, begun.elapsed().as_secs_f64())
        });
        let up = up.collect();
        other.stop(EndReason::Enough);
        // Dropped only here: the load must not see its end.
        drop(apache);
        up
    });
    let outcome = load_with(&load_of, &control);
    (outcome, killer.join().unwrap(), address)
}

fn check(arrival: Arrival, keepalive: bool) {
    let (outcome, up, address) = load_and_kill(arrival, keepalive);
    let sum = |name: &str| {
        let of = |&(class, count): &(&str, u64)| (class == name).then_some(count);
        outcome.sum(|interval| interval.errors.named().iter().find_map(of).unwrap())
    };
    let lost = sum("reset") + sum("closed_early") + sum("connect_refused");
    let errors: Vec<_> = outcome.intervals.iter().map(|interval| (interval.t_s, interval.errors)).collect();
    assert_eq!(lost, outcome.failed(), "{errors:?}");
    // Nobody answers for some milliseconds, and whoever asks then is refused.
    assert!(lost > 0, "{errors:?}");
    assert_eq!(up.len(), KILLS);
    for (from_s, to_s) in up {
        let whole = |interval: &&webdyno_load::Interval| {
            let end_s = interval.t_s + interval.length_us as f64 / 1e6;
            interval.t_s >= from_s + RECOVERY_S && end_s + START_S <= to_s
        };
        let after: Vec<_> = outcome.intervals.iter().filter(whole).collect();
        assert!(!after.is_empty(), "no interval between {from_s} and {to_s}");
        for interval in after {
            assert!(interval.completed > 50 && interval.failed == 0, "{keepalive} {interval:?}");
        }
    }
    let on_connections = outcome.end.in_flight_at_end - outcome.end.waiting_at_end;
    assert!(on_connections <= 6, "{on_connections}");
    assert_eq!(sockets_to(address.port()), 0, "sockets are left");
}

#[test]
fn a_server_killed_twice_under_load_is_loaded_again() {
    needs!(apache_is_installed());
    let open = Arrival::Open { rate_per_s: 300.0, poisson: false };
    thread::scope(|scope| {
        for (arrival, keepalive) in
            [(Arrival::Closed, true), (Arrival::Closed, false), (open, true), (open, false)]
        {
            scope.spawn(move || check(arrival, keepalive));
        }
    });
}

//! A reload while workers of the old generation are held by slow clients: it is over when the scoreboard is as the
//! configuration says, and says so when that takes too long.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{Server, apache_is_installed};
use crate::skip::needs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::{Changer, StateDir};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::tunable;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 12\n    MinSpareServers 1\n    MaxSpareServers 12\n    \
                       MaxRequestWorkers 8\n    ServerLimit 20\n</IfModule>\n";

/// Connections that each hold a worker: it waits for the rest of their request.
const HELD_COUNT: usize = 10;

struct Fixture {
    server: Server,
    changer: Changer,
    _state: tempfile::TempDir,
}

/// A server that got 12 workers instead of 8, all of them started.
fn fixture() -> Fixture {
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let state = tempfile::tempdir().unwrap();
    let owner = Owner { tool: None, what: "webdyno tune".into() };
    let mut changer = Changer::new(StateDir::at(state.path()), Arc::new(ThisMachine), owner);
    apply(&server, &mut changer, 12);
    Fixture { server, changer, _state: state }
}

#[test]
fn a_reload_waits_for_the_old_generation() {
    needs!(apache_is_installed());
    let Fixture { server, mut changer, _state } = fixture();
    let held = hold(&server);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        drop(held);
    });
    let begun = Instant::now();
    let lines = changer.revert(0, false).unwrap().lines;
    assert!(begun.elapsed() >= Duration::from_secs(1), "it waited for the workers that were held");
    assert!(!lines.concat().contains("old generation"), "{lines:?}");
    release.join().unwrap();
    // Apache itself leaves the last states of the workers that ended behind the limit.
    let snapshot = server.snapshot();
    assert!(scoreboard(&server).len() > 8, "{}", scoreboard(&server));
    assert_eq!(snapshot.number("MaxRequestWorkers"), Some(8.0));
    assert_eq!(snapshot.warnings, Vec::<String>::new());
    // When the limit rises again they are in the way of new ones: only a restart makes room for all of them.
    assert_eq!(apply(&server, &mut changer, 12), ApplyClass::Restart);
    assert_eq!(server.snapshot().warnings, Vec::<String>::new());
    changer.end(ClosedBy::Tool).unwrap();
}

#[test]
fn a_reload_says_when_the_old_generation_stays() {
    needs!(apache_is_installed());
    let Fixture { server, mut changer, _state } = fixture();
    let held = hold(&server);
    let lines = changer.revert(0, false).unwrap().lines;
    let line = lines.iter().find(|line| line.starts_with("reloaded apache (pid ")).unwrap();
    let message =
        format!("; {} process(es) of its old generation still finish their requests after 10 s", held.len());
    assert!(line.contains(&message), "{line}");
    assert!(line.ends_with("slots where the configuration gives 8"), "{line}");
    drop(held);
}

fn apply(server: &Server, changer: &mut Changer, to: i64) -> ApplyClass {
    let wanted = SettingChange {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        to: SettingValue::Integer(to),
    };
    let snapshot = server.snapshot();
    let plan =
        tunable("apache").unwrap().prepare(&snapshot, &[wanted]).and_then(Preparation::into_plan).unwrap();
    let options = ApplyOptions { allow_restart: true, ..ApplyOptions::default() };
    changer.apply(&plan, &snapshot, &options).unwrap();
    plan.class
}

/// Holds workers until what it gives is dropped: at least one behind the limit of 8, and not all within it, or no
/// worker of a new generation could answer.
fn hold(server: &Server) -> Vec<TcpStream> {
    for _ in 0..20 {
        let mut held: Vec<TcpStream> = (0..HELD_COUNT).map(|_| connect(server)).collect();
        let reading = || scoreboard(server).matches('R').count() >= HELD_COUNT;
        assert!(wait_until(Duration::from_secs(10), reading), "{}", scoreboard(server));
        while held.len() > 1 {
            let board = scoreboard(server);
            let (within, behind) = board.split_at(8);
            if within.contains(['_', '.']) && behind.contains('R') {
                return held;
            }
            held.pop();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    panic!("no worker behind the limit is held: {}", scoreboard(server));
}

fn connect(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    stream
}

/// The scoreboard of the status page.
pub fn scoreboard(server: &Server) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET /server-status?auto HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page.lines().find_map(|line| line.strip_prefix("Scoreboard: ")).unwrap_or_default().to_owned()
}

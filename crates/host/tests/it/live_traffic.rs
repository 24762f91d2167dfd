//! Undoing while others use the service: nothing is restarted for it, and what would drop their connections is not put
//! back, stays to be undone, and is told.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::apache::server::{Server, apache_is_installed};
use crate::fake::FakeServer;
use crate::skip::needs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::undo::rollback::{pending_with, rollback_with};
use webdyno_host::change::{Changer, StateDir, Tools};
use webdyno_host::services::tunable;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

fn tools(server: &FakeServer) -> Tools {
    server.tools(Arc::new(RealDisk))
}

/// From 10 workers to 100.
fn raising(server: &FakeServer, class: ApplyClass) -> RenderedPlan {
    let mut plan = server.plan(&[("a.conf", "Workers 100\n")], class);
    plan.changes[0].from = Some(SettingValue::Integer(10));
    plan
}

fn options(live_traffic: bool) -> ApplyOptions {
    ApplyOptions { allow_restart: true, live_traffic, ..ApplyOptions::default() }
}

/// Others were there when it was changed, or came later; or nobody did.
#[test]
fn the_way_back_is_a_reload_whoever_goes_it() {
    for (applied_live, reverted_live, is_reload) in
        [(true, true, true), (false, true, true), (true, false, true), (false, false, false)]
    {
        let (_folder, server) = FakeServer::fresh();
        let (original, pid) = (server.picture(), server.control().pid);
        let mut changer = server.changer();
        let plan = raising(&server, ApplyClass::Restart);
        let applied = changer.apply(&plan, &server.snapshot_now(), &options(applied_live)).unwrap();
        assert_eq!(server.control().pid, pid + 1, "it was allowed to restart for the change");
        let reverted = changer.revert(applied.mark, reverted_live).unwrap();
        assert_eq!(server.control().pid == pid + 1, is_reload, "{reverted:?}");
        assert_eq!(server.picture(), original);
        let message = reverted.left.iter().any(|line| {
            line.contains("Workers 100 stays in the running fake until its next restart")
                && line.contains("10 again")
        });
        assert_eq!((message, reverted.left.len()), (is_reload, usize::from(is_reload)), "{reverted:?}");
        assert!(reverted.left.iter().all(|line| reverted.lines.contains(line)), "{reverted:?}");
        changer.end(ClosedBy::Tool).unwrap();
        assert!(pending_with(&tools(&server)).unwrap().is_empty());
    }
}

/// The journal remembers it for those who come after a kill.
#[test]
fn a_rollback_after_a_kill_restarts_nothing_either() {
    let (_folder, server) = FakeServer::fresh();
    let (original, pid) = (server.picture(), server.control().pid);
    let mut changer = server.changer();
    let plan = raising(&server, ApplyClass::Restart);
    changer.apply(&plan, &server.snapshot_now(), &options(true)).unwrap();
    drop(changer);
    let lines = rollback_with(&tools(&server)).unwrap();
    assert!(lines.iter().any(|line| line.contains("until its next restart")), "{lines:?}");
    assert_eq!((server.picture(), server.control().pid), (original, pid + 1));
}

/// A service that died is started: nobody is connected to it any more.
#[test]
fn what_died_of_a_change_is_started_again() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let mut changer = server.changer();
    let plan = server.plan(&[("a.conf", "Workers 100\nDEADLY\n")], ApplyClass::Reload);
    changer.apply(&plan, &server.snapshot_now(), &options(true)).unwrap_err();
    assert_eq!(server.picture(), original);
}

#[test]
fn what_would_drop_connections_is_left_and_told_until_it_would_not() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let mut changer = server.changer();
    let plan = raising(&server, ApplyClass::Reload);
    let applied = changer.apply(&plan, &server.snapshot_now(), &options(true)).unwrap();
    let changed = server.picture();
    server.set_in_use(60);
    let error = changer.revert(applied.mark, true).unwrap_err();
    assert!(error.message.contains("Workers of fake stays 100"), "{error}");
    assert!(error.message.contains("with 10 50 of 60 connections are dropped"), "{error}");
    assert!(error.hint.unwrap().contains("webdyno rollback"));
    assert_eq!(server.picture(), changed, "nothing of it is half put back");
    // Nor at the end of the session, and then it is still to be undone.
    changer.end(ClosedBy::Tool).unwrap_err();
    drop(changer);
    assert_eq!(server.picture(), changed);
    let open = pending_with(&tools(&server)).unwrap();
    assert_eq!(open.iter().map(|journal| journal.kept).collect::<Vec<_>>(), [false]);
    rollback_with(&tools(&server)).unwrap_err();
    assert_eq!(server.picture(), changed);
    server.set_in_use(10);
    rollback_with(&tools(&server)).unwrap();
    assert_eq!(server.picture(), original);
    assert!(pending_with(&tools(&server)).unwrap().is_empty());
}

/// What is in use was our own load's, or will be served by whatever is reverted: without others it is not asked.
#[test]
fn without_others_everything_is_put_back() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let mut changer = server.changer();
    let plan = raising(&server, ApplyClass::Reload);
    let applied = changer.apply(&plan, &server.snapshot_now(), &options(false)).unwrap();
    server.set_in_use(60);
    changer.revert(applied.mark, false).unwrap();
    assert_eq!(server.picture(), original);
}

/// Several changes of a setting are one way back.
#[test]
fn the_whole_way_back_is_asked_about() {
    let (_folder, server) = FakeServer::fresh();
    let mut changer = server.changer();
    let first = raising(&server, ApplyClass::Reload);
    let first = changer.apply(&first, &server.snapshot_now(), &options(true)).unwrap();
    let mut second = server.plan(&[("a.conf", "Workers 200\n")], ApplyClass::Reload);
    second.changes[0].from = Some(SettingValue::Integer(100));
    let second = changer.apply(&second, &server.snapshot_now(), &options(true)).unwrap();
    server.set_in_use(60);
    // To 100 there is room enough, to 10 there is not.
    changer.revert(second.mark, true).unwrap();
    assert!(server.running().contains("Workers 100"), "{}", server.running());
    changer.revert(first.mark, true).unwrap_err();
    assert!(server.running().contains("Workers 100"), "{}", server.running());
}

/// A real Apache gets more workers by a restart, and is reverted while a request of somebody is under way.
fn check_apache(mpm: &str, conf: &str, workers: [i64; 2], server_limit: [i64; 2]) {
    needs!(apache_is_installed());
    let server = Server::debian(mpm, conf);
    server.start();
    let state = tempfile::tempdir().unwrap();
    let owner = Owner { tool: None, what: "webdyno tune".into() };
    let mut changer = Changer::new(StateDir::at(state.path()), Arc::new(ThisMachine), owner);
    let wanted = |setting: &str, to: i64| SettingChange {
        setting: SettingId::of_service("apache", setting),
        to: SettingValue::Integer(to),
    };
    let wishes = [wanted("MaxRequestWorkers", workers[1]), wanted("ServerLimit", server_limit[1])];
    let (service, before) = (tunable("apache").unwrap(), server.snapshot());
    let plan = service.prepare(&before, &wishes).and_then(Preparation::into_plan).unwrap();
    assert_eq!(plan.class, ApplyClass::Restart);
    let applied = changer.apply(&plan, &before, &options(true)).unwrap();
    let pid = server.pid();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET /server-status?auto HTTP/1.1\r\n").unwrap();
    let somebody = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        stream.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let reverted = changer.revert(applied.mark, true).unwrap();
    let answer = somebody.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Scoreboard: "), "{answer}");
    assert_eq!(server.pid(), pid, "{reverted:?}");
    let after = server.snapshot();
    assert_eq!(after.number("MaxRequestWorkers"), Some(workers[0] as f64), "{after:?}");
    assert_eq!(after.number("ServerLimit"), before.number("ServerLimit"));
    let message =
        format!("ServerLimit {} stays in the running apache until its next restart", server_limit[1]);
    assert!(reverted.left.len() == 1 && reverted.left[0].contains(&message), "{reverted:?}");
    changer.end(ClosedBy::Tool).unwrap();
}

#[test]
fn apache_prefork_is_put_back_without_a_restart() {
    let conf = "StartServers 3\nServerLimit 20\nMaxRequestWorkers 8\n";
    check_apache("prefork", conf, [8, 30], [20, 30]);
}

#[test]
fn apache_event_is_put_back_without_a_restart() {
    let conf = "StartServers 1\nThreadsPerChild 5\nMinSpareThreads 5\nMaxSpareThreads 10\nServerLimit 4\n\
                MaxRequestWorkers 20\n";
    check_apache("event", conf, [20, 40], [4, 8]);
}

//! Undoing while others use the service: nothing is restarted for it, and what would drop their connections is not put
//! back, stays to be undone, and is told.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used)]

use crate::fake::{FakeServer, empty_folder};
use std::sync::Arc;
use webdyno_host::change::disk::RealDisk;
use webdyno_host::change::history::ClosedBy;
use webdyno_host::change::rollback::{pending_with, rollback_with};
use webdyno_host::change::tools::Tools;
use webdyno_model::change::{ApplyClass, ApplyOptions, RenderedPlan};
use webdyno_model::service::SettingValue;

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
        let folder = empty_folder();
        let server = FakeServer::set_up(folder.path());
        let (original, pid) = (server.picture(), server.control().pid);
        let mut changer = server.changer();
        let plan = raising(&server, ApplyClass::Restart);
        let applied = changer.apply(&plan, &server.snapshot_now(), &options(applied_live)).unwrap();
        assert_eq!(server.control().pid, pid + 1, "it was allowed to restart for the change");
        let reverted = changer.revert(applied.mark, reverted_live).unwrap();
        assert_eq!(server.control().pid == pid + 1, is_reload, "{reverted:?}");
        assert_eq!(server.picture(), original);
        let told = reverted.left.iter().any(|line| {
            line.contains("Workers 100 stays in the running fake until its next restart")
                && line.contains("10 again")
        });
        assert_eq!((told, reverted.left.len()), (is_reload, usize::from(is_reload)), "{reverted:?}");
        assert!(reverted.left.iter().all(|line| reverted.lines.contains(line)), "{reverted:?}");
        changer.end(ClosedBy::Tool).unwrap();
        assert!(pending_with(&tools(&server)).unwrap().is_empty());
    }
}

/// The journal remembers it for those who come after a kill.
#[test]
fn a_rollback_after_a_kill_restarts_nothing_either() {
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
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
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
    let original = server.picture();
    let mut changer = server.changer();
    let plan = server.plan(&[("a.conf", "Workers 100\nDEADLY\n")], ApplyClass::Reload);
    changer.apply(&plan, &server.snapshot_now(), &options(true)).unwrap_err();
    assert_eq!(server.picture(), original);
}

#[test]
fn what_would_drop_connections_is_left_and_told_until_it_would_not() {
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
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

/// What is in use was our own load's, or will be served by whatever is put back: without others it is not asked.
#[test]
fn without_others_everything_is_put_back() {
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
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
    let folder = empty_folder();
    let server = FakeServer::set_up(folder.path());
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

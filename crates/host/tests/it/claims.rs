//! Two tuners of one service, from two state directories: the second one is refused, be it a real Apache through two of
//! its ports; and nobody else keeps anybody from undoing.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{Server, apache_is_installed};
use crate::fake::{FakeServer, PORT};
use crate::skip::needs;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::journal::history::ClosedBy;
use webdyno_host::change::seams::disk::RealDisk;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{Applied, Changer, StateDir, Tools};
use webdyno_host::os::process::wait_until;
use webdyno_host::services::tunable;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

fn apply(server: &Server, port: u16, changer: &mut Changer) -> Result<Applied> {
    let apache = tunable("apache").unwrap();
    let snapshot = apache.snapshot(server.pid().unwrap(), port).unwrap();
    let setting = SettingId::of_service("apache", "MaxRequestWorkers");
    let wanted = SettingChange { setting, to: SettingValue::Integer(12) };
    // A revert may have left places of ended workers, which only a restart frees.
    let options = ApplyOptions { allow_restart: true, ..ApplyOptions::default() };
    changer.apply(
        &apache.prepare(&snapshot, &[wanted]).and_then(Preparation::into_plan)?,
        &snapshot,
        &options,
    )
}

#[test]
fn a_second_port_is_no_way_to_a_service_that_is_being_tuned() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    let second_port = crate::ports::free_port();
    server
        .write("ports.conf", &format!("Listen 127.0.0.1:{}\nListen 127.0.0.1:{second_port}\n", server.port));
    server.start();
    let states = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let changer = |index: usize| {
        let owner = Owner { tool: None, what: "webdyno tune".into() };
        Changer::new(StateDir::at(states[index].path()), Arc::new(ThisMachine), owner)
    };
    let (mut first, mut second) = (changer(0), changer(1));
    let applied = apply(&server, server.port, &mut first).unwrap();
    first.revert(applied.mark, false).unwrap();
    let error = apply(&server, second_port, &mut second).unwrap_err();
    assert!(error.message.contains(&format!("is changing apache on port {second_port} already")), "{error}");
    first.end(ClosedBy::Tool).unwrap();
    apply(&server, second_port, &mut second).unwrap();
    second.end(ClosedBy::Tool).unwrap();
    assert_eq!(server.snapshot().number("MaxRequestWorkers"), Some(5.0));
}

/// Two state directories on one server do not make two tuners of one service: neither changes it beside the other, nor
/// takes it back.
#[test]
fn two_tuners_never_meet_on_a_service_whatever_their_state_directories() {
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    let elsewhere =
        || Tools { state: StateDir::at(folder.path().join("other")), ..server.tools(Arc::new(RealDisk)) };
    let mut other = Changer::with(elsewhere(), Owner { tool: None, what: "webdyno tune".into() });
    let apply = |changer: &mut Changer, text: &str| {
        let plan = server.plan(&[("a.conf", text)], ApplyClass::Reload);
        changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default())
    };
    apply(&mut other, "Workers 20\n").unwrap();
    other.keep().unwrap();
    other.end(ClosedBy::Tool).unwrap();

    let mut first = server.changer();
    apply(&mut first, "Workers 30\n").unwrap();
    let shown =
        format!("another webdyno (process {}) is changing fake on port {PORT} already", std::process::id());
    let error = apply(&mut other, "Workers 40\n").unwrap_err();
    assert_eq!(error.message, shown);
    assert!(!other.has_session() && error.hint.unwrap().contains("WEBDYNO_STATE"));
    assert_eq!(rollback_with(&elsewhere()).unwrap_err().message, shown);
    assert!(server.running().contains("Workers 30"));
    first.end(ClosedBy::Tool).unwrap();
    rollback_with(&elsewhere()).unwrap();
    assert_eq!(server.picture(), original);
}

/// Anybody may hold a name. That keeps a tuner from a change, and nobody from undoing one.
#[test]
fn a_stranger_with_the_name_of_a_service_keeps_nobody_from_undoing() {
    needs!(rustix::process::geteuid().is_root(), "only root can start a process of another user");
    let (folder, server) = FakeServer::fresh();
    let original = server.picture();
    let plan = server.plan(&[("a.conf", "Workers 20\n")], ApplyClass::Reload);
    let mut changer = server.changer();
    changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap();
    changer.keep().unwrap();
    changer.end(ClosedBy::Tool).unwrap();
    let name = format!("{}/{PORT}", folder.path().display());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    // A program that another test is just starting holds the name a little longer than its session.
    let mut socket = None;
    wait_until(Duration::from_secs(5), || {
        socket = UnixDatagram::bind_addr(&address).ok();
        socket.is_some()
    });
    let socket = socket.unwrap();
    let mut command = Command::new("sleep");
    let mut stranger = command.arg("60").uid(65_534).stdin(OwnedFd::from(socket)).spawn().unwrap();
    drop(command);
    let plan = server.plan(&[("a.conf", "Workers 30\n")], ApplyClass::Reload);
    let text = changer.apply(&plan, &server.snapshot_now(), &ApplyOptions::default()).unwrap_err().message;
    let undone = rollback_with(&server.tools(Arc::new(RealDisk)));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(text.contains(&format!("(process {}) is changing fake", stranger.id())), "{text}");
    let lines = undone.unwrap();
    let noted = format!("went on although process {} holds the name {name}", stranger.id());
    assert!(lines.iter().any(|line| line.contains(&noted)), "{lines:?}");
    assert_eq!(server.picture(), original);
}

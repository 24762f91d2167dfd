//! Two tuners of one real Apache, through two of its ports and from two state directories: the second one is refused.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{Server, apache_is_installed};
use std::net::TcpListener;
use std::sync::Arc;
use webdyno_host::change::history::ClosedBy;
use webdyno_host::change::journal::Owner;
use webdyno_host::change::programs::ThisMachine;
use webdyno_host::change::{Applied, Changer, StateDir};
use webdyno_host::services::by_name;
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, Wish};
use webdyno_model::service::SettingValue;

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

fn apply(server: &Server, port: u16, changer: &mut Changer) -> Result<Applied> {
    let apache = by_name("apache").unwrap();
    let snapshot = apache.snapshot(server.pid().unwrap(), port).unwrap();
    let setting = "MaxRequestWorkers".to_owned();
    let wish = Wish { service: "apache".into(), setting, to: SettingValue::Integer(12) };
    changer.apply(&apache.prepare(&snapshot, &[wish])?, &snapshot, &ApplyOptions::default())
}

#[test]
fn a_second_port_is_no_way_to_a_service_that_is_being_tuned() {
    if !apache_is_installed() {
        return;
    }
    let server = Server::debian("prefork", PREFORK);
    let second_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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

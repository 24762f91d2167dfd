//! The agent with a real, private Apache: apply, refuse, revert and roll back, as a tuning session does.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::agent::Session;
use crate::apache::server::{Server, apache_is_installed};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::agent::protocol::{FromAgent, PROTOCOL, ToAgent};
use webdyno_host::agent::{BUILD, Options};
use webdyno_host::change::journal::Owner;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{Changer, StateDir, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

fn options(state: &Path) -> Options {
    let host = Arc::new(ThisMachine);
    let silence_max = Duration::from_secs(60);
    Options {
        state: StateDir::at(state),
        host,
        silence_max,
        build: BUILD.to_owned(),
        detach: false,
        settings_only: false,
    }
}

/// After hello and discover.
fn greeted(server: &Server, state: &Path) -> Session {
    let mut session = Session::with(options(state));
    let hello = ToAgent::Hello { protocol: PROTOCOL, build: BUILD.into(), tool: None, reads_only: false };
    let answer = session.request(hello);
    assert!(matches!(&answer, FromAgent::Hello { collectors, .. } if !collectors.is_empty()), "{answer:?}");
    let answer = session.request(ToAgent::Discover { port: server.port });
    assert!(
        matches!(&answer, FromAgent::Discovered { snapshot } if snapshot.service == "apache"),
        "{answer:?}"
    );
    session
}

fn plan(session: &mut Session, wishes: &[(&str, i64)]) -> RenderedPlan {
    let wanted = |(setting, to): &(&str, i64)| SettingChange {
        setting: SettingId::of_service("apache", *setting),
        to: SettingValue::Integer(*to),
    };
    let answer =
        session.request(ToAgent::Prepare { changes: wishes.iter().map(wanted).collect(), behind: false });
    let FromAgent::Prepared { preparation: Preparation::Plan(plan) } = answer else { panic!("{answer:?}") };
    *plan
}

/// The bytes of all configuration files.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let is_configuration =
            entry.to_string_lossy().contains("conf") || entry.to_string_lossy().contains("mods-");
        if entry.is_dir() && is_configuration {
            found.extend(files(&entry));
        } else if entry.is_file() && is_configuration {
            found.insert(entry.display().to_string(), std::fs::read(&entry).unwrap());
        }
    }
    found
}

fn workers(server: &Server) -> Option<f64> {
    server.snapshot().number("MaxRequestWorkers")
}

#[test]
fn a_reload_and_a_restart_are_put_back_when_the_tool_is_gone() {
    if !apache_is_installed() {
        return;
    }
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let (state, original) = (tempfile::tempdir().unwrap(), files(&server.path("")));
    assert!(original.len() > 2, "{:?}", original.keys());

    let mut session = greeted(&server, state.path());
    let reload = plan(&mut session, &[("MaxRequestWorkers", 12)]);
    assert_eq!(reload.class, ApplyClass::Reload);
    let answer = session.request(ToAgent::Apply {
        plan: reload,
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    assert!(matches!(answer, FromAgent::Applied { .. }), "{answer:?}");
    assert_eq!(workers(&server), Some(12.0));

    let restart = plan(&mut session, &[("MaxRequestWorkers", 40), ("ServerLimit", 40)]);
    assert_eq!(restart.class, ApplyClass::Restart);
    let answer = session.request(ToAgent::Apply {
        plan: restart.clone(),
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    assert!(
        matches!(&answer, FromAgent::Failed { error } if error.message.contains("needs a restart")),
        "{answer:?}"
    );
    let answer = session.request(ToAgent::Apply {
        plan: restart,
        options: ApplyOptions { allow_restart: true, ..ApplyOptions::default() },
    });
    let FromAgent::Applied { mark, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(workers(&server), Some(40.0));
    let answer = session.request(ToAgent::Revert { mark, live_traffic: false });
    assert!(matches!(answer, FromAgent::Reverted { .. }), "{answer:?}");
    assert_eq!(workers(&server), Some(12.0));

    session.ended().unwrap();
    assert!(wait_until(Duration::from_secs(10), || workers(&server) == Some(5.0)), "{:?}", workers(&server));
    assert_eq!(files(&server.path("")), original);
}

/// Tool, agent and service are killed: the rollback restores the files and starts the service again.
#[test]
fn a_rollback_after_everything_was_killed_brings_the_service_back() {
    if !apache_is_installed() {
        return;
    }
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let (folder, original) = (tempfile::tempdir().unwrap(), files(&server.path("")));
    let tools = Tools::of_this_machine(StateDir::at(folder.path()));
    let mut changer = Changer::with(tools.clone(), Owner { tool: None, what: "webdyno tune".into() });
    let snapshot = server.snapshot();
    let wanted = SettingChange {
        setting: SettingId::of_service("apache", "MaxRequestWorkers"),
        to: SettingValue::Integer(12),
    };
    let plan = tools
        .programs
        .tunable("apache")
        .unwrap()
        .prepare(&snapshot, &[wanted])
        .and_then(Preparation::into_plan)
        .unwrap();
    changer.apply(&plan, &snapshot, &ApplyOptions::default()).unwrap();
    drop(changer);
    let main = ProcessName::of(server.pid().unwrap()).unwrap();
    webdyno_host::os::process::stop(main, main.led_group(), Duration::from_secs(5)).unwrap();
    let lines = rollback_with(&tools).unwrap();
    assert!(lines.iter().any(|line| line.contains("started apache again")), "{lines:?}");
    assert_eq!(files(&server.path("")), original);
    assert_eq!(workers(&server), Some(5.0));
    assert_eq!(rollback_with(&tools).unwrap(), Vec::<String>::new());
}
